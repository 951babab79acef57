"""What the pages print: small tensors as labelled text, numbers and lists as words."""

from collections.abc import Sequence
from itertools import groupby, product

import numpy as np
from torch import Tensor

from mhalesson.journey import Journey, Step


def words(items: Sequence[object]) -> str:
    """A list in words: 1, 2 and 3."""
    *most, last = map(str, items)
    return f"{', '.join(most)} and {last}" if most else last


def number(value: float | Tensor) -> str:
    """A number as captions print it: at most two decimals, none that say nothing, never minus zero."""
    return f"{round(float(value), 2) + 0.0:g}"


def vector(values: Tensor) -> str:
    """A short vector as captions print it, such as [0.5, 1.1]."""
    return f"[{', '.join(map(number, values.tolist()))}]"


def grid(
    x: Tensor,
    rows: str | Sequence[str] = "token",
    columns: str = "channel",
    names: Sequence[str] | None = None,
) -> str:
    """A small (rows, columns) tensor as labelled text; a vector is one row.

    `rows` and `columns` say what is counted along each axis; a list names each row.
    `names[v]` is printed in place of the value v, for tensors whose values say where they came from.

    >>> import torch
    >>> print(grid(torch.tensor([[1.0, 0.5], [0.0, 2.0]])))
             channel 0  channel 1
    token 0       1.00       0.50
    token 1       0.00       2.00
    """
    values = np.atleast_2d(x.detach().cpu().numpy())

    def cell(v: int | float) -> str:
        if names is not None:
            return names[int(v)]
        return f"{v:.2f}".replace("-0.00", "0.00") if isinstance(v, float) else str(v)

    if isinstance(rows, str):
        rows = [f"{rows} {i}" if x.dim() == 2 else "" for i in range(len(values))]
    table = [["", *(f"{columns} {j}" for j in range(values.shape[1]))]]
    table += [[label, *map(cell, row)] for label, row in zip(rows, values.tolist(), strict=True)]
    first, *others = (max(map(len, column)) for column in zip(*table, strict=True))
    return "\n".join(
        f"{label:<{first}}" + "".join(f"  {v:>{width}}" for v, width in zip(row, others, strict=True))
        for label, *row in table
    )


def index_codes(**sizes: int) -> list[str]:
    """Names for the cells of a tensor in memory order, each saying where it belongs.

    The keywords b, h, t and c give the sizes of batch, heads, tokens and channels, in the order of the axes.

    >>> index_codes(h=2, t=1, c=2)
    ['h0t0c0', 'h0t0c1', 'h1t0c0', 'h1t0c1']
    """
    places = (dict(zip(sizes, index, strict=True)) for index in product(*map(range, sizes.values())))
    return ["".join(f"{axis}{place[axis]}" for axis in "bhtc" if axis in place) for place in places]


def journey_table(journey: Journey, expanded: bool = False) -> str:
    """The steps of a journey as text: your code, the step it became, its result, and what it did to memory.

    Leaves out views that only serve another step of the same call, so that a row shows what the call
    returned, and behind the step's name its own shape if that is another. `expanded` shows every step.

    >>> import torch
    >>> from mhalesson import record_journey
    >>> print(journey_table(record_journey(lambda a: a.T.reshape(6), torch.zeros(2, 3))))
       code            step          shape   strides  memory
    1  a.T             permute       (3, 2)  (1, 3)   as memory from outside
    2  a.T.reshape(6)  clone (3, 2)  (6,)    (1,)     copy, 24 B
    views not shown: 1; bytes written: 24, by copies: 24
    """
    shown = [(step, step) for step in journey] if expanded else _without_bookkeeping(journey)
    table = [["", "code", "step", "shape", "strides", "memory"]]
    row_of: dict[int, int] = {}  # memory → the row that wrote it last
    for row, (step, result) in enumerate(shown, start=1):
        memory = _memory(step, row_of.get(step.memory))
        if step.kind != "view":
            row_of[step.memory] = row
        code = step.source if len(step.source) <= 23 else "…" + step.source[-22:]
        name = step.operation + (f" {step.shape}" if step.shape != result.shape else "")
        table.append([str(row), code, name, str(result.shape), str(result.strides), memory])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    copied = sum(step.bytes_written for step in journey.copies)
    hidden = f"views not shown: {len(journey.steps) - len(shown)}; " if not expanded else ""
    return "\n".join([*lines, f"{hidden}bytes written: {journey.bytes_written:,}, by copies: {copied:,}"])


def _without_bookkeeping(journey: Journey) -> list[tuple[Step, Step]]:
    """Of each call, the steps that do something to memory, or else the view it ends with.

    Beside each, what became of it within the call: the view of its memory that the call returns.
    """
    shown = []
    for _, call in groupby(journey, key=lambda step: step.call_number):
        steps = list(call)
        kept = [step for step in steps if step.kind != "view"] or steps[-1:]
        shown += [(step, steps[-1] if steps[-1].memory == step.memory else step) for step in kept]
    return shown


def _memory(step: Step, row: int | None) -> str:
    there = f"row {row}" if row else "memory from outside"
    if step.kind == "view":
        return f"as {there}"
    what = {"copy": "copy, ", "compute": "new, ", "opaque": "new, inside unseen, "}[step.kind]
    size = f"{step.bytes_written:,} B"
    return f"{what}{size}" if step.fresh else f"{size}, into {there}"
