"""The quiz: eight questions before the course, and the same eight with other numbers after it.

A question is made by a function of its numbers, which computes the right answer. Every wrong answer stands
for one misconception, named by a short code.
"""

import re
import reprlib
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from mhalesson.attention import MultiHeadAttention
from mhalesson.output_projection import head_contributions, output_blocks
from mhalesson.text import index_codes, vector, words
from mhalesson.timing import recorded_runs

LETTERS = "ABCD"
UNSURE, NOT_YET = "?", "-"
RIGHT = "right"


@dataclass(frozen=True)
class Question:
    """A question and four answers, each with a code: `RIGHT`, or the misconception it stands for."""

    text: str
    answers: tuple[tuple[str, str], ...]  # (code, text), in the order of the letters
    because: str  # why the right one is right
    speaks_to: dict[str, str]  # to a misconception: what is true in it, or where it breaks
    page: str

    @property
    def key(self) -> str:
        return LETTERS[[code for code, _ in self.answers].index(RIGHT)]

    def code_of(self, letter: str) -> str:
        return self.answers[LETTERS.index(letter)][0]


def _ordered(order: str, **answers: str) -> tuple[tuple[str, str], ...]:
    """The answers by their codes, in an order given by the first letters of the codes."""
    by_letter = {code[0]: (code, text) for code, text in answers.items()}
    return tuple(by_letter[letter] for letter in order)


# ------------------------------------------------------------------------------------ the questions


def silence(reports: list[float], rows: list[list[float]], silent: int, order: str) -> Question:
    z, W_O = torch.tensor(reports), torch.tensor(rows)
    y = z @ W_O
    left = z.clone()
    left[silent] = 0
    own = y.clone()
    own[silent] = 0
    first, second = (vector(row) for row in W_O)
    return Question(
        f"Two heads, each one channel wide, report {vector(z[:1])} and {vector(z[1:])}. W_O has the rows "
        f"{first} and {second}, so y = {vector(y)}. Head {silent} falls silent: its report becomes [0]. "
        "What is y now?",
        _ordered(
            order,
            right=vector(left @ W_O),
            channels_belong_to_heads=vector(own),
            averaging=vector(y / 2),
            mixed_beyond_recall="it cannot be said: the heads are mixed",
        ),
        f"y is a sum with one term for each head: {vector(z[:1] @ W_O[:1])} + {vector(z[1:] @ W_O[1:])}. "
        "One term falls away.",
        {
            "channels_belong_to_heads": "Channels belong to heads in z_cat, but not after W_O.",
            "averaging": "W_O adds; it takes no average.",
            "mixed_beyond_recall": "From y alone it could not be said, but the reports and W_O are known.",
        },
        page="03",
    )


def columns(h: int, d_v: int, d_model: int, head: int, order: str) -> Question:
    start, stop = head * d_v, (head + 1) * d_v
    own = words(range(start, stop))
    weight = torch.arange(1.0 * d_model * h * d_v).view(d_model, h * d_v)
    assert torch.equal(weight[:, start:stop], output_blocks(weight, h)[head].T)
    return Question(
        f"o_proj = nn.Linear({h * d_v}, {d_model}) follows {h} heads of width {d_v}. "
        f"What is o_proj.weight[:,\xa0{start}:{stop}]?",
        _ordered(
            order,
            right=f"head {head}'s rows of W_O, transposed",
            outputs=f"what all heads send to output channels {own}",
            counted_from_1=f"head {head + 1}'s rows of W_O, transposed",
            mixed=f"{d_v} channels of every head, since W_O mixes the heads",
        ),
        "nn.Linear stores W_O transposed, so its columns are the channels of z_cat, and those of a head are "
        f"neighbours: head {head} has {own}.",
        {
            "outputs": "Output channels are the rows of nn.Linear.weight.",
            "counted_from_1": "Heads are counted from 0.",
            "mixed": "W_O mixes when it adds up; in the matrix itself every head has its own band.",
        },
        page="03",
    )


def one_sum(pair: list[list[int]], other: list[list[int]], order: str) -> Question:
    a, b = torch.tensor(pair), torch.tensor(other)
    assert torch.equal(a.sum(dim=0), b.sum(dim=0)) and not torch.equal(a, b)
    total = a.sum(dim=0).tolist()
    different = [pair[0], [pair[1][0] + 1, pair[1][1]]]
    return Question(
        f"Two heads report {pair[0]} and {pair[1]}, and only their sum {total} is passed on. Which other "
        "pair of reports looks exactly the same to whatever comes next?",
        _ordered(
            order,
            right=f"{other[0]} and {other[1]}",
            learned="none, if what comes next is trained to tell them apart",
            everything_lost=f"{different[0]} and {different[1]}, like any other pair: the sum tells nothing",
            no_others="none: the pair can be worked out from its sum",
        ),
        f"{other[0]} and {other[1]} have the same sum, {total}, and from one input comes one result, "
        "whatever was learned.",
        {
            "learned": "No training helps: what comes next gets the same input in both cases.",
            "everything_lost": (
                f"The total is still there, and {different[0]} and {different[1]} have another one."
            ),
            "no_others": (
                "Many pairs have one sum: move one report by a step, and the other by the opposite step."
            ),
        },
        page="02",
    )


def bad_merge(h: int, T: int, d_v: int, row: int, order: str) -> Question:
    names = index_codes(h=h, t=T, c=d_v)
    z = torch.arange(h * T * d_v).view(1, h, T, d_v)

    def reads(merged: torch.Tensor) -> str:
        tokens: dict[str, list[str]] = {}
        for value in merged[0, row].tolist():
            head, token = names[value][1], names[value][3]
            if token not in tokens.setdefault(head, []):
                tokens[head].append(token)
        return " and ".join(
            f"token{'s' if len(found) > 1 else ''} {words(found)} of head {head}"
            for head, found in tokens.items()
        )

    return Question(
        f"The reports z have the shape (B, h, T, d_v) = (1, {h}, {T}, {d_v}). Somebody merges them by "
        f"z.reshape(1, {T}, {h * d_v}). What does the row of token {row} hold?",
        _ordered(
            order,
            right=reads(z.reshape(1, T, h * d_v)),
            shape_is_enough=reads(z.transpose(1, 2).reshape(1, T, h * d_v)),
            error="nothing: reshape raises an error, since heads and tokens must change places first",
            last_head=f"only token {row} of head {h - 1}, the last one",
        ),
        f"The row takes numbers {row * h * d_v} to {(row + 1) * h * d_v - 1} in reading order, and z is "
        f"read head after head, {T * d_v} numbers each, token after token. The shape is right, and no "
        "error is raised.",
        {
            "shape_is_enough": (
                "That takes a transpose first. A right shape says nothing about what is where."
            ),
            "error": "The numbers fill the new shape, and that is all reshape asks.",
            "last_head": "Nothing is overwritten; reshape keeps every number.",
        },
        page="04",
    )


def _layer(d_model: int, h: int) -> tuple[MultiHeadAttention, torch.Tensor]:
    """A layer and a text of three tokens, both random; the learner's own random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return MultiHeadAttention(d_model, h), torch.randn(1, 3, d_model)


def one_channel(d_model: int, h: int, channel: int, order: str) -> Question:
    mha, x = _layer(d_model, h)
    nudged = x.clone()
    nudged[0, 0, channel] += 1
    moved = ((mha.heads(nudged) - mha.heads(x)).abs().amax(dim=(0, 2, 3)) > 1e-6).nonzero().flatten().tolist()
    assert moved == list(range(h))
    owner = channel * h // d_model
    return Question(
        f"An attention layer has d_model = {d_model} and {h} heads. One number of x changes, channel "
        f"{channel} of token 0. Which heads' reports change?",
        _ordered(
            order,
            right=f"all {h} heads': each reads every channel of x",
            share_of_x=f"head {owner}'s only: channel {channel} lies in its share of x",
            nobody="nobody's: one number among so many does not matter",
            later_heads=f"head {owner}'s and those of the heads after it",
        ),
        "The projections come before the cut into heads, and each number that they make is a mixture of "
        "all channels of x.",
        {
            "share_of_x": "Heads have shares of q, k, v and z_cat, not of x.",
            "nobody": "The projections are linear: a small change comes through.",
            "later_heads": "There is an order of tokens (the causal mask), but none of heads.",
        },
        page="01",
    )


def bias_count(h: int, order: str) -> Question:
    mha, x = _layer(2 * h, h)
    added = head_contributions(mha.heads(x), mha.o_proj.weight).sum(dim=1)
    assert torch.allclose(added + mha.o_proj.bias, mha(x), atol=1e-5)
    return Question(
        f"o_proj has a bias b. From the output of a layer with {h} heads we take away what each head "
        f"adds, its report times its rows of W_O, for all {h} of them. What is left?",
        _ordered(
            order,
            right="b: it belongs to the layer",
            no_bias="nothing: the heads add up to the output",
            each_head=f"{h}·b: once for every head",
            shared_out=f"b/{h}: its share of the bias",
        ),
        "The bias belongs to the layer and is added once, after the sum.",
        {
            "no_bias": "Without the bias that would be so.",
            "each_head": "No head has a bias of its own in o_proj.",
            "shared_out": "The bias is not divided up; it belongs to no head.",
        },
        page="03",
    )


def view_works(
    right: tuple[int, ...], one_sequence: tuple[int, ...], large: tuple[int, ...], order: str
) -> Question:
    def works(shape: tuple[int, ...]) -> bool:
        B, h, T, d_v = shape
        try:
            torch.zeros(shape).transpose(1, 2).view(B, T, h * d_v)
        except RuntimeError:
            return False
        return True

    assert (works(right), works(one_sequence), works(large)) == (True, False, False)
    one = {1: "h", 2: "T", 3: "d_v"}[right.index(1)]
    return Question(
        "z (B, h, T, d_v) lies in memory in reading order (it is contiguous). For which shape does "
        "z.transpose(1,\xa02).view(B,\xa0T,\xa0h·d_v) work without .contiguous() in between?",
        _ordered(
            order,
            right=str(right),
            one_sequence=str(one_sequence),
            any_that_fits=f"{large}, as for every shape: the count of numbers is right",
            never="for none: after a transpose .contiguous() is always needed",
        ),
        f"In {right}, {one} = 1. The joined axis h·d_v must have one stride, and it has one exactly if "
        "h, T or d_v is 1.",
        {
            "one_sequence": "The batch is not joined with anything, so its size does not matter.",
            "any_that_fits": "That is reshape's rule, and reshape copies; view keeps the memory as it is.",
            "never": "Not always: view wants one stride, not a copy.",
        },
        page="04",
    )


def loop_or_batched(h: int, T: int, order: str) -> Question:
    points = recorded_runs()["cpu"]["points"]

    def ratio(tokens: int) -> float:
        (p,) = (p for p in points if (p["T"], p["h"], p["direction"]) == (tokens, h, "forward"))
        return p["seconds"]["loop"][1] / p["seconds"]["batched"][1]

    assert ratio(1) > 2 and ratio(T) < 1
    return Question(
        f"An attention layer with {h} heads runs as a loop over its heads, and as batched products, on a "
        f"CPU. How do the times compare for a text of 1 token, and for one of {T:,}?",
        _ordered(
            order,
            right="for 1 token the loop takes much longer; for the long text about as long, or less",
            count_of_rounds=f"the loop takes about {h} times as long for both: {h} rounds instead of one",
            same_arithmetic="both take about as long for both texts: the arithmetic is the same",
            grows_with_text="about as long for 1 token; for the long text the loop takes much longer",
        ),
        f"The loop pays the fixed cost of an operation {h} times. That shows while the work itself is "
        "small; for long texts the batched form pays for larger tensors. (In the run that comes with "
        f"the course the loop took {ratio(1):.1f} times as long for 1 token, and {ratio(T):.1f} times "
        f"for {T:,}.)",
        {
            "count_of_rounds": (
                "The rounds are there, but the projections cost both the same, and for long texts the "
                "arithmetic takes the time."
            ),
            "same_arithmetic": "The arithmetic is the same, but starting an operation costs something, too.",
            "grows_with_text": "The loop's extra cost does not depend on the length of the text.",
        },
        page="05",
    )


BEFORE: tuple[Callable[[], Question], ...] = (
    partial(one_channel, d_model=12, h=3, channel=7, order="snrl"),
    partial(one_sum, pair=[[2, 1], [1, 3]], other=[[0, 4], [3, 0]], order="lern"),
    partial(silence, reports=[2.0, 5.0], rows=[[1.0, 0.5], [0.0, 1.0]], silent=0, order="crma"),
    partial(columns, h=3, d_v=4, d_model=10, head=1, order="ocrm"),
    partial(bias_count, h=5, order="rens"),
    partial(bad_merge, h=2, T=4, d_v=3, row=1, order="sler"),
    partial(view_works, right=(2, 4, 1, 8), one_sequence=(1, 4, 6, 8), large=(2, 4, 6, 8), order="noar"),
    partial(loop_or_batched, h=12, T=2048, order="rcsg"),
)
AFTER: tuple[Callable[[], Question], ...] = (
    partial(one_channel, d_model=8, h=4, channel=2, order="rlsn"),
    partial(one_sum, pair=[[1, 5], [4, 0]], other=[[3, 3], [2, 2]], order="nrel"),
    partial(silence, reports=[4.0, 3.0], rows=[[0.5, 1.0], [2.0, 0.0]], silent=1, order="mcar"),
    partial(columns, h=6, d_v=2, d_model=7, head=4, order="rmco"),
    partial(bias_count, h=12, order="sner"),
    partial(bad_merge, h=2, T=6, d_v=3, row=4, order="lrse"),
    partial(view_works, right=(3, 2, 5, 1), one_sequence=(1, 2, 5, 6), large=(3, 2, 5, 6), order="aron"),
    partial(loop_or_batched, h=48, T=512, order="gsrc"),
)
QUESTIONS = {"before": BEFORE, "after": AFTER}


# ------------------------------------------------------------------------------------ asking them


def quiz(when: object = None, answers: object = None, before: object = None) -> None:
    """Print the questions with your answers: one letter for each, ? for unsure, - for not yet.

    Before the course nothing says what is right. After it, once all are answered, every answer is explained;
    with the answers from before, the way between them is shown. Nothing is stored: the last line is a code
    that can be pasted into a chat, or as `before`.

    >>> quiz("before", "ABC")
    ✗ answers="ABC" has 3 marks; the quiz takes 8, each of them A, B, C, D, ? (unsure) or - (not yet).
    """
    if not isinstance(when, str) or when not in QUESTIONS:
        print(f'✗ when={reprlib.repr(when)} should be "before" or "after", as in quiz("before", "--------").')
        return
    marks, earlier = _marks(answers), _marks(before)
    problem = _problem("answers", when, answers, marks)
    if problem := problem or (_problem("before", "before", before, earlier) if before is not None else ""):
        print(problem)
        return
    earlier = "" if set(earlier) == {NOT_YET} else earlier
    open_ones = [n for n, mark in enumerate(marks, start=1) if mark == NOT_YET]
    explained = when == "after" and not open_ones
    for n, (make, mark) in enumerate(zip(QUESTIONS[when], marks, strict=True), start=1):
        _show(n, make(), mark, explained)
    if open_ones:
        later = "; once all are marked, each is explained" if when == "after" else ""
        print(f"○ not answered yet: {words(open_ones)}{later}")
    if explained:
        print(_way(earlier, marks))
    print(f"Your code: quiz {when} {marks}" + (f", before {earlier}" if earlier else ""))


def score(when: str, marks: str) -> int:
    return sum(mark == make().key for make, mark in zip(QUESTIONS[when], marks, strict=True))


def _marks(answers: object) -> str:
    """The marks alone, in capitals: of "a b, c …", or of the code that the quiz prints."""
    if not isinstance(answers, str):
        return ""
    alone = re.sub(r"^\s*(Your code:)?\s*quiz (before|after)|, before.*$", "", answers)
    return "".join(re.split(r"[\s,]+", alone.upper()))


def _problem(name: str, when: str, value: object, marks: str) -> str:
    allowed = (
        f"the quiz takes {len(BEFORE)}, each of them A, B, C, D, {UNSURE} (unsure) or {NOT_YET} (not yet)"
    )
    if not isinstance(value, str):
        return f"✗ {name} is of type {type(value).__name__} and should be a string; {allowed}."
    shown = value if len(value) <= 40 else value[:39] + "…"
    if (code := re.search(r"quiz (before|after)", value)) and code[1] != when:
        return f'✗ {name}="{shown}" is the code of the quiz {code[1]} the course.'
    if strange := sorted(set(marks) - set(LETTERS + UNSURE + NOT_YET)):
        return f'✗ {name}="{shown}" has {words([repr(sign) for sign in strange[:5]])}; {allowed}.'
    if len(marks) != len(BEFORE):
        return f'✗ {name}="{shown}" has {len(marks)} mark{"s" * (len(marks) != 1)}; {allowed}.'
    return ""


def _show(n: int, question: Question, mark: str, explained: bool) -> None:
    if mark == NOT_YET:
        sign = "○"
    elif not explained:
        sign = "●"
    else:
        sign = "✓" if mark == question.key else "?" if mark == UNSURE else "✗"
    print(_wrapped(f"{sign} {n}  {question.text}", indent=5))
    for letter, (_, text) in zip(LETTERS, question.answers, strict=True):
        print(_wrapped(f"     {letter}  {text}", indent=8))
    if mark != NOT_YET:
        yours = "unsure" if mark == UNSURE else mark
        print(f"     Your answer: {yours}" + (f"; right: {question.key}" if explained else ""))
        if explained:
            wrong = mark in LETTERS and mark != question.key
            speaks = question.speaks_to[question.code_of(mark)] + " " if wrong else ""
            print(_wrapped(f"     {speaks}{question.because} (Page {question.page})", indent=5))
    print()


def _way(earlier: str, marks: str) -> str:
    """From before to after, in numbers: right, and unsure."""
    total, right = len(marks), score("after", marks)
    if not earlier:
        return f'Right: {right} of {total}. (Add before="…", your code from page 00, to see the way.)'
    unsure = f"unsure {earlier.count(UNSURE)} → {marks.count(UNSURE)}"
    unanswered = f" ({earlier.count(NOT_YET)} not answered before)" if NOT_YET in earlier else ""
    return f"Before → after: right {score('before', earlier)} → {right} of {total}, {unsure}{unanswered}"


def _wrapped(text: str, indent: int) -> str:
    first = text[: len(text) - len(text.lstrip())]
    filled = textwrap.fill(text.lstrip(), width=88, initial_indent=first, subsequent_indent=" " * indent)
    return filled.replace("\xa0", " ")  # which has kept code in one line
