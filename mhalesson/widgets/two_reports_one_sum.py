"""02: two reports move so that their sum stays; what still shows it?"""

from collections.abc import Mapping
from functools import partial
from itertools import product

import torch
from ipywidgets import Dropdown, IntSlider
from torch import Tensor

from mhalesson._checks import check_finite, check_named, check_tensor
from mhalesson.figures import TINTS
from mhalesson.text import vector
from mhalesson.widgets.drawing import PALE, Drawing
from mhalesson.widgets.instrument import Instrument, View, own_copy

TITLE = "Two reports, one sum"
STEPS = range(-4, 5)  # how far head 0's report can be moved, in each channel
HIGHEST = 999  # what can be printed below a bar

TRY_THIS = (
    "Move head 0's report. Head 1 follows, so that the sum stays. Which bars leave their dashed outline?",
    "Let both heads share one half of W_O. y has four numbers, the sum has two. Does y see the move?",
    "Now halves of their own, but y only two wide, as narrow as the sum. It sees every move you can make "
    "here. z_cat can move in four directions: why must y miss some of them?",
)


def render(pair: Tensor, ways: Mapping[str, Tensor], way: str, move_0: int, move_1: int) -> View:
    """Reports that start as `pair` (2, 2); head 0's moves by a step, and head 1's by the opposite step."""
    step = pair.new_tensor([move_0, move_1])
    moved = torch.stack([pair[0] + step, pair[1] - step])  # (h, d_v)
    W = ways[way]
    rows = {
        "side by side": (pair.flatten(), moved.flatten()),
        "the sum": (pair.sum(dim=0), moved.sum(dim=0)),
        "y": (pair.flatten() @ W, moved.flatten() @ W),
    }
    highest = _highest(pair, ways)
    return View(TITLE, _draw(rows, highest), _caption(moved, rows, way, rounding=1e-12 * highest))


def _caption(
    moved: Tensor, rows: Mapping[str, tuple[Tensor, Tensor]], way: str, rounding: int | float
) -> str:
    differ = {
        name: f"{int(((after - before).abs() > rounding).sum())} of {len(before)}"
        for name, (before, after) in rows.items()
    }
    return (
        f"Head 0 says {vector(moved[0])}, head 1 {vector(moved[1])}. Numbers that have moved: side by side "
        f"{differ['side by side']}, in the sum {vector(rows['the sum'][1])} {differ['the sum']}, "
        f"in y ({way}) {differ['y']}."
    )


def _highest(pair: Tensor, ways: Mapping[str, Tensor]) -> float:
    """The longest bar that there can be, so that the scale stays as it is while things move."""
    corners = [pair.new_tensor([a, b]) for a, b in product((STEPS[0], STEPS[-1]), repeat=2)]
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
                drawing.striped_box(x, zero - max(now, 0) * unit, 40, abs(now) * unit, head=k // 2)
                label = f"h{k // 2} c{k % 2}"
            else:
                drawing.box(x, zero - max(now, 0) * unit, 40, abs(now) * unit, fill=TINTS[3])
                label = f"c{k}"
            drawing.dashed_box(x - 4, zero - max(was, 0) * unit, 48, abs(was) * unit)
            drawing.words(x + 20, 285, f"{round(now, 1) + 0.0:.1f}")
            drawing.words(x + 20, 270, label, size=12, colour=PALE)
        left += 52 * len(before) + 30
    return drawing.svg()


def two_reports_one_sum(pair: Tensor, ways: Mapping[str, Tensor]) -> Instrument:
    """An instrument: move one of two reports, and the other follows so that their sum stays.

    `pair` (2, 2) holds one report a row; `ways` maps a name to the matrix (4, d_model) that makes y of z_cat,
    where d_model is 1 to 4. Raises ValueError for others, and for numbers too long to be printed.

    >>> two_reports_one_sum(torch.ones(2, 2), {"the sum": torch.ones(4, 1)}).view.caption[:34]
    'Head 0 says [1, 1], head 1 [1, 1].'
    """
    check_tensor("pair", pair, "h d_v", h=2, d_v=2)
    check_finite("pair", pair)
    check_named("ways", ways)
    for name, W in ways.items():
        check_tensor(f"ways[{name!r}]", W, "h·d_v d_model", **{"h·d_v": 4})
        check_finite(f"ways[{name!r}]", W)
        if not 1 <= W.shape[1] <= 4:
            raise ValueError(f"ways[{name!r}] has {W.shape[1]} columns; there is room to draw 1 to 4")
    pair, ways = own_copy(pair), {name: own_copy(W) for name, W in ways.items()}
    if _highest(pair, ways) > HIGHEST:
        raise ValueError(f"pair and ways make numbers beyond {HIGHEST}, and there is no room to print them")
    moves = [IntSlider(description=f"move head 0: c{c}", min=STEPS[0], max=STEPS[-1]) for c in (0, 1)]
    way = Dropdown(description="W_O", options=list(ways))
    controls = dict(move_0=moves[0], move_1=moves[1], way=way)
    return Instrument(partial(render, pair, ways), controls, TRY_THIS)
