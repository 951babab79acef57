"""Instruments: every picture of their grids is whole, and its caption true to numbers computed here."""

import re
import xml.etree.ElementTree as ET
from itertools import product

import ipywidgets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mhalesson import (
    MultiHeadAttention,
    load_trained_heads,
    merge_heads,
    reach,
    record_journey,
    recorded_runs,
)
from mhalesson.figures import COLOURS, TINTS
from mhalesson.recording import ways as ways_of
from mhalesson.text import index_codes, number, vector, words
from mhalesson.timing import CostModel
from mhalesson.widgets import (
    Guess,
    mixing_desk,
    step_through,
    trained_desk,
    two_reports_one_sum,
    where_the_loop_hurts,
    who_reaches_whom,
)
from mhalesson.widgets.drawing import PALE, WIDTH, Drawing, as_address, percent
from mhalesson.widgets.instrument import LIVE, WIDGET_VIEW, Instrument, View

TRAINED = load_trained_heads()
torch.manual_seed(0)
TOY = MultiHeadAttention(8, 4).o_proj.weight.T.detach()  # (h·d_v, d_model)
LAYERS = {"toy": (TOY, 4)} | {f"MiniLM {n}": (layer.W_O, 12) for n, layer in enumerate(TRAINED.layers)}
PAIR = torch.tensor([[1.0, 2.0], [3.0, 4.0]])  # (h, d_v)
torch.manual_seed(0)
OWN = torch.randn(4, 4)
WAYS = {"own": OWN, "shared": torch.cat([OWN[:2], OWN[:2]]), "narrow": OWN[:, :2]}
W_O = torch.tensor([[0.5, 0.1, 0.0, 0.0], [0.0, 0.5, 0.1, 0.0], [0.1, 0.0, 0.5, 0.0], [0.0, 0.0, 0.1, 0.5]])
Z = torch.arange(12.0).view(1, 2, 3, 2)  # (B, h, T, d_v)
NAMES = index_codes(h=2, t=3, c=2)
TRANSPOSE, CONTIGUOUS, VIEW = ("transpose", 1, 2), ("contiguous",), ("view", 1, 3, 4)
MERGES = {
    "right": [TRANSPOSE, CONTIGUOUS, VIEW],
    "no transpose": [VIEW],
    "no contiguous": [TRANSPOSE, VIEW],
}
RUNS = recorded_runs()

MAKE = {
    "who_reaches_whom": lambda: who_reaches_whom(LAYERS),
    "two_reports_one_sum": lambda: two_reports_one_sum(PAIR, WAYS),
    "mixing_desk": lambda: mixing_desk(W_O, PAIR),
    "trained_desk": lambda: trained_desk(TRAINED),
    "step_through": lambda: step_through(Z, NAMES, MERGES),
    "where_the_loop_hurts": lambda: where_the_loop_hurts(RUNS),
}
each_instrument = pytest.mark.parametrize("name", MAKE)


def positions(control):
    """Every value that the control can be given."""
    if isinstance(control, ipywidgets.Dropdown):
        return list(control._options_values)
    steps = round((control.max - control.min) / control.step)
    return [type(control.value)(round(control.min + k * control.step, 6)) for k in range(steps + 1)]


def shown(svg):
    """The elements of a picture by their tag, after a look at what holds for all: they lie on the sheet."""
    root = ET.fromstring(svg)
    _, _, width, height = map(float, root.get("viewBox").split())
    assert width == WIDTH and root.get("role") == "img" and root.get("aria-label")
    elements = {}
    for element in root:
        elements.setdefault(element.tag.split("}")[1], []).append(element)
    for left, right, top, bottom in map(extent, [e for group in elements.values() for e in group]):
        assert -1 <= left <= right <= width + 1 and -1 <= top <= bottom <= height + 1
    assert "url(" not in svg and not any(e.get("id") for e in root.iter())  # a name holds for the whole page
    return elements


def extent(element):
    """Left, right, top, bottom; of words about so, since every machine has its own letters."""
    number = {name: float(element.get(name)) for name in SIZES if element.get(name)}
    match element.tag.split("}")[1]:
        case "rect":
            x, y = number.get("x", 0), number.get("y", 0)
            return x, x + number["width"], y, y + number["height"]
        case "line":
            x, y = (sorted(number[axis + end] for end in "12") for axis in "xy")
            return *x, *y
        case "polygon":
            corners = np.array([pair.split(",") for pair in element.get("points").split()], dtype=float)
            return *np.sort(corners[:, 0])[[0, -1]], *np.sort(corners[:, 1])[[0, -1]]
        case "text":
            size = number["font-size"]
            long = (0.65 if element.get("font-weight") == "bold" else 0.6) * size * len(element.text)
            left = number["x"] - long * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor")]
            return left, left + long, number["y"] - size, number["y"]
        case "path":
            return stripes(element)[1]


def stripes(element):
    """Which way the stripes of a path stand, and the box they fill."""
    assert element.get("stroke") == "#111111"
    x, y, way, long = re.fullmatch(r"M(\S+) (\S+)([hv])(\S+)", element.get("d")).groups()
    x, y, long, half = float(x), float(y), float(long), float(element.get("stroke-width")) / 2
    box = (x, x + long, y - half, y + half) if way == "h" else (x - half, x + half, y, y + long)
    return ("upright" if way == "h" else "lying", element.get("stroke-dasharray")), box


SIZES = {"x", "y", "x1", "x2", "y1", "y2", "width", "height", "font-size"}


def boxes(elements, **wanted):
    """x, y, width, height of the boxes with these attributes, but the sheet itself."""
    found = [e for e in elements["rect"][1:] if all(e.get(name) == value for name, value in wanted.items())]
    return np.array([[float(e.get(name)) for name in ("x", "y", "width", "height")] for e in found]).reshape(
        -1, 4
    )


def texts(elements):
    return [element.text for element in elements["text"]]


def size_of(svg):
    return ET.fromstring(svg).get("viewBox")


# ------------------------------------------------------------------------------- each over its grid


def test_who_reaches_whom_counts_and_shares_as_the_matrix_says():
    render = MAKE["who_reaches_whom"]().render
    sizes = set()
    for layer, (W, h) in LAYERS.items():
        width = len(W)
        for head, mix in product(range(h), range(0, 101, 10)):
            view = render(layer=layer, head=head, mix=mix)
            # (1 - mix) I + mix W_O in NumPy, and of it the rows of the head
            mixed = (1 - mix / 100) * np.eye(width) + mix / 100 * W.double().numpy()
            rows = np.split(mixed, h)[head]
            parts = np.split(rows, 8 if layer == "toy" else 12, axis=1)
            squares = np.array([(part**2).sum() for part in parts])
            own = [2 * head, 2 * head + 1] if layer == "toy" else [head]
            share = squares / squares.sum()
            best = np.flatnonzero(np.isclose(squares, squares.max(), rtol=1e-6)).tolist()
            assert view.caption == (
                f"{layer}, {mix} % W_O and {100 - mix} % identity: head {head} reaches {(squares > 0).sum()} "
                f"of {len(squares)} output {'channels' if layer == 'toy' else 'slices'}, most of all "
                f"{'channel' if layer == 'toy' else 'slice'}{'s' if len(best) > 1 else ''} {words(best)}. "
                "Its own slice, "
                f"{'channels' if layer == 'toy' else 'slice'} {words(own)}, gets {percent(share[own].sum())} "
                f"of its squared reach ({'25 % if all channels' if layer == 'toy' else '8 % if all slices'} "
                "got the same)."
            )
            elements = shown(view.svg)
            assert [text for text in texts(elements) if text.endswith(" %")] == [percent(p) for p in share]
            (heads, outputs), right = (
                (boxes(elements, height="22")[k] for k in (slice(-h, None), slice(-h))),
                300,
            )
            middle = outputs[:, 1] + 11
            ends = np.array([[float(e.get(n)) for n in ("x1", "y1", "x2", "y2")] for e in elements["line"]])
            reached = squares > 0
            assert np.allclose(ends[:, 1], heads[head, 1] + 11) and np.allclose(ends[:, 3], middle[reached])
            assert (ends[:, 0] == heads[head, [0, 2]].sum()).all() and (ends[:, 2] == right).all()
            assert (outputs[:, 0] == right).all()
            thick = boxes(elements, height="22", **{"stroke-width": "2.5"})
            assert np.allclose(thick, outputs[own]) and "thick frame: its own slice" in texts(elements)
            long = np.maximum(130 * share, 0.5 * reached)
            assert np.allclose(boxes(elements, height="16")[:, 2], long, atol=0.06)
            sizes.add(size_of(view.svg))
    assert len(sizes) == 1


@pytest.mark.parametrize("mix", [0, 30, 100])
def test_who_reaches_whom_measures_what_reach_measures(mix):
    mixed = (1 - mix / 100) * torch.eye(8) + mix / 100 * TOY
    measured = reach(lambda z: z.flatten() @ mixed, torch.zeros(4, 2), num_blocks=8).square()  # (h, channels)
    for head in range(4):
        caption = MAKE["who_reaches_whom"]().render(layer="toy", head=head, mix=mix).caption
        share = measured[head, 2 * head : 2 * head + 2].sum() / measured[head].sum()
        assert f"gets {percent(share.item())}" in caption
        assert f"reaches {int((measured[head] > 0).sum())} of 8" in caption


def test_two_reports_keep_their_sum_and_the_caption_counts_what_moved():
    instrument = MAKE["two_reports_one_sum"]()
    sizes = set()
    for way, a, b in product(WAYS, *(positions(instrument.controls[name]) for name in ("move_0", "move_1"))):
        view = instrument.render(way=way, move_0=a, move_1=b)
        before, after = np.array([1.0, 2, 3, 4]), np.array([1.0 + a, 2 + b, 3 - a, 4 - b])
        W = WAYS[way].double().numpy()
        moved = (np.abs(after - before) > 0).sum(), (np.abs(after @ W - before @ W) > 1e-3).sum()
        heads = [f"[{number(x)}, {number(y)}]" for x, y in (after[:2], after[2:])]
        assert view.caption == (
            f"Head 0 says {heads[0]}, head 1 {heads[1]}. Numbers that have moved: side by side {moved[0]} of "
            f"4, in the sum [4, 6] 0 of 2, in y ({way}) {moved[1]} of {W.shape[1]}."
        )
        elements = shown(view.svg)
        # A bar and an outline for every number, both from the line of zero.
        was, now = (np.concatenate([z, [4, 6], z @ W]) for z in (before, after))
        outlines, bars = boxes(elements, **{"stroke-dasharray": "4 3"}), boxes(elements, width="40")
        unit = outlines[5, 3] / 6
        for drawn, values in ((outlines, was), (bars, now)):
            assert np.abs(drawn[:, 3] - unit * np.abs(values)).max() < 0.2
            assert np.abs(drawn[:, 1] - (150 - unit * values.clip(0))).max() < 0.2
        said = [float(text) for text in texts(elements) if re.fullmatch(r"-?\d+\.\d", text)]
        assert np.abs(np.array(said) - now).max() <= 0.0501
        sizes.add(size_of(view.svg))
    assert len(sizes) == 1


@pytest.mark.parametrize("size", [100.0, -100.0])
def test_two_reports_have_room_for_their_sum(size):
    shown(two_reports_one_sum(torch.full((2, 2), size), {"nothing": torch.zeros(4, 2)}).view.svg)


@pytest.mark.parametrize("signs", [(1.0, 1.0), (1.0, -1.0)])
def test_two_reports_have_room_whichever_way_they_move(signs):
    W = torch.tensor([*signs, *signs]).view(4, 1) * torch.tensor([[1], [1], [-1], [-1]])
    instrument = two_reports_one_sum(torch.zeros(2, 2), {"difference": W})
    for a, b in product((-4, 4), repeat=2):
        shown(instrument.render(way="difference", move_0=a, move_1=b).svg)


def test_rounding_is_no_move():
    torch.manual_seed(0)
    own = torch.randn(2, 4, dtype=torch.float64)
    instrument = two_reports_one_sum(torch.rand(2, 2, dtype=torch.float64), {"one": torch.cat([own, own])})
    for a, b in product(range(-4, 5), repeat=2):
        caption = instrument.render(way="one", move_0=a, move_1=b).caption
        assert "0 of 2, in y (one) 0 of 4." in caption


def test_a_small_move_is_a_move():
    render = two_reports_one_sum(PAIR, {"large": OWN, "small": 1e-6 * OWN}).render
    assert "in y (small) 4 of 4" in render(way="small", move_0=2, move_1=1).caption


def test_two_reports_show_no_minus_zero():
    assert "-0.0" not in texts(
        shown(two_reports_one_sum(torch.full((2, 2), -0.01), {"sum": torch.ones(4, 1)}).view.svg)
    )


def test_sliders_of_two_reports_move_the_channel_that_they_name():
    instrument = MAKE["two_reports_one_sum"]()
    assert [instrument.controls[f"move_{c}"].description for c in (0, 1)] == [
        "move head 0: c0",
        "move head 0: c1",
    ]


def test_an_instrument_keeps_what_it_was_given():
    pair, z, W, way = PAIR.double(), Z.clone(), TOY.double(), OWN.double()  # as instruments keep them
    made = [
        two_reports_one_sum(pair, {"way": way}),
        step_through(z, NAMES, MERGES),
        who_reaches_whom({"toy": (W, 4)}),
    ]
    made[2].controls["mix"].value = 100
    before = [instrument.render(**instrument.values()) for instrument in made]
    for tensor in (pair, z, W, way):
        tensor.zero_()
    assert [instrument.render(**instrument.values()) for instrument in made] == before


def test_what_two_reports_is_there_to_show():
    render = MAKE["two_reports_one_sum"]().render
    assert "in y (own) 4 of 4" in render(way="own", move_0=2, move_1=1).caption
    assert "in y (shared) 0 of 4" in render(way="shared", move_0=2, move_1=1).caption
    assert "in y (narrow) 2 of 2" in render(way="narrow", move_0=2, move_1=1).caption


def desk_says(W, z):
    added = z[:2] @ W[:2], z[2:] @ W[2:]
    y = z @ W
    hear = [c for c in range(4) if W[:2, c].any() and W[2:, c].any()]
    tensors = [vector(torch.tensor(values)) for values in (z[:2], added[0], z[2:], added[1], y)]
    return (
        "Head 0 says {} and adds {}; head 1 says {} and adds {}; together y = {}. ".format(*tensors)
        + f"Outputs wired to both heads: {words(hear) if hear else 'none'}."
    )


def desk(W, z):
    values = {f"w{r}{c}": float(W[r, c]) for r in range(4) for c in range(4)}
    return values | {f"z{r}": float(z[r]) for r in range(4)}


def numbers_in(text):
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?", text)]


def agree(caption, expected):
    """The same words, and numbers that differ by less than their last digit."""
    assert re.sub(r"[-\d.]+", "#", caption) == re.sub(r"[-\d.]+", "#", expected)
    assert np.allclose(numbers_in(caption), numbers_in(expected), atol=0.0101)


knob = st.integers(-10, 10).map(lambda k: k / 10)
slider = st.integers(-10, 10).map(lambda k: k / 2)


@given(st.lists(knob, min_size=16, max_size=16), st.lists(slider, min_size=4, max_size=4))
def test_the_desk_adds_up_whatever_is_turned(knobs, sliders):
    W, z = np.array(knobs).reshape(4, 4), np.array(sliders)
    view = MAKE["mixing_desk"]().render(**desk(W, z))
    agree(view.caption, desk_says(W, z))
    bars_stand_on_each_other(shown(view.svg), np.stack([z[:2] @ W[:2], z[2:] @ W[2:]]))


def bars_stand_on_each_other(elements, parts, off=0.0):
    """The parts (part, output) of every output, up from the line of zero or down, on a scale that holds them.

    They are drawn as they are printed, rounded; where rounding may go either way, they are `off` by as much.
    """
    parts = parts.round(2) + 0.0
    scale = float(texts(elements)[0])
    up, down = parts.clip(0).sum(axis=0).max(), -parts.clip(max=0).sum(axis=0).min()
    assert scale == min(end for end in (1, 3, 8, 20) if end >= max(up, down))
    zero, unit = 110, 95 / scale
    column = 500 / parts.shape[1]
    expected = []
    for c, values in enumerate(parts.T):
        for k, value in enumerate(values):
            same = values[:k][values[:k] * value > 0].sum()  # on which this one stands
            if value:
                expected += [(c, k, zero - max(same, same + value) * unit, abs(value) * unit)]
    plain = {TINTS[k]: k for k in range(len(parts))}
    drawn = [
        (round((x - 137) / column), plain[fill], y, height)
        for e in elements["rect"][1:]
        if (fill := e.get("fill")) in plain and e.get("width") != "16"
        for x, y, height in [[float(e.get(name)) for name in ("x", "y", "height")]]
    ]
    assert [bar[:2] for bar in drawn] == [bar[:2] for bar in expected]
    near = dict(atol=0.11 + off * unit)
    assert not drawn or np.allclose([b[2:] for b in drawn], [b[2:] for b in expected], **near)
    sums = [float(e.get("y1")) for e in elements["line"] if e.get("stroke-width") == "3"]
    assert np.allclose(sums[:-1], zero - unit * parts.sum(axis=0), **near) and len(sums) == len(parts.T) + 1
    legend = [e.get("fill") for e in elements["rect"] if e.get("width") == "16"]
    assert [fill for fill in legend if fill in plain] == list(plain)


@pytest.mark.parametrize(
    "name", [f"w{r}{c}" for r in range(4) for c in range(4)] + [f"z{r}" for r in range(4)]
)
def test_every_knob_of_the_desk_over_its_range(name):
    instrument = MAKE["mixing_desk"]()
    for value in positions(instrument.controls[name]):
        values = instrument.values() | {name: value}
        W = np.array([[values[f"w{r}{c}"] for c in range(4)] for r in range(4)])
        view = instrument.render(**values)
        agree(view.caption, desk_says(W, np.array([values[f"z{r}"] for r in range(4)])))
        shown(view.svg)


def press(instrument, description):
    (button,) = (b for b in widgets_in(instrument.box) if getattr(b, "description", "") == description)
    button.click()


def widgets_in(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from widgets_in(child)


def test_the_buttons_of_the_desk():
    instrument = MAKE["mixing_desk"]()
    start = instrument.caption.value
    assert "together y = [0.8, 1.1, 2.1, 2]" in start
    press(instrument, "Silence head 0")
    assert "together y = [0.3, 0, 1.9, 2]" in instrument.caption.value
    press(instrument, "Silence head 1")
    assert "together y = [0, 0, 0, 0]" in instrument.caption.value
    press(instrument, "Worked example")
    assert instrument.caption.value == start
    press(instrument, "Transpose")
    agree(instrument.caption.value, desk_says(W_O.T.double().numpy(), np.array([1.0, 2, 3, 4])))
    press(instrument, "Identity")
    assert "together y = [1, 2, 3, 4]" in instrument.caption.value
    press(instrument, "Transpose")
    assert "together y = [1, 2, 3, 4]" in instrument.caption.value


def test_the_trained_desk_over_its_grid():
    instrument = MAKE["trained_desk"]()
    sizes = set()
    for layer, head, token in product(range(6), range(12), range(12)):
        view = instrument.render(layer=layer, head=head, token=token)
        weights = TRAINED.layers[layer]
        W = weights.W_O.double().numpy()
        z = merge_heads(weights.z[:1].double())[0, token].numpy()  # (h·d_v,)
        added = np.stack([z[32 * i : 32 * (i + 1)] @ W[32 * i : 32 * (i + 1)] for i in range(12)])
        lengths = np.linalg.norm(added, axis=1)
        b = weights.b_O.double().numpy()
        at_right_angles = np.sqrt((lengths**2).sum())
        said = [
            lengths[head],
            lengths.sum(),
            at_right_angles,
            np.linalg.norm(z @ W),
            np.linalg.norm(z @ W + b),
        ]
        found = re.findall(r"\d+\.\d\d", view.caption)
        assert np.allclose([float(text) for text in found], said, atol=0.0051)
        assert re.sub(r"\d+\.\d\d", "#", view.caption) == (
            f"Layer {layer}, “{TRAINED.tokens[0][token]}”: head {head} adds a vector of length #. All 12, "
            "laid end to end, would reach #; each at a right angle to the others, #; as they are, #. With "
            "the bias, y has #. The picture shows, rounded, the six of 384 channels on which head "
            f"{head} adds most, up or down."
        )
        # Of the head, the others and the bias, the six channels on which the head adds most.
        top = np.sort(np.abs(added[head]).argsort()[-6:])
        parts = np.stack([added[head], added.sum(axis=0) - added[head], b])[:, top]
        elements = shown(view.svg)
        bars_stand_on_each_other(elements, parts, off=0.01)
        said = [float(text) for text in read(elements) if re.fullmatch(r"-?\d+(\.\d+)?", text)]
        rows = np.reshape(said[3:], (5, 6))  # after the scale: three parts, y, and which channel it is
        assert np.allclose(rows[:4], np.vstack([parts, parts.sum(axis=0)]), atol=0.0051)
        assert rows[4].tolist() == top.tolist() and not {"-0.00", "-0"} & set(texts(elements))
        sizes.add(size_of(view.svg))
    assert len(sizes) == 1


def test_the_steps_of_every_merge():
    render = MAKE["step_through"]().render
    right = [Z, Z.transpose(1, 2), Z.transpose(1, 2), merge_heads(Z)]
    strides = [(12, 6, 2, 1), (12, 2, 6, 1), (12, 4, 2, 1), (12, 4, 1)]
    for step, (tensor, stride) in enumerate(zip(right, strides, strict=True)):
        view = render(merge="right", step=step)
        assert f"Shape {tuple(tensor.shape)}, strides {stride}." in view.caption
        boxes = texts(shown(view.svg))
        drawn = [text for text in boxes if re.fullmatch(r"h\dt\dc\d", text)]
        order = [NAMES[int(v)] for v in tensor.flatten().tolist()]
        memory = [NAMES[int(v)] for v in (merge_heads(Z) if step > 1 else Z).flatten().tolist()]
        assert drawn == order + (NAMES + memory if step == 2 else memory)
    assert "z: z as it lies in memory, head by head." in render(merge="right", step=0).caption
    assert "a copy, so 12 numbers stand in new memory" in render(merge="right", step=2).caption
    assert render(merge="right", step=3).caption.endswith(
        "The row of token 0 reads head 0 of token 0 and head 1 of token 0."
    )
    assert render(merge="no transpose", step=1).caption.endswith(
        "The row of token 0 reads head 0 of token 0 and head 0 of token 1."
    )
    error = render(merge="no contiguous", step=2)
    assert (
        "an error" in error.caption
        and "from channel to channel 1 cell, but from head to head 6, not 2 times 1" in error.caption
    )
    assert error.caption.endswith("Nothing was made.")
    with pytest.raises(RuntimeError):
        Z.transpose(1, 2).view(1, 3, 4)
    assert "still z.transpose(1, 2) · shape (1, 3, 2, 2) · strides (12, 2, 6, 1)" in texts(shown(error.svg))
    assert "an error: nothing was made" in texts(shown(error.svg))


# Which cells are framed, by where they lie: in the boxes, row after row, and in memory.
FRAMED = {
    ("right", 0): ([], []),
    ("right", 1): ([], []),
    ("right", 2): ([], []),
    ("right", 3): ([0, 1, 2, 3], [0, 1, 2, 3]),
    ("no transpose", 1): ([0, 1, 2, 3], [0, 1, 2, 3]),
    ("no contiguous", 1): ([], []),
    ("no contiguous", 2): ([0, 1, 2, 3], [0, 1, 6, 7]),
}


@pytest.mark.parametrize(("merge", "step"), FRAMED)
def test_the_row_of_token_0_is_framed_where_it_stands_and_where_it_lies(merge, step):
    elements = shown(MAKE["step_through"]().render(merge=merge, step=step).svg)
    cells = boxes(elements, width="50", height="26")
    thick = [float(e.get("stroke-width")) > 2 for e in elements["rect"][1:]]
    in_boxes, in_memory = (
        [k for k, framed in enumerate(half) if framed] for half in (thick[:12], thick[-12:])
    )
    assert len(cells) == (36 if (merge, step) == ("right", 2) else 24)
    assert (in_boxes, in_memory) == FRAMED[merge, step]
    assert ("thick frame: the row of token 0" in texts(elements)) == bool(in_boxes)


@pytest.mark.parametrize(
    ("merge", "step", "said"),
    [
        ("right", 0, ["head 0", "head 1"]),
        ("right", 1, ["token 0", "token 1", "token 2"]),
        ("right", 3, []),
        ("no transpose", 1, []),
    ],
)
def test_boxes_say_what_all_their_cells_have_in_common(merge, step, said):
    elements = shown(MAKE["step_through"]().render(merge=merge, step=step).svg)
    assert [text for text in texts(elements) if re.fullmatch(r"(head|token) \d", text)] == said


def test_the_right_merge_does_what_merge_heads_does():
    kinds = [step.kind for step in record_journey(merge_heads, Z)]
    captions = [MAKE["step_through"]().render(merge="right", step=step).caption for step in (1, 2, 3)]
    assert kinds == [re.search(r": a (view|copy),", caption)[1] for caption in captions]


@pytest.mark.parametrize("run", RUNS)
def test_the_loop_over_its_grid(run):
    instrument = MAKE["where_the_loop_hurts"]()
    record = RUNS[run]
    points = {(p["T"], p["h"]): p for p in record["points"] if p["direction"] == "forward"}
    model, sizes, scales = record["cost_model"], set(), {}
    for T, h in product(*(positions(instrument.controls[name]) for name in ("T", "h"))):
        point = points[T, h]
        for overhead in positions(instrument.controls["overhead"]):
            view = instrument.render(run=run, T=T, h=h, overhead=overhead)
            elements = shown(view.svg)
            sizes.add(size_of(view.svg))
            if "seconds" not in point:
                assert texts(elements) == [view.caption]
                assert view.caption == f"T = {T}, h = {h} was not measured when the run was recorded."
                continue
            total, shares = {}, {}
            for way in ("loop", "batched", "fused"):
                launches, views = point["operations"][way]
                work = point["predicted"][way] - launches * model["launch"] - views * model["view"]
                assert work >= 0
                started = (launches + views * model["view"] / model["launch"]) * overhead / 1e6
                total[way] = started + work
                said = re.search(
                    rf"{way} ([\d.]+) ms \((\d+) launches and (\d+) views are ([^)]*)\)", view.caption
                )
                assert abs(float(said[1]) / 1000 - total[way]) <= max(0.0051 / 1000, 0.0051 * total[way])
                assert [int(said[2]), int(said[3])] == [launches, views]
                assert said[4] == percent(started / total[way])
                shares[way] = started
            ratio = float(re.search(r"loop / batched is (\d+\.\d\d)", view.caption)[1])
            assert abs(ratio - total["loop"] / total["batched"]) < 0.0051
            times = {way: point["seconds"][way] for way in total}
            recorded = times["loop"][1] / times["batched"][1]
            assert view.caption.endswith(f"Recorded loop / batched ({run}): {recorded:.2f}.")
            # The lines of the scale are where their words say; it is the same for every overhead.
            zero, half, full = (float(e.get("x1")) for e in elements["line"] if e.get("stroke") == PALE)
            ticks = [text for text in texts(elements) if re.fullmatch(r"[\d.]+ ms", text)]
            nothing, _, high = (float(text.removesuffix(" ms")) for text in ticks)
            unit = 1000 * (full - zero) / high
            assert (zero, nothing, half) == (82, 0, pytest.approx((zero + full) / 2, abs=0.11)) and full > 200
            scales.setdefault((T, h), full)
            assert scales[T, h] == full
            work, started = (
                boxes(elements, height="30", fill=TINTS[0]),
                boxes(elements, height="30", fill=TINTS[1]),
            )
            assert np.allclose(started[:, 2], [unit * shares[way] for way in total], atol=0.25)
            assert np.allclose(work[:, 1], started[:, 1]) and np.allclose(
                work[:, 0], started[:, 0] + started[:, 2], atol=0.11
            )
            assert np.allclose(work[:, 0] + work[:, 2], [82 + unit * total[way] for way in total], atol=0.25)
            middles = [np.mean(extent(diamond)[:2]) for diamond in elements["polygon"][:3]]
            assert np.allclose(middles, [82 + unit * times[way][1] for way in total], atol=0.25)
            assert len(elements["polygon"]) == 4  # and one in the legend
    assert len(sizes) == 1


@pytest.mark.usefixtures("as_a_learner_calls")
@pytest.mark.parametrize(("T", "h"), [(1, 4), (8, 12)])
def test_the_loop_takes_the_overhead_into_account_as_the_model_does(T, h):
    run = RUNS["cpu"]
    slow = CostModel(**run["cost_model"] | {name: 3 * run["cost_model"][name] for name in ("launch", "view")})
    layer, x = MultiHeadAttention(768, h), torch.zeros(1, T, 768)
    caption = (
        MAKE["where_the_loop_hurts"]()
        .render(run="cpu", T=T, h=h, overhead=3e6 * run["cost_model"]["launch"])
        .caption
    )
    with torch.no_grad():
        for name in ("loop", "batched", "fused"):
            seconds = slow.predict(record_journey(ways_of(layer)[name], x))
            assert f"{name} {1000 * seconds:.2f} ms" in caption


# ------------------------------------------------------------------- what all pictures say, and how


def placed(elements, **wanted):
    """The words with these attributes, each with where it stands: from left to right, line after line."""
    found = [e for e in elements["text"] if all(e.get(name) == value for name, value in wanted.items())]
    return sorted((float(e.get("y")), float(e.get("x")), e.text) for e in found)


def read(elements, **wanted):
    return [text for _, _, text in placed(elements, **wanted)]


def attributes(found, *names):
    return [tuple(element.get(name) for name in names) for element in found]


def test_who_reaches_whom_names_and_colours_the_head():
    head, (W, h) = 2, LAYERS["toy"]
    elements = shown(MAKE["who_reaches_whom"]().render(layer="toy", head=head, mix=100).svg)
    share = W.view(h, 2, 8)[head].square().sum(dim=0)
    share /= share.sum()
    assert read(elements)[:3] == ["heads", "output channels", "share of squared reach"]
    assert read(elements, **{"font-weight": "bold"})[3:] == ["head 2", "channel 4", "channel 5"]
    heads, outputs = (boxes(elements, height="22")[k] for k in (slice(-h, None), slice(-8 - h, -h)))
    for column, name in ((heads, "head"), (outputs, "channel")):
        inside = [(y - 5, x, text) for y, x, text in placed(elements) if re.fullmatch(rf"{name} \d", text)]
        assert [text for *_, text in inside] == [f"{name} {k}" for k in range(len(column))]
        assert np.allclose([place[:2] for place in inside], column[:, [1, 0]] + [11, 50], atol=0.11)
    assert attributes(elements["rect"][-h:], "fill") == [
        (TINTS[k] if k == head else "white",) for k in range(h)
    ]
    bars = boxes(elements, height="16", fill=TINTS[head])
    assert np.allclose(bars[:, 2], 130 * share, atol=0.06) and np.allclose(bars[:, 1] + 8, outputs[:, 1] + 11)
    lines = attributes(elements["line"], "stroke", "stroke-width")
    assert {colour for colour, _ in lines} == {COLOURS[head]}
    assert np.allclose([float(w) for _, w in lines], 0.8 + 5 * share / share.max(), atol=0.06)
    slices = shown(MAKE["who_reaches_whom"]().render(layer="MiniLM 0", head=0, mix=0).svg)
    assert "output slices" in read(slices) and "slice 11" in read(slices)


def test_two_reports_are_told_apart_by_names_and_tints():
    elements = shown(MAKE["two_reports_one_sum"]().render(way="own", move_0=1, move_1=-1).svg)
    reports, totals = ["h0 c0", "h0 c1", "h1 c0", "h1 c1"], ["c0", "c1"]
    assert read(elements)[:13] == ["side by side", "the sum", "y", *reports, *totals, "c0", "c1", "c2", "c3"]
    bars = [e for e in elements["rect"] if e.get("width") == "40"]
    assert attributes(bars, "fill") == [(TINTS[k],) for k in (0, 0, 1, 1, 3, 3, 3, 3, 3, 3)]
    centres = [float(e.get("x")) + 20 for e in bars]
    values = [(x, float(text)) for y, x, text in placed(elements) if y == 285]
    assert np.allclose([x for x, _ in values], centres)
    after = np.array([2.0, 1.0, 2.0, 5.0])
    assert np.allclose([value for _, value in values], [*after, 4, 6, *(after @ OWN.numpy())], atol=0.051)
    assert attributes(elements["line"], "y1", "y2") == [("150", "150")]


@pytest.mark.parametrize("name", ["mixing_desk", "trained_desk"])
def test_a_desk_names_its_parts(name):
    instrument = MAKE[name]()
    elements = shown(instrument.view.svg)
    parts = ["head 0", "head 1"] if name == "mixing_desk" else ["head 0", "11 others", "bias"]
    names = [(y, text) for y, x, text in placed(elements) if x == 112][3:]  # after the scale
    assert [text for _, text in names] == [*parts, "y", "channel of y"]
    legend = [(y - 12, TINTS[k]) for k, (y, _) in enumerate(names[: len(parts)])]
    squares = [e for e in elements["rect"] if e.get("width") == "16" and e.get("fill") in TINTS]
    assert [(float(y), fill) for y, fill in attributes(squares, "y", "fill")] == legend
    assert elements["line"][-1].get("y1") == str(round(names[-2][0] - 5))  # the line of y, in the legend
    scale = [float(text) for y, x, text in placed(elements, **{"font-size": "12"})]
    assert scale == [scale[0], 0, -scale[0]]
    if name == "trained_desk":
        assert f"The sentence is “{TRAINED.sentences[0]}”" in instrument.box.children[0].value
    grid = [float(e.get("y1")) for e in elements["line"] if e.get("stroke") == PALE]
    assert grid == [y - 5 for y, _, _ in placed(elements, **{"font-size": "12"})] == [15, 110, 205]


def test_knobs_and_sliders_of_the_desk_say_which_they_are():
    instrument = MAKE["mixing_desk"]()
    for r, c in product(range(4), range(4)):
        assert instrument.controls[f"w{r}{c}"].description == f"{r} → {c}"
        assert instrument.controls[f"z{r}"].description == f"head {r // 2}: z_cat {r}"
    assert any(
        "Rows 0 and 1 are head 0's" in getattr(w, "value", "")
        for w in widgets_in(instrument.box)
        if isinstance(w, ipywidgets.HTML)
    )
    (knobs,) = (w for w in widgets_in(instrument.box) if isinstance(w, ipywidgets.GridBox))
    assert {(k.min, k.max) for k in knobs.children} == {(-1, 1)}
    assert [k.description for k in knobs.children] == [f"{r} → {c}" for r in range(4) for c in range(4)]
    for head in range(2):
        for r in range(4):
            instrument.controls[f"z{r}"].value = r + 0.5
        press(instrument, f"Silence head {head}")
        left = [0 if r // 2 == head else r + 0.5 for r in range(4)]
        assert [instrument.values()[f"z{r}"] for r in range(4)] == left


def test_a_step_colours_cells_by_head_and_numbers_the_memory():
    elements = shown(MAKE["step_through"]().render(merge="right", step=2).svg)
    cells = [e for e in elements["rect"][1:] if e.get("width") == "50"]
    names = [text for text in texts(elements) if re.fullmatch(r"h\dt\dc\d", text)]
    assert attributes(cells, "fill") == [(TINTS[int(name[1])],) for name in names]
    assert read(elements)[:3] == [
        "z.transpose(1, 2).contiguous()",
        "to come: .view(1, 3, 4)",
        "copy · shape (1, 3, 2, 2) · strides (12, 4, 2, 1)",
    ]
    assert read(elements, **{"font-weight": "bold", "font-size": "13"}) == ["memory before", "new memory"]
    where = [(x - 25, y - 18) for y, x, text in placed(elements, y="88") if re.fullmatch(r"h\dt\dc\d", text)]
    assert where == [(20 + 114 * box + 50 * c, 70) for box in range(3) for c in range(2)]  # row after row
    assert [text for y, _, text in placed(elements) if y == 88] == [
        f"h0t{t}c{c}" for t in range(3) for c in (0, 1)
    ]
    for y in (198, 278):
        strip = boxes(elements, y=str(y))
        numbers = [(x, text) for below, x, text in placed(elements) if below == y + 41]
        assert numbers == [(x + 25, str(k)) for k, x in enumerate(strip[:, 0])]


def test_another_run_brings_its_own_overhead():
    slow = RUNS["cpu"] | {"cost_model": RUNS["cpu"]["cost_model"] | {"launch": 9e-6}}
    instrument = where_the_loop_hurts({"cpu": RUNS["cpu"], "slow": slow})
    overhead = instrument.controls["overhead"]
    assert overhead.value == pytest.approx(1e6 * RUNS["cpu"]["cost_model"]["launch"], abs=0.1)
    assert overhead.max == 18
    instrument.controls["run"].value = "slow"
    assert overhead.value == pytest.approx(9) and "9.0 µs a launch" in instrument.caption.value
    assert MAKE["where_the_loop_hurts"]().controls["overhead"].max == 10


def test_the_bars_of_the_loop_have_their_names_and_figures():
    point = next(p for p in RUNS["cpu"]["points"] if (p["T"], p["h"], p["direction"]) == (8, 12, "forward"))
    launch = 1e6 * RUNS["cpu"]["cost_model"]["launch"]
    elements = shown(MAKE["where_the_loop_hurts"]().render(run="cpu", T=8, h=12, overhead=launch).svg)
    names = [(y, text) for y, _, text in placed(elements, **{"font-weight": "bold"})]
    assert [text for _, text in names] == ["loop", "batched", "fused"]
    ticks = [(x, float(text[:-3])) for _, x, text in placed(elements) if re.fullmatch(r"[\d.]+ ms", text)]
    unit = (ticks[2][0] - ticks[0][0]) / ticks[2][1]  # pixels of a millisecond
    lines = [e for e in elements["line"] if e.get("stroke-width") == "2"]
    for (y, way), line in zip(names, lines, strict=True):
        low, middle, high = (1000 * seconds for seconds in point["seconds"][way])
        beside = [text for line_y, x, text in placed(elements) if x == 430 and abs(line_y - y) < 20]
        assert [text.split()[0] for text in beside] == ["model", "recorded"]
        said = [float(text.split()[1]) for text in beside]
        assert np.allclose(said, [1000 * point["predicted"][way], middle], atol=0.0051)
        ends = [82 + unit * low, 82 + unit * high]
        assert np.allclose([float(line.get(x)) for x in ("x1", "x2")], ends, atol=0.25)
        assert y < float(line.get("y1")) < y + 40
    below = [e for e in elements["rect"] if e.get("width") == "16" and e.get("fill") in TINTS]
    assert attributes(below, "fill") == [(TINTS[1],), (TINTS[0],)]  # overhead, work
    legend = ["overhead", "work", "recorded: median, line over the middle half"]
    assert read(elements, **{"font-size": "13"}) == legend


@each_instrument
def test_words_can_be_read_and_nothing_is_told_by_colour_alone(name):
    elements = shown(MAKE[name]().view.svg)
    for element in elements["text"]:
        assert int(element.get("font-size")) >= 12 and contrast(element.get("fill"), "#ffffff") >= 4.5
    if name in ("two_reports_one_sum", "mixing_desk", "trained_desk", "where_the_loop_hurts"):
        looks = striped(MAKE[name]().view.svg)
        others = {looks.pop(tint) for tint in (TINTS[1], TINTS[2]) if tint in looks}
        assert set(looks) <= {TINTS[0], TINTS[3]} and set(looks.values()) == {frozenset()}
        assert len(others) == (2 if name == "trained_desk" else 1) and frozenset() not in others


def striped(svg):
    """For every tint the one look that its boxes have: which stripes are over them."""
    looks, stripes_of_box = {}, set()
    for element in ET.fromstring(svg):
        match element.tag.split("}")[1]:
            case "rect":
                box, stripes_of_box = extent(element), set()
                if element.get("fill") in TINTS:
                    looks.setdefault(element.get("fill"), []).append(stripes_of_box)
            case "path":  # on the box that was drawn before
                kind, place = stripes(element)
                assert np.allclose(place, box, atol=0.21)
                stripes_of_box.add(kind)
    assert all(look == same[0] for same in looks.values() for look in same)
    return {tint: frozenset(same[0]) for tint, same in looks.items()}


def contrast(*colours):
    """The ratio of WCAG 2.2, "contrast ratio", of two colours like #595959."""
    luminances = []
    for colour in colours:
        levels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in levels]
        luminances.append(float(np.dot([0.2126, 0.7152, 0.0722], linear)))
    dark, light = sorted(luminances)
    return (light + 0.05) / (dark + 0.05)


# ------------------------------------------------------------------------------------- the shell


def displayed(thing, monkeypatch):
    bundles = []
    monkeypatch.setattr("mhalesson.widgets.instrument.display", lambda data, raw: bundles.append(data))
    thing._ipython_display_()
    return bundles


@each_instrument
def test_without_a_kernel_the_first_picture_and_its_caption_are_there(name, monkeypatch):
    instrument = MAKE[name]()
    live, static = displayed(instrument, monkeypatch)
    view = instrument.render(**instrument.values())
    assert live[WIDGET_VIEW]["model_id"] == instrument.box.model_id and live["text/plain"]
    assert static["text/plain"] == view.caption
    image, caption = whole(static["text/html"])
    assert image.attrib == {"alt": view.title, "src": as_address(view.svg)}
    assert "".join(caption.itertext()) == view.caption


def test_words_of_the_static_state_are_escaped(monkeypatch):
    instrument = Instrument(lambda: View('"a" < b', "<svg/>", "1 < 2 & <3>"), {}, ["Look."])
    image, caption = whole(displayed(instrument, monkeypatch)[1]["text/html"])
    assert (image.get("alt"), "".join(caption.itertext())) == ('"a" < b', "1 < 2 & <3>")
    guess = Guess("1 < <b>?", "<i>yes", "no & no")
    asked, options = whole(displayed(guess, monkeypatch)[1]["text/html"])
    assert [asked.text, *(option.text for option in options)] == ["My guess: 1 < <b>?", "<i>yes", "no & no"]


def whole(html):
    """What stands in the static part, which is a class that the style before it speaks of."""
    style, part = re.fullmatch(r"\s*<style>(.*)</style>\s*(<div.*</div>)", html, re.DOTALL).groups()
    static = ET.fromstring(re.sub(r"(<img [^>]*)>", r"\1/>", part))  # HTML does not close images
    assert style.count(f".{static.get('class')}") == 2
    return static


@each_instrument
def test_every_control_has_its_label_and_moves_the_picture_and_the_caption(name):
    instrument = MAKE[name]()
    for control in instrument.controls.values():
        assert control.description and control.tooltip == control.description
        values = positions(control)
        if len(values) == 1:  # as many as there are recorded devices
            continue
        before, was = (instrument.picture.value, instrument.caption.value), control.value
        control.value = next(value for value in reversed(values) if value != was)
        assert instrument.picture.value != before[0], control.description
        assert instrument.caption.value != before[1], control.description
        view = instrument.render(**instrument.values())
        assert instrument.picture.value == view.svg
        control.value = was
        assert (instrument.picture.value, instrument.caption.value) == before


@each_instrument
def test_there_is_something_to_try(name):
    steps = MAKE[name]().box.children[0].value
    assert 2 <= steps.count("<li>") <= 3 and steps.count("?") >= 1


def test_another_layer_has_only_the_heads_it_has():
    instrument = who_reaches_whom({"twelve": (TRAINED.layers[0].W_O, 12), "four": (TOY, 4)})
    instrument.controls["head"].value = 11
    instrument.controls["layer"].value = "four"
    assert instrument.controls["head"].value == 3 and "head 3 reaches" in instrument.caption.value
    instrument.controls["layer"].value = "twelve"
    assert instrument.controls["head"].max == 11


def test_another_merge_has_only_the_steps_it_has():
    instrument = MAKE["step_through"]()
    instrument.controls["step"].value = 3
    instrument.controls["merge"].value = "no transpose"
    assert "Step 0 of 1" in instrument.caption.value and instrument.controls["step"].max == 1
    instrument.controls["merge"].value = "right"
    assert instrument.controls["step"].max == 3


def test_the_shell_draws_once_for_many_values():
    drawn = []

    def render(a, b):
        drawn.append((a, b))
        return View("t", "<svg/>", f"{a} < {b}")

    instrument = Instrument(render, {n: ipywidgets.IntSlider(description=n) for n in "ab"}, ["Move <b>."])
    assert instrument.caption.value == "0 &lt; 0"
    steps, _, picture, caption, live = instrument.box.children
    assert "<li>Move &lt;b&gt;.</li>" in steps.value and LIVE in live.value
    assert (picture, caption) == (instrument.picture, instrument.caption)
    with instrument.at_once():
        instrument.controls["a"].value = 3
        instrument.controls["b"].value = 4
    assert drawn == [(0, 0), (3, 4)]
    with pytest.raises(ZeroDivisionError), instrument.at_once():
        instrument.controls["a"].value = 1 // 0
    instrument.controls["a"].value = 5
    assert drawn[-1] == (5, 4)


def test_an_error_is_shown_and_not_swallowed():
    def render(a):
        return View("t", "<svg/>", str(1 / a))

    control = ipywidgets.IntSlider(1, description="a")
    instrument = Instrument(render, {"a": control}, ["Move."])
    control.value = 0
    assert instrument.caption.value == "No picture for a = 0. ZeroDivisionError: division by zero"
    assert instrument.picture.value == ""
    control.value = 2
    assert (instrument.picture.value, instrument.caption.value) == ("<svg/>", "0.5")


def test_words_of_a_picture_are_escaped_and_its_numbers_short():
    drawing = Drawing("a < b", 10)
    drawing.words(1 / 3, 2, "<script>&")
    assert "&lt;script&gt;&amp;" in drawing.svg() and 'x="0.3"' in drawing.svg()
    assert ET.fromstring(drawing.svg()).get("aria-label") == "a < b"


def test_heads_of_other_tints_have_other_stripes_and_all_lies_on_white():
    drawing = Drawing("t", 10)
    for head in range(3):
        drawing.striped_box(10 * head, 1, 5, 5, head)
    assert list(striped(drawing.svg())) == list(TINTS[:3]) and len(set(striped(drawing.svg()).values())) == 3
    drawing.diamond(5, 5, 2)
    elements = shown(drawing.svg())
    assert elements["polygon"][0].get("fill") == "#111111"
    assert "background: white" in ET.fromstring(drawing.svg()).get("style")
    assert attributes(elements["rect"][:1], "width", "height", "fill") == [(str(WIDTH), "10", "white")]


# ------------------------------------------------------------------------------------- the guess


def test_a_guess_is_kept_while_the_kernel_lives(monkeypatch):
    first = Guess("How many?", "12 at both", "1 at both")
    assert str(first) == "none yet"
    first.buttons.value = "1 at both"
    assert f"{first}" == "1 at both"
    assert str(Guess("How many?", "12 at both", "1 at both")) == "1 at both"  # the cell ran again
    assert str(Guess("How long?", "12 at both", "1 at both")) == "none yet"
    assert "mhalesson-instrument" in first.box._dom_classes
    asked, _, script = Guess("1 < 2?", "yes", "no").box.children
    assert "1 &lt; 2?" in asked.value and script.value == LIVE
    live, static = displayed(first, monkeypatch)
    assert live[WIDGET_VIEW]["model_id"] == first.box.model_id
    assert static["text/plain"] == "My guess: How many?\n\n- 12 at both\n- 1 at both"
    asked, options = whole(static["text/html"])
    assert [asked.text, *(option.text for option in options)] == ["My guess: How many?", *first.options]


# ------------------------------------------------------------------------------------ wrong calls


def lacking(part):
    """A run without a part of its points."""
    run = RUNS["cpu"]
    points = [{name: value for name, value in p.items() if name != part} for p in run["points"]]
    return run | {"points": points}


WRONG = {
    "layers=[1] should": lambda: who_reaches_whom([1]),
    "layers={} should": lambda: who_reaches_whom({}),
    "layers['a'] has shape (4, 6)": lambda: who_reaches_whom({"a": (torch.ones(4, 6), 2)}),
    "layers['a'] should be a tuple of two": lambda: who_reaches_whom({"a": torch.eye(4)}),
    "layers['a'] has shape (0, 0)": lambda: who_reaches_whom({"a": (torch.ones(0, 0), 1)}),
    "num_heads of layers['a']=2.0 should": lambda: who_reaches_whom({"a": (torch.eye(4), 2.0)}),
    "layers['a']=3 is of type int": lambda: who_reaches_whom({"a": (3, 2)}),
    "layers['a'] holds nan": lambda: who_reaches_whom({"a": (torch.eye(4) * torch.nan, 2)}),
    "layers['a'] with 4 rows cannot": lambda: who_reaches_whom({"a": (torch.eye(4), 3)}),
    "num_heads=13 of layers['a']; there is room": lambda: who_reaches_whom({"a": (torch.eye(26), 13)}),
    "pair has shape (3, 2)": lambda: two_reports_one_sum(torch.ones(3, 2), WAYS),
    "pair holds inf": lambda: two_reports_one_sum(PAIR / 0, WAYS),
    "ways=tensor(": lambda: two_reports_one_sum(PAIR, OWN),
    "ways={5: 3} should": lambda: two_reports_one_sum(PAIR, {5: 3}),
    "pair and ways make numbers beyond 999": lambda: two_reports_one_sum(PAIR * 300, {"a": OWN}),
    "ways={} should": lambda: two_reports_one_sum(PAIR, {}),
    "ways['a'] has shape (2, 4)": lambda: two_reports_one_sum(PAIR, {"a": torch.ones(2, 4)}),
    "ways['a'] has 5 columns": lambda: two_reports_one_sum(PAIR, {"a": torch.ones(4, 5)}),
    "ways['a'] has 0 columns": lambda: two_reports_one_sum(PAIR, {"a": torch.ones(4, 0)}),
    "ways['a'] holds -inf": lambda: two_reports_one_sum(PAIR, {"a": torch.full((4, 1), -torch.inf)}),
    "W_O has shape (5, 5)": lambda: mixing_desk(torch.eye(5), PAIR),
    "W_O holds numbers beyond 1": lambda: mixing_desk(3 * torch.eye(4), PAIR),
    "W_O holds nan": lambda: mixing_desk(W_O * torch.nan, PAIR),
    "z holds numbers beyond 5": lambda: mixing_desk(W_O, 9 * PAIR),
    "z has the shape (1, 6, 1, 2); there is room": lambda: step_through(
        torch.arange(12.0).view(1, 6, 1, 2), NAMES, MERGES
    ),
    "z should be contiguous and hold the codes": lambda: step_through(Z.flip(1), NAMES, MERGES),
    "z should be contiguous": lambda: step_through(Z.mT.contiguous().mT, NAMES, MERGES),
    "names should be index_codes(h=2, t=3, c=2)": lambda: step_through(Z, NAMES[::-1], MERGES),
    "merges['a'] makes the shape (1, 2, 6) of z.view(1, 2, 6)": lambda: step_through(
        Z, NAMES, {"a": [("view", 1, 2, 6)]}
    ),
    "merges['a'] makes the shape (12,) of z.flatten()": lambda: step_through(Z, NAMES, {"a": [("flatten",)]}),
    "merges={} should": lambda: step_through(Z, NAMES, {}),
    "z.view(1, 3, 5) fails: shape": lambda: step_through(Z, NAMES, {"a": [("view", 1, 3, 5)]}),
    "z.transpose(1, 9) fails: Dimension": lambda: step_through(Z, NAMES, {"a": [("transpose", 1, 9)]}),
    "z.transpose(1, 2, 3, 4) fails: transpose": lambda: step_through(
        Z, NAMES, {"a": [("transpose", 1, 2, 3, 4)]}
    ),
    "z.permute(0, 3, 2, 1).view(1, 3, 4) fails: view size": lambda: step_through(
        Z, NAMES, {"a": [("permute", 0, 3, 2, 1), VIEW]}
    ),
    "z.transpose(1, 2).view(12) fails: view size": lambda: step_through(
        Z, NAMES, {"a": [TRANSPOSE, ("view", 12)]}
    ),
    "merges['a'] holds ('mul', 2); a call should": lambda: step_through(Z, NAMES, {"a": [("mul", 2)]}),
    "merges['a'] holds ('view', torch.int32)": lambda: step_through(Z, NAMES, {"a": [("view", torch.int32)]}),
    "merges['b'] holds 'contiguous'; a call": lambda: step_through(
        Z, NAMES, MERGES | {"b": [TRANSPOSE, "contiguous"]}
    ),
    "merges['a'] holds (); a call": lambda: step_through(Z, NAMES, {"a": [()]}),
    "merges['a'] makes the shape (12, 1, 1, 1) of z.view": lambda: step_through(
        Z, NAMES, {"a": [("view", 12, 1, 1, 1)]}
    ),
    "merges['a'] makes the shape (1, 1, 12, 1) of z.view": lambda: step_through(
        Z, NAMES, {"a": [("view", 1, 1, 12, 1)]}
    ),
    "there is room for 48 letters": lambda: step_through(Z, NAMES, {"a": [TRANSPOSE] * 3}),
    "runs={} should": lambda: where_the_loop_hurts({}),
    "runs['a'] is not a whole run": lambda: where_the_loop_hurts(RUNS | {"a": RUNS["cpu"] | {"points": []}}),
    "runs['b'] is not a whole run": lambda: where_the_loop_hurts({"b": lacking("operations")}),
    "runs['c'] is not a whole run": lambda: where_the_loop_hurts({"c": lacking("predicted")}),
    "runs['d'] is not a whole run": lambda: where_the_loop_hurts({"d": RUNS["cpu"] | {"cost_model": {}}}),
    "runs['e'] is not a whole run": lambda: where_the_loop_hurts(
        {"e": RUNS["cpu"] | {"cost_model": RUNS["cpu"]["cost_model"] | {"launch": torch.nan}}}
    ),
    "runs['cost_model'] is not a whole run": lambda: where_the_loop_hurts(RUNS["cpu"]),
    "trained=3 should": lambda: trained_desk(3),
    "question=5 and": lambda: Guess(5, "a", "b"),
    "options=('', 'a') should": lambda: Guess("How many?", "", "a"),
    "options=('a',) should": lambda: Guess("How many?", "a"),
    "options=('a', 'a') should": lambda: Guess("How many?", "a", "a"),
}


@pytest.mark.usefixtures("as_a_learner_calls")
@pytest.mark.parametrize("says", WRONG)
def test_a_wrong_call_gets_one_sentence(says):
    with pytest.raises(ValueError) as error:
        WRONG[says]()
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("size", [1e-200, 1e-18, 1e200])
def test_shares_do_not_depend_on_the_size_of_a_matrix(size):
    W = TOY.double()
    small, usual = (who_reaches_whom({"W": (size * W, 4)}), who_reaches_whom({"W": (W, 4)}))
    values = dict(layer="W", head=2, mix=100)
    assert small.render(**values) == usual.render(**values)


def test_a_head_that_reaches_nothing_says_so():
    caption = who_reaches_whom({"none": (torch.zeros(4, 4), 2)}).render(layer="none", head=1, mix=100).caption
    assert "head 1 reaches 0 of 4" in caption and "gets 0 % of" in caption


def test_other_ways_to_move_can_be_stepped_through():
    merges = {"reshape": [TRANSPOSE, ("reshape", 1, 3, 4)], "nothing": [CONTIGUOUS]}
    merges |= {"permute": [("permute", 0, 2, 1, 3), CONTIGUOUS, VIEW], "flatten": [TRANSPOSE, ("flatten", 2)]}
    merges["other shape"] = [("view", 1, 3, 2, 2)]
    render = step_through(Z, NAMES, merges).render
    assert "a copy, so 12 numbers" in render(merge="reshape", step=2).caption
    nothing = render(merge="nothing", step=1)
    assert ": nothing was done, since it was so already. Shape (1, 2, 3, 2), strides (12, 6, 2, 1)." in (
        nothing.caption
    )
    assert "same · shape (1, 2, 3, 2) · strides (12, 6, 2, 1)" in texts(shown(nothing.svg))
    for name, calls in merges.items():
        for step in range(len(calls) + 1):
            shown(render(merge=name, step=step).svg)


def test_there_is_room_for_the_longest_code_that_is_accepted():
    merges = {"all": [("permute", 0, 2, 1, 3), CONTIGUOUS, VIEW]}
    render = step_through(Z, NAMES, merges).render
    assert len(read(shown(render(merge="all", step=3).svg))[0]) == 48
    for step in range(4):
        code, to_come = [e for e in shown(render(merge="all", step=step).svg)["text"] if e.get("y") == "24"]
        assert extent(code)[1] < extent(to_come)[0]


def test_shares_are_0_or_100_only_where_they_are():
    shares = [0, 1e-9, 0.004, 0.006, 0.5, 0.994, 0.996, 1 - 1e-12, 1]
    assert [percent(share) for share in shares] == [
        *("0 %", "under 1 %", "under 1 %", "1 %", "50 %"),
        *("99 %", "over 99 %", "over 99 %", "100 %"),
    ]
