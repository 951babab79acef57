"""Fair timing, a model that explains the times, and runs recorded on other devices."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from mhalesson._checks import check_count
from mhalesson._records import DATA, read_record, write_record
from mhalesson.journey import Journey, Step

RUNS = DATA / "runs"
BLOCK = 0.01  # seconds: a round repeats a call until it lasts about this long


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, a value for each round. `a / b` divides two timings round by round."""

    rounds: tuple[int | float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Half of the rounds lie between these two."""
        first, third = np.percentile(self.rounds, (25, 75)).tolist()
        return first, third

    @property
    def repeats(self) -> int:
        return len(self.rounds)

    def __truediv__(self, other: Timing) -> Timing:
        return Timing(tuple(a / b for a, b in zip(self.rounds, other.rounds, strict=True)))


def measure(
    fn: Callable, *, inputs: Sequence[tuple] = ((),), device: str | None = None, repeats: int = 15
) -> Timing:
    """The seconds that `fn(*arguments)` takes: `compare` with one function.

    >>> measure(torch.ones, inputs=[(2,), (3,)], repeats=5).repeats
    5
    """
    return compare({"fn": fn}, inputs=inputs, device=device, repeats=repeats)["fn"]


def compare(
    functions: Mapping[str, Callable],
    *,
    inputs: Sequence[tuple] = ((),),
    device: str | None = None,
    repeats: int = 15,
) -> dict[str, Timing]:
    """The seconds that each of `functions` takes for a call `fn(*arguments)`, if all give the same answers.

    The answers are compared first, which also warms up: largest difference at most √ε times the largest
    entry, where ε is the resolution of the dtype. Then the functions take turns, `repeats` rounds, so
    that a disturbance meets all of them; each round takes the next `arguments` of `inputs`. A round
    times a block of calls and waits for the `device` ("cpu" or "cuda"; by default, where the answers
    are) before and after the block, not in between: a CPU is timed by torch.utils.benchmark with the
    current number of threads, a GPU by CUDA events.

    Raises ValueError for answers that differ, with the size of the difference, and for bad arguments.

    >>> x = torch.ones(8, 8)
    >>> times = compare({"sum": lambda: x + x, "product": lambda: 2 * x}, repeats=3)
    >>> sorted(times), (times["sum"] / times["product"]).repeats
    (['product', 'sum'], 3)
    """
    check_count("repeats", repeats)
    if not isinstance(functions, Mapping) or not functions:
        raise ValueError(f"functions={reprlib.repr(functions)} should be a dict of functions by their names")
    if not isinstance(inputs, list | tuple) or not inputs or not all(isinstance(a, tuple) for a in inputs):
        raise ValueError(f"inputs={reprlib.repr(inputs)} should be a list of tuples of arguments: [(x,)]")
    answers = _same_answers(functions, inputs)
    device = device or next((answer.device.type for answer in answers), "cpu")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"{device=} should be 'cpu' or 'cuda'")

    names = list(functions)
    rounds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        arguments = inputs[turn % len(inputs)]
        for name in names[turn % len(names) :] + names[: turn % len(names)]:  # nobody is always first
            time = _seconds_on_cuda if device == "cuda" else _seconds_on_cpu
            rounds[name].append(time(functions[name], arguments))
    return {name: Timing(tuple(seconds)) for name, seconds in rounds.items()}


def _seconds_on_cpu(fn: Callable, arguments: tuple) -> float:
    from torch.utils.benchmark import Timer  # loads much, so not before it is needed

    timer = Timer("f(*a)", globals={"f": fn, "a": arguments}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=BLOCK).median


def _seconds_on_cuda(fn: Callable, arguments: tuple) -> float:
    once = _block_on_cuda(fn, arguments, calls=1)
    return _block_on_cuda(fn, arguments, calls=max(1, round(BLOCK / once)))


def _block_on_cuda(fn: Callable, arguments: tuple, calls: int) -> float:
    """Seconds of one call. The device works the whole block off without being waited for in between."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        fn(*arguments)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / calls


def _same_answers(functions: Mapping[str, Callable], inputs: Sequence[tuple]) -> list[Tensor]:
    """The tensors that all functions return, or why they cannot be compared."""
    (first, reference), *others = functions.items()
    for arguments in inputs:
        expected = _tensors(reference(*arguments))
        if others and not expected:
            raise ValueError(
                f"{first} returns no tensor, so nobody can tell whether the answers are the same"
            )
        for name, fn in others:
            found = _tensors(fn(*arguments))
            kinds = [
                [f"{t.dtype} {tuple(t.shape)} on {t.device}" for t in tensors]
                for tensors in (found, expected)
            ]
            if kinds[0] != kinds[1]:
                raise ValueError(f"{name} returns {kinds[0]}, {first} {kinds[1]}: not the same answer")
            for a, b in zip(found, expected, strict=True):
                difference, allowed = _difference(a, b)
                if not difference <= allowed:  # also if it is nan
                    raise ValueError(
                        f"{name} and {first} differ by up to {difference:.2g}, where rounding explains "
                        f"{allowed:.2g}: compare the times of functions that give the same answer"
                    )
    return expected


def _difference(a: Tensor, b: Tensor) -> tuple[int | float, int | float]:
    """The largest difference of two tensors of one shape, and how much of it rounding may explain."""
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return (a.long() - b.long()).abs().max().item(), 0
    gap = torch.where(a == b, 0, (a - b).abs()).max().item()  # equal infinities do not differ
    largest = torch.where(b.isfinite(), b.abs(), 0).max().item()
    return gap, torch.finfo(a.dtype).eps ** 0.5 * largest


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf.detach().clone() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.numel()]


@dataclass(frozen=True)
class CostModel:
    """Of each recorded step: time = overhead + work, where work = max(FLOPs / peak, bytes / bandwidth).

    The overhead, in seconds, is `view` for a view and `launch` for any other step; `peak` is in FLOPs per
    second. `bandwidth` pairs a number of bytes with the bytes per second that an operation reads and
    writes if it writes so many; the nearest pair counts. The sum takes no account of a device that works
    while the next step is being started, as a GPU does. Source: Williams et al. 2009 (the roofline model).
    """

    launch: int | float
    view: int | float
    peak: int | float
    bandwidth: Sequence[Sequence[int | float]]

    def predict(self, journey: Journey) -> float:
        """The seconds that these steps should take. Raises ValueError if the FLOPs of one are unknown."""
        if journey.flops is None:
            raise ValueError(
                "the journey has a step whose FLOPs nobody knows, so its time cannot be predicted"
            )
        return sum(map(self._seconds, journey), 0.0)

    def _seconds(self, step: Step) -> float:
        if step.kind == "view":
            return self.view
        moved = step.bytes_read + step.bytes_written
        return self.launch + max(step.flops / self.peak, moved / self._bytes_per_second(step.bytes_written))

    def _bytes_per_second(self, written: int) -> float:
        return min(self.bandwidth, key=lambda pair: abs(log(pair[0]) - log(max(written, 1))))[1]


def measure_cost_model(device: str = "cpu") -> CostModel:
    """The constants of this machine: tiny additions and views, one large product, copies of several sizes."""
    one, table = torch.ones(1, device=device), torch.ones(2, 3, device=device)
    side = 4096 if device == "cuda" else 1024
    square = torch.randn(side, side, device=device)
    launch = measure(lambda: one + one, device=device).median
    bandwidth = []
    for size in (2**26, 2**28) if device == "cuda" else (2**18, 2**20, 2**22, 2**24, 2**26):
        source = torch.randn(size // 4, device=device)
        copying = measure(source.clone, device=device, repeats=7).median
        if device == "cpu":  # a GPU copies while the next copy is being launched
            copying -= launch
        bandwidth.append((size, 2 * size / copying))
    return CostModel(
        launch=launch,
        view=measure(lambda: table.transpose(0, 1), device=device).median,
        peak=2 * side**3 / measure(lambda: square @ square, device=device, repeats=7).median,
        bandwidth=tuple(bandwidth),
    )


# Not measured: the peak and the bandwidth of NVIDIA's data sheet for the A100 40 GB (products in TF32), and
# two assumptions: 5 µs for a launch, nothing for a view.
A100 = CostModel(launch=5e-6, view=0.0, peak=156e12, bandwidth=((1, 1.555e12),))


def save_run(name: str, run: dict, folder: Path = RUNS) -> Path:
    """Seal a recorded run in `folder`/`name`.json, never over an earlier one, and return that path."""
    if Path(name).name != name or name.endswith(".json"):
        raise ValueError(f"{name=} should be the name of a file, without a folder and without .json")
    path = folder / f"{name}.json"
    if path.exists():
        raise ValueError(f"{path} exists already; give the run another name")
    folder.mkdir(parents=True, exist_ok=True)
    write_record(path, run)
    return path


def recorded_runs(folder: Path = RUNS) -> dict[str, dict]:
    """The runs in `folder`, by name. Raises ValueError for a file that is damaged or was changed."""
    return {path.stem: read_record(path) for path in sorted(folder.glob("*.json"))}
