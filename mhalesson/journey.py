"""What a tensor went through: every step of a run, and what it really did to memory.

PyTorch hands each operation to the device through one door, and lets us stand there
(`TorchDispatchMode`). A shape in a comment may be wrong; these are read off the tensors.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mhalesson._flops import count_flops, named
from mhalesson._running_code import running_code

# Operations that write values as they found them, at another place or in another order.
MOVES = {"clone", "copy", "to", "cat", "stack", "repeat", "flip", "roll"}
MOVES |= {"index", "index_select", "gather", "embedding"}  # where numbers say which
NAMES = {"unsafe_view": "view", "reshape_alias": "view", "t": "transpose", "to_copy": "to"}
STRIP = 64  # cells: a step keeps the contents of memories up to this size, to be drawn


@dataclass(frozen=True)
class Step:
    """One operation as the device got it, and its result (the first one, if there are several).

    `kind` is "view" (only shape and strides are new), "copy" (values were moved; a change of dtype
    counts as a move), "compute", or "opaque": a fused kernel, whose inner steps nobody outside can see.
    (Copies that a kernel makes for itself are not seen either.) `memory` numbers the memories of the run,
    so two steps with one number share it; `fresh` says that this step brought it, and `strip` is what it
    holds, cell by cell, if it is small. Bytes are those of whole tensors, even if a step touches a part.
    `flops` counts products alone, as `torch.utils.flop_counter` does (of a fused kernel nominally, as if
    nothing were masked), and is None where nobody knows. `where` is the submodule or the function the
    step ran in, `source` the expression in your code that led to it, `call` the function called last on
    the way, such as "matmul". The steps of one call share a `call_number` (and so do those of the next
    one, if a loop does nothing else than make the same call again).
    """

    operation: str
    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    contiguous: bool
    memory: int
    strip: tuple[int | float | bool, ...] | None
    bytes_read: int
    bytes_written: int
    flops: int | None
    fresh: bool
    where: str
    source: str
    call: str
    call_number: int


@dataclass(frozen=True)
class Journey:
    """The steps of one run, in order, and the `result` it returned. Iterates over its steps."""

    steps: tuple[Step, ...]
    result: Any

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @property
    def copies(self) -> tuple[Step, ...]:
        return tuple(step for step in self if step.kind == "copy")

    @property
    def bytes_written(self) -> int:
        return sum(step.bytes_written for step in self)

    @property
    def flops(self) -> int | None:
        """Of all steps together; None if those of one step are not known."""
        counts = [step.flops for step in self]
        return None if None in counts else sum(counts)

    def calls(self, operation: str) -> tuple[Step, ...]:
        """The steps of that name, such as "bmm" for batched products."""
        return tuple(step for step in self if step.operation == operation)


def record_journey(fn: Callable, /, *inputs: Any, **kwargs: Any) -> Journey:
    """Call `fn(*inputs, **kwargs)`, a function or a module, and record every step it takes.

    The run is not changed: it gives the same numbers and draws the same random ones. A function that
    `torch.compile` made is recorded as it runs uncompiled.

    Raises ValueError if `fn` cannot be called, or if its inner steps are hidden: under
    `torch.inference_mode` (record under `torch.no_grad`), or in sparse or nested tensors.
    Source: the steps are torch's own, `torch.utils._python_dispatch.TorchDispatchMode`.

    >>> journey = record_journey(lambda z: z.transpose(1, 2).reshape(1, 3, 4), torch.zeros(1, 2, 3, 2))
    >>> [(step.operation, step.kind, step.bytes_written) for step in journey]
    [('transpose', 'view', 0), ('clone', 'copy', 48), ('view', 'view', 0)]
    """
    if not callable(fn):
        raise ValueError(f"fn is of type {type(fn).__name__}; it should be a function or a module")
    with _Recorder() as recorder:
        result = fn(*inputs, **kwargs)
    return Journey(tuple(recorder.steps), result)


class _Recorder(TorchDispatchMode):
    """Stands in the door: runs each operation, and notes what it did."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.path: tuple | None = None  # in the running code, of the latest step
        self.calls = 0
        self.memories: dict[StorageWeakRef, int] = {}  # numbered in order of appearance

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        _refuse_hidden_steps(func, _tensors((args, kwargs)))
        result = func(*args, **kwargs)
        _refuse_hidden_steps(func, _tensors(result))
        self._note(func, args, kwargs, result)
        return result

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        inputs, overwritten = _tensors((args, kwargs)), _overwritten(func, args, kwargs)
        outputs = _tensors(result) or overwritten
        if not outputs:  # a question such as "which kernel fits?" is not a step
            return
        old = dict.fromkeys(map(_storage, inputs))
        new = {_storage(t): t.untyped_storage().nbytes() for t in outputs if _storage(t) not in old}
        for storage in (*old, *new):
            self.memories.setdefault(storage, len(self.memories) + 1)

        operation = _operation(func)
        kind = _kind(func, operation, changes_memory=bool(new or overwritten))
        bytes_over = sum(t.numel() * t.itemsize for t in overwritten)
        bytes_read = sum(map(_bytes, inputs)) - (bytes_over if kind == "copy" else 0)
        out, place = outputs[0], running_code(until=record_journey)
        if self.path != place.path:
            self.path, self.calls = place.path, self.calls + 1
        step = Step(
            operation=operation,
            kind=kind,
            shape=tuple(out.shape),
            strides=out.stride(),
            contiguous=out.is_contiguous(),
            memory=self.memories[_storage(out)],
            strip=_strip(out),
            bytes_read=0 if kind == "view" else bytes_read,
            # empty only reserves memory
            bytes_written=0 if "empty" in operation else sum(new.values()) + bytes_over,
            flops=count_flops(func, args, kwargs, result, otherwise=None if kind == "opaque" else 0),
            fresh=_storage(out) in new,
            where=place.where,
            source=place.source,
            call=place.call,
            call_number=self.calls,
        )
        self.steps.append(step)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _refuse_hidden_steps(func: Any, tensors: list[Tensor]) -> None:
    """Where torch does not take an operation apart before the door, copies would go unseen."""
    composite = func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    if composite and (torch.is_inference_mode_enabled() or any(t.is_inference() for t in tensors)):
        raise ValueError(
            f"fn runs {_operation(func)} under torch.inference_mode(), or on tensors made there, where its "
            "inner steps are hidden; record it under torch.no_grad(), on tensors made outside"
        )
    if any(t.is_nested or t.layout is not torch.strided for t in tensors):
        raise ValueError(
            f"fn runs {_operation(func)} on a sparse or nested tensor, which has no strides to record; "
            "give it dense tensors"
        )


def _storage(tensor: Tensor) -> StorageWeakRef:
    """A name for the memory that is never given again, and does not keep its contents alive."""
    return StorageWeakRef(tensor.untyped_storage())


def _operation(func: Any) -> str:
    """torch's name without decoration: `aten._unsafe_view.default` is a view."""
    name = func.overloadpacket.__name__.strip("_")
    if name.startswith("scaled_dot_product"):  # one name, whichever kernel was chosen
        return "scaled_dot_product_attention" + ("_backward" if name.endswith("backward") else "")
    return NAMES.get(name, name)


def _kind(func: Any, operation: str, changes_memory: bool) -> str:
    fused = any(word in operation for word in ("attention", "transformer", "rnn", "lstm", "gru"))
    if fused or func.namespace not in ("aten", "prims"):
        return "opaque"
    if not changes_memory:
        return "view"
    return "copy" if operation in MOVES else "compute"


def _overwritten(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The arguments that the operation says it writes into (t_ only turns their strides)."""
    if torch.Tag.inplace_view in func.tags:
        return []
    given = named(func, args) | kwargs
    return _tensors(
        [given.get(a.name) for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
    )


def _bytes(tensor: Tensor) -> int:
    """The bytes of a tensor's distinct entries: an expanded axis repeats them, at stride 0."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
    return torch.Size(sizes).numel() * tensor.itemsize if tensor.numel() else 0


def _strip(tensor: Tensor) -> tuple[int | float | bool, ...] | None:
    cells = tensor.untyped_storage().nbytes() // tensor.itemsize
    plain = type(tensor) in (Tensor, nn.Parameter) and not tensor.is_meta and not tensor.is_quantized
    if cells > STRIP or not plain:
        return None
    return tuple(tensor.detach().as_strided((cells,), (1,), 0).tolist())
