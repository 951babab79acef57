"""The exercises of 05: attention without a loop over heads, and a clock that is fair to a device."""

import itertools
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from mhalesson.exercises.engine import Case, Exercise, Mistake, distinct, numbers_from
from mhalesson.exercises.forms import seconds

# --------------------------------------------------------------------------------- batch_the_loop


def batch_the_loop(q, k, v):
    T, d = q.shape[-2:]
    scores = q @ k.transpose(-2, -1) / d**0.5  # (B, h, T, T): @ takes all batches and heads at once
    future = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)  # (B, h, T, T)
    return weights @ v  # (B, h, T, d)


def _loop(q, k, v):
    return torch.stack([batch_the_loop(q[:, i], k[:, i], v[:, i]) for i in range(q.shape[1])], dim=1)


def _token_by_token(q, k, v):
    rows = []
    for t in range(q.shape[2]):
        weights = (q[:, :, t : t + 1] @ k[:, :, : t + 1].mT * q.shape[-1] ** -0.5).softmax(-1)
        rows.append(weights @ v[:, :, : t + 1])
    return torch.cat(rows, dim=2)


def _with_einsum(q, k, v):
    scores = torch.einsum("bhqd,bhkd->bhqk", q / q.shape[-1] ** 0.5, k)
    mask = torch.full(scores.shape[-2:], -torch.inf).triu(1)
    return torch.einsum("bhqk,bhkd->bhqd", torch.softmax(scores + mask, dim=3), v)


def _folded_into_the_batch(q, k, v):
    B, h, T, d = q.shape
    q, k, v = (a.reshape(B * h, T, d) for a in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)) / d**0.5
    allowed = torch.tril(torch.ones(T, T)) == 1
    return torch.bmm(scores.where(allowed, torch.tensor(-torch.inf)).softmax(-1), v).view(B, h, T, d)


def _attend(
    q,
    k,
    v,
    scale=lambda q: q.shape[-1] ** 0.5,
    mask="future",
    softmax=-1,
    turn=None,
    result="z",
    late_scale=None,
):
    """The steps one by one: what divides the scores, what is masked and how, over which axis softmax runs."""
    T = q.shape[-2]
    ones = torch.ones(T, T, dtype=torch.bool)
    k_T = k.reshape(*k.shape[:-2], k.shape[-1], T) if turn == "by reshape" else k.transpose(-2, -1)
    scores = q @ k_T / (1 if late_scale else scale(q))
    scores = scores.transpose(-2, -1) if turn == "scores" else scores
    hidden = {
        "future": ones.triu(1),
        "future but one": ones.triu(2),
        "future, itself and the one before": ones.triu(-1),
        "past": ones.tril(-1),
        "past and itself": ones.tril(),
        "future and itself": ones.triu(),
    }.get(mask)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    if mask == "plus infinity":
        scores = scores.masked_fill(ones.triu(1), torch.inf)
    if mask == "zero":
        scores = scores * ones.tril()
    if mask == "times minus infinity":
        scores = scores + ones.triu(1) * -torch.inf
    weights = scores if softmax is None else scores.softmax(dim=-1 if softmax == "twice" else softmax)
    weights = weights.softmax(dim=-1) if softmax == "twice" else weights
    if mask == "afterwards":
        weights = weights * ones.tril()
    if mask == "minus infinity afterwards":
        weights = weights.masked_fill(ones.triu(1), -torch.inf)
    weights = weights / scale(q) if late_scale else weights
    return {
        "z": lambda: weights @ v,
        "weights": lambda: weights,
        "weights transposed": lambda: weights.transpose(-2, -1) @ v,
        "of k": lambda: weights @ k,
    }[result]()


class _Counter(TorchFunctionMode):
    """Counts the calls of torch. (The recorder sees more, but loads for a second when first used.)"""

    calls, left_torch = 0, False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        self.left_torch |= function.__name__ in ("numpy", "__array__", "__dlpack__", "tolist")
        return function(*args, **(kwargs or {}))


def _operations_do_not_grow(answer: Callable[..., object]) -> str:
    """Count the operations for 3 and for 6 heads; what goes on outside of torch could not be counted."""
    counts = []
    for h in (3, 6):
        inputs = torch.arange(3 * 2 * h * 4 * 5.0).sin().view(3, 2, h, 4, 5).unbind()  # each (B, h, T, d)
        answer(*inputs)  # what it keeps for later, such as a mask, is not counted
        with _Counter() as counter:
            answer(*inputs)
        counts.append(counter.calls)
    if counter.left_torch:
        return (
            "The numbers are right, but computed outside of torch (NumPy, plain Python), where operations "
            "cannot be counted."
        )
    if counts[0] == counts[1]:
        return ""
    return (
        f"The numbers are right, but torch is called {counts[0]} times for 3 heads and {counts[1]} times "
        "for 6: there is still a loop over heads."
    )


def _draw_heads(rng: random.Random) -> list[Case]:
    B, h, T, d = distinct(rng, B=2, h=3, T=3, d=2)
    generator = numbers_from(rng)

    def case(*shape: int) -> Case:
        return Case(tuple(2 * torch.randn(shape, generator=generator) for _ in range(3)))

    sizes = [(B, h, T, d)] * 2 + [
        (1, h, T, d),
        (B, h, 1, d),
        (B, 1, T, d),
        (B, h, T, 1),
        (B, h, h, d),
        (2, 3, 8, 8),
    ]
    return [case(*s) for s in sizes]


BATCH_THE_LOOP = Exercise(
    page="05",
    stub='''
def my_batch_the_loop(q, k, v):
    """Causal attention, scaled by 1/√d: q, k, v → z, each (B, h, T, d).

    Without a loop over heads: as many operations for 6 heads as for 3.
    (The calls of torch are counted, so stay in torch.)
    """
    ...
''',
    reference=batch_the_loop,
    others=(
        _with_einsum,
        _folded_into_the_batch,
        _token_by_token,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: torch.vmap(batch_the_loop, in_dims=1, out_dims=1)(q, k, v),
    ),
    mistakes=(
        Mistake("not scaled", "The scores are not divided by √d.", partial(_attend, scale=lambda q: 1.0)),
        Mistake(
            "scaled by d",
            "The scores are divided by d, not by its root, so the weights come out too even.",
            partial(_attend, scale=lambda q: q.shape[-1]),
        ),
        Mistake(
            "scaled by d_model",
            "The scores are divided by √d_model, the width of all heads together; each is a sum of d "
            "products.",
            partial(_attend, scale=lambda q: (q.shape[1] * q.shape[-1]) ** 0.5),
        ),
        Mistake(
            "scaled by T",
            "The scores are divided by √T; each is a sum of d products, one for each channel.",
            partial(_attend, scale=lambda q: q.shape[-2] ** 0.5),
        ),
        Mistake(
            "scaled by h",
            "The scores are divided by √h, the number of heads; each is a sum of d products.",
            partial(_attend, scale=lambda q: q.shape[1] ** 0.5),
        ),
        Mistake(
            "multiplied by the root",
            "The scores are multiplied by √d; they are to be divided by it.",
            partial(_attend, scale=lambda q: q.shape[-1] ** -0.5),
        ),
        Mistake(
            "no mask",
            "No mask takes effect: every token sees later ones, its future.",
            partial(_attend, mask="none"),
        ),
        Mistake(
            "plus infinity",
            "The future gets +∞, which softmax turns into NaN; −∞ is what becomes a weight of 0.",
            partial(_attend, mask="plus infinity"),
        ),
        Mistake(
            "softmax twice",
            "It takes softmax twice, which makes the weights nearly equal, and those of the future too.",
            partial(_attend, softmax="twice"),
        ),
        Mistake(
            "mask inverted",
            "The mask is turned round: it hides the past and shows the future.",
            partial(_attend, mask="past"),
        ),
        Mistake(
            "itself hidden",
            "The mask hides the token itself, too, so token 0 has nothing left to see (NaN).",
            partial(_attend, mask="future and itself"),
        ),
        Mistake(
            "only the future seen",
            "The mask is turned round: it hides the past and the token itself, and the last token has "
            "nothing left to see (NaN).",
            partial(_attend, mask="past and itself"),
        ),
        Mistake(
            "masked with zeros",
            "Hidden scores are set to 0, which softmax takes for a score like any other (e⁰ = 1); only −∞ "
            "gets the weight 0.",
            partial(_attend, mask="zero"),
        ),
        Mistake(
            "masked with −∞ afterwards",
            "The weights are masked with −∞ after the softmax. Hidden weights should be 0; −∞ times v is ±∞.",
            partial(_attend, mask="minus infinity afterwards"),
        ),
        Mistake(
            "one token ahead",
            "The mask hides one token too few: each token still sees the next one.",
            partial(_attend, mask="future but one"),
        ),
        Mistake(
            "two hidden",
            "The mask hides the token itself and the one before, so the first tokens have nothing left "
            "to see (NaN).",
            partial(_attend, mask="future, itself and the one before"),
        ),
        Mistake(
            "mask turned round in SDPA",
            "The mask is turned round. (scaled_dot_product_attention wants True where a token may look, "
            "masked_fill where it may not.)",
            lambda q, k, v: F.scaled_dot_product_attention(
                q, k, v, attn_mask=torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
            ),
        ),
        Mistake(
            "NaN throughout",
            "Every number is NaN: −∞ was multiplied by 0, or a row has nothing left to see.",
            partial(_attend, mask="times minus infinity"),
        ),
        Mistake(
            "no softmax after −∞",
            "There is no softmax: the scores weigh the values as they are, also those of −∞.",
            partial(_attend, softmax=None),
        ),
        Mistake(
            "reshape for transpose",
            "It turns k into (d, T) by reshape, which keeps the reading order: no product is that of a "
            "query and a key.",
            partial(_attend, turn="by reshape"),
        ),
        Mistake(
            "scaled after the softmax",
            "The weights are divided by √d after the softmax; it is the scores that should be.",
            partial(_attend, late_scale=True),
        ),
        Mistake(
            "scaled by √2",
            "The scores are divided by √2, as in the example of page 00; here a head is d channels wide.",
            partial(_attend, scale=lambda q: 2**0.5),
        ),
        Mistake(
            "scaled by d/2",
            "The scores are divided by d · 0.5, the half of d, not by d ** 0.5, its root.",
            partial(_attend, scale=lambda q: q.shape[-1] * 0.5),
        ),
        Mistake(
            "keys for values",
            "The weights meet k in place of v: it mixes what the tokens ask by, not what they say.",
            partial(_attend, result="of k"),
        ),
        Mistake(
            "no softmax",
            "There is no softmax: the scores themselves weigh the values, negative ones too.",
            partial(_attend, mask="afterwards", softmax=None),
        ),
        Mistake(
            "weights transposed",
            "The weights are transposed before they meet v: what a token gives away, not what it takes.",
            partial(_attend, result="weights transposed"),
        ),
        Mistake(
            "masked afterwards",
            "The weights are masked after the softmax, so the rows no longer sum to 1.",
            partial(_attend, mask="afterwards"),
        ),
        Mistake(
            "softmax over queries",
            "Softmax runs over the queries (dim=−2), so it is not the row of a token that sums to 1.",
            partial(_attend, softmax=-2),
        ),
        Mistake(
            "softmax over heads",
            "Softmax runs over the heads, which makes them compete; each has weights of its own.",
            partial(_attend, softmax=1),
        ),
        Mistake(
            "softmax over the batch",
            "Softmax runs over the batch, so texts that have nothing to do with each other compete.",
            partial(_attend, softmax=0),
        ),
        Mistake(
            "k asks q",
            "The scores are k qᵀ, transposed: the keys ask and the queries are asked.",
            partial(_attend, turn="scores"),
        ),
        Mistake(
            "weights returned",
            "It returns the weights, (B, h, T, T); what they take from v is asked for.",
            partial(_attend, result="weights"),
        ),
        Mistake(
            "one head for all",
            "Every head gets the result of head 0.",
            lambda q, k, v: _attend(q, k, v)[:, :1].expand_as(q).clone(),
        ),
        Mistake(
            "one long sequence",
            "It puts all heads into one sequence of h·T tokens, so heads look at each other.",
            lambda q, k, v: batch_the_loop(*(a.flatten(1, 2) for a in (q, k, v))).view_as(q),
        ),
        Mistake(
            "heads attend to heads",
            "It swaps heads and tokens first, so within each token heads attend to heads.",
            lambda q, k, v: batch_the_loop(*(a.transpose(1, 2) for a in (q, k, v))).transpose(1, 2),
        ),
    ),
    hints=(
        "Write it for one head first, q (T, d): scores, mask, softmax, weights times v. Which of these "
        "lines would mind two more axes in front?",
        "@ multiplies the last two axes and takes every axis in front as a batch. Only kᵀ needs care: .T "
        "would reverse all four axes.",
        "k.transpose(-2, -1); divide by d**0.5; masked_fill with -torch.inf where "
        "torch.ones(T, T, dtype=torch.bool).triu(diagonal=1); softmax(dim=-1); @ v.",
    ),
    draw=_draw_heads,
    right="The same numbers as head by head, and torch is called as often for 6 heads as for 3.",
    shape="(B, h, T, d)",
    axes=("batch", "head", "token", "channel"),
    beyond=_operations_do_not_grow,
)


# ------------------------------------------------------------------------------------- fair_timer


def fair_timer(fn, repeats, synchronize, clock):
    fn()  # the first call pays for what later ones find ready
    times = []
    for _ in range(repeats):
        synchronize()  # nothing is pending
        start = clock()
        fn()
        synchronize()  # the work is done, not only ordered
        times.append(clock() - start)
    return sorted(times)[repeats // 2]  # the median: one hiccup does not move it


@dataclass
class Device:
    """A device that works while the program goes on, with a clock that only this simulation moves.

    `launch` orders one piece of work and returns at once; the work is done later, piece after piece. The
    first takes 30 times as long, one in ten hiccups, and no two take the same time. Seconds throughout.
    """

    work: list[float]  # how long each piece takes, in the order of the calls; used again from the second on
    busy_until: float  # work that was ordered before
    now: float = 100.0
    log: list[str] = field(default_factory=list)  # "launch", "read" and "wait", in order
    ORDER = 1e-5  # what it costs to order a piece

    def launch(self) -> None:
        self.now += self.ORDER
        self.busy_until = max(self.busy_until, self.now) + self.seconds_of(self.launches)
        self.log.append("launch")

    def synchronize(self) -> None:
        self.now = max(self.now, self.busy_until)
        self.log.append("wait")

    def clock(self) -> float:
        self.log.append("read")
        return self.now

    @property
    def launches(self) -> int:
        return self.log.count("launch")

    def calls_between_readings(self) -> list[tuple[list[int], bool]]:
        """Between each two readings: the calls, and whether nothing was pending at the first reading."""
        between: list[tuple[list[int], bool]] = []
        calls, pending = 0, True  # there may be work from before
        for event in self.log:
            if event == "read":
                between.append(([], not pending))
            elif event == "wait":
                pending = False
            else:
                pending = True
                if between:
                    between[-1][0].append(calls)
                calls += 1
        return between[:-1]

    def stopped_early(self) -> bool:
        """Was the clock stopped right after a call? (Every second reading stops it, at least.)"""
        just_before = [a for a, b in itertools.pairwise(["", *self.log]) if b == "read"]
        return "launch" in just_before[1::2]

    def seconds_of(self, call: int) -> float:
        return self.work[call] if call < len(self.work) else self.work[1 + (call - 1) % (len(self.work) - 1)]


@dataclass(frozen=True, eq=False)
class OnDevice(Case):
    """A case whose every call gets a device of its own, with the same work and the same queue before it."""

    work: tuple[float, ...] = ()
    queue: float = 0.0

    @classmethod
    def repeating(cls, repeats: int, work: list[float], queue: float) -> "OnDevice":
        return cls((Device.launch, repeats, Device.synchronize, Device.clock), work=tuple(work), queue=queue)

    def fresh(self) -> tuple[object, ...]:
        device = Device(list(self.work), busy_until=100.0 + self.queue)
        return device.launch, self.inputs[1], device.synchronize, device.clock


SAYS = {
    "launch only": (
        "It does not wait for the device before it stops the clock, so it measures how long an order "
        "takes, not the work."
    ),
    "no warm-up": (
        "Its first timed call is the first call of all, which pays for what later calls find ready."
    ),
    "pending": "When it starts the clock, work is still pending, and its first reading pays for that too.",
    "unread": "It never reads the clock it was given.",
    "idle": "It never calls fn.",
    "few": "It makes too few calls of fn; one untimed call and `repeats` timed ones are asked for.",
    "below zero": "It returns a time below zero: the later reading is taken from the earlier one.",
    "milliseconds": (
        "What it returns is a thousand times too large; clock() gives seconds, and seconds are asked for."
    ),
    "several": "Between two readings of the clock it calls fn more than once.",
    "late": "It starts the clock only after fn() has ordered the work.",
    "other": "The time it returns is not the median of `repeats` calls after the first.",
}


def _fault_of_timer(case: Case, inputs: tuple[object, ...], value: object) -> str:
    """Compare with the calls it timed, by the device's log; any number of untimed ones may precede."""
    device, repeats = inputs[0].__self__, case.inputs[1]  # type: ignore[attr-defined]
    assert isinstance(device, Device) and isinstance(repeats, int) and isinstance(value, float)
    if "read" not in device.log:
        return SAYS["unread"]
    if "launch" not in device.log:
        return SAYS["idle"]

    def median(calls: Sequence[int]) -> float:
        return statistics.median(device.seconds_of(call) + Device.ORDER for call in calls)

    between = device.calls_between_readings()
    # Readings are starts and stops in turn, or each stop is the next start; what comes first may not count.
    for intervals in (between[::2], between):
        timed = [calls[0] for calls, ready in intervals if ready and len(calls) == 1][-repeats:]
        if len(timed) == repeats and 0 not in timed and abs(value / median(timed) - 1) < 0.005:
            return ""
    between = [calls for calls, _ in between]
    if device.launches < repeats:
        return SAYS["few"]
    if device.launches == repeats:
        return SAYS["no warm-up" if device.log.index("read") < device.log.index("launch") else "few"]
    if between and not any(between[::2]) and len(between[::2]) == repeats:
        return SAYS["late"]
    if device.stopped_early():
        return SAYS["launch only"]
    if value < 0:
        return SAYS["below zero"]
    if abs(value / median(range(device.launches)[-repeats:]) / 1000 - 1) < 0.01:
        return SAYS["milliseconds"]
    if any(len(calls) > 1 for calls in between):
        return SAYS["several"]
    before_reading = device.log[: device.log.index("read")]
    if "launch" in before_reading and "wait" not in before_reading[before_reading.index("launch") :]:
        return SAYS["pending"]
    if not any(between[1::2]) and len(between[::2]) != repeats:
        return f"It times {len(between[::2])} calls, where `repeats` is {repeats}."
    return SAYS["other"]


def _in_milliseconds(case: Case, inputs: tuple[object, ...], value: object) -> str:
    """What it returned, beside what one untimed call and `repeats` timed ones would have given."""
    device, repeats = inputs[0].__self__, case.inputs[1]  # type: ignore[attr-defined]
    median = statistics.median(device.seconds_of(call) + Device.ORDER for call in range(1, repeats + 1))
    return f"warmed up, the median call takes {1000 * median:.3f} ms, and it returned {1000 * value:.3f} ms"  # type: ignore[operator]


def _timer(
    fn,
    repeats,
    synchronize,
    clock,
    warm_up=1,
    before=True,
    after=True,
    average=lambda times: sorted(times)[len(times) // 2],
    rounds=None,
):
    """The steps one by one: how many untimed calls, what is waited for, and what becomes of the times."""
    for _ in range(warm_up):
        fn()
    times = []
    for _ in range(rounds or repeats):
        if before:
            synchronize()
        start = clock()
        fn()
        if after:
            synchronize()
        times.append(clock() - start)
    return average(times)


def _all_at_once(fn, repeats, synchronize, clock):
    fn()
    synchronize()
    start = clock()
    for _ in range(repeats):
        fn()
    synchronize()
    return (clock() - start) / repeats


def _warm_before_each(fn, repeats, synchronize, clock):
    times = []
    for _ in range(repeats):
        fn()
        synchronize()
        start = clock()
        fn()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def _chained(fn, repeats, synchronize, clock):
    fn()
    synchronize()
    reads = [clock()]
    for _ in range(repeats):
        fn()
        synchronize()
        reads.append(clock())
    return statistics.median(stop - start for start, stop in itertools.pairwise(reads))


def _one_more_and_drop_it(fn, repeats, synchronize, clock):
    times = []
    synchronize()
    for _ in range(repeats + 1):
        start = clock()
        fn()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times[1:])


def _looks_first(fn, repeats, synchronize, clock):
    begin = clock()
    result = fair_timer(fn, repeats, synchronize, clock)
    return result if clock() > begin else 0.0


def _draw_devices(rng: random.Random) -> list[Case]:
    cases = []
    for repeats in (1, 5, 3, 5, 11, 21, 1):
        base = rng.uniform(0.001, 0.003)
        work = [base * rng.uniform(0.7, 1.3) for _ in range(31)]
        work[0] *= 30
        hiccup = rng.randrange(
            3, 6
        )  # among the first timed calls, whoever warms up once, twice or three times
        for call in range(hiccup, len(work), 10):
            work[call] *= 20
        cases.append(OnDevice.repeating(repeats, work, queue=rng.choice([0.02, 0.05])))
    return cases


FAIR_TIMER = Exercise(
    page="05",
    stub='''
def my_fair_timer(fn, repeats, synchronize, clock):
    """The median time of one call of fn, in seconds, on a device that works on its own.

    fn() orders work and returns at once; synchronize() waits until all work is done;
    clock() gives the time in seconds. The first call of all is slow and must not
    count, and other work may be pending at first. Time `repeats` calls, an odd number.
    """
    ...
''',
    reference=fair_timer,
    others=(
        _warm_before_each,
        _chained,
        _one_more_and_drop_it,
        _looks_first,
        lambda fn, repeats, synchronize, clock: _timer(fn, repeats, synchronize, clock, warm_up=3),
        lambda fn, repeats, synchronize, clock: _timer(
            fn, repeats, synchronize, clock, average=lambda times: torch.tensor(times).median()
        ),
    ),
    mistakes=(
        Mistake("launch only", SAYS["launch only"], partial(_timer, after=False)),
        Mistake("no warm-up", SAYS["no warm-up"], partial(_timer, warm_up=0)),
        Mistake("pending", SAYS["pending"], partial(_timer, before=False)),
        Mistake(
            "mean",
            "It takes the mean, which a single hiccup moves; the median is asked for.",
            partial(_timer, average=statistics.mean),
        ),
        Mistake("min", "It takes the fastest call; the median is asked for.", partial(_timer, average=min)),
        Mistake("max", "It takes the slowest call; the median is asked for.", partial(_timer, average=max)),
        Mistake(
            "total",
            "It adds up all calls; the median of one call is asked for.",
            partial(_timer, average=sum),
        ),
        Mistake(
            "the last time",
            "It takes its last reading; the median is asked for.",
            partial(_timer, average=lambda times: times[-1]),
        ),
        Mistake(
            "milliseconds",
            SAYS["milliseconds"],
            partial(_timer, average=lambda times: 1000 * statistics.median(times)),
        ),
        Mistake(
            "below zero", SAYS["below zero"], partial(_timer, average=lambda times: -statistics.median(times))
        ),
        Mistake(
            "not sorted",
            "It takes the time in the middle of the list as it was measured; the median is the middle of "
            "the sorted list.",
            partial(_timer, average=lambda times: times[len(times) // 2]),
        ),
        Mistake(
            "all at once",
            "It times all calls together and divides, which is their mean: a single hiccup moves it.",
            _all_at_once,
        ),
        Mistake(
            "one call",
            "It returns the time of one call, the first one timed, whatever `repeats` says; a hiccup "
            "there goes unnoticed.",
            partial(_timer, rounds=1),
        ),
        Mistake(
            "all times",
            "It returns every time; their median is asked for.",
            lambda *inputs: _timer(*inputs, average=list),
        ),
    ),
    hints=(
        "Take one timed call. What must be true of the device when you read the clock before it, and when "
        "you read it after?",
        "Before: nothing pending. After: the work is done. synchronize() sees to both. And one call goes "
        "first, without a clock.",
        "fn(); then `repeats` times: synchronize(), start = clock(), fn(), synchronize(), and note "
        "clock() - start. The middle of the sorted times is the median.",
    ),
    draw=_draw_devices,
    right="Warmed up, waited before and after, and the median: hiccups and pending work do not show.",
    reader=seconds,
    stretch=True,
    fault=_fault_of_timer,
    evidence=_in_milliseconds,
)

EXERCISES = (BATCH_THE_LOOP, FAIR_TIMER)
