"""05: what the model of the time says of loop, batched and fused, beside what was recorded."""

from collections.abc import Mapping
from functools import partial

from ipywidgets import Dropdown, FloatSlider

from mhalesson.figures import TINTS
from mhalesson.text import words
from mhalesson.widgets.drawing import PALE, Drawing, percent
from mhalesson.widgets.instrument import Instrument, View

TITLE = "Where does the loop hurt?"
WAYS = ("loop", "batched", "fused")

TRY_THIS = (
    "T = 1, 12 heads: how much of the loop's time in the model is overhead? Take it to 0: what is the ratio?",
    "Back to the measured {:.1f} µs. From which T on does the model say that the loop costs less than a "
    "tenth more? What does the recording say there, and at T = 512?",
    "T = 512, 96 heads, and any overhead: does the loop lose? Compare with what was recorded.",
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
    parts = _parts(runs[run], T, h, overhead / 1e6)
    recorded = {name: _points(runs[run])[T, h]["seconds"][name] for name in WAYS}
    return View(TITLE, _draw(parts, recorded), _caption(run, T, h, overhead, parts, recorded))


def _not_measured(T: int, h: int) -> View:
    drawing = Drawing(TITLE, height=230)
    text = f"T = {T}, h = {h} was skipped when the run was recorded."
    drawing.words(20, 40, text, anchor="start")
    return View(TITLE, drawing.svg(), text)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms" if seconds < 0.01 else f"{1000 * seconds:.0f} ms"


def _caption(
    run: str,
    T: int,
    h: int,
    overhead: int | float,
    parts: Mapping[str, tuple[float, float]],
    recorded: Mapping[str, list[float]],
) -> str:
    said = [
        f"{name} {_milliseconds(sum(parts[name]))} ({percent(parts[name][0] / sum(parts[name]))} overhead)"
        for name in WAYS
    ]
    loop, batched = (sum(parts[name]) for name in ("loop", "batched"))
    measured = recorded["loop"][1] / recorded["batched"][1]
    return (
        f"A whole layer, T = {T}, h = {h}, {overhead:.1f} µs a launch. The model says {words(said)}; "
        f"loop / batched is {loop / batched:.2f}. Recorded ({run}): {measured:.2f}."
    )


def _draw(parts: Mapping[str, tuple[float, float]], recorded: Mapping[str, list[float]]) -> str:
    drawing = Drawing(TITLE, height=230)
    unit = 330 / max(*(sum(pair) for pair in parts.values()), *(times[2] for times in recorded.values()))
    for row, name in enumerate(WAYS):
        y, (overhead, work) = 20 + 58 * row, parts[name]
        drawing.words(74, y + 21, name, anchor="end", bold=True)
        drawing.hatched_box(82, y, overhead * unit, 30, head=1)
        drawing.box(82 + overhead * unit, y, work * unit, 30, fill=TINTS[0])
        low, middle, high = (82 + unit * seconds for seconds in recorded[name])
        drawing.line(low, y + 39, high, y + 39, width=2)
        drawing.diamond(middle, y + 39, 6)
        model, measured = _milliseconds(overhead + work), _milliseconds(recorded[name][1])
        drawing.words(430, y + 14, f"model {model}", anchor="start")
        drawing.words(430, y + 34, f"recorded {measured}", anchor="start", colour=PALE)
    drawing.hatched_box(82, 204, 16, 14, head=1)
    drawing.words(104, 216, "overhead", anchor="start", size=13)
    drawing.box(190, 204, 16, 14, fill=TINTS[0])
    drawing.words(212, 216, "work", anchor="start", size=13)
    drawing.diamond(278, 211, 6)
    drawing.words(292, 216, "recorded: median, middle half", anchor="start", size=13)
    return drawing.svg()


def where_the_loop_hurts(runs: Mapping[str, dict]) -> Instrument:
    """An instrument: choose T, h and the overhead per launch, beside one of the recorded `runs`.

    Raises ValueError if there are no runs.

    >>> from mhalesson import recorded_runs
    >>> where_the_loop_hurts(recorded_runs()).view.caption[:28]
    'A whole layer, T = 1, h = 12'
    """
    if not runs:
        raise ValueError(f"{runs=} should hold at least one recorded run")
    tokens, heads = (sorted({p[axis] for run in runs.values() for p in run["points"]}) for axis in ("T", "h"))

    def launch(run: str) -> float:
        return 0.2 * round(5e6 * runs[run]["cost_model"]["launch"])  # a step of the slider

    run = Dropdown(description="recorded on", options=list(runs))
    T = Dropdown(description="tokens T", options=tokens)
    h = Dropdown(description="heads h", options=heads, value=12 if 12 in heads else heads[0])
    overhead = FloatSlider(
        launch(run.value), max=20, step=0.2, description="overhead, µs", readout_format=".1f"
    )
    steps = [step.format(overhead.value) for step in TRY_THIS]
    run.observe(lambda change: setattr(overhead, "value", launch(change.new)), "value")
    return Instrument(partial(render, runs), dict(run=run, T=T, h=h, overhead=overhead), steps)
