"""What an answer may hand back: read it leniently, or say in one sentence why it cannot be read.

Each reader takes what an answer returned and gives the form in which two results are compared.
"""

import inspect
import operator
import reprlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


class Unreadable(Exception):
    """The result is of a kind that cannot be compared at all; the message is the sentence for the learner."""


Reader = Callable[[object], object]


def a_tensor(value: object) -> Tensor:
    """A tensor of any strides, on any device, with or without gradient."""
    if isinstance(value, Tensor):
        if value.is_meta:
            raise Unreadable("It returned a tensor on the device “meta”, which has a shape and no numbers.")
        if value.numel() > 10**6:
            raise Unreadable(f"It returned a tensor of {value.numel():,} numbers, which is far too many.")
        if value.layout is not torch.strided:
            value = value.to_dense()
        return value.detach().as_subclass(Tensor).cpu().clone()
    if isinstance(value, bool | int | float | complex | np.number):
        raise Unreadable(f"It returned the single number {value}, where a tensor belongs.")
    if isinstance(value, np.ndarray):
        raise Unreadable(
            "It returned a NumPy array, where a torch tensor belongs (torch.from_numpy makes one)."
        )
    if isinstance(value, list | tuple) and value and all(isinstance(part, Tensor) for part in value):
        raise Unreadable(f"It returned a {_kind(value)} of {len(value)} tensors, where one tensor belongs.")
    raise Unreadable(f"It returned {_shown(value)}, where a tensor belongs.")


WIDE = 2**20  # more channels than any exercise has


def a_slice(value: object) -> range:
    """The channels that a slice takes out of many; `slice(2, 5)` and `slice(2, 5, 1)` take the same."""
    if isinstance(value, range):
        raise Unreadable(
            "It returned a range, which lists numbers; a slice is asked for, such as slice(2, 5)."
        )
    if isinstance(value, Tensor) and value.dim():
        raise Unreadable("It returned a tensor, as if it had cut z_cat itself. Only the slice is asked for.")
    if not isinstance(value, slice):
        raise Unreadable(f"It returned {_shown(value)}, where a slice belongs, such as slice(2, 5).")
    try:
        parts = (None if part is None else _whole(part) for part in (value.start, value.stop, value.step))
        return range(*slice(*parts).indices(WIDE))
    except (TypeError, ValueError):
        raise Unreadable(
            f"It returned {_shown(value)}; a slice counts in whole numbers, in steps but 0."
        ) from None


def a_whole_number(value: object) -> int:
    try:
        return _whole(value)
    except TypeError:
        pass
    if isinstance(value, float | np.floating):
        raise Unreadable(
            f"It returned the float {value}. What is counted is a whole number (// in place of /)."
        )
    raise Unreadable(f"It returned {_shown(value)}, where a whole number (int) belongs.")


def whole_numbers(value: object) -> list[int]:
    if not isinstance(value, list | tuple):
        raise Unreadable(
            f"It returned {_shown(value)}, where a list of whole numbers belongs, such as [0, 2]."
        )
    if any(isinstance(part, bool) for part in value):
        raise Unreadable("The list holds True and False for every head, not the numbers of the heads.")
    try:
        return [_whole(part) for part in value]
    except TypeError:
        raise Unreadable(
            f"It returned {_shown(value)}, and the list should hold whole numbers (int)."
        ) from None


def shapes(value: object) -> list[tuple[int, ...]]:
    if not isinstance(value, list | tuple):
        raise Unreadable(f"It returned {_shown(value)}, where a list of shapes belongs, each a tuple.")
    for n, shape in enumerate(value, start=1):
        if isinstance(shape, Tensor):
            raise Unreadable(f"Entry {n} is a tensor; its shape is asked for.")
        if not isinstance(shape, list | tuple):
            raise Unreadable(f"Entry {n} is {_shown(shape)}, where a shape belongs, a tuple.")
    try:
        return [tuple(_whole(size) for size in shape) for shape in value]
    except TypeError:
        raise Unreadable("A size is not a whole number; `/` makes a float, `//` does not.") from None


def seconds(value: object) -> float:
    if isinstance(value, list | tuple):
        raise Unreadable(
            f"It returned a {_kind(value)} of {len(value)} times, where one belongs: their median."
        )
    if isinstance(value, bool | str):
        raise Unreadable(f"It returned {_shown(value)}, where a number of seconds belongs.")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        raise Unreadable(f"It returned {_shown(value)}, where a number of seconds belongs.") from None


def read(reader: Reader, value: object) -> object:
    """What `reader` makes of a result, after what no exercise asks for."""
    try:
        if value is None:
            raise Unreadable(
                "It returned nothing (None): a function hands over only what stands after `return`."
            )
        if value is ...:
            raise Unreadable("It returned `...`, which is a placeholder and not a value.")
        if inspect.isgenerator(value) or inspect.iscoroutine(value):
            value.close()
            raise Unreadable("It hands over its values one by one (yield, async); one `return` is asked for.")
        if inspect.isroutine(value):
            raise Unreadable("It returned a function. Are the round brackets that call it missing?")
        return reader(value)
    except (Unreadable, KeyboardInterrupt):
        raise
    except BaseException:  # of objects that fail when they are looked at
        raise Unreadable(f"It returned something of type {_kind(value)} that cannot be read.") from None


def _whole(value: object) -> int:
    """An int from whatever counts as one: 3, np.int64(3), tensor(3)."""
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)  # type: ignore[arg-type]


def _kind(value: object) -> str:
    return type(value).__name__


def _shown(value: object) -> str:
    """A short name for any value: `the int 3`, `the str 'x'`, `something of type dict`."""
    if value is None:
        return "None"
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    if isinstance(value, Tensor):
        return (
            f"a tensor of shape {tuple(value.shape)}"
            if value.dim()
            else f"a tensor that holds {value.item()}"
        )
    if isinstance(value, bool | int | float | str | slice) or (
        isinstance(value, list | tuple) and not any(isinstance(part, Tensor) for part in value)
    ):
        shown = " ".join(reprlib.repr(value).split())
        return f"the {_kind(value)} {shown if len(shown) <= 60 else shown[:59] + '…'}"
    return f"something of type {_kind(value)}"
