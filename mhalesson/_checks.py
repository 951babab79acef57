"""Wrong calls get one sentence: the argument, its value, and what would be right."""

import reprlib
from collections.abc import Mapping

import torch
from torch import Tensor


def check_count(name: str, value: object) -> None:
    """Refuse anything but a whole number of at least 1 (True and 2.0 are not counts)."""
    if type(value) is not int or value < 1:
        raise ValueError(f"{name}={reprlib.repr(value)} should be a whole number (int) of at least 1")


def check_flag(name: str, value: object) -> None:
    """Refuse anything but True and False ("no" would count as true)."""
    if type(value) is not bool:
        raise ValueError(f"{name}={reprlib.repr(value)} should be True or False")


def check_split(
    what: str, width: int, parts_name: str, parts: int, unit: str = "heads of equal width"
) -> None:
    """Refuse a width that does not divide into equal parts, and name the nearest counts that would."""
    if width % parts:
        fits = [n for n in range(1, width + 1) if width % n == 0]
        near = {max(n for n in fits if n < parts), min((n for n in fits if n > parts), default=width)}
        would_fit = " or ".join(f"{parts_name}={n}" for n in sorted(near))
        raise ValueError(f"{what} cannot be split into {parts_name}={parts} {unit}; {would_fit} would fit")


def head_sizes(d_model: int, num_heads: int, num_kv_heads: int | None, d_head: int | None) -> tuple[int, int]:
    """The number of key/value heads and the width of a head that a call means, or why it means none."""
    check_count("d_model", d_model)
    check_count("num_heads", num_heads)
    if num_kv_heads is None:
        num_kv_heads = num_heads
    check_count("num_kv_heads", num_kv_heads)
    check_split(f"{num_heads=}", num_heads, "num_kv_heads", num_kv_heads, "groups of equal size")
    if d_head is None:
        check_split(f"{d_model=}", d_model, "num_heads", num_heads)
        d_head = d_model // num_heads
    check_count("d_head", d_head)
    return num_kv_heads, d_head


def check_tensor(
    name: str,
    value: object,
    shape: str,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **sizes: int,
) -> None:
    """Refuse anything but a tensor of that shape: `check_tensor("x", x, "B T d_model", d_model=768)`.

    Without `dtype`, any real floating-point type will do; without `device`, any device.
    """
    dims = shape.split()
    found = tuple(value.shape) if isinstance(value, Tensor) else ()
    if not isinstance(value, Tensor):
        shown = " ".join(reprlib.repr(value).split())  # an array's repr runs over several lines
        wrong = f"{name}={shown} is of type {type(value).__name__}"
    elif len(found) != len(dims) or any(found[dims.index(dim)] != size for dim, size in sizes.items()):
        wrong = f"{name} has shape {found}"
    elif value.dtype != dtype if dtype else not value.is_floating_point():
        wrong = f"{name} has dtype {str(value.dtype).removeprefix('torch.')}"
    elif device is not None and value.device != device:
        raise ValueError(f"{name} is on {value.device}; it should be on {device}: {name}.to('{device}')")
    else:
        return
    wanted = ", ".join(f"{dim}={sizes[dim]}" if dim in sizes else dim for dim in dims)
    kind = "floating-point" if dtype is None else str(dtype).removeprefix("torch.")
    raise ValueError(f"{wrong}; it should be a {kind} tensor of shape ({wanted})")


def check_named(name: str, value: object) -> None:
    """Refuse anything but a mapping from names to something, with one entry at least."""
    if not (isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value)):
        shown = " ".join(reprlib.repr(value).split())
        raise ValueError(f"{name}={shown} should be a dictionary from names to entries, one at least")


def check_finite(name: str, value: Tensor) -> None:
    """Refuse a tensor that holds NaN or infinity."""
    if not value.isfinite().all():
        raise ValueError(f"{name} holds {value[~value.isfinite()][0].item()}; it should hold finite numbers")
