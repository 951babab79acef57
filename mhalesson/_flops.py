"""The products inside an operation, by torch's own formulas and a few that it has not."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
FAST_PATHS = (aten._native_multi_head_attention, aten._transformer_encoder_layer_fwd)


def count_flops(func: Any, args: Any, kwargs: Any, result: Any, otherwise: int | None) -> int | None:
    """The FLOPs of the products that `func` computed, or `otherwise` where there is no formula."""
    if formula := _formulas().get(func.overloadpacket):
        return formula(*args, **kwargs, out_val=result)
    if func.overloadpacket in FAST_PATHS:
        # Every token meets every weight matrix, and every token in two score products.
        given = named(func, args).items()
        weights = [w for name, w in given if "weight" in name and isinstance(w, Tensor) and w.ndim == 2]
        B, T, d_model = args[0].shape
        return 2 * B * T * sum(w.numel() for w in weights) + 4 * B * T * T * d_model
    return otherwise


def named(func: Any, args: Any) -> dict[str, Any]:
    """The positional arguments of a torch operation by their names."""
    return {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}


@lru_cache
def _formulas() -> dict[Any, Callable]:
    from torch.utils.flop_counter import flop_registry  # loads Triton where there is one

    formulas = {aten.mv: lambda matrix, vector, out_val: 2 * matrix.numel()} | flop_registry
    formulas[aten.dot] = lambda a, b, out_val: 2 * a.numel()
    # The CPU's fused kernel has no formula, but takes the same arguments as the GPU's.
    for name in ("_scaled_dot_product_flash_attention{}", "_scaled_dot_product_flash_attention{}_backward"):
        formulas[getattr(aten, name.format("_for_cpu"))] = formulas[getattr(aten, name.format(""))]
    return formulas
