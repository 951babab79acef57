"""Which code is running? Read off Python's own frames, so that nothing needs to be hooked or changed."""

import ast
import inspect
import linecache
import sys
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from types import FrameType
from typing import NamedTuple

from torch import nn

# On the way from an operation to a TorchDispatchMode (jaxtyping: where shapes are checked, as in our tests).
DOOR = ("torch._dynamo", "torch._compile", "torch._ops", "torch._library", "mhalesson.journey", __name__)
WRAPPERS = ("jaxtyping", "beartype")


class Place(NamedTuple):
    where: str  # the innermost submodule, or function that is not torch's own
    source: str  # the expression there
    call: str  # the innermost function called: "matmul" for an `@`
    path: tuple  # the instruction that each running function has come to: tells calls apart


def running_code(until: Callable) -> Place:
    """Where Python is just now, inside of the function `until`; "" for what it does not know.

    A built-in function leaves no frame, nor does a thread of torch's autograd engine.
    """
    frame, frames, last = sys._getframe(1), [], inspect.unwrap(until).__code__
    while frame is not None and frame.f_code is not last:
        if not _module(frame).startswith(WRAPPERS):
            frames.append(frame)
        frame = frame.f_back
    while frames and _module(frames[0]).startswith(DOOR):
        frames.pop(0)
    if not frames:
        return Place("", "", "", ())
    own = next(filter(_not_of_torch, frames), frames[0])
    where = _where(frames)
    path = (where, *((frame.f_code, frame.f_lasti) for frame in frames))
    return Place(where, _source(own), _call(_source(frames[0])), path)


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__") or ""


def _not_of_torch(frame: FrameType) -> bool:
    return not _module(frame).startswith("torch.")


def _where(frames: list[FrameType]) -> str:
    owners = [
        frame.f_locals.get("self") if "self" in frame.f_code.co_varnames[:1] else None for frame in frames
    ]
    root = next((owner for owner in reversed(owners) if isinstance(owner, nn.Module)), None)
    for frame, owner in zip(frames, owners, strict=True):
        if isinstance(owner, nn.Module) and owner is not root:
            return next(
                (name for name, module in root.named_modules() if module is owner), type(owner).__name__
            )
        if _not_of_torch(frame) and not frame.f_code.co_name.startswith("<"):
            return frame.f_code.co_name
    return "" if root is None else type(root).__name__


def _source(frame: FrameType) -> str:
    positions = frame.f_code.co_positions()  # one for each instruction of two bytes
    first, last, start, end = next(islice(positions, frame.f_lasti // 2, None))
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)[first - 1 : last] if first else []
    if not lines or start is None or end is None:
        return ""
    lines = [line.encode() for line in lines]  # columns count bytes
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    text = b"".join(lines).decode()
    if len(lines) == 1:
        return text
    try:  # on one line, and without comments
        return ast.unparse(ast.parse(f"({text}\n)", mode="eval"))
    except SyntaxError:
        return " ".join(text.split())


@lru_cache
def _call(source: str) -> str:
    try:
        statement = ast.parse(source).body[0]
    except (SyntaxError, IndexError):
        return ""
    node = statement.value if isinstance(statement, ast.Expr) else statement
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", getattr(node.func, "id", ""))
    return "matmul" if isinstance(getattr(node, "op", None), ast.MatMult) else ""
