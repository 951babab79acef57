"""05: what the model of the time says of loop, batched and fused, beside what was recorded."""

from collections.abc import Mapping
from functools import partial
from math import floor, log10

from ipywidgets import Dropdown, FloatSlider

from mhalesson._checks import check_named
from mhalesson.figures import TINTS
from mhalesson.text import words
from mhalesson.widgets.drawing import PALE, Drawing, percent
from mhalesson.widgets.instrument import Instrument, View

TITLE = "Where does the loop hurt?"
WAYS = ("loop", "batched", "fused")

TRY_THIS = (
    "T = 1, 12 heads: how much of the loop's time in the model is overhead? Take it to 0: what is the ratio?",
    "Back to the overhead that the slider started with. From which T on does the model say that the loop "
    "costs less than a tenth more? What was recorded there, and at T = 512: do the lines of loop and batched "
    "overlap?",
    "T = 512, 96 heads, and any overhead: which costs more? Compare with what was recorded.",
)


def _points(run: dict) -> dict[tuple[int, int], dict]:
    return {(p["T"], p["h"]): p for p in run["points"] if p["direction"] == "forward" and "seconds" in p}


def _parts(run: dict, T: int, h: int, overhead: int | float) -> dict[str, tuple[float, float]]:
    """Overhead and work of each way, in seconds. The run's own prediction, less its overhead, is the work."""
    model, point = run["cost_model"], _points(run)[T, h]
    parts = {}
    for name in WAYS:
        launches, views = point["operations"][name]
        work = point["predicted"][name] - launches * model["launch"] - views * model["view"]
        parts[name] = (launches + views * model["view"] / model["launch"]) * overhead, work
    return parts


def render(runs: Mapping[str, dict], run: str, T: int, h: int, overhead: int | float) -> View:
    """`overhead` is in microseconds a launch; a view's is in proportion to it, as measured in that run."""
    if (T, h) not in _points(runs[run]):
        return _not_measured(T, h)
    point, parts = _points(runs[run])[T, h], _parts(runs[run], T, h, overhead / 1e6)
    # One scale for a point, so that what was recorded stays where it is while the overhead is turned.
    longest = max(map(sum, _parts(runs[run], T, h, _most(runs) / 1e6).values()))
    picture = _draw(parts, point["seconds"], max(longest, *(point["seconds"][name][2] for name in WAYS)))
    return View(TITLE, picture, _caption(run, point, overhead, parts))


def _most(runs: Mapping[str, dict]) -> int | float:
    """Where the slider ends, in microseconds: at several times what was measured."""
    return max(10, *(round(2e6 * run["cost_model"]["launch"]) for run in runs.values()))


def _not_measured(T: int, h: int) -> View:
    drawing = Drawing(TITLE, height=254)
    text = f"T = {T}, h = {h} was not measured when the run was recorded."
    drawing.words(20, 40, text, anchor="start")
    return View(TITLE, drawing.svg(), text)


def _milliseconds(seconds: float) -> str:
    milliseconds = 1000 * seconds  # with three digits, more or less
    return f"{milliseconds:.{2 if milliseconds < 10 else 1 if milliseconds < 100 else 0}f} ms"


def _caption(run: str, point: dict, overhead: int | float, parts: Mapping[str, tuple[float, float]]) -> str:
    said = []
    for name in WAYS:
        launches, views = point["operations"][name]
        share = percent(parts[name][0] / sum(parts[name]))
        counts = f"{launches} launches and {views} views are {share}"
        said.append(f"{name} {_milliseconds(sum(parts[name]))} ({counts})")
    loop, batched = (sum(parts[name]) for name in ("loop", "batched"))
    recorded = point["seconds"]["loop"][1] / point["seconds"]["batched"][1]
    return (
        f"A whole layer, T = {point['T']}, h = {point['h']}, {overhead:.1f} µs a launch. The model says "
        f"{words(said)}; loop / batched is {loop / batched:.2f}. Recorded loop / batched ({run}): "
        f"{recorded:.2f}."
    )


def _draw(
    parts: Mapping[str, tuple[float, float]], recorded: Mapping[str, list[float]], longest: float
) -> str:
    """Bars from the model and recorded medians, on a scale of seconds that reaches to `longest`."""
    drawing, unit = Drawing(TITLE, height=254), 330 / longest
    tick = _round_number_below(longest)
    for seconds in (0, tick / 2, tick):
        x = 82 + unit * seconds
        drawing.line(x, 14, x, 190, colour=PALE)
        drawing.words(x, 206, f"{1000 * seconds:g} ms", size=12, colour=PALE)
    for row, name in enumerate(WAYS):
        y, (overhead, work) = 20 + 58 * row, parts[name]
        drawing.words(74, y + 21, name, anchor="end", bold=True)
        drawing.striped_box(82, y, overhead * unit, 30, head=1)
        drawing.box(82 + overhead * unit, y, work * unit, 30, fill=TINTS[0])
        low, middle, high = (82 + unit * seconds for seconds in recorded[name])
        drawing.line(low, y + 39, high, y + 39, width=2)
        drawing.diamond(middle, y + 39, 6)
        model, measured = _milliseconds(overhead + work), _milliseconds(recorded[name][1])
        drawing.words(430, y + 14, f"model {model}", anchor="start")
        drawing.words(430, y + 34, f"recorded {measured}", anchor="start", colour=PALE)
    drawing.striped_box(82, 228, 16, 14, head=1)
    drawing.words(104, 240, "overhead", anchor="start", size=13)
    drawing.box(190, 228, 16, 14, fill=TINTS[0])
    drawing.words(212, 240, "work", anchor="start", size=13)
    drawing.diamond(278, 235, 6)
    drawing.words(292, 240, "recorded: median, line over the middle half", anchor="start", size=13)
    return drawing.svg()


def _round_number_below(value: float) -> float:
    """1, 2 or 5, times a power of ten."""
    power = 10.0 ** floor(log10(value))
    return max(step * power for step in (1, 2, 5) if step * power <= value)


def _is_whole(run: dict) -> bool:
    """Whether every point of a run can be drawn, and there is one."""
    try:
        return bool([render({"": run}, "", T, h, overhead=0) for T, h in _points(run)])
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
        return False


def where_the_loop_hurts(runs: Mapping[str, dict]) -> Instrument:
    """An instrument: choose T, h and the overhead per launch, beside one of the recorded `runs`.

    `runs` maps a name to a run, as `recorded_runs` returns them. Raises ValueError for anything else.

    >>> from mhalesson import recorded_runs
    >>> where_the_loop_hurts(recorded_runs()).view.caption[:28]
    'A whole layer, T = 1, h = 12'
    """
    check_named("runs", runs)
    for name, run in runs.items():
        if not _is_whole(run):
            raise ValueError(f"runs[{name!r}] is not a whole run, as those that recorded_runs() returns")
    tokens, heads = (sorted({p[axis] for run in runs.values() for p in run["points"]}) for axis in ("T", "h"))

    def launch(run: str) -> float:
        return 0.2 * round(5e6 * runs[run]["cost_model"]["launch"])  # a step of the slider

    recorded = Dropdown(description="recorded on", options=list(runs))
    T = Dropdown(description="tokens T", options=tokens)
    h = Dropdown(description="heads h", options=heads, value=12 if 12 in heads else heads[0])
    overhead = FloatSlider(
        launch(recorded.value), max=_most(runs), step=0.2, description="overhead, µs", readout_format=".1f"
    )
    recorded.observe(lambda change: setattr(overhead, "value", launch(change.new)), "value")
    return Instrument(partial(render, runs), dict(run=recorded, T=T, h=h, overhead=overhead), TRY_THIS)
