"""01: which output channels a head reaches, on the way from no W_O to the whole W_O."""

from collections.abc import Mapping
from functools import partial

import torch
from ipywidgets import Dropdown, IntSlider
from torch import Tensor

from mhalesson._checks import check_count, check_finite, check_named, check_split, check_tensor
from mhalesson.figures import COLOURS, TINTS
from mhalesson.text import words
from mhalesson.widgets.drawing import PALE, Drawing, percent
from mhalesson.widgets.instrument import Instrument, View, own_copy

TITLE = "Who reaches whom"
ROWS, ROW = 12, 26  # at most so many boxes in a column, and the height of one

TRY_THIS = (
    "At 0 % of W_O, each head reaches its own slice alone. Go to 10 %: how many channels does it reach now?",
    "Go on to 100 %, for several heads. How much of a head's squared reach is left in its own slice?",
    "Stay at 100 % and choose a layer of MiniLM, a small trained model. Go through its heads: how many reach "
    "their own slice most?",
)


def render(layers: Mapping[str, tuple[Tensor, int]], layer: str, head: int, mix: int) -> View:
    """The reach of one head where z_cat meets (1 - mix) I + mix W_O, with `mix` in percent.

    `layers` maps a name to W_O (h·d_v, h·d_v) and the number of its heads. A stream of more than 12 channels
    is shown in as many slices as there are heads.
    """
    W_O, h = layers[layer]
    width = len(W_O)
    mixed = torch.lerp(torch.eye(width).to(W_O), W_O, mix / 100)  # (h·d_v, d_model)
    count = width if width <= ROWS else h
    rows_of_head = mixed.view(h, width // h, count, width // count)[head]  # (d_v, count, channels of one)
    largest = rows_of_head.abs().max().item() or 1.0  # a head whose rows are all zero reaches nothing
    squares = (rows_of_head / largest).square().sum(dim=(0, 2))  # (count,): of the slopes, as in `reach`
    share = squares / (squares.sum().item() or 1.0)
    own = range(head * count // h, (head + 1) * count // h)
    channels = width // count  # of one box
    caption = _caption(layer, head, mix, share, own, channels)
    return View(TITLE, _draw(h, head, share, own, channels), caption)


def _caption(layer: str, head: int, mix: int, share: Tensor, own: range, channels: int) -> str:
    reached = int((share > 0).sum())
    what = "channel" if channels == 1 else "slice"
    kept = percent(share[list(own)].sum().item())
    best = (share >= (1 - 1e-6) * share.max()).nonzero().flatten().tolist()
    most = f", most of all {what}{'s' * (len(best) > 1)} {words(best)}" if reached else ""
    whose = f"{what}{'s' * (len(own) > 1)} {words(own)}"
    return (
        f"{layer}, {mix} % W_O and {100 - mix} % identity: head {head} reaches {reached} of {len(share)} "
        f"output {what}s{most}. Its own slice, {whose}, gets {kept} of its squared reach "
        f"({percent(len(own) / len(share))} if all {what}s got the same)."
    )


def _draw(h: int, head: int, share: Tensor, own: range, channels: int) -> str:
    drawing = Drawing(TITLE, height=ROW * (ROWS + 2))
    what = "channel" if channels == 1 else "slice"
    drawing.words(70, 20, "heads", bold=True)
    drawing.words(350, 20, f"output {what}s", bold=True)
    drawing.words(420, 20, "share of squared reach", anchor="start", bold=True)

    def middle(k: int, count: int) -> float:
        return ROW * (1.6 + (ROWS - count) / 2 + k)

    for j, part in enumerate(share.tolist()):
        y = middle(j, len(share))
        if part > 0:
            thickness = 0.8 + 5 * part / share.max().item()
            drawing.line(120, middle(head, h), 300, y, colour=COLOURS[head % len(COLOURS)], width=thickness)
        drawing.box(300, y - 11, 100, 22, line=2.5 if j in own else 1.0)
        drawing.words(350, y + 5, f"{what} {j}", bold=j in own)
        drawing.box(420, y - 8, max(130 * part, 0.5 if part > 0 else 0.0), 16, fill=TINTS[head % len(TINTS)])
        drawing.words(428 + 130 * part, y + 5, percent(part), anchor="start", size=13)
    for i in range(h):
        y = middle(i, h)
        drawing.box(20, y - 11, 100, 22, fill=TINTS[i % len(TINTS)] if i == head else "white")
        drawing.words(70, y + 5, f"head {i}", bold=i == head)
    drawing.words(350, ROW * (ROWS + 2) - 8, "thick frame: its own slice", size=12, colour=PALE)
    return drawing.svg()


def who_reaches_whom(layers: Mapping[str, tuple[Tensor, int]]) -> Instrument:
    """An instrument: choose a layer and a head, and mix its W_O in.

    `layers` maps a name to W_O (h·d_v, h·d_v), as in the maths, and the number of its heads, at most 12.
    Raises ValueError for any other.

    >>> who_reaches_whom({"two heads": (torch.ones(4, 4), 2)}).view.caption[:67]
    'two heads, 0 % W_O and 100 % identity: head 0 reaches 2 of 4 output'
    """
    check_named("layers", layers)
    for name, pair in layers.items():
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise ValueError(f"layers[{name!r}] should be a tuple of two, W_O and the number of its heads")
        W_O, num_heads = pair
        width = max(1, len(W_O)) if isinstance(W_O, Tensor) and W_O.dim() else 1
        check_tensor(f"layers[{name!r}]", W_O, "h·d_v d_model", **{"d_model": width})
        check_finite(f"layers[{name!r}]", W_O)
        check_count(f"num_heads of layers[{name!r}]", num_heads)
        check_split(f"layers[{name!r}] with {len(W_O)} rows", len(W_O), "num_heads", num_heads)
        if num_heads > ROWS:
            raise ValueError(f"{num_heads=} of layers[{name!r}]; there is room to draw up to {ROWS}")
    layers = {name: (own_copy(W_O), num_heads) for name, (W_O, num_heads) in layers.items()}
    layer = Dropdown(description="layer", options=list(layers))
    head = IntSlider(description="head", max=layers[layer.value][1] - 1)
    mix = IntSlider(description="% of W_O", max=100, step=10)
    # Before the picture is drawn: a head that the new layer does not have would be one too many.
    layer.observe(lambda change: setattr(head, "max", layers[change.new][1] - 1), "value")
    return Instrument(partial(render, layers), dict(layer=layer, head=head, mix=mix), TRY_THIS)
