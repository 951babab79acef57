"""Running an answer so that nothing it does can hurt: quietly, not for ever, its errors put into words."""

import io
import linecache
import random
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import numpy as np
import torch

# What an error means to somebody who is writing tensor code. The first fit counts; {0} is the first group.
MEANINGS: list[tuple[type[BaseException], str, str]] = [
    (
        RuntimeError,
        "view size is not compatible",
        "`view` moves nothing, and numbers that it would join into one axis are not evenly spaced in memory",
    ),
    (
        RuntimeError,
        r"shape '\[(.*)\]' is invalid for input of size (\d+)",
        "the shape ({0}) does not hold exactly the {1} numbers that are there",
    ),
    (
        RuntimeError,
        r"mat1 and mat2 shapes cannot be multiplied \((\w+) and (\w+)\)",
        "a product needs equal inner sizes, and these are {0} and {1} (leading axes taken together)",
    ),
    (
        RuntimeError,
        r"batch2 tensor to be: \[\d+, (\d+)\] but got: \[\d+, (\d+)\]",
        "a product met a right side of {1} rows, and its left side has {0} columns; both must be equal",
    ),
    (
        RuntimeError,
        r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)",
        "it writes {1} numbers into a place for {0}",
    ),
    (
        RuntimeError,
        r"size of tensor a \((\d+)\) must match .* tensor b \((\d+)\) at non-singleton dimension (\d+)",
        "two tensors meet that are {0} and {1} long on axis {2}",
    ),
    (
        RuntimeError,
        r"Sizes of tensors must match except in dimension (\d+)|equal size",
        "tensors are joined whose sizes do not fit",
    ),
    (
        RuntimeError,
        "same dtype|expected scalar type|expected m1 and m2",
        "numbers of two types (dtypes) meet in one product",
    ),
    (RuntimeError, "allocate|out of memory", "it asks for more memory than there is"),
    (IndexError, r"Dimension out of range \(.*but got (-?\d+)\)", "there is no axis {0}"),
    (
        IndexError,
        r"index (-?\d+) is out of bounds for (?:dimension|axis) (\d+) with size (\d+)",
        "axis {1} has {2} places, counted from 0, so there is no {0}",
    ),
    (IndexError, "too many indices", "it names more axes than the tensor has"),
    (IndexError, r"(list|tuple) index out of range", "the {0} has no such place"),
    (
        UnboundLocalError,
        r"variable '(\w+)'",
        "`{0}` is used before it has a value inside of the function",
    ),
    (
        NameError,
        r"name '(\w+)' is not defined",
        "nothing here is called `{0}`, and the function is not given it: a slip of the pen, a missing "
        "import, or a cell that has not run",
    ),
    (ModuleNotFoundError, r"No module named '([\w.]+)'", "there is no module `{0}` here"),
    (
        AttributeError,
        r"'NoneType' object has no attribute '(\w+)'",
        "`.{0}` is asked of None, which is nothing",
    ),
    (AttributeError, r"'(\w+)' object has no attribute '(\w+)'", "something of type {0} has no `.{1}`"),
    (TypeError, "ellipsis", "a `...` still stands where a value is needed"),
    (TypeError, "NoneType", "it goes on with None, which is what a function without `return` hands over"),
    (
        TypeError,
        r"'(?:\w+\.)*(\w+)' object is not callable",
        "round brackets follow a {0}, which cannot be called",
    ),
    (TypeError, r"'(\w+)' object is not subscriptable", "square brackets follow a {0}, which has no places"),
    (
        TypeError,
        "indices must be integers|cannot be interpreted as an integer|must be tuple of ints",
        "a place or a size is not a whole number; `/` makes a float, `//` does not",
    ),
    (
        RuntimeError,
        "Boolean value of Tensor",
        "`if`, `and`, `or` or `not` got many truths at once (whether there is a tensor at all: `is not "
        "None`)",
    ),
    (RuntimeError, "Number of dimensions of repeat", "`repeat` wants a number for every axis of the tensor"),
    (ValueError, "too many values to unpack", "a shape or a list has more parts than there are names for"),
    (ValueError, "not enough values to unpack", "a shape or a list has fewer parts than there are names for"),
    (TypeError, r"missing \d+ required", "it calls something without all it needs"),
    (
        TypeError,
        r"takes (?:from )?\d+.* but \d+ (?:was|were) given",
        "it calls something with more than it takes",
    ),
    (ZeroDivisionError, "", "it divides by zero"),
    (RecursionError, "", "it calls itself without end"),
    (NotImplementedError, "", "it says of itself that it is not written yet"),
    (AssertionError, "^$", "an `assert` does not hold"),
    (MemoryError, "", "it asks for more memory than there is"),
    (SystemExit, "", "it asks Python to quit"),
]


class TimeUp(BaseException):
    """Raised inside an answer that does not end. No `except Exception` of the answer's own holds it up."""


def in_words(error: BaseException, answer: Callable[..., object]) -> str:
    """What an error in the answer means, and in which line of it: one sentence."""
    message = " ".join(str(error)[:1000].split())
    for kind, pattern, words in MEANINGS:
        if isinstance(error, kind) and (found := re.search(pattern, message)):
            meaning = words.format(*found.groups())
            break
    else:
        short = message if len(message) <= 100 else message[:99] + "…"
        meaning = f"{type(error).__name__}: {short.rstrip('.')}" if short else type(error).__name__
    own_file = getattr(getattr(answer, "__code__", None), "co_filename", None)
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own_file
    ]
    line = linecache.getline(own_file, lines[-1]).split("  #")[0].strip() if lines else ""
    if isinstance(error, UnboundLocalError):  # Python 3.11 may name the line before, once the code is warm
        line = ""
    line = line if len(line) <= 60 else line[:59] + "…"
    return f"It stopped with an error{f' in `{line}`' if line else ''}: {meaning}."


def plain_session() -> None:
    """float32 on the CPU, gradients on, one thread (the tensors are tiny): whatever a notebook has set."""
    torch.set_default_dtype(torch.float32)
    if torch.get_default_device().type != "cpu":
        torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.set_deterministic_debug_mode("warn")  # torch.empty is full of NaN then, and not of what was there
    torch.set_num_threads(1)


@contextmanager
def quietly() -> Iterator[io.StringIO]:
    """Keep back what is printed and warned, and leave the session as it was.

    That is: random numbers, torch's settings (type, device, gradients, threads, determinism), NumPy's error
    handling, and the depth of recursion. Other settings that an answer changes stay changed.
    """
    printed = io.StringIO()
    dtype, device, threads = torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()
    gradients, deterministic = torch.is_grad_enabled(), torch.get_deterministic_debug_mode()
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - the generator that all code shares
    depth = sys.getrecursionlimit()
    try:
        with (
            redirect_stdout(printed),
            redirect_stderr(printed),
            warnings.catch_warnings(),
            torch.random.fork_rng(devices=[]),
            torch.autocast("cpu", enabled=False),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            plain_session()
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            torch.default_generator.manual_seed(0)
            yield printed
    finally:
        plain_session()
        torch.set_default_dtype(dtype)
        if device.type != "cpu":
            torch.set_default_device(device)
        torch.set_grad_enabled(gradients)
        torch.set_deterministic_debug_mode(deterministic)
        torch.set_num_threads(threads)
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        sys.setrecursionlimit(depth)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeUp in what runs longer. Where there is no alarm clock (Windows, other threads), no limit."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    running = True

    def ring(*_: object) -> None:
        if running:
            raise TimeUp

    start = time.monotonic()
    old_handler = signal.signal(signal.SIGALRM, ring)
    # Ring again and again: a bare `except:` in a loop holds up the first one.
    old_delay, old_interval = signal.setitimer(signal.ITIMER_REAL, seconds, 0.01)
    try:
        yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)
        if old_delay:  # somebody else's alarm, such as pytest-timeout's
            left = max(old_delay - (time.monotonic() - start), 0.001)
            signal.setitimer(signal.ITIMER_REAL, left, old_interval)
