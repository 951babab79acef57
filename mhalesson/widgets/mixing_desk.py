"""03: W_O as the knobs of a mixing desk, and the same picture for a trained layer."""

from collections.abc import Sequence
from functools import partial

import torch
from ipywidgets import HTML, BoundedFloatText, Button, Dropdown, FloatSlider, GridBox, HBox, IntSlider, VBox
from torch import Tensor

from mhalesson._checks import check_finite, check_tensor
from mhalesson.output_projection import head_contributions
from mhalesson.text import number, vector, words
from mhalesson.trained_heads import TrainedHeads
from mhalesson.widgets.drawing import PALE, Drawing
from mhalesson.widgets.instrument import Instrument, View

DESK, TRAINED = "The mixing desk", "A trained mixing desk"
CHANNELS = 4  # of z_cat and of y, on the desk

TRY_THIS = (
    "Silence head 0. Which bars vanish, which only shrink? Then press “Worked example” to bring it back.",
    "Set 1 → 3 (row 1, output 3) to 1. Whose report does output 3 hear now? In which bars does that show?",
    "“Worked example”, then “Transpose”: where on this page have you seen this y? Now “Identity”, then "
    "“Transpose”: which W_O can be the wrong way round without anybody noticing?",
)
TRY_TRAINED = (
    "The sentence is “{}” Look at several heads of one layer. How long is the vector that each adds?",
    "All twelve together: if longer than at right angles, they rather agree; if shorter, they rather cancel. "
    "Which is it in layer 0, and which in layer 5?",
    "Find a channel where y has another sign than what this head adds. (If there is none, try another head.)",
)


# ------------------------------------------------------------------------------------------- the bars


def _bars(title: str, channels: Sequence[object], parts: dict[str, Tensor], y: Tensor) -> str:
    """One column a channel: the parts stacked, those below zero downwards, y as a line; numbers below."""
    # What is drawn is what is printed, and that is the same on every machine.
    rows = {name: [round(value, 2) + 0.0 for value in t.tolist()] for name, t in (parts | {"y": y}).items()}
    columns = list(zip(*rows.values(), strict=True))
    drawing = Drawing(title, height=330)
    wide = 500 / len(columns)
    ups = (sum(value for value in values if value > 0) for *values, _ in columns)
    downs = (-sum(value for value in values if value < 0) for *values, _ in columns)
    end = _round_number_above(round(max(*ups, *downs), 2))
    zero, unit = 110, 95 / end
    for value in (end, 0.0, -end):  # the scale
        drawing.line(120, zero - value * unit, 630, zero - value * unit, colour=PALE)
        drawing.words(112, zero - value * unit + 5, number(value), anchor="end", size=12, colour=PALE)
    for c, (channel, (*values, total)) in enumerate(zip(channels, columns, strict=True)):
        x, up, down = 125 + wide * c, 0.0, 0.0
        for part, value in enumerate(values):
            height = abs(value) * unit
            if value > 0:
                drawing.striped_box(x + 12, zero - up - height, wide - 24, height, part)
                up += height
            elif value < 0:
                drawing.striped_box(x + 12, zero + down, wide - 24, height, part)
                down += height
        drawing.line(x + 4, zero - total * unit, x + wide - 4, zero - total * unit, width=3)
        drawing.words(x + wide / 2, 322, str(channel), colour=PALE)
    drawing.words(112, 322, "channel of y", anchor="end", colour=PALE)
    for row, (name, values) in enumerate(rows.items()):
        y_of_row, bold = 236 + 20 * row, name == "y"
        drawing.words(112, y_of_row, name, anchor="end", bold=bold)
        for c, value in enumerate(values):
            drawing.words(125 + wide * (c + 0.5), y_of_row, f"{value:.2f}", bold=bold)
        if bold:
            drawing.line(8, y_of_row - 5, 24, y_of_row - 5, width=3)
        else:
            drawing.striped_box(8, y_of_row - 12, 16, 14, row)
    return drawing.svg()


def _round_number_above(value: int | float) -> float:
    """So that the scale stays while things move a little."""
    return next((end for end in (1.0, 3.0, 8.0, 20.0) if value <= end), value)


# ------------------------------------------------------------------------------------------- the desk


def render_desk(**values: int | float) -> View:
    """`w00` … `w33` are the knobs, row by row, and `z0` … `z3` the reports of head 0 and head 1."""
    W_O = torch.tensor([[values[f"w{r}{c}"] for c in range(CHANNELS)] for r in range(CHANNELS)])
    z = torch.tensor([values[f"z{r}"] for r in range(CHANNELS)]).view(2, 2)  # (h, d_v)
    added = torch.stack([z[0] @ W_O[:2], z[1] @ W_O[2:]])  # (h, d_model)
    y = added.sum(dim=0)
    wired = W_O.view(2, 2, CHANNELS).ne(0).any(dim=1).all(dim=0).nonzero().flatten().tolist()
    caption = (
        f"Head 0 says {vector(z[0])} and adds {vector(added[0])}; head 1 says {vector(z[1])} and adds "
        f"{vector(added[1])}; together y = {vector(y)}. "
        f"Outputs wired to both heads: {words(wired) if wired else 'none'}."
    )
    parts = {f"head {i}": added[i] for i in range(2)}
    return View(DESK, _bars(DESK, range(CHANNELS), parts, y), caption)


def mixing_desk(W_O: Tensor, z: Tensor) -> Instrument:
    """An instrument: W_O (4, 4) as 16 knobs and two reports, z (2, 2), as sliders; y as a sum of two.

    Knobs go from -1 to 1, in four decimals, sliders from -5 to 5. Raises ValueError for anything else.

    >>> mixing_desk(torch.eye(4), torch.ones(2, 2)).view.caption[-61:]
    'together y = [1, 1, 1, 1]. Outputs wired to both heads: none.'
    """
    for name, tensor, limit, sizes in (
        ("W_O", W_O, 1, {"h·d_v": 4, "d_model": 4}),
        ("z", z, 5, {"h": 2, "d_v": 2}),
    ):
        check_tensor(name, tensor, " ".join(sizes), **sizes)
        check_finite(name, tensor)
        if tensor.abs().max() > limit:
            raise ValueError(f"{name} holds numbers beyond {limit}; the desk goes from {-limit} to {limit}")
    knobs = {
        f"w{r}{c}": BoundedFloatText(
            round(W_O[r, c].item(), 4),
            min=-1,
            max=1,
            step=0.1,
            description=f"{r} → {c}",
            continuous_update=True,  # a number counts as it is typed
        )
        for r in range(CHANNELS)
        for c in range(CHANNELS)
    }
    sliders = {
        f"z{r}": FloatSlider(
            z.flatten()[r].item(), min=-5, max=5, step=0.5, description=f"head {r // 2}: z_cat {r}"
        )
        for r in range(CHANNELS)
    }
    start = {name: control.value for name, control in (knobs | sliders).items()}

    presses = {
        "Worked example": lambda: start,
        "Identity": lambda: {name: float(name[1] == name[2]) for name in knobs},
        "Silence head 0": lambda: {"z0": 0.0, "z1": 0.0},
        "Silence head 1": lambda: {"z2": 0.0, "z3": 0.0},
        "Transpose": lambda: {name: knobs[f"w{name[2]}{name[1]}"].value for name in knobs},
    }
    buttons = [Button(description=name) for name in presses]
    desk = GridBox(list(knobs.values())).add_class("mhalesson-desk")
    layout = VBox(
        [
            VBox(list(sliders.values())),
            HTML("The knobs of W_O, from −1 to 1: row of z_cat → output. Rows 0 and 1 are head 0's band."),
            desk,
            HBox(buttons, layout={"flex_flow": "row wrap"}),
        ]
    )
    instrument = Instrument(render_desk, knobs | sliders, TRY_THIS, layout)

    def press(button: Button) -> None:
        with instrument.at_once():
            for name, value in presses[button.description]().items():
                instrument.controls[name].value = value

    for button in buttons:
        button.on_click(press)
    return instrument


# ---------------------------------------------------------------------------------- a trained layer


def render_trained(trained: TrainedHeads, layer: int, head: int, token: int) -> View:
    """What one head adds about a token of the first sentence, beside the others, where it adds most."""
    weights = trained.layers[layer]
    z = weights.z[:1, :, [token]]  # (1, h, 1, d_v)
    added = head_contributions(z, weights.W_O.T)[0, :, 0]  # (h, d_model)
    y = added.sum(dim=0) + weights.b_O  # (d_model,)
    top = added[head].abs().argsort(descending=True)[:6].sort().values  # output channels
    parts = {
        f"head {head}": added[head][top],
        f"{len(added) - 1} others": (added.sum(dim=0) - added[head])[top],
        "bias": weights.b_O[top],
    }
    lengths = added.norm(dim=1)
    caption = (
        f"Layer {layer}, “{trained.tokens[0][token]}”: head {head} adds a vector of length "
        f"{lengths[head]:.2f}. All {len(added)}, laid end to end, would reach {lengths.sum():.2f}; each at a "
        f"right angle to the others, {lengths.norm():.2f}; as they are, {added.sum(dim=0).norm():.2f}. "
        f"With the bias, y has {y.norm():.2f}. The picture shows, rounded, the six of {len(y)} channels on "
        f"which head {head} adds most, up or down."
    )
    return View(TRAINED, _bars(TRAINED, top.tolist(), parts, y[top]), caption)


def trained_desk(trained: TrainedHeads) -> Instrument:
    """An instrument: choose a layer, a head and a token of a trained model's first sentence.

    `trained` is what `load_trained_heads` returns. Raises ValueError for anything else.

    >>> from mhalesson import load_trained_heads
    >>> trained_desk(load_trained_heads()).view.caption[:46]
    'Layer 0, “old”: head 0 adds a vector of length'
    """
    if not isinstance(trained, TrainedHeads):
        raise ValueError(f"{trained=} should be what load_trained_heads() returns")
    tokens = [(f"{n} {word}", n) for n, word in enumerate(trained.tokens[0])]
    h = trained.layers[0].z.shape[1]
    controls = dict(
        layer=IntSlider(description="layer", max=len(trained.layers) - 1),
        head=IntSlider(description="head", max=h - 1),
        token=Dropdown(description="token", options=tokens, value=2),
    )
    steps = [step.format(trained.sentences[0]) for step in TRY_TRAINED]
    return Instrument(partial(render_trained, trained), controls, steps)
