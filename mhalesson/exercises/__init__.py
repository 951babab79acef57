"""Exercises that name the mistake (`check`, `hint`, `solution`, `progress`), and the `quiz`.

Everything is printed, nothing is stored: what was tried is remembered as long as the notebook's kernel runs.
"""

import difflib
import inspect
from dataclasses import dataclass

import mhalesson
from mhalesson.exercises import (
    block_matrix_wo,
    concat_vs_sum,
    loop_vs_batched,
    row_parallel,
    shape_journey,
    subspace_isolation,
)
from mhalesson.exercises.engine import Exercise, judge
from mhalesson.exercises.quiz import quiz

__all__ = ["EXERCISES", "check", "hint", "progress", "quiz", "solution"]

PAGES = (subspace_isolation, concat_vs_sum, block_matrix_wo, shape_journey, loop_vs_batched, row_parallel)
EXERCISES: dict[str, Exercise] = {exercise.id: exercise for page in PAGES for exercise in page.EXERCISES}


@dataclass
class Tried:
    """What a learner did with one exercise since the kernel started."""

    mark: str = "○"
    times: int = 0
    hints: int = 0
    solution: bool = False


_tried: dict[str, Tried] = {}


def check(name: object = None, answer: object = None) -> None:
    """Print what a learner's function does: one line, and a second one of evidence at most. Never raises.

    ○ is an untouched stub, ✓ a right answer, ✗ a wrong one, with the mistake by name where it is known.

    >>> check("head_slice", lambda i, d_v: slice(i * d_v, d_v))
    ✗ It gives the width where a slice wants its end, so from head 1 on nothing is cut out.
      for i=2, d_v=4: it should be channels 8 to 11 and is no channel at all
    """
    if not (exercise := _find(name)):
        return
    verdict = judge(exercise, answer)
    print(verdict)
    if verdict.mark != "○" and callable(answer):
        tried = _tried.setdefault(exercise.id, Tried())
        tried.mark = "✓" if tried.mark == "✓" else verdict.mark  # once solved, free to play
        tried.times += 1


def hint(name: object = None) -> None:
    """Print the next hint for an exercise, one step further with each call.

    >>> hint("row_parallel")
    Hint 1 of 3: y = z_cat W_O is a sum over the channels of z_cat. Each machine has some of the channels.
    """
    if not (exercise := _find(name)):
        return
    tried = _tried.setdefault(exercise.id, Tried())
    total = len(exercise.hints)
    tried.hints = min(tried.hints + 1, total)
    last = (
        f'\n(That was the last one. solution("{exercise.id}") shows a way.)' if tried.hints == total else ""
    )
    print(f"Hint {tried.hints} of {total}: {exercise.hints[tried.hints - 1]}{last}")


def solution(name: object = None) -> None:
    """Print one right answer, ready to be pasted into the cell.

    >>> solution("contributions")
    def my_contributions(z, weight):
        B, h, T, d_v = z.shape
        blocks = weight.T.unflatten(0, (h, d_v))  # (h, d_v, d_model)
        return z @ blocks  # (B, h, T, d_v) @ (h, d_v, d_model) → (B, h, T, d_model)
    """
    if not (exercise := _find(name)):
        return
    _tried.setdefault(exercise.id, Tried()).solution = True
    source = inspect.getsource(exercise.reference).strip()
    print(source.replace(f"def {exercise.id}(", f"def my_{exercise.id}(", 1))


def progress() -> None:
    """Print one line about the exercises that this kernel has seen, to be pasted to a teacher.

    ✓ is solved, ✗ tried and not solved yet, ○ not tried.
    """
    pages = sorted({EXERCISES[name].page for name in _tried})
    seen = " · ".join(map(_progress_of, pages)) or "no exercise checked since this kernel started"
    print(f"mhalesson {mhalesson.__version__} · {seen}")


def _progress_of(page: str) -> str:
    parts = []
    for name, exercise in EXERCISES.items():
        if exercise.page != page:
            continue
        tried = _tried.get(name, Tried())
        notes = [_count(tried.times, "try", "tries")] if tried.times else []
        notes += [_count(tried.hints, "hint", "hints")] if tried.hints else []
        notes += ["solution seen"] if tried.solution else []
        parts.append(f"{tried.mark} {name}" + (f" ({', '.join(notes)})" if notes else ""))
    return f"page {page}: {', '.join(parts)}"


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def _find(name: object) -> Exercise | None:
    """The exercise of that name; if there is none, say so and name the closest."""
    if isinstance(name, str) and name in EXERCISES:
        return EXERCISES[name]
    given = name if isinstance(name, str) else getattr(name, "__name__", "")
    close = difflib.get_close_matches(str(given).removeprefix("my_"), EXERCISES, n=1)
    suggestion = (
        f'did you mean "{close[0]}"?' if close else 'names are such as "head_slice", and stand on the page.'
    )
    shown = f'"{name}"' if isinstance(name, str) else f"of type {type(name).__name__}"
    print(f"✗ There is no exercise {shown}; {suggestion}")
    return None
