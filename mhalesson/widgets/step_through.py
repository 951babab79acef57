"""04: a merge, step by step: the tensor, its strides, and the memory it is read from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from ipywidgets import Dropdown, IntSlider
from torch import Tensor

from mhalesson._checks import check_named, check_tensor
from mhalesson.figures import TINTS
from mhalesson.journey import record_journey
from mhalesson.text import index_codes, words
from mhalesson.widgets.drawing import PALE, Drawing, Pixels
from mhalesson.widgets.instrument import Instrument, View

TITLE = "Step through the merge"
CELL, HIGH, GAP = 50, 26, 14  # the width and height of one cell, and what is between boxes, in pixels
LONGEST = 48  # letters of code, beside which there is room for a word

Call = tuple[str | int, ...]  # a method and what it is given: ("transpose", 1, 2)
MOVES = ("transpose", "permute", "contiguous", "view", "reshape", "flatten")

TRY_THIS = (
    "Go through the right merge. Which step moves numbers in memory, and which only change how it is read?",
    "Leave out the transpose, and step on. Same shape, no error: what do the rows of tokens 0 and 1 mix?",
    "Leave out .contiguous(). Why can view not read the framed cells with one stride?",
)


@dataclass(frozen=True)
class Stop:
    """A tensor on the way, made by "view", "copy", or "same", if not the "input"; or why it was not made."""

    tensor: Tensor
    code: str
    kind: str
    error: str = ""


def _stops(z: Tensor, calls: Sequence[Call]) -> list[Stop]:
    """Where z and each of the calls lead; a call that raises an error ends the journey."""
    stops = [Stop(z, "z", "input")]
    _, h, T, d_v = z.shape
    for method, *arguments in calls:
        code = f"{stops[-1].code}.{method}({', '.join(map(str, arguments))})"
        before = stops[-1].tensor
        try:
            journey = record_journey(lambda t, m=method, a=arguments: getattr(t, m)(*a), before)
        except (IndexError, RuntimeError, TypeError) as error:
            if code != f"z.transpose(1, 2).view(1, {T}, {h * d_v})":  # the one that can be explained
                raise ValueError(f"{code} fails: {str(error).splitlines()[0]}") from None
            *_, head, channel = before.stride()
            why = f"from channel to channel {channel} cell, but from head to head {head}, not "
            why += f"{d_v} times {channel}"
            return [*stops, Stop(before, code, "error", why)]
        kind = "copy" if journey.copies else "view" if journey.steps else "same"
        stops.append(Stop(journey.result, code, kind))
    return stops


def render(journeys: Mapping[str, Sequence[Stop]], names: Sequence[str], merge: str, step: int) -> View:
    """Step `step` of one of the `journeys`; 0 is z (1, h, T, d_v) itself, with index codes as its values."""
    stops = journeys[merge]
    return View(TITLE, _draw(stops, step, names), _caption(stops, step, names))


def _check_codes(z: Tensor, names: Sequence[str]) -> None:
    check_tensor("z", z, "B h T d_v", B=1)
    _, h, T, d_v = z.shape
    if z.numel() > 12 or not _has_room(z):
        raise ValueError(f"z has the shape {tuple(z.shape)}; there is room to draw (1, 2, 3, 2), for example")
    if z.flatten().tolist() != list(range(z.numel())) or not z.is_contiguous():
        raise ValueError(f"z should be contiguous and hold the codes 0 to {z.numel() - 1}, in this order")
    if names != index_codes(h=h, t=T, c=d_v):
        raise ValueError(f"names should be index_codes(h={h}, t={T}, c={d_v}), in the order of the codes")


def _has_room(tensor: Tensor) -> bool:
    *boxes, rows, columns = tensor.shape
    return 0 < rows <= 4 and prod(boxes) * (columns * CELL + GAP) - GAP <= 612


def _check_calls(name: str, calls: Sequence[Call]) -> None:
    for call in calls:
        method, *arguments = call if isinstance(call, tuple) and call else [None]
        if method not in MOVES or any(type(argument) is not int for argument in arguments):
            raise ValueError(
                f"merges[{name!r}] holds {call!r}; a call should be a tuple like ('transpose', 1, 2), with "
                f"whole numbers after one of {words(MOVES)}"
            )


def _check_room(name: str, stops: Sequence[Stop]) -> None:
    _, h, T, d_v = stops[0].tensor.shape
    for stop in stops:
        shape = tuple(stop.tensor.shape)
        if not (len(shape) == 4 or shape == (1, T, h * d_v)) or not _has_room(stop.tensor):
            raise ValueError(
                f"merges[{name!r}] makes the shape {shape} of {stop.code}; there is room for four small "
                f"axes, or for the merged shape {(1, T, h * d_v)}"
            )
    if len(stops[-1].code) > LONGEST:
        raise ValueError(f"merges[{name!r}] makes {stops[-1].code}; there is room for {LONGEST} letters")


def _caption(stops: Sequence[Stop], step: int, names: Sequence[str]) -> str:
    stop = stops[step]
    start = f"Step {step} of {len(stops) - 1}, {stop.code}: "
    if stop.kind == "error":
        return (
            f"{start}an error. View must describe the joined axis h·d_v by one stride, and there are two: "
            f"{stop.error}. Nothing was made."
        )
    happened = {
        "input": "z as it lies in memory, head by head",
        "view": "a view, so the memory is as before and is only read otherwise",
        "same": "nothing was done, since it was so already",
        "copy": f"a copy, so {stop.tensor.numel()} numbers stand in new memory, in the order of the boxes",
    }[stop.kind]
    shape, strides = tuple(stop.tensor.shape), stop.tensor.stride()
    caption = f"{start}{happened}. Shape {shape}, strides {strides}."
    if stop.tensor.dim() == 3:
        row = _row(stop, names)
        places = words(list(dict.fromkeys(f"head {name[1]} of token {name[3]}" for name in row)))
        caption += f" The row of token 0 reads {places}."
    return caption


def _row(stop: Stop, names: Sequence[str]) -> list[str]:
    """What becomes the row of token 0, or would; nothing as long as no axes are joined."""
    joined = stop.tensor.dim() == 3 or stop.kind == "error"
    return [names[int(value)] for value in stop.tensor[0, 0].flatten().tolist()] if joined else []


def _draw(stops: Sequence[Stop], step: int, names: Sequence[str]) -> str:
    stop, drawing = stops[step], Drawing(TITLE, height=340)
    shape, strides, framed = tuple(stop.tensor.shape), stop.tensor.stride(), _row(stop, names)
    drawing.words(20, 24, stop.code, anchor="start", size=15, bold=True)
    if stop.kind == "error":
        what = f"still {stops[step - 1].code}"
        drawing.words(620, 24, "an error: nothing was made", anchor="end", colour="#A00000")
    else:
        what, to_come = stop.kind, stops[-1].code.removeprefix(stop.code) or "nothing"
        drawing.words(620, 24, f"to come: {to_come}", anchor="end", size=13, colour=PALE)
    drawing.words(20, 48, f"{what} · shape {shape} · strides {strides}", anchor="start")
    *boxes, rows, columns = shape
    for box, index in enumerate(product(*map(range, boxes))):
        left = 20 + box * (columns * CELL + GAP)
        inside = [[names[int(value)] for value in row] for row in stop.tensor[index].tolist()]
        for r, c in product(range(rows), range(columns)):
            _cell(drawing, left + c * CELL, 70 + r * HIGH, inside[r][c], framed)
        if label := _in_common([name for row in inside for name in row]):
            drawing.words(left + columns * CELL / 2, 86 + rows * HIGH, label, size=12, colour=PALE)
    if stop.kind == "copy":
        _strip(drawing, 198, "memory before", stops[step - 1].tensor, names, framed)
    _strip(drawing, 278, "new memory" if stop.kind == "copy" else "memory", stop.tensor, names, framed)
    if framed:
        drawing.words(620, 272, "thick frame: the row of token 0", anchor="end", size=12, colour=PALE)
    return drawing.svg()


def _in_common(names: Sequence[str]) -> str:
    """ "head 1" if that is where all of them belong, or "token 2"."""
    heads, tokens = ({name[place] for name in names} for place in (1, 3))
    return ", ".join(
        f"{what} {of.pop()}" for what, of in (("head", heads), ("token", tokens)) if len(of) == 1
    )


def _strip(
    drawing: Drawing, y: int, title: str, tensor: Tensor, names: Sequence[str], framed: Sequence[str]
) -> None:
    drawing.words(20, y - 6, title, anchor="start", size=13, bold=True)
    for place, value in enumerate(tensor.as_strided((tensor.numel(),), (1,)).tolist()):  # as it lies there
        _cell(drawing, 20 + place * CELL, y, names[int(value)], framed)
        drawing.words(20 + (place + 0.5) * CELL, y + HIGH + 15, str(place), size=12, colour=PALE)


def _cell(drawing: Drawing, x: Pixels, y: Pixels, name: str, framed: Sequence[str]) -> None:
    drawing.box(x, y, CELL, HIGH, fill=TINTS[int(name[1])], line=2.5 if name in framed else 1.0)
    drawing.words(x + CELL / 2, y + 18, name, size=13)


def step_through(z: Tensor, names: Sequence[str], merges: Mapping[str, Sequence[Call]]) -> Instrument:
    """An instrument: step through several ways to merge the heads of z (1, h, T, d_v).

    z holds index codes, up to 12; `names[v]`, like "h0t1c0", says where the value v belongs. `merges` maps a
    name to the calls to make, one after the other, each a method with its arguments: ("transpose", 1, 2).
    The methods are transpose, permute, contiguous, view, reshape and flatten.
    Raises ValueError if z or one of the `merges` does not fit.

    >>> import torch
    >>> from mhalesson.text import index_codes
    >>> z = torch.arange(12.0).view(1, 2, 3, 2)
    >>> merges = {"no transpose": [("view", 1, 3, 4)]}
    >>> step_through(z, index_codes(h=2, t=3, c=2), merges).view.caption[:20]
    'Step 0 of 1, z: z as'
    """
    _check_codes(z, names)
    check_named("merges", merges)
    for name, calls in merges.items():
        _check_calls(name, calls)
    journeys = {name: _stops(z.clone(), calls) for name, calls in merges.items()}
    for name, stops in journeys.items():
        _check_room(name, stops)
    merge = Dropdown(description="merge", options=list(journeys))
    step = IntSlider(description="step", max=len(journeys[merge.value]) - 1)

    def start_again(change: dict) -> None:
        """Another merge starts at its first step, and may have fewer."""
        step.value, step.max = 0, len(journeys[change["new"]]) - 1

    merge.observe(start_again, "value")
    return Instrument(partial(render, journeys, names), dict(merge=merge, step=step), TRY_THIS)
