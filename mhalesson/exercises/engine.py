"""One engine for all exercises: it runs an answer on many inputs and names the mistake that was made.

An exercise is data (`Exercise`). `judge` compares what an answer does on every input with what the reference
does, and, where they differ, with what each catalogued mistake does, so the verdict names the mistake that
explains all results. What no catalogued mistake explains is named by the first place that differs.
"""

import dis
import functools
import inspect
import io
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType

import torch
from torch import Tensor

from mhalesson.exercises._running import TimeUp, in_words, plain_session, quietly, time_limit
from mhalesson.exercises.forms import WIDE, Reader, Unreadable, a_tensor, read
from mhalesson.text import index_codes, words

SECONDS = 5.0  # how long all calls of one answer may take together


@dataclass(frozen=True)
class Mistake:
    """One way to get it wrong: `wrong` does it, and `says` tells what that does to the tensor.

    Where two mistakes are partials of one function with different keywords, they can be made together, and
    the engine recognises that.
    """

    name: str
    says: str
    wrong: Callable[..., object]


@dataclass(frozen=True, eq=False)
class Case:
    """One input of a check. `names[v]` is the name of the value v where values say where they came from."""

    inputs: tuple[object, ...]
    names: Sequence[str] = ()
    note: str = ""  # what is special about it, for the line of evidence

    def fresh(self) -> tuple[object, ...]:
        """The inputs again, untouched by what an earlier call did to them."""
        return tuple(_copy(value) for value in self.inputs)


@dataclass(frozen=True)
class Outcome:
    """What one call of an answer came to: a value, or the sentence that says why there is none."""

    value: object
    problem: str
    inputs: tuple[object, ...]  # as the call left them


@dataclass(frozen=True)
class Verdict:
    """One line for the learner, and a second one of evidence at most. `mistakes` names those recognised."""

    mark: str  # ○, ✓ or ✗
    says: str
    evidence: str = ""
    mistakes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.mark} {_one_line(self.says)}" + (
            f"\n  {_one_line(self.evidence)}" if self.evidence else ""
        )


def _one_line(text: str) -> str:
    """Names and values come from the learner, and can be of any length."""
    line = " ".join(text.split())
    return line if len(line) <= 400 else line[:399] + "…"


@dataclass(frozen=True, eq=False)
class Exercise:
    """A question, everything needed to judge an answer, and what helps on the way."""

    page: str
    stub: str  # the source of the learner's cell
    reference: Callable[..., object]  # its name is the exercise's id
    others: tuple[Callable[..., object], ...]  # other right answers, for the tests
    mistakes: tuple[Mistake, ...]
    hints: tuple[str, ...]  # from gentle to nearly there
    draw: Callable[[random.Random], list[Case]]  # the inputs, of sizes that the random numbers choose
    right: str  # what a right answer has shown
    reader: Reader = a_tensor
    shape: str = ""  # of the result, as in "(B, T, h·d_v)"
    axes: tuple[str, ...] = ()  # of the result, in words; of a list of shapes, what each entry is
    any_float: bool = False  # where only sizes are given, every floating-point type will do
    stretch: bool = False
    # Where many results are right: why this one is not, or "". Takes the case, the inputs as the call left
    # them, and the result.
    fault: Callable[[Case, tuple[object, ...], object], str] | None = None
    # What stands in the second line there, if it is not the fault itself.
    evidence: Callable[[Case, tuple[object, ...], object], str] | None = None
    # What is asked beyond right results: why an answer that gives them is still not right, or "".
    beyond: Callable[[Callable[..., object]], str] | None = None

    @property
    def id(self) -> str:
        return self.reference.__name__

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.reference).parameters)

    @functools.cached_property
    def untouched(self) -> FunctionType:
        """The learner's function as the page hands it out."""
        space: dict[str, object] = {"torch": torch}
        exec(self.stub, space)
        return space[f"my_{self.id}"]  # type: ignore[return-value]


def judge(exercise: Exercise, answer: object, seed: int = 0) -> Verdict:
    """The verdict on an answer, with the learner's session as it was; raises only the learner's own stop.

    The same answer gets the same verdict, unless it draws random numbers from a generator of its own.
    """
    try:
        with quietly() as printed:
            return _verdict(exercise, answer, seed, printed)
    except KeyboardInterrupt:
        raise
    except BaseException:  # from objects that fail when they are looked at, and the like
        return Verdict("✗", "It does, or returns, something that cannot be judged.")


def _verdict(exercise: Exercise, answer: object, seed: int, printed: io.StringIO) -> Verdict:
    if problem := not_a_function(answer):
        return Verdict("✗", problem)
    assert callable(answer)
    if _is_untouched(exercise, answer):
        return Verdict("○", f'not attempted yet (a first step: hint("{exercise.id}"))')
    if problem := wrong_signature(exercise, answer):
        return Verdict("✗", problem)

    cases = cases_of(exercise, seed)
    for case in cases:  # before the answer can change anything
        wanted_for(exercise, case)
    outcomes: list[Outcome] = []
    try:
        with time_limit(SECONDS):
            for case in cases:
                outcomes.append(outcome(exercise, answer, case))
            again = outcome(exercise, answer, cases[0])
            wrong = [n for n, made in enumerate(outcomes) if not is_right(exercise, cases[n], made)]
            changed = _first_change(exercise, cases, outcomes)
            beyond = exercise.beyond(answer) if exercise.beyond and not wrong and not changed else ""
    except TimeUp:
        unfinished = cases[min(len(outcomes), len(cases) - 1)]
        says = f"It was stopped after {SECONDS:g} seconds: is there a loop that never ends, or a real wait?"
        return Verdict("✗", says, called(exercise, unfinished))
    plain_session()

    said = [f"It changes its input `{changed}` in place."] if changed else []
    kept = " (What it printed was kept back.)" if printed.getvalue() else ""
    varies = not exercise.fault and not same(outcomes[0], again)
    if not wrong and not varies:
        said += [beyond] if beyond else []
        if not said:
            return Verdict("✓", exercise.right + kept)
        return Verdict("✗", _joined(said) + kept, called(exercise, cases[0]))

    found = recognised(exercise, outcomes, seed) if wrong else ()
    if varies and not found:
        says = "Called twice with the same input, it gives two different results."
        return Verdict("✗", says, called(exercise, cases[0]))
    # Of a recognised mistake the first result is the evidence, rather than the first error.
    n = next((n for n in wrong if found and not outcomes[n].problem), wrong[0])
    case, made = cases[n], outcomes[n]
    if found:
        said += [mistake.says for mistake in found]
    elif _ignores_its_input(exercise, cases, outcomes):
        said.append("It gives the same result whatever it is given.")
    elif printed.getvalue() and made.problem.startswith("It returned nothing"):
        said.append("It prints, but returns nothing (None): what is printed is seen, and lost to the caller.")
        kept = ""
    else:
        said.append(unexplained(exercise, case, made, cases, outcomes) + _borrowed(answer))
    named = tuple(mistake.name for mistake in found)
    # Where an input has changed, its values no longer say where they came from.
    evidence = first_difference(exercise, case, made, by_name=not changed)
    return Verdict("✗", _joined(said) + kept, evidence, named)


# ---------------------------------------------------------------------------------- before any call


def not_a_function(answer: object) -> str:
    """Why this is nothing to be called, or ""."""
    if inspect.isclass(answer):
        return f"`{answer.__name__}` is a class; the check takes a function."
    if callable(answer):
        return ""
    what = "None" if answer is None else _article(type(answer).__name__)
    return f"This is {what}, not a function. Hand over the function itself, without calling it."


def wrong_signature(exercise: Exercise, answer: Callable[..., object]) -> str:
    """Why the answer cannot be called as the exercise asks, or ""."""
    try:
        signature = inspect.signature(answer)
    except (TypeError, ValueError):  # some built-in functions do not say what they take
        return ""
    names = list(signature.parameters)
    swapped = names != list(exercise.parameters) and sorted(names) == sorted(exercise.parameters)
    try:
        signature.bind(*exercise.parameters)
        fits = not swapped
    except TypeError:
        fits = False
    if not fits:
        takes = signature.replace(return_annotation=inspect.Signature.empty)
        asked = ", ".join(exercise.parameters)
        return f"It takes {takes}; it will be called with ({asked}), in this order."
    return ""


def _is_untouched(exercise: Exercise, answer: object) -> bool:
    """Does it do exactly what the stub does? Compared as compiled, so that comments do not count."""
    if not isinstance(answer, FunctionType):
        return False
    stub = exercise.untouched
    return _compiled(answer.__code__, answer.__doc__) == _compiled(stub.__code__, stub.__doc__)


def _compiled(code: CodeType, docstring: str | None = None) -> tuple[object, ...]:
    constants = code.co_consts[1:] if docstring is not None else code.co_consts
    nested = tuple(_compiled(c) if inspect.iscode(c) else c for c in constants)
    return code.co_code, code.co_names, nested, code.co_varnames[code.co_argcount :]


# --------------------------------------------------------------------------------------- the results


@functools.lru_cache(maxsize=32)
def cases_of(exercise: Exercise, seed: int) -> tuple[Case, ...]:
    return tuple(exercise.draw(random.Random(seed)))


@functools.lru_cache(maxsize=1024)
def wanted_for(exercise: Exercise, case: Case) -> object:
    """What the reference returns."""
    return outcome(exercise, exercise.reference, case).value


def outcome(exercise: Exercise, answer: Callable[..., object], case: Case) -> Outcome:
    """Call the answer once."""
    inputs = case.fresh()
    try:
        value = answer(*inputs)
    except (TimeUp, KeyboardInterrupt):
        raise
    except BaseException as error:  # whatever a learner's code comes up with
        return Outcome(None, in_words(error, answer), inputs)
    try:
        return Outcome(read(exercise.reader, value), "", inputs)
    except Unreadable as problem:
        return Outcome(None, str(problem), inputs)


def is_right(exercise: Exercise, case: Case, made: Outcome) -> bool:
    if made.problem:
        return False
    if exercise.fault:
        return not exercise.fault(case, made.inputs, made.value)
    return agree(made.value, wanted_for(exercise, case), exercise.any_float)


def agree(a: object, b: object, any_float: bool = False) -> bool:
    """Equal up to rounding, and of one type; of tensors any floating-point type will do if `any_float`."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        alike = a.dtype == b.dtype or (any_float and a.is_floating_point())
        return alike and a.shape == b.shape and not _off(a, b).any()
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-5 * abs(b)
    return type(a) is type(b) and a == b


def _off(value: Tensor, wanted: Tensor) -> Tensor:
    """Where two tensors of one shape differ by more than rounding in float32."""
    size = wanted.nan_to_num(nan=0, posinf=0, neginf=0).abs().max().item() if wanted.numel() else 0
    return ~value.to(wanted.dtype).isclose(wanted, rtol=1e-4, atol=5e-5 * size, equal_nan=True)


def same(a: Outcome, b: Outcome) -> bool:
    """Did two calls come to the same? One error is as good as another."""
    if a.problem or b.problem:
        return bool(a.problem) and bool(b.problem)
    return agree(a.value, b.value)


# -------------------------------------------------------------------------------------- the mistakes


def ways_to_be_wrong(
    exercise: Exercise, at_once: int
) -> list[tuple[tuple[Mistake, ...], Callable[..., object]]]:
    """Every mistake, or every two that can be made at once, with an answer that makes them."""
    ways = itertools.combinations(exercise.mistakes, at_once)
    return [(mistakes, wrong) for mistakes in ways if (wrong := together(*mistakes))]


def together(first: Mistake, second: Mistake | None = None) -> Callable[..., object] | None:
    """The answer that makes a mistake; or both, if each is a different change of the same steps."""
    if second is None:
        return first.wrong
    f, g = first.wrong, second.wrong
    if not (isinstance(f, functools.partial) and isinstance(g, functools.partial) and f.func is g.func):
        return None
    if f.keywords.keys() & g.keywords.keys():
        return None
    return functools.partial(f.func, **f.keywords, **g.keywords)


def recognised(exercise: Exercise, outcomes: list[Outcome], seed: int) -> tuple[Mistake, ...]:
    """The mistake that comes to the same on every input, or else the two; none if several pairs do."""
    cases = cases_of(exercise, seed)
    for at_once in (1, 2):
        found = [
            mistakes
            for mistakes, wrong in ways_to_be_wrong(exercise, at_once)
            if explains((outcome(exercise, wrong, case) for case in cases), outcomes)
        ]
        if len(found) == 1:
            return found[0]
    return ()


def explains(made: Iterable[Outcome], outcomes: Sequence[Outcome]) -> bool:
    """Do the calls come to the same? Where all of them fail, they must fail for the same reason."""
    if all(outcome.problem for outcome in outcomes):
        return all(a.problem == b.problem for a, b in zip(made, outcomes, strict=True))
    return all(same(a, b) for a, b in zip(made, outcomes, strict=True))


# ------------------------------------------------------------------------------------------ in words


def called(exercise: Exercise, case: Case) -> str:
    """The call, for the second line: `for z (2, 3, 5, 4), num_heads=3`."""
    shown = []
    for name, value in zip(exercise.parameters, case.inputs, strict=True):
        if isinstance(value, Tensor):
            shown.append(f"{name} {tuple(value.shape)}")
        elif isinstance(value, list | tuple):
            shown.append(f"{name} {words([tuple(part.shape) for part in value])}")
        elif isinstance(value, bool | int | float) or value is None:
            shown.append(f"{name}={value}")
    return f"for {', '.join(shown)}" + (f", {case.note}" if case.note else "")


def unexplained(
    exercise: Exercise, case: Case, made: Outcome, cases: Sequence[Case], outcomes: Sequence[Outcome]
) -> str:
    """What is wrong with a result that no catalogued mistake explains."""
    if made.problem:
        rights = sum(map(functools.partial(is_right, exercise), cases, outcomes))
        return made.problem + (
            f" (On {rights} of {len(cases)} inputs it is right.)" if 2 * rights >= len(cases) else ""
        )
    if exercise.fault:
        return exercise.fault(case, made.inputs, made.value)
    value, wanted = made.value, wanted_for(exercise, case)
    if isinstance(value, Tensor) and isinstance(wanted, Tensor):
        return _wrong_tensor(exercise, value, wanted)
    if isinstance(value, list) and isinstance(wanted, list) and len(value) != len(wanted):
        return f"It returned {len(value)} entries; there should be {len(wanted)}."
    if isinstance(value, list) and isinstance(wanted, list):
        off = sum(a != b for a, b in zip(value, wanted, strict=True))
        return f"Not right: {off} of {len(wanted)} entries."
    return "The result is of the right kind, but not the right one."


def _wrong_tensor(exercise: Exercise, value: Tensor, wanted: Tensor) -> str:
    if value.dim() == 0:
        return f"It returned a single number, where a tensor {exercise.shape} belongs."
    if value.dim() != wanted.dim():
        axes = "1 axis" if value.dim() == 1 else f"{value.dim()} axes"
        return f"It returned {axes}; {exercise.shape} has {wanted.dim()}."
    if not value.numel():
        return "The result is empty."
    if value.shape != wanted.shape:
        return f"It returned another shape than {exercise.shape}."
    dtype = str(value.dtype).removeprefix("torch.")
    if value.dtype != wanted.dtype and not value.is_complex() and not _off(value, wanted).any():
        kind = "floating-point numbers" if exercise.any_float else str(wanted.dtype).removeprefix("torch.")
        return f"The numbers are right, but of type (dtype) {dtype}; they should be {kind}."
    if value.dtype != wanted.dtype and not exercise.any_float:
        return f"It returned numbers of type (dtype) {dtype}, not {str(wanted.dtype).removeprefix('torch.')}."
    if broken := int((~value.isfinite()).sum()):
        return f"{broken} of the {value.numel()} numbers are NaN (“not a number”) or infinite."
    if not value.any():
        return "Every number is zero."
    moved = int(_off(value, wanted).sum())
    if torch.equal(value.to(wanted.dtype).flatten().sort().values, wanted.flatten().sort().values):
        return f"All numbers are there, but {moved} of {wanted.numel()} lie in the wrong place."
    return f"The shape is right; {moved} of the {wanted.numel()} numbers are not."


def first_difference(exercise: Exercise, case: Case, made: Outcome, by_name: bool) -> str:
    """The line of evidence: the first place where the result differs, with both values."""
    call = called(exercise, case)
    value, wanted = made.value, wanted_for(exercise, case)
    if made.problem:
        return call
    if evidence := exercise.evidence or exercise.fault:
        return f"{call}: {evidence(case, made.inputs, value)}"
    if not isinstance(wanted, Tensor) or not isinstance(value, Tensor):
        what = "it"
        if exercise.axes and isinstance(value, list) and isinstance(wanted, list):
            if len(value) != len(wanted):
                return call
            entry = next(n for n, pair in enumerate(zip(value, wanted, strict=True)) if pair[0] != pair[1])
            what, value, wanted = exercise.axes[entry], value[entry], wanted[entry]
        return f"{call}: {what} should be {_plain(wanted)} and is {_plain(value)}"
    if value.shape != wanted.shape:
        return f"{call}: it should have the shape {tuple(wanted.shape)} and has {tuple(value.shape)}"
    off = _off(value, wanted)
    if not off.any():
        return call
    # Where values have names, the first other one; of plain numbers, the first that is clearly another.
    named = by_name and case.names and 0 <= value.min() and value.max() < len(case.names)
    distance = (value.to(wanted.dtype) - wanted).abs().nan_to_num(nan=torch.inf)
    clearly = off & (distance >= (0 if named else distance.max() / 2))
    place = tuple(clearly.nonzero()[0].tolist())
    where = ", ".join(f"{axis} {index}" for axis, index in zip(exercise.axes, place, strict=True))
    names = case.names if named else ()
    right, is_now = _named(names, wanted[place].item(), value[place].item())
    return f"{call}: at {where} it should be {right} and is {is_now}"


def _named(names: Sequence[str], *values: float) -> tuple[str, ...]:
    """The values by their names, or else with as many decimals as it takes to see that they differ."""
    if all(value in range(len(names)) for value in values):
        return tuple(names[int(value)] for value in values)
    for decimals in range(2, 8):
        rounded = (round(value, decimals) + 0.0 for value in values)  # + 0.0: never "-0.00"
        shown = tuple(f"{value:.{decimals}f}".replace("nan", "NaN") for value in rounded)
        if len(set(shown)) > 1:
            break
    return shown


def _plain(value: object) -> str:
    if isinstance(value, range):
        if not value:
            return "no channel at all"
        if value[0] > WIDE // 2:
            return f"counted from the end, {value[0] - WIDE} to {value[-1] - WIDE}"
        end = "the end" if value[-1] + abs(value.step) >= WIDE else str(value[-1])
        step = f" in steps of {value.step}" if len(value) > 1 and value.step != 1 else ""
        return f"channel {value[0]}" if len(value) == 1 else f"channels {value[0]} to {end}{step}"
    return str(value)


def _borrowed(answer: Callable[..., object]) -> str:
    """What the answer takes from the notebook and not from its inputs: sizes and tensors of the page."""
    if not isinstance(answer, FunctionType):
        return ""
    loads = (step.argval for step in dis.get_instructions(answer) if step.opname == "LOAD_GLOBAL")
    outside = [name for name in dict.fromkeys(loads) if name in answer.__globals__]
    borrowed = [f"`{n}`" for n in outside if isinstance(answer.__globals__[n], Tensor | int | float | list)]
    return f" (It uses {words(borrowed)} of the notebook, not of its inputs.)" if borrowed else ""


def _joined(said: Sequence[str]) -> str:
    return said[0] if len(said) == 1 else f"{('Two', 'Three')[len(said) - 2]} things. " + " ".join(said)


def _article(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeio' else 'a'} {noun}"


# -------------------------------------------------------------------------- how answers treat inputs


def _copy(value: object) -> object:
    if isinstance(value, Tensor):
        return value.clone(memory_format=torch.preserve_format)
    if isinstance(value, list):
        return [_copy(part) for part in value]
    return value


def _first_change(exercise: Exercise, cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """The name of the first input that a call changed, or ""."""
    for case, made in zip(cases, outcomes, strict=True):
        for name, before, after in zip(exercise.parameters, case.inputs, made.inputs, strict=True):
            if not _unchanged(before, after):
                return name
    return ""


def _unchanged(before: object, after: object) -> bool:
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        return before.shape == after.shape and before.dtype == after.dtype and bool((before == after).all())
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_unchanged, before, after))
    return not isinstance(before, Tensor | list)


def _ignores_its_input(exercise: Exercise, cases: Sequence[Case], outcomes: Sequence[Outcome]) -> bool:
    """Do inputs of the same sizes, or where only sizes are given all inputs, come to one and the same?"""
    value = outcomes[0].value
    if outcomes[0].problem or exercise.fault or (isinstance(value, Tensor) and not value.isfinite().all()):
        return False
    if isinstance(value, Tensor) and not value.numel():
        return False
    takes_tensors = any(isinstance(given, Tensor | list) for given in cases[0].inputs)
    # Tensors can be equal only where sizes are, in the first two cases; numbers and lists can be by chance.
    others = outcomes[1:2] if isinstance(value, Tensor) and takes_tensors else outcomes[1:]
    return all(same(outcomes[0], other) for other in others)


# ------------------------------------------------------------------------------------ to draw inputs


def distinct(rng: random.Random, **least: int) -> list[int]:
    """Sizes that all differ, so that no two axes can be taken for each other: each from its least to 7."""
    while True:
        sizes = [rng.randint(low, 7) for low in least.values()]
        if len(set(sizes)) == len(sizes):
            return sizes


def twin_of(case: Case) -> Case:
    """The same sizes with other values in the first tensor: no result but zeros is the same for both."""
    first, *rest = case.inputs
    assert isinstance(first, Tensor)
    return Case((-2 * first, *rest))


def numbers_from(rng: random.Random) -> torch.Generator:
    """torch's random numbers, which the seed of the draw decides."""
    return torch.Generator().manual_seed(rng.randrange(2**31))


def coded(**sizes: int) -> tuple[Tensor, list[str]]:
    """A tensor whose every value says where it came from, and the names of the values.

    The value 0 stands for no place, so that zeros in a result are seen.
    """
    names = ["0", *index_codes(**sizes)]
    return torch.arange(1.0, len(names)).view(*sizes.values()), names


def strided(x: Tensor, *axes: int) -> Tensor:
    """The same tensor with its memory in another order of axes."""
    inverse = sorted(range(x.dim()), key=lambda n: axes[n])
    return x.permute(*axes).contiguous().permute(*inverse)
