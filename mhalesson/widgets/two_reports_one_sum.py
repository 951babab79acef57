"""02: two reports move so that their sum stays; what still shows it?"""

from collections.abc import Mapping
from functools import partial
from itertools import product

import torch
from ipywidgets import Dropdown, IntSlider
from torch import Tensor

from mhalesson._checks import check_tensor
from mhalesson.figures import TINTS
from mhalesson.text import vector
from mhalesson.widgets.drawing import PALE, Drawing
from mhalesson.widgets.instrument import Instrument, View

TITLE = "Two reports, one sum"
STEPS = range(-4, 5)  # how far head 0's report can be moved, in each channel

TRY_THIS = (
    "Move head 0's report. Head 1 follows, so that the sum stays. Which bars leave their dashed outline?",
    "Let both heads share one half of W_O. y has four numbers, the sum has two. Does y see the move?",
    "Now halves of their own, but y only two wide, as narrow as the sum. It sees every move you can make "
    "here. z_cat can move in four directions: why must y miss some of them?",
)


def render(pair: Tensor, ways: Mapping[str, Tensor], way: str, move_0: int, move_1: int) -> View:
    """Reports that start as `pair` (2, 2); head 0's moves by a step, and head 1's by the opposite step."""
    step = torch.tensor([float(move_0), float(move_1)])
    moved = torch.stack([pair[0] + step, pair[1] - step])  # (h, d_v)
    W = ways[way]
    rows = {
        "side by side": (pair.flatten(), moved.flatten()),
        "the sum": (pair.sum(dim=0), moved.sum(dim=0)),
        "y": (pair.flatten() @ W, moved.flatten() @ W),
    }
    return View(TITLE, _draw(rows, _highest(pair, ways)), _caption(moved, rows, way))


def _differ(rows: Mapping[str, tuple[Tensor, Tensor]], name: str) -> str:
    before, after = rows[name]
    return f"{int(((after - before).abs() > 1e-4).sum())} of {len(before)}"


def _caption(moved: Tensor, rows: Mapping[str, tuple[Tensor, Tensor]], way: str) -> str:
    return (
        f"Head 0 says {vector(moved[0])}, head 1 {vector(moved[1])}. Numbers that have moved: side by side "
        f"{_differ(rows, 'side by side')}, in the sum {vector(rows['the sum'][1])} "
        f"{_differ(rows, 'the sum')}, in y ({way}) {_differ(rows, 'y')}."
    )


def _highest(pair: Tensor, ways: Mapping[str, Tensor]) -> float:
    """The longest bar that there can be, so that the scale stays as it is while things move."""
    corners = [torch.tensor([a, b]) for a, b in product((STEPS[0], STEPS[-1]), repeat=2)]
    reports = torch.stack([torch.stack([pair[0] + step, pair[1] - step]).flatten() for step in corners])
    shown = (pair.sum(dim=0), reports, *(reports @ W for W in ways.values()))
    return max(tensor.abs().max().item() for tensor in shown)


def _draw(rows: Mapping[str, tuple[Tensor, Tensor]], highest: float) -> str:
    drawing = Drawing(TITLE, height=300)
    zero, unit = 150, 105 / highest
    drawing.line(20, zero, 620, zero, colour=PALE)
    left = 50.0
    for name, (before, after) in rows.items():
        drawing.words(left + 26 * len(before) - 5, 24, name, bold=True)
        for k, (was, now) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
            x = left + 52 * k
            if name == "side by side":
                drawing.hatched_box(x, zero - max(now, 0) * unit, 40, abs(now) * unit, head=k // 2)
                label = f"h{k // 2} c{k % 2}"
            else:
                drawing.box(x, zero - max(now, 0) * unit, 40, abs(now) * unit, fill=TINTS[3])
                label = f"c{k}"
            drawing.dashed_box(x - 4, zero - max(was, 0) * unit, 48, abs(was) * unit)
            drawing.words(x + 20, 285, f"{now + 0.0:.1f}".replace("-0.0", "0.0"))
            drawing.words(x + 20, 270, label, size=12, colour=PALE)
        left += 52 * len(before) + 30
    return drawing.svg()


def two_reports_one_sum(pair: Tensor, ways: Mapping[str, Tensor]) -> Instrument:
    """An instrument: move one of two reports, and the other follows so that their sum stays.

    `pair` (2, 2) holds one report a row; `ways` maps a name to the matrix (4, d_model) that makes y of z_cat,
    where d_model is at most 4. Raises ValueError for others.

    >>> two_reports_one_sum(torch.ones(2, 2), {"the sum": torch.ones(4, 1)}).view.caption[:34]
    'Head 0 says [1, 1], head 1 [1, 1].'
    """
    check_tensor("pair", pair, "h d_v", h=2, d_v=2)
    if not ways:
        raise ValueError(f"{ways=} should name at least one matrix")
    for name, W in ways.items():
        check_tensor(f"ways[{name!r}]", W, "h·d_v d_model", pair.dtype, **{"h·d_v": 4})
        if W.shape[1] > 4:
            raise ValueError(f"ways[{name!r}] has {W.shape[1]} columns; there is room to draw up to 4")
    pair, ways = pair.detach().clone(), {name: W.detach().clone() for name, W in ways.items()}
    moves = [IntSlider(description=f"move head 0: c{c}", min=STEPS[0], max=STEPS[-1]) for c in (0, 1)]
    way = Dropdown(description="W_O", options=list(ways))
    controls = dict(move_0=moves[0], move_1=moves[1], way=way)
    return Instrument(partial(render, pair, ways), controls, TRY_THIS)
