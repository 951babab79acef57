"""The engine: what `check` says of an answer that is no answer, and that nothing an answer does can hurt."""

import asyncio
import random
import re
import signal
import statistics
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import Tensor

from mhalesson import exercises
from mhalesson.exercises import EXERCISES, check, engine, hint, progress, solution
from mhalesson.exercises.engine import cases_of, is_right, judge, outcome, together, ways_to_be_wrong

pytestmark = pytest.mark.usefixtures("as_a_learner_calls")

EVERY = list(EXERCISES.values())
each_exercise = pytest.mark.parametrize("exercise", EVERY, ids=EXERCISES)


@pytest.fixture(autouse=True)
def nothing_tried(monkeypatch):
    monkeypatch.setattr(exercises, "_tried", {})


def gives(value):
    return lambda *inputs: value


def always(exercise, value):
    """An answer with the right signature that returns `value`."""
    return eval(f"lambda {', '.join(exercise.parameters)}: value", {"value": value})


def around(exercise, change):
    """The reference, with its result put through `change`."""
    return lambda *inputs: change(exercise.reference(*inputs))


def named(value):
    """A test's name, the same in every process."""
    return getattr(value, "__name__", str(value))


# --------------------------------------------------------------------------------------------- the stub


@each_exercise
def test_only_an_untouched_stub_counts_as_not_attempted(exercise):
    def compiled(source):
        space = {"torch": torch}
        exec(source, space)
        return space[f"my_{exercise.id}"]

    def mark(source):
        return judge(exercise, compiled(source)).mark

    assert mark(exercise.stub) == "○"
    assert mark(exercise.stub + "    # here I go\n") == "○"
    assert mark(exercise.stub.replace('"""', '"""My notes: ', 1)) == "○"
    head = exercise.stub.strip().split("\n")[0]
    assert mark(f"{head}\n    return 0") == "✗"
    assert mark(f"{head}\n    later = 0\n    return") == "✗"
    assert judge(exercise, exercise.reference).mark == "✓"


# --------------------------------------------------------------- what goes wrong whatever is asked

NO_FUNCTION = "not a function. Hand over the function itself, without calling it."


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("my_merge_heads", f"This is a str, {NO_FUNCTION}"),
        (3, f"This is an int, {NO_FUNCTION}"),
        (None, f"This is None, {NO_FUNCTION}"),
        (torch.zeros(2, 3), f"This is a Tensor, {NO_FUNCTION}"),
        ([1, 2], f"This is a list, {NO_FUNCTION}"),
        (float("nan"), f"This is a float, {NO_FUNCTION}"),
        (dict, "`dict` is a class; the check takes a function."),
    ],
    ids=named,
)
def test_an_answer_that_is_no_function(answer, says, capsys):
    check("merge_heads", answer)
    assert capsys.readouterr() == (f"✗ {says}\n", "")


@each_exercise
def test_a_wrong_signature(exercise):
    asked = ", ".join(exercise.parameters)
    for answer, takes in (
        (lambda: 0, ""),
        (lambda *, key: 0, "*, key"),
        (lambda a, b, c, d, e, f: 0, "a, b, c, d, e, f"),
    ):
        assert (
            judge(exercise, answer).says
            == f"It takes ({takes}); it will be called with ({asked}), in this order."
        )


def test_parameters_in_another_order():
    says = "It takes (num_heads, x); it will be called with (x, num_heads), in this order."
    assert judge(EXERCISES["split_heads"], lambda num_heads, x: x).says == says


@each_exercise
def test_names_of_parameters_are_free_and_more_may_have_defaults(exercise):
    def answer(*inputs, note="mine"):
        return exercise.reference(*inputs)

    assert judge(exercise, answer).mark == "✓"


class Callable:
    def __init__(self, exercise):
        self.exercise = exercise

    def __call__(self, *inputs):
        return self.exercise.reference(*inputs)


@each_exercise
def test_anything_that_can_be_called_may_answer(exercise):
    assert judge(exercise, Callable(exercise)).mark == "✓"


async def a_coroutine(*inputs):
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (gives(None), "It returned nothing (None): a function hands over only what stands after `return`."),
        (lambda *i: print("z"), "It prints, but returns nothing (None)"),
        (gives(...), "It returned `...`, which is a placeholder and not a value."),
        (
            lambda *i: (yield 1),
            "It hands over its values one by one (yield, async); one `return` is asked for.",
        ),
        (a_coroutine, "It hands over its values one by one (yield, async); one `return` is asked for."),
        (gives(len), "It returned a function. Are the round brackets that call it missing?"),
        (gives(object()), "It returned something of type object"),
        (gives({1: 2}), "It returned something of type dict"),
        (gives("z"), "It returned the str 'z'"),
        (lambda *i: 1 / 0, "It stopped with an error"),
    ],
    ids=named,
)
@each_exercise
def test_a_result_of_the_wrong_kind(exercise, answer, says):
    verdict = judge(exercise, answer)
    assert verdict.mark == "✗" and verdict.says.startswith(says), verdict


TENSORS = [e for e in EVERY if e.reader is engine.a_tensor]
each_tensor_exercise = pytest.mark.parametrize("exercise", TENSORS, ids=[e.id for e in TENSORS])


@each_tensor_exercise
def test_a_result_of_the_wrong_form(exercise):
    def says(change):
        verdict = judge(exercise, around(exercise, change))
        assert verdict.mark == "✗" and str(verdict).count("\n") <= 1
        return verdict.says

    assert "single number" in says(lambda y: y.sum())
    assert says(lambda y: y.sum().item()).startswith("It returned the single number")
    assert says(lambda y: y.numpy()).startswith("It returned a NumPy array")
    assert says(lambda y: y.tolist()).startswith("It returned the list")
    assert says(lambda y: [y, y]).startswith("It returned a list of 2 tensors")
    assert says(lambda y: y.to("meta")).startswith("It returned a tensor on the device “meta”")
    assert ("has the shape" if exercise.fault else "axes; ") in says(lambda y: y[None])
    assert "shape" in says(lambda y: torch.cat([y, y]))
    assert "dtype" in says(lambda y: y.int() if exercise.any_float else y.double())
    assert "NaN" in says(lambda y: y / torch.zeros_like(y) * torch.zeros_like(y))
    assert "infinit" in says(lambda y: y + torch.inf)
    assert judge(exercise, around(exercise, lambda y: y.to_sparse())).mark == "✓"
    assert judge(exercise, around(exercise, lambda y: y.mT.contiguous().mT)).mark == "✓"


@pytest.mark.parametrize(
    "name", ["contributions", "split_heads", "batch_the_loop", "repair", "heads_reaching"]
)
def test_an_answer_that_ignores_its_input(name):
    exercise = EXERCISES[name]
    first = exercise.reference(*cases_of(exercise, 0)[0].inputs)
    assert judge(exercise, always(exercise, first)).says == "It gives the same result whatever it is given."


@pytest.mark.parametrize("exercise", [e for e in TENSORS if not e.fault], ids=lambda e: e.id)
def test_an_answer_that_changes_from_call_to_call(exercise):
    verdict = judge(exercise, around(exercise, lambda y: y + torch.rand_like(y)))
    assert verdict.says == "Called twice with the same input, it gives two different results."


def test_a_random_answer_may_be_right_where_many_are():
    def answer(z):
        steps = torch.randn_like(z) * (z.abs().max() + 1)
        return z + steps - steps.mean(dim=0)

    lines = {str(judge(EXERCISES["same_sum"], answer)) for _ in range(3)}
    assert lines == {f"✓ {EXERCISES['same_sum'].right}"}


TAKE_TENSORS = [e for e in EVERY if any(isinstance(v, Tensor | list) for v in cases_of(e, 0)[0].inputs)]


@pytest.mark.parametrize("exercise", TAKE_TENSORS, ids=[e.id for e in TAKE_TENSORS])
def test_an_answer_that_changes_its_input(exercise):
    place = 0
    name = exercise.parameters[place]

    def changing(function):
        def answer(*inputs):
            result = function(*inputs)
            result = result.clone() if isinstance(result, Tensor) else result
            first = inputs[place]
            if isinstance(first, list):
                first.pop()
            else:
                first.mul_(2)
            return result

        return answer

    says = f"It changes its input `{name}` in place."
    assert judge(exercise, changing(exercise.reference)).says == says
    mistake = next(m for m in exercise.mistakes if judge(exercise, m.wrong).mistakes == (m.name,))
    assert judge(exercise, changing(mistake.wrong)).says == f"Two things. {says} {mistake.says}"


@each_exercise
def test_what_an_answer_prints_is_kept_back(exercise, capfd):
    def answer(*inputs):
        print("looking at", inputs)
        print("and complaining", file=sys.stderr)
        return exercise.reference(*inputs)

    verdict = judge(exercise, answer)
    assert (verdict.mark, verdict.says) == ("✓", f"{exercise.right} (What it printed was kept back.)")
    assert capfd.readouterr() == ("", "")


def unknown_name(z):
    return merge(z)  # noqa: F821


def missing_return_of_a_helper(z):
    def turned(z):
        z.transpose(1, 2)

    return turned(z).reshape(1)


def wrong_size(z):
    return z.reshape(7, 11, 13)


def wrong_view(z):
    return z.transpose(1, 2).view(-1)


def calls_itself(z):
    return calls_itself(z)


def placeholder_left(z):
    return z.transpose(1, 2).reshape(... + 1)


def leaves(z):
    sys.exit(1)


def unbound(z):
    y = y + z  # noqa: F821
    return y


def raises(error):
    def answer(z):
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (unknown_name, "in `return merge(z)`: nothing here is called `merge`"),
        (missing_return_of_a_helper, "`.reshape` is asked of None, which is nothing"),
        (wrong_size, "in `return z.reshape(7, 11, 13)`: the shape (7, 11, 13) does not hold exactly the"),
        (wrong_view, "not evenly spaced in memory"),
        (calls_itself, "it calls itself without end"),
        (placeholder_left, "a `...` still stands where a value is needed"),
        (leaves, "it asks Python to quit"),
        (unbound, "`y` is used before it has a value"),
        (lambda z: z.merge(), "something of type Tensor has no `.merge`"),
        (lambda z: z.shape(0), "round brackets follow a Size, which cannot be called"),
        (lambda z: z.transpose(1, 7), "there is no axis 7"),
        (lambda z: z[99], "axis 0 has"),
        (lambda z: z[0, 0, 0, 0, 0], "it names more axes than the tensor has"),
        (lambda z: z @ torch.zeros(11, 13), "inner sizes"),
        (lambda z: z + torch.zeros(11), "two tensors meet that are"),
        (lambda z: z.flatten(0, 2) @ torch.zeros(z.shape[3], 2).double(), "numbers of two types (dtypes)"),
        (lambda z: 1 // 0, "it divides by zero"),
        (lambda z: __import__("einopsy"), "there is no module `einopsy` here"),
        (raises(NotImplementedError()), "it is not written yet"),
        (raises(AssertionError()), "an `assert` does not hold"),
        (raises(MemoryError()), "more memory than there is"),
        (raises(ValueError("two\nlines")), "ValueError: two lines."),
        (raises(ValueError("x" * 500)), "ValueError: " + "x" * 99 + "…."),
        (raises(GeneratorExit()), "GeneratorExit."),
        (raises(BaseException("odd")), "BaseException: odd."),
    ],
    ids=named,
)
def test_an_error_is_put_into_words(answer, says):
    verdict = judge(EXERCISES["merge_heads"], answer)
    assert verdict.says.startswith("It stopped with an error") and says in verdict.says, verdict
    assert "Traceback" not in str(verdict) and str(verdict).count("\n") <= 1


class Hostile:
    """Fails whenever it is looked at."""

    def __getattribute__(self, name):
        if name == "__class__":
            return Hostile
        raise RuntimeError("do not touch")


@each_exercise
def test_a_result_that_cannot_be_looked_at(exercise):
    verdict = judge(exercise, gives(Hostile()))
    assert verdict.mark == "✗" and "\n" not in verdict.says


class HostileClass:
    __class__ = property(lambda self: 1 / 0)


class HostileText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def reference_of(name):
    return EXERCISES[name].reference


def raises_hostile(z):
    raise HostileText


def first_line_changed(z):
    sys.stdout.close()
    return reference_of("merge_heads")(z)


def many_words(z):
    raise type("A" * 5000, (Exception,), {})("word " * 5000)


def default_of_many_lines(z, w, mask=torch.zeros(20, 20)):  # noqa: B008
    return z


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("merge_heads", raises_hostile),
        ("merge_heads", Hostile()),
        ("merge_heads", gives(HostileClass())),
        ("merge_heads", lambda z: reference_of("merge_heads")(z).to(torch.complex64).flip(2)),
        ("merge_heads", lambda z: reference_of("merge_heads")(z).to(torch.float8_e4m3fn)),
        ("merge_heads", lambda z: reference_of("merge_heads")(z) > 3),
        (
            "merge_heads",
            lambda z: torch.quantize_per_tensor(reference_of("merge_heads")(z), 1.0, 0, torch.quint8),
        ),
        ("merge_heads", lambda z: torch.nested.nested_tensor([z[0], z[0]])),
        ("merge_heads", lambda z: torch.zeros(1).expand(z.shape[0], z.shape[2], 10**8)),
        ("merge_heads", first_line_changed),
        ("merge_heads", many_words),
        ("merge_heads", default_of_many_lines),
        ("attention_params", lambda *sizes: 10**5000),
        ("heads_reaching", lambda *inputs: [10**5000]),
        ("heads_reaching", lambda *inputs: list(range(10**5))),
        ("journey_shapes", lambda *sizes: [(1,) * 10**4] * 7),
        ("head_slice", lambda i, d_v: "a\nb" * 1000),
    ],
    ids=lambda value: value if type(value) is str else "answer",
)
def test_hostile_answers_get_two_lines_at_most(name, answer, capfd):
    line = str(judge(EXERCISES[name], answer))
    assert line.startswith("✗ ") and line.count("\n") <= 1 and max(map(len, line.split("\n"))) <= 404
    assert "Traceback" not in line and capfd.readouterr() == ("", "")


def test_a_result_that_does_not_fit_into_memory_is_not_looked_at():
    says = judge(EXERCISES["merge_heads"], lambda z: torch.zeros(1).expand(10**6, 10**6)).says
    assert says == "It returned a tensor of 1,000,000,000,000 numbers, which is far too many."


def test_an_answer_cannot_spoil_the_next_check():
    exercise = EXERCISES["batch_the_loop"]

    def spoils(q, k, v):
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(2)
        return q

    assert judge(exercise, spoils, seed=77).mark == "✗"
    assert torch.get_default_dtype() == torch.float32 and torch.get_default_device().type == "cpu"
    assert torch.is_grad_enabled() and not torch.are_deterministic_algorithms_enabled()
    assert judge(exercise, exercise.reference, seed=77).mark == "✓"


@each_exercise
def test_a_notebooks_own_settings_do_not_matter_and_stay(exercise):
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            for answer in (exercise.reference, *exercise.others):
                assert judge(exercise, answer, seed=78).mark == "✓"
        assert torch.get_default_dtype() == torch.float64 and not torch.is_grad_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
    with torch.inference_mode():
        assert judge(exercise, exercise.reference, seed=79).mark == "✓"


def test_a_name_that_is_also_an_attribute_is_not_borrowed():
    space = {"T": 5, "torch": torch}
    exec("def attribute(z): return z.mT\ndef size(z): return z.flatten(1)[:, :T]", space)
    assert "notebook" not in str(judge(EXERCISES["merge_heads"], space["attribute"]))
    assert "(It uses `T` of the notebook, not of its inputs.)" in str(
        judge(EXERCISES["merge_heads"], space["size"])
    )


def test_an_answer_that_is_wrong_the_second_time():
    calls = []

    def answer(z):
        calls.append(z)
        return reference_of("merge_heads")(z) * (len(calls) <= len(cases_of(EXERCISES["merge_heads"], 0)))

    says = "Called twice with the same input, it gives two different results."
    assert judge(EXERCISES["merge_heads"], answer).says == says


def test_a_mask_kept_for_later_is_no_loop():
    kept = {}

    def answer(q, k, v):
        T = q.shape[-2]
        if T not in kept:
            kept[T] = torch.ones(T, T, dtype=torch.bool).triu(1)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(kept[T], -torch.inf)
        return scores.softmax(-1) @ v

    assert judge(EXERCISES["batch_the_loop"], answer).mark == "✓"


def test_a_loop_over_heads_is_counted_and_numpy_is_not_let_in():
    def loop(q, k, v):
        return torch.stack(
            [reference_of("batch_the_loop")(q[:, i], k[:, i], v[:, i]) for i in range(q.shape[1])], 1
        )

    def outside(q, k, v):
        return torch.from_numpy(loop(*(torch.from_numpy(a.numpy()) for a in (q, k, v))).numpy())

    assert judge(EXERCISES["batch_the_loop"], loop).says.endswith("there is still a loop over heads.")
    assert "outside of torch" in judge(EXERCISES["batch_the_loop"], outside).says


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a Unix alarm clock")
def test_somebody_elses_alarm_still_rings():
    rung = []
    was = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    left = signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        judge(EXERCISES["head_slice"], reference_of("head_slice"))
        deadline = time.monotonic() + 5
        while not rung and time.monotonic() < deadline:
            time.sleep(0.01)
        assert rung
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)
        signal.signal(signal.SIGALRM, was)


@each_exercise
def test_any_other_token_in_the_stub_is_an_attempt(exercise):
    for old, new in (("dim=1)", "dim=2)"), ("a.chunk", "a.split"), ("...", "return 1")):
        space = {"torch": torch}
        exec(exercise.stub.replace(old, new), space)
        if old in exercise.stub:
            assert judge(exercise, space[f"my_{exercise.id}"]).mark == "✗", (old, new)


def spins(*inputs):
    while True:
        pass


def spins_and_catches(*inputs):
    while True:
        with suppress(Exception):
            _ = 1 + 1


def spins_and_catches_everything(*inputs):
    while True:
        try:  # noqa: SIM105
            _ = 1 + 1
        except:  # noqa: E722
            pass


def sleeps(*inputs):
    time.sleep(600)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a Unix alarm clock")
@pytest.mark.parametrize("answer", [spins, spins_and_catches, spins_and_catches_everything, sleeps])
@each_exercise
def test_an_answer_that_does_not_end(exercise, answer, monkeypatch):
    monkeypatch.setattr(engine, "SECONDS", 0.02)
    says = "It was stopped after 0.02 seconds: is there a loop that never ends, or a real wait?"
    assert judge(exercise, answer).says == says


def test_in_another_thread_there_is_no_limit_and_no_error():
    verdicts = []
    exercise = EXERCISES["head_slice"]
    thread = threading.Thread(target=lambda: verdicts.append(judge(exercise, exercise.reference)))
    thread.start()
    thread.join()
    assert verdicts[0].mark == "✓"


def test_the_learners_own_stop_goes_through():
    with pytest.raises(KeyboardInterrupt):
        judge(EXERCISES["head_slice"], raises_stop)


def raises_stop(i, d_v):
    raise KeyboardInterrupt


@each_exercise
def test_a_check_leaves_the_session_as_it_was(exercise):
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    stdout, handler = sys.stdout, signal.getsignal(signal.SIGALRM)
    draws = lambda y: (torch.rand(1), random.random(), np.random.rand(), y)[3]  # noqa: E731, NPY002
    judge(exercise, around(exercise, draws))
    judge(exercise, exercise.mistakes[0].wrong)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]  # noqa: NPY002
    assert sys.stdout is stdout and signal.getsignal(signal.SIGALRM) == handler


@each_exercise
def test_the_same_answer_gives_the_same_line_twice(exercise):
    for answer in (exercise.reference, *(mistake.wrong for mistake in exercise.mistakes), gives(None)):
        assert str(judge(exercise, answer)) == str(judge(exercise, answer))


def test_the_evidence_is_true():
    """The place, what should be there and what is: looked up again in both results."""
    exercise = EXERCISES["split_heads"]
    case = cases_of(exercise, 0)[0]
    x, h = case.inputs
    wrong = x.view(x.shape[0], h, x.shape[1], -1)
    verdict = judge(exercise, lambda x, h: x.view(x.shape[0], h, x.shape[1], -1))
    code = r"b(\d)h(\d)t(\d)c(\d)"
    place = r"batch (\d), head (\d), token (\d), channel (\d)"
    call = re.escape(f"for x {tuple(x.shape)}, num_heads={h}")
    found = re.fullmatch(f"{call}: at {place} it should be {code} and is {code}", verdict.evidence)
    numbers = list(map(int, found.groups()))
    place, should, has = tuple(numbers[:4]), numbers[4:8], numbers[8:]
    assert should == numbers[:4]
    b, head, t, c = has
    assert wrong[place] == x.unflatten(2, (h, -1))[b, t, head, c]
    right = exercise.reference(x, h)
    differs = (wrong != right).nonzero()[0].tolist()
    assert list(place) == differs


# --------------------------------------------------------------------------- check, hint, solution, progress


def test_check_prints_its_verdict_and_returns_nothing(capsys):
    assert check("head_slice", EXERCISES["head_slice"].reference) is None
    assert capsys.readouterr().out == "✓ Each head gets its own d_v channels, none twice, none left out.\n"


def named_as_on_the_page(z):
    return z


named_as_on_the_page.__name__ = "my_merge_heads"


@pytest.mark.parametrize("call", [check, hint, solution])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("merge_head", '✗ There is no exercise "merge_head"; did you mean "merge_heads"?'),
        ("quantum", '✗ There is no exercise "quantum"; names are such as "head_slice"'),
        (gives, '✗ There is no exercise of type function; names are such as "head_slice"'),
        (named_as_on_the_page, '✗ There is no exercise of type function; did you mean "merge_heads"?'),
        (None, '✗ There is no exercise of type NoneType; names are such as "head_slice"'),
    ],
    ids=named,
)
def test_a_name_that_no_exercise_has(call, name, says, capsys):
    assert call(name) is None
    out = capsys.readouterr().out
    assert out.startswith(says) and out.count("\n") == 1


@each_exercise
def test_hints_go_one_step_further_each_time(exercise, capsys):
    said = []
    for _ in range(len(exercise.hints) + 2):
        hint(exercise.id)
        said.append(capsys.readouterr().out)
    total = len(exercise.hints)
    assert said[0] == f"Hint 1 of {total}: {exercise.hints[0]}\n"
    assert len(set(said)) == total and said[total - 1] == said[-1]
    assert f'solution("{exercise.id}")' in said[-1] and "solution" not in said[0]


@each_exercise
def test_a_solution_can_be_pasted_and_is_right(exercise, capsys):
    solution(exercise.id)
    source = capsys.readouterr().out
    space = {"torch": torch}
    exec(source, space)
    assert judge(exercise, space[f"my_{exercise.id}"]).mark == "✓"
    assert source.count("\n") <= 20 and max(map(len, source.split("\n"))) <= 110


def test_progress_is_one_line_about_what_was_tried(capsys):
    progress()
    untouched = capsys.readouterr().out
    assert untouched == "mhalesson 0.1.0 · no exercise checked since this kernel started\n"
    check("merge_heads", EXERCISES["merge_heads"].reference)
    check("merge_heads", lambda z: z)  # once solved, free to play
    check("merge_heads", None)
    hint("split_heads")
    solution("repair")
    check("journey_shapes", EXERCISES["journey_shapes"].untouched)
    capsys.readouterr()
    progress()
    assert capsys.readouterr().out == (
        "mhalesson 0.1.0 · page 04: ✓ merge_heads (2 tries), ○ journey_shapes, ○ split_heads (1 hint), "
        "○ repair (solution seen)\n"
    )


@pytest.mark.parametrize(
    "average, pending, waits, says",
    [
        (statistics.median, True, True, "work is still pending"),
        (statistics.mean, True, True, "work is still pending"),
        (statistics.median, False, False, "does not wait for the device before it stops the clock"),
        (statistics.median, True, False, "does not wait for the device before it stops the clock"),
    ],
)
def test_a_timer_is_told_which_end_of_the_clock_is_wrong(average, pending, waits, says):
    # Both are a reading right after a call; the first reading starts the clock, the next one stops it.
    def timer(fn, repeats, synchronize, clock):
        synchronize()
        fn()
        if not pending:
            synchronize()
        times = []
        for _ in range(repeats):
            start = clock()
            fn()
            if waits:
                synchronize()
            times.append(clock() - start)
        return average(times)

    assert says in judge(EXERCISES["fair_timer"], timer).says
