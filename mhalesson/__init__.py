"""How the outputs of many attention heads become one stream again. The lesson is in `notebooks/`."""

from mhalesson.attention import MultiHeadAttention, merge_heads, split_heads
from mhalesson.journey import record_journey
from mhalesson.ledger import (
    GEMMA_7B,
    GPT2_SMALL,
    LLAMA3_8B,
    LLAMA3_70B,
    LLAMA3_405B,
    attention_ledger,
)
from mhalesson.output_projection import head_contributions, output_blocks, reach, stacked_identity
from mhalesson.timing import compare, measure, recorded_runs, save_run
from mhalesson.trained_heads import load_trained_heads

__version__ = "0.1.0"
__all__ = [
    "GEMMA_7B",
    "GPT2_SMALL",
    "LLAMA3_8B",
    "LLAMA3_70B",
    "LLAMA3_405B",
    "MultiHeadAttention",
    "attention_ledger",
    "compare",
    "head_contributions",
    "load_trained_heads",
    "measure",
    "merge_heads",
    "output_blocks",
    "reach",
    "ready",
    "record_journey",
    "recorded_runs",
    "save_run",
    "split_heads",
    "stacked_identity",
]


def ready(page: str) -> str:
    """What the first cell of a page prints: does the page, written for version `page`, fit this package?"""
    if page == __version__:
        return "Ready: this page and the package belong together."
    return (
        f"This page was written for mhalesson {page}, and {__version__} is installed, so numbers may differ. "
        "Run `git pull` and `make lab`, or `pip install -e .` in the project's folder."
    )
