"""Timing is fair and recorded runs are whole. No test asserts a time: clocks are faked, not waited for."""

import dataclasses
import hashlib
import json
import statistics
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bench import by_hand
from hypothesis import given
from hypothesis import strategies as st
from skips import CUDA
from torch import nn
from torch.testing import assert_close

from mhalesson import MultiHeadAttention, __main__, compare, measure, record_journey, recording, timing
from mhalesson.timing import RUNS, CostModel, Timing, recorded_runs, save_run

NAN = float("nan")
ONES = torch.ones(2)
FIVE = {"loop", "loop, split projections", "batched", "fused", "nn.MultiheadAttention"}
THE_SWEEP = [  # the cheap ones first
    (T, direction, h)
    for T, direction in [
        (1, "forward"),
        (1, "forward + backward"),
        (8, "forward"),
        (32, "forward"),
        (8, "forward + backward"),
        (128, "forward"),
        (32, "forward + backward"),
        (512, "forward"),
        (128, "forward + backward"),
        (2048, "forward"),
        (512, "forward + backward"),
    ]
    for h in (1, 4, 12, 48, 96)
]


def refusal(call, error=ValueError):
    with pytest.raises(error) as raised:
        call()
    return str(raised.value)


def places(points, d_model):
    assert {(point["B"], point["d_model"]) for point in points} == {(1, d_model)}
    return [(point["T"], point["direction"], point["h"]) for point in points]


# A timing

seconds = st.floats(1e-6, 1e3)


@given(rounds=st.lists(seconds, min_size=1, max_size=9))
def test_median_and_quartiles_are_numpys(rounds):
    found = Timing(tuple(rounds))
    assert found.repeats == len(rounds)
    assert found.median == statistics.median(rounds)
    assert found.quartiles == pytest.approx(np.percentile(rounds, [25, 75]))


@given(pairs=st.lists(st.tuples(seconds, seconds), min_size=1, max_size=9))
def test_timings_are_divided_round_by_round(pairs):
    a, b = (Timing(rounds) for rounds in zip(*pairs, strict=True))
    assert (a / b).rounds == tuple(x / y for x, y in pairs)
    with pytest.raises(ValueError):
        a / Timing((*b.rounds, 1.0))


# compare: only functions that give the same answer


def compare_answers(*answers):
    functions = {name: lambda answer=answer: answer for name, answer in zip("abc", answers, strict=False)}
    return compare(functions, repeats=1)


@pytest.fixture
def no_clock(monkeypatch):
    """A test of answers times nothing."""
    monkeypatch.setattr(timing, "_seconds_on_cpu", lambda fn, arguments: 1.0)
    monkeypatch.setattr(timing, "_seconds_on_cuda", lambda fn, arguments: 2.0)


SAME = "compare the times of functions that give the same answer"
F32 = "torch.float32"
OTHER_ANSWERS = [
    (
        ONES,
        ONES.double(),
        f"b returns ['torch.float64 (2,) on cpu'], a ['{F32} (2,) on cpu']: not the same answer",
    ),
    (ONES, ONES + 0.5, f"b and a differ by up to 0.5, where rounding explains 0.00035: {SAME}"),
    (ONES * -4, ONES * -5, f"b and a differ by up to 1, where rounding explains 0.0014: {SAME}"),
    ((ONES, ONES), (ONES, -ONES), f"b and a differ by up to 2, where rounding explains 0.00035: {SAME}"),
    (ONES, ONES * NAN, f"b and a differ by up to nan, where rounding explains 0.00035: {SAME}"),
    (ONES.long(), ONES.long() * 3, f"b and a differ by up to 2, where rounding explains 0: {SAME}"),
    (
        torch.tensor(2**60),
        torch.tensor(2**60 + 1),
        f"b and a differ by up to 1, where rounding explains 0: {SAME}",
    ),
    (ONES / 0, ONES, f"b and a differ by up to inf, where rounding explains 0: {SAME}"),
    (ONES + 1j, ONES + 3j, f"b and a differ by up to 2, where rounding explains 0.00049: {SAME}"),
    (ONES > 0, ONES > 1, f"b and a differ by up to 1, where rounding explains 0: {SAME}"),
    (ONES, ONES[None], f"b returns ['{F32} (1, 2) on cpu'], a ['{F32} (2,) on cpu']: not the same answer"),
    (
        {"y": ONES},
        (ONES, ONES),
        f"b returns ['{F32} (2,) on cpu', '{F32} (2,) on cpu'], a ['{F32} (2,) on cpu']: not the same answer",
    ),
    (ONES, None, f"b returns [], a ['{F32} (2,) on cpu']: not the same answer"),
    (None, ONES, "a returns no tensor, so nobody can tell whether the answers are the same"),
]


@pytest.mark.usefixtures("no_clock")
@pytest.mark.parametrize(("a", "b", "sentence"), OTHER_ANSWERS, ids=[s[:50] for *_, s in OTHER_ANSWERS])
def test_functions_with_other_answers_are_not_timed(a, b, sentence):
    assert refusal(lambda: compare_answers(a, b)) == sentence


@pytest.mark.usefixtures("no_clock")
def test_every_function_and_every_input_is_compared_and_gradients_too():
    assert refusal(lambda: compare_answers(ONES, ONES, -ONES)).startswith("c and a differ by up to 2,")
    assert refusal(lambda: compare_answers(ONES * NAN, ONES)).startswith("b and a differ by up to nan,")
    functions = {"a": lambda x: x, "b": torch.relu}
    assert list(compare(functions, inputs=[(ONES,)], repeats=1)) == ["a", "b"]
    sentence = refusal(lambda: compare(functions, inputs=[(ONES,), (-ONES,)], repeats=1))
    assert sentence.startswith("b and a differ by up to 1,")
    functions = {"a": lambda x: x * 1, "b": lambda x: (x * 2).detach() - x}  # y is the same, its slope is not
    compare(functions, inputs=[(ONES,)], repeats=1)
    functions = {name: recording.and_backward(fn) for name, fn in functions.items()}
    sentence = refusal(lambda: compare(functions, inputs=[(ONES,)], repeats=1))
    assert sentence.startswith("b and a differ by up to 2,")


@pytest.mark.usefixtures("no_clock")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rounding_is_no_other_answer(dtype):
    """Up to √ε of the largest entry, ε being the dtype's."""
    largest, most = 3.0, 3.0 * torch.finfo(dtype).eps ** 0.5
    a = torch.tensor([largest, 1.0, 1.0], dtype=dtype)
    inside, outside = a.clone(), a.clone()
    inside[1] += 0.9 * most
    outside[1] += 1.1 * most
    assert not torch.equal(a, inside)
    assert set(compare_answers(a, inside)) == {"a", "b"}
    assert refusal(lambda: compare_answers(a, outside)).endswith(SAME)


@pytest.mark.usefixtures("no_clock")
def test_equal_infinities_are_no_difference_and_each_answer_is_kept_as_it_was():
    scores = torch.tensor([-torch.inf, 1.0])
    assert set(compare_answers(scores, scores.clone())) == {"a", "b"}
    x = torch.ones(2)
    functions = {
        "a": lambda: x.relu_(),
        "b": lambda: x.neg_(),
    }  # the second overwrites what the first returned
    assert refusal(lambda: compare(functions)).startswith("b and a differ by up to 2,")


COUNT = "should be a whole number (int) of at least 1"


@pytest.mark.usefixtures("no_clock", "as_a_learner_calls")
@pytest.mark.parametrize("repeats", [0, -1, 2.5, True, None])
def test_repeats_is_a_count(repeats):
    assert refusal(lambda: compare({"f": torch.ones}, repeats=repeats)) == f"repeats={repeats!r} {COUNT}"
    assert refusal(lambda: measure(torch.ones, repeats=repeats)) == f"repeats={repeats!r} {COUNT}"


@pytest.mark.usefixtures("no_clock", "as_a_learner_calls")
def test_nothing_to_time_and_nowhere_to_time_it_get_their_sentences():
    one = "should be a dict of functions by their names"
    assert refusal(lambda: compare({})) == f"functions={{}} {one}"
    some = "should be a list of tuples of arguments: [(x,)]"
    functions = {"f": torch.ones}
    assert refusal(lambda: compare(functions, inputs=[])) == f"inputs=[] {some}"
    assert refusal(lambda: compare(functions, inputs=[2])) == f"inputs=[2] {some}"
    assert refusal(lambda: measure(torch.ones, device="gpu", inputs=[(2,)])) == (
        "device='gpu' should be 'cpu' or 'cuda'"
    )


# compare: warm, in turn, with the right clock


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("inputs", [[(1.0,)], [(1.0,), (2.0,)], [(1.0,), (2.0,), (3.0,), (4.0,)]], ids=len)
def test_functions_are_warm_take_turns_and_get_the_inputs_in_turn(monkeypatch, device, inputs):
    log, names, repeats = [], "abc", 6
    functions = {name: lambda x, name=name: log.append((name, x)) or ONES * x for name in names}

    def clock(fn, arguments):
        log.append(("timed", next(name for name in names if functions[name] is fn), arguments))
        return float(len(log))

    monkeypatch.setattr(timing, f"_seconds_on_{device}", clock)
    monkeypatch.delattr(timing, "_seconds_on_" + ("cpu" if device == "cuda" else "cuda"))
    times = compare(functions, inputs=inputs, device=device, repeats=repeats)

    first = next(n for n, entry in enumerate(log) if entry[0] == "timed")
    assert set(log[:first]) == {(name, x) for name in names for (x,) in inputs}  # all are warm by then
    timed = log[first:]
    assert len(timed) == 3 * repeats
    rounds = [timed[3 * turn : 3 * turn + 3] for turn in range(repeats)]
    for turn, entries in enumerate(rounds):
        assert {name for _, name, _ in entries} == set(names)
        assert [arguments for *_, arguments in entries] == [inputs[turn % len(inputs)]] * 3
    for place_in_round in range(3):  # nobody is always first, nor always last
        assert {entries[place_in_round][1] for entries in rounds} == set(names)
    assert list(times) == list(names)
    for name in names:
        mine = [first + n + 1.0 for n, entry in enumerate(timed) if entry[1] == name]
        assert times[name] == Timing(tuple(mine))


@pytest.mark.parametrize(("device", "seconds"), [("cpu", 1.0), ("cuda", 2.0)])
def test_by_default_the_clock_is_that_of_the_answers_device(monkeypatch, no_clock, device, seconds):
    answer = SimpleNamespace(device=SimpleNamespace(type=device))
    monkeypatch.setattr(timing, "_same_answers", lambda functions, inputs: [answer])
    assert measure(torch.ones, inputs=[(2,)], repeats=2).rounds == (seconds, seconds)
    monkeypatch.setattr(timing, "_same_answers", lambda functions, inputs: [])
    assert measure(print, repeats=1).rounds == (1.0,)  # no tensor, so a CPU


def test_a_cpu_is_timed_by_torchs_timer_with_the_current_number_of_threads(monkeypatch):
    timers, blocks, calls = [], [], []

    class Timer:
        def __init__(self, stmt, **options):
            timers.append((stmt, options))

        def blocked_autorange(self, **options):
            blocks.append(options)
            return SimpleNamespace(median=0.25, mean=7.0)

    monkeypatch.setattr("torch.utils.benchmark.Timer", Timer)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    times = measure(lambda *arguments: calls.append(arguments), inputs=[(1, 2)], repeats=2, device="cpu")
    assert times == Timing((0.25, 0.25))
    ((stmt, options), _), before = timers, len(calls)
    assert options["num_threads"] == 3
    assert blocks == [{"min_run_time": timing.BLOCK}] * 2
    exec(stmt, options["globals"])
    assert calls[before:] == [(1, 2)]  # what is timed is one call, with its arguments


@pytest.mark.parametrize(("first", "calls"), [(2.0, 5), (0.1, 100), (10.0, 1), (50.0, 1)])
def test_a_gpu_is_waited_for_before_and_after_a_block_and_never_within(monkeypatch, first, calls):
    log, elapsed = [], [first, 12.0]  # milliseconds of the two blocks

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append(self)

        def elapsed_time(self, end):
            assert [entry for entry in log if isinstance(entry, Event)][-2:] == [self, end]
            log.append("read")
            return elapsed.pop(0)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *device: log.append("wait"))
    found = timing._seconds_on_cuda(lambda *arguments: log.append(arguments), (1, 2))
    shown = ["event" if isinstance(entry, Event) else entry for entry in log]
    once, block = (["wait", "event", *[(1, 2)] * n, "event", "wait", "read"] for n in (1, calls))
    assert shown == once + block
    assert found == pytest.approx(12.0 / 1000 / calls)


@CUDA
def test_a_real_gpu_is_timed_by_default_and_refused_with_other_answers():
    x = torch.ones(64, 64, device="cuda")
    times = compare({"sum": lambda: x + x, "product": lambda: 2 * x}, repeats=3)
    assert all(second > 0 for time in times.values() for second in time.rounds)
    assert refusal(lambda: compare({"sum": lambda: x + x, "x": lambda: x})).endswith(SAME)


@pytest.mark.parametrize("grad", [True, False])
def test_comparing_leaves_torch_as_it_was(grad):
    seen, threads, state = set(), torch.get_num_threads(), torch.get_rng_state()

    def fn(x):
        seen.add((torch.get_num_threads(), torch.is_grad_enabled()))
        return x + 1

    torch.set_num_threads(2)
    try:
        with torch.set_grad_enabled(grad):
            times = compare({"a": fn, "b": lambda x: 1 + x}, inputs=[(ONES,)], repeats=2)
            assert (torch.get_num_threads(), torch.is_grad_enabled()) == (2, grad)
    finally:
        torch.set_num_threads(threads)
    assert seen == {(2, grad)}
    assert torch.equal(torch.get_rng_state(), state)
    assert [time.repeats for time in times.values()] == [2, 2]
    assert all(second > 0 for time in times.values() for second in time.rounds)


# The cost model


def test_a_prediction_is_the_sum_over_views_copies_and_products():
    x, w = torch.ones(2, 3), torch.ones(2, 4)
    journey = record_journey(lambda x, w: x.T.contiguous() @ w, x, w)
    assert [step.kind for step in journey] == ["view", "copy", "compute"]
    # The copy reads 6 floats and writes 6: 48 bytes. The product reads 6 + 8, writes 12: 104 bytes, 48 FLOPs.
    starts = 1.0 + 100.0 + 100.0
    assert CostModel(100.0, 1.0, 1.0, ((1, 2.0),)).predict(journey) == starts + 48 / 2 + 104 / 2
    assert CostModel(100.0, 1.0, 1.0, ((1, 4.0),)).predict(journey) == starts + 48 / 4 + 48
    assert CostModel(100.0, 1.0, 8.0, ((1, 4.0),)).predict(journey) == starts + 48 / 4 + 104 / 4


@pytest.mark.parametrize(("written", "bandwidth"), [(20, 8.0), (900, 8.0), (1100, 2.0), (5000, 2.0)])
def test_the_nearest_bandwidth_counts_on_a_log_scale(written, bandwidth):
    journey = record_journey(torch.clone, torch.zeros(written, dtype=torch.uint8))
    for pairs in (((100, 8.0), (10_000, 2.0)), ((10_000, 2.0), (100, 8.0))):
        assert CostModel(0.0, 0.0, 1.0, pairs).predict(journey) == 2 * written / bandwidth


def test_unknown_flops_cannot_be_predicted():
    @torch.library.custom_op("mhalesson_tests::triple", mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    journey = record_journey(lambda x: triple(x) + 1, ONES)
    sentence = "the journey has a step whose FLOPs nobody knows, so its time cannot be predicted"
    assert refusal(lambda: timing.A100.predict(journey)) == sentence


COUNTS_LAUNCHES = CostModel(1.0, 0.0, float("inf"), ((1, float("inf")),))


@pytest.mark.parametrize("h", [1, 4, 12])
def test_more_steps_are_never_cheaper_and_the_loop_launches_at_least_as_many_as_the_batch(h):
    mha, x, launches, steps = MultiHeadAttention(24, h), torch.zeros(1, 5, 24), {}, {}
    for mha.implementation in ("loop", "batched"):
        journey = record_journey(mha, x)
        starts = [timing.Journey(journey.steps[:n], None) for n in range(len(journey.steps) + 1)]
        for model in (timing.A100, COUNTS_LAUNCHES):
            costs = [model.predict(start) for start in starts]
            assert costs[0] == 0 and costs == sorted(costs)
        launches[mha.implementation] = COUNTS_LAUNCHES.predict(journey)
        steps[mha.implementation] = sum(step.kind != "view" for step in journey)
    assert launches == steps
    assert launches["loop"] > launches["batched"] if h > 1 else launches["loop"] >= launches["batched"]
    assert launches["loop"] >= 5 * h  # scaled q, scores, mask, softmax, z


# Recorded runs

RESTORE = "get it back with `git restore mhalesson/data`, or reinstall mhalesson."
RUN = {"machine": {"device": "µ-chip"}, "points": [{"T": 1, "seconds": {"loop": [1e-5, 0.1, 1 / 3]}}]}


def test_a_saved_run_comes_back_and_is_never_overwritten(tmp_path):
    assert recorded_runs(tmp_path / "runs") == {}
    path = save_run("torch2.13", RUN, tmp_path / "runs")
    assert path == tmp_path / "runs" / "torch2.13.json"
    save_run("another", {}, tmp_path / "runs")
    assert recorded_runs(tmp_path / "runs") == {"torch2.13": RUN, "another": {}}
    content = path.read_bytes()
    sentence = refusal(lambda: save_run("torch2.13", {"points": []}, tmp_path / "runs"))
    assert sentence == f"{path} exists already; give the run another name"
    assert path.read_bytes() == content
    assert "sha256" not in RUN


def test_a_saved_run_is_sealed_with_the_sha256_of_all_else(tmp_path):
    record = json.loads(save_run("run", RUN, tmp_path).read_text(encoding="utf-8"))
    seal = record.pop("sha256")
    assert seal == hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "3", '{"points": []}', "\xff"])
def test_a_damaged_run_is_refused(tmp_path, text):
    save_run("good", RUN, tmp_path)
    (tmp_path / "bad.json").write_bytes(text.encode("latin-1"))
    assert refusal(lambda: recorded_runs(tmp_path)) == f"{tmp_path / 'bad.json'} is damaged; {RESTORE}"


@pytest.mark.parametrize(
    ("old", "new"), [("0.1", "0.2"), ("chip", "ship"), ('"T": 1', '"T": 8'), ("1e-05", "1e-06")]
)
def test_an_altered_run_is_refused(tmp_path, old, new):
    path = save_run("run", RUN, tmp_path)
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    sentence = f"{path} was changed: its sha256 is not the one it records; {RESTORE}"
    assert refusal(lambda: recorded_runs(tmp_path)) == sentence


SHIPPED = recorded_runs()


def test_a_run_on_a_cpu_is_shipped():
    assert "cpu" in SHIPPED and set(SHIPPED) == {path.stem for path in RUNS.iterdir()}


@pytest.mark.usefixtures("as_a_learner_calls")  # JSON has lists where the model has tuples
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_run_is_whole(name):
    run = SHIPPED[name]
    assert set(run) == {"machine", "cost_model", "points"}
    assert all(run["machine"][key] for key in ("device", "torch", "threads", "date", "python"))
    assert places(run["points"], 768) == THE_SWEEP
    for point in run["points"]:
        if "skipped" in point:
            assert "seconds" not in point and point["skipped"]
            continue
        assert set(point["seconds"]) == set(point["predicted"]) == FIVE
        for first, median, third in point["seconds"].values():
            assert 0 < first <= median <= third
        assert min(point["predicted"].values()) > 0
        assert set(point["operations"]) == FIVE
    few = next(p for p in run["points"] if (p["T"], p["h"], p["direction"]) == (8, 4, "forward"))
    with torch.no_grad():
        for name, way in recording.ways(MultiHeadAttention(768, 4)).items():
            kinds = [step.kind for step in record_journey(way, torch.zeros(1, 8, 768))]
            views = kinds.count("view")
            if torch.__version__ == run["machine"]["torch"]:  # another one may take other steps
                assert few["operations"][name] == [len(kinds) - views, views]
    model = CostModel(**run["cost_model"])
    constants = [
        model.launch,
        model.view,
        model.peak,
        *(number for pair in model.bandwidth for number in pair),
    ]
    assert min(constants) > 0 and len(constants) > 3
    assert model.predict(record_journey(MultiHeadAttention(8, 2), torch.zeros(1, 3, 8))) > 9 * model.launch


# Recording: five ways, one layer


@pytest.fixture
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(("B", "T", "d_model", "h"), [(1, 1, 8, 1), (2, 5, 12, 3), (1, 4, 8, 8)])
def test_all_ways_give_the_same_answers_and_gradients_with_the_same_weights(B, T, d_model, h):
    torch.manual_seed(0)
    mha, x = MultiHeadAttention(d_model, h), torch.randn(B, T, d_model)
    ways = recording.ways(mha) | {"by hand": by_hand(mha)}
    assert set(ways) == FIVE | {"by hand"}
    fused = x.clone().requires_grad_()
    y = mha(fused)
    y.sum().backward()
    for way in ways.values():
        with torch.no_grad():
            assert_close(way(x), y)
        found, slope = recording.and_backward(way)(x)
        assert_close(found, y)
        assert_close(slope, fused.grad)
    assert x.grad is None and not x.requires_grad
    with torch.no_grad():
        mha.o_proj.weight += 1
        mha.q_proj.weight *= -3
        now = {name: way(x) for name, way in ways.items()}
    assert_close(now.pop("nn.MultiheadAttention"), y)  # it has copies
    for answer in now.values():
        assert not torch.allclose(answer, y)
        assert_close(answer, mha(x))
    assert mha.implementation == "fused"


def test_each_way_runs_what_its_name_says():
    mha, x = MultiHeadAttention(12, 3), torch.zeros(1, 4, 12)
    with torch.no_grad():
        products = {
            name: sum(step.operation in ("addmm", "mm", "bmm") for step in record_journey(way, x))
            for name, way in recording.ways(mha).items()
        }
        (kernel,) = record_journey(by_hand(mha), x).calls("scaled_dot_product_attention")
    del products["nn.MultiheadAttention"]  # on its fast path, one step of torch's own
    split = 3 * 3 + 3 * 2 + 1  # three projections for each head, two products, and W_O
    assert products == {"loop": 4 + 3 * 2, "loop, split projections": split, "batched": 4 + 2, "fused": 4}
    assert kernel.shape == (1, 3, 4, 4)


@pytest.fixture
def studio(monkeypatch):
    """A sweep whose clock stands still, unless `costs` says what a comparison or a call takes."""
    studio = SimpleNamespace(now=100.0, costs={"compare": 0.0, "call": 0.0}, calls=[], said=[], order="ab")

    def spend(what):
        studio.now += studio.costs[what]

    def fake_compare(functions, *, inputs, device, repeats):
        spend("compare")
        call = dict(names=list(functions), inputs=inputs, device=device, repeats=repeats)
        studio.calls.append(call | {"grad": torch.is_grad_enabled()})
        return {name: Timing((3.0, 1.0, 2.0)) for name in functions}

    def way(x):
        spend("call")
        return x * 1

    monkeypatch.setattr(recording, "compare", fake_compare)
    monkeypatch.setattr(recording, "time", SimpleNamespace(monotonic=lambda: studio.now))
    monkeypatch.setattr(recording, "ways", lambda mha: dict.fromkeys(studio.order, way))
    monkeypatch.setattr(recording, "measure_cost_model", lambda device: timing.A100)
    monkeypatch.setattr(recording, "fits", lambda T, h, device: True)
    monkeypatch.setattr(recording, "D_MODEL", 96)
    return studio


def test_a_sweep_visits_every_point_once_and_says_so(studio):
    run = recording.sweep("cpu", say=studio.said.append)
    assert set(run) == {"machine", "cost_model", "points"}
    assert CostModel(**run["cost_model"]) == dataclasses.replace(timing.A100, bandwidth=[(1, 1.555e12)])
    assert places(run["points"], 96) == THE_SWEEP
    quartiles, cost = [1.5, 2.0, 2.5], timing.A100.predict(record_journey(torch.clone, torch.ones(1, 8, 96)))
    assert [point["seconds"] for point in run["points"]] == [{"a": quartiles, "b": quartiles}] * 55
    assert run["points"][10]["predicted"] == {"a": cost, "b": cost}  # T = 8, forward: reads and writes x
    assert run["points"][10]["operations"] == {"a": [1, 0], "b": [1, 0]}  # launches, views
    assert studio.said == [recording.describe(point) for point in run["points"]]
    grads = [direction == "forward + backward" for _, direction, _ in THE_SWEEP]
    assert [call["grad"] for call in studio.calls] == grads
    for call, (T, _, _) in zip(studio.calls, THE_SWEEP, strict=True):
        assert (call["names"], call["device"]) == (["a", "b"], "cpu")
        assert [x.shape for (x,) in call["inputs"]] == [(1, T, 96)] * 3
        assert not torch.equal(call["inputs"][0][0], call["inputs"][1][0])  # three different ones


def test_the_constants_of_a_run_are_the_middle_ones_of_three_measurements(studio, monkeypatch):
    models = [CostModel(n * 1.0, 2.0 * n, 3.0 * n, ((1, 5.0 * n), (9, 7.0 / n))) for n in (2, 1, 3)]
    measured = iter(models)
    monkeypatch.setattr(recording, "measure_cost_model", lambda device: next(measured))
    run = recording.sweep("cpu", say=studio.said.append)
    assert CostModel(**run["cost_model"]) == CostModel(2.0, 4.0, 6.0, [(1, 10.0), (9, 3.5)])
    assert next(measured, None) is None


def test_a_sweep_stops_when_its_time_is_up_and_records_why(studio):
    studio.costs["compare"] = 10.0
    points = recording.sweep("cpu", minutes=1.0, say=studio.said.append)["points"]
    assert places(points, 96) == THE_SWEEP
    assert all("seconds" in point for point in points[:7])  # the last of these still begins in time
    assert len(studio.calls) == 7
    assert [point["skipped"] for point in points[7:]] == ["no time left"] * 48
    assert studio.said[-1] == "T = 512, h = 96, forward + backward: no time left"


def test_a_point_that_would_take_too_long_is_skipped(studio):
    point = dict(T=8, direction="forward", h=4, device="cpu")
    recording.time_point(**point, deadline=studio.now)  # nothing costs anything yet
    studio.costs["call"] = 2.0  # so one call of both functions lasts 4 s, and each round that twice
    needed = 4 * (3 + 2 * studio.calls.pop()["repeats"])  # once for each of three inputs, and the rounds
    skipped = {"skipped": f"no time left: it would take about {needed} s"}, {}
    assert recording.time_point(**point, deadline=studio.now + needed + 3) == skipped
    assert studio.calls == []
    assert "seconds" in recording.time_point(**point, deadline=studio.now + needed + 5)[0]


@pytest.mark.parametrize(
    ("error", "reasons"),
    [
        (torch.OutOfMemoryError, [None, "not enough memory", None]),
        (KeyboardInterrupt, [None, "interrupted", "no time left"]),
    ],
)
def test_what_is_measured_is_kept_when_a_point_fails(studio, monkeypatch, error, reasons):
    sound = recording.compare

    def compare_but_once(*args, **kwargs):
        if len(studio.calls) == 1:
            studio.calls.append({})
            raise error
        return sound(*args, **kwargs)

    monkeypatch.setattr(recording, "compare", compare_but_once)
    points = recording.sweep("cpu", say=studio.said.append)["points"]
    assert places(points, 96) == THE_SWEEP
    assert [point.get("skipped") for point in points[:3]] == reasons


def test_a_point_that_does_not_fit_into_memory_is_skipped(studio, monkeypatch):
    monkeypatch.setattr(recording, "fits", lambda T, h, device: T * h < 100)
    points = recording.sweep("cpu", say=studio.said.append)["points"]
    skipped = [point.get("skipped") for point in points]
    assert skipped == ["not enough memory" if T * h >= 100 else None for T, _, h in THE_SWEEP]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_point_is_also_compiled_on_a_gpu_at_some_sizes(studio, monkeypatch, device):
    randn, studio.order = torch.randn, ("loop", "batched")
    monkeypatch.setattr(torch, "randn", lambda *shape, device: randn(*shape))  # here may be no GPU
    monkeypatch.setattr(nn.Module, "to", lambda self, device: self)
    monkeypatch.setattr(torch, "compile", lambda fn: fn)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    points = [(1, 12), (128, 12), (2048, 12), (1, 4), (8, 12)]
    run = [recording.time_point(T, "forward", h, device, studio.now)[0] for T, h in points]
    compiled = {"seconds": [1.5, 2.0, 2.5]} if device == "cuda" else None
    assert [point.get("compiled") for point in run] == [compiled] * 3 + [None] * 2
    backward, _ = recording.time_point(1, "forward + backward", 12, device, studio.now)
    assert "compiled" not in backward

    def no_compiler(fn):
        raise RuntimeError

    monkeypatch.setattr(torch, "compile", no_compiler)
    point, _ = recording.time_point(1, "forward", 12, device, studio.now)
    assert point.get("compiled") == ({"skipped": "RuntimeError"} if device == "cuda" else None)
    assert set(point["seconds"]) == set(studio.order)


def test_eight_tensors_like_the_scores_must_fit(monkeypatch):
    T, h, needed = 16, 3, 8 * 3 * 16 * 16 * 4
    for free, verdict in [(needed + 1, True), (needed, False), (0, False)]:
        pages = {"SC_AVPHYS_PAGES": free, "SC_PAGE_SIZE": 1}
        monkeypatch.setattr(recording, "os", SimpleNamespace(sysconf_names=pages, sysconf=pages.get))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (free, 10**12))
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        assert recording.fits(T, h, "cpu") is recording.fits(T, h, "cuda") is verdict
    monkeypatch.setattr(recording, "os", SimpleNamespace())
    assert recording.fits(10**6, 96, "cpu")  # nobody knows


def test_a_point_is_described_in_one_line():
    point = {"T": 8, "h": 4, "direction": "forward"}
    times = {"loop": [0.001, 0.0012345, 0.002], "fused": [0.1, 0.25, 0.5]}
    said = "T = 8, h = 4, forward: loop 1.23 ms, fused 250 ms"
    assert recording.describe(point | {"seconds": times}) == said
    assert recording.describe(point | {"skipped": "rain"}) == "T = 8, h = 4, forward: rain"


# python -m mhalesson


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Runs the program with a sweep that takes no time, and without touching the shipped runs."""
    program = SimpleNamespace(swept=[], threads=[], gpu=False)
    about = {"device": "AMD EPYC (TM)", "date": "2026-11-30"}
    monkeypatch.setattr(__main__, "sweep", lambda device: program.swept.append(device) or {"points": []})
    monkeypatch.setattr(__main__, "machine", lambda device: about)
    monkeypatch.setattr(__main__, "RUNS", tmp_path)
    monkeypatch.setattr(__main__, "save_run", lambda name, run, folder=tmp_path: save_run(name, run, folder))
    monkeypatch.setattr(torch, "set_num_threads", program.threads.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: program.gpu)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mhalesson", *arguments])
        __main__.main()

    program.run = run
    return program


def test_record_saves_a_run_and_refuses_a_name_before_it_starts(program, tmp_path, capsys):
    program.run("record", "--name", "mine")
    assert recorded_runs(tmp_path) == {"mine": {"points": []}}
    assert capsys.readouterr().out == f"saved as {tmp_path / 'mine.json'}\n"
    assert (program.swept, program.threads) == (["cpu"], [1])
    assert refusal(lambda: program.run("record", "--name", "mine"), SystemExit) == "2"
    sentence = "python -m mhalesson: error: there is a run mine already; choose another with --name\n"
    assert capsys.readouterr().err.endswith(sentence)
    assert program.swept == ["cpu"]


def test_record_takes_the_gpu_where_there_is_one_and_names_the_run(program, tmp_path):
    program.gpu = True
    program.run("record")
    assert (program.swept, program.threads) == (["cuda"], [])
    assert set(recorded_runs(tmp_path)) == {"amd-epyc-tm-2026-11-30"}
    assert refusal(lambda: program.run("record"), SystemExit) == "2"


@pytest.mark.parametrize("arguments", [[], ["measure"], ["record", "--fast"]], ids=" ".join)
def test_without_a_known_command_the_usage_is_shown(program, capsys, arguments):
    assert refusal(lambda: program.run(*arguments), SystemExit) == "2"
    assert capsys.readouterr().err.startswith("usage: python -m mhalesson [-h] command")
    assert program.swept == []


def test_recording_needs_neither_matplotlib_nor_ipython():
    code = "import json, sys, mhalesson.__main__; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert "mhalesson" in loaded
    assert not loaded & {"matplotlib", "IPython", "ipywidgets", "pandas"}
