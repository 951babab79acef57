"""The exercises of 01: where a head writes, and who reaches whom through W_O."""

import random
from functools import partial

import torch
from torch import Tensor

from mhalesson.exercises.engine import Case, Exercise, Mistake, distinct, numbers_from
from mhalesson.exercises.forms import a_slice, whole_numbers

# ------------------------------------------------------------------------------------- head_slice


def head_slice(i, d_v):
    start = i * d_v  # i heads lie before this one, each d_v channels wide
    return slice(start, start + d_v)


def _cut(i, d_v, first=0, more=0):
    """Head numbers from `first`; `more` channels too many."""
    return slice((i - first) * d_v, (i - first + 1) * d_v + more)


def _draw_slices(rng: random.Random) -> list[Case]:
    i, d_v = distinct(rng, i=2, d_v=2)
    return [Case(sizes) for sizes in ((i, d_v), (d_v, i), (0, d_v), (1, d_v + 1), (i, 1), (0, 1), (11, 64))]


HEAD_SLICE = Exercise(
    page="01",
    stub='''
def my_head_slice(i, d_v):
    """The channels of head i in z_cat, as a slice, for example slice(2, 5).

    Every head is d_v channels wide, and the first is head 0.
    """
    ...
''',
    reference=head_slice,
    others=(
        lambda i, d_v: slice(i * d_v, (i + 1) * d_v),
        lambda i, d_v: slice(d_v * i, d_v * i + d_v, 1),
        lambda i, d_v: slice(*(d_v * head for head in (i, i + 1))),
        lambda i, d_v: slice(torch.tensor(i) * d_v, torch.tensor(i + 1) * d_v, None),
    ),
    mistakes=(
        Mistake(
            "heads from 1",
            "It counts heads from 1, so it asks for the report of the head before; head 0 gets nothing.",
            partial(_cut, first=1),
        ),
        Mistake(
            "next head",
            "It starts where head i ends, so it asks for the report of the head after.",
            partial(_cut, first=-1),
        ),
        Mistake(
            "last channel missing",
            "It leaves out the head's last channel: a slice stops before its second number.",
            partial(_cut, more=-1),
        ),
        Mistake(
            "one channel too many",
            "It takes one channel too many, the first of the next head: a slice stops before its second "
            "number.",
            partial(_cut, more=1),
        ),
        Mistake(
            "channel i",
            "It starts at channel i, not at head i: i heads of d_v channels each lie before it, so slices "
            "overlap.",
            lambda i, d_v: slice(i, i + d_v),
        ),
        Mistake(
            "width as end",
            "It gives the width where a slice wants its end, so from head 1 on nothing is cut out.",
            lambda i, d_v: slice(i * d_v, d_v),
        ),
        Mistake(
            "open end",
            "It has no end: it takes head i and every head after it.",
            lambda i, d_v: slice(i * d_v, None),
        ),
        Mistake(
            "from the start",
            "It starts at channel 0: it takes every head before i, and not head i.",
            lambda i, d_v: slice(i * d_v),
        ),
        Mistake(
            "up to the head",
            "It starts at channel 0: it takes head i and every head before it.",
            lambda i, d_v: slice((i + 1) * d_v),
        ),
        Mistake(
            "every d_v-th",
            "It takes every d_v-th channel: one channel from each head in place of one whole head.",
            lambda i, d_v: slice(i, None, d_v),
        ),
        Mistake(
            "always head 0",
            "It takes the same channels whatever i is: those of head 0.",
            lambda i, d_v: slice(0, d_v),
        ),
        Mistake(
            "always two wide",
            "Its heads are always two channels wide, as on the page; here they are d_v wide.",
            lambda i, d_v: slice(2 * i, 2 * i + 2),
        ),
        Mistake(
            "two channels",
            "It starts right, but takes two channels whatever d_v is.",
            lambda i, d_v: slice(i * d_v, i * d_v + 2),
        ),
        Mistake(
            "one channel",
            "It starts right, but takes a single channel; a head has d_v.",
            lambda i, d_v: slice(i * d_v, i * d_v + 1),
        ),
        Mistake(
            "ends at i + d_v",
            "It starts right, but ends at i + d_v, as if it had started at channel i.",
            lambda i, d_v: slice(i * d_v, i + d_v),
        ),
        Mistake(
            "i to d_v",
            "It goes from channel i to channel d_v: both numbers are sizes, not places.",
            lambda i, d_v: slice(i, d_v),
        ),
        Mistake(
            "channels from 1",
            "It counts channels from 1, so it leaves out the head's first and takes the first of the "
            "next head.",
            lambda i, d_v: slice(i * d_v + 1, (i + 1) * d_v + 1),
        ),
        Mistake(
            "first channel missing",
            "It leaves out the head's first channel.",
            lambda i, d_v: slice(i * d_v + 1, (i + 1) * d_v),
        ),
        Mistake(
            "empty",
            "The slice is empty whatever i and d_v are: it stops where it starts, or before.",
            lambda i, d_v: slice((i + 1) * d_v, i * d_v),
        ),
        Mistake(
            "a number",
            "It gives the channel at which the head begins; its d_v channels are a slice, with start and "
            "stop.",
            lambda i, d_v: i * d_v,
        ),
    ),
    hints=(
        "In z_cat head 0 comes first, then head 1, and so on. How many channels lie before head 2?",
        "Before head i lie i heads, each d_v channels wide: that is where it starts. Where does head i + "
        "1 start?",
        "The start is i · d_v. slice(start, stop) takes start, start + 1, …, stop − 1, so stop is where "
        "the next head starts.",
    ),
    draw=_draw_slices,
    right="Each head gets its own d_v channels, none twice, none left out.",
    reader=a_slice,
)


# --------------------------------------------------------------------------------- heads_reaching


def heads_reaching(w_o, j, num_heads):
    entries = w_o[:, j].view(num_heads, -1)  # (h, d_v): what each head's channels send to output j
    reaches = (entries != 0).any(dim=1)  # (h,)
    return reaches.nonzero().flatten().tolist()


def _with_loop(w_o, j, num_heads):
    d_v = w_o.shape[0] // num_heads
    found = []
    for head in range(num_heads):
        if any(w_o[row, j].item() != 0 for row in range(head * d_v, (head + 1) * d_v)):
            found.append(head)
    return found


def _with_set(w_o, j, num_heads):
    d_v = w_o.shape[0] // num_heads
    return sorted({int(row) // d_v for row in torch.where(w_o[:, j] != 0)[0]})


def _with_blocks(w_o, j, num_heads):
    return [head for head, block in enumerate(w_o.chunk(num_heads)) if block[:, j].norm() > 0]


def _heads(w_o, j, num_heads, first=0, column=True, meets=lambda knobs: (knobs != 0).any(dim=1)):
    """The steps one by one: which line of W_O, what counts as reaching, from where heads are counted."""
    line = w_o[:, j] if column else w_o[j]
    return [head + first for head in meets(line.reshape(num_heads, -1)).nonzero().flatten().tolist()]


def _first_found(w_o, j, num_heads):
    for head, block in enumerate(w_o.chunk(num_heads)):
        if (block[:, j] != 0).any():
            return [head]
    return None


def _width_from_d_model(w_o, j, num_heads):
    d_v = w_o.shape[1] // num_heads
    return [head for head in range(num_heads) if (w_o[head * d_v : (head + 1) * d_v, j] != 0).any()]


def _entries_in_dispute(case: Case, inputs: tuple[object, ...], listed: object) -> str:
    """The two lists, and what a head that is in one of them has in column j."""
    w_o, j, num_heads = case.inputs
    assert isinstance(w_o, Tensor) and isinstance(num_heads, int) and isinstance(listed, list)
    should = heads_reaching(w_o, j, num_heads)
    entries = w_o[:, j].view(num_heads, -1)  # type: ignore[index]
    head = next((head for head in range(num_heads) if (head in should) != (head in listed)), None)
    has = (
        ""
        if head is None
        else f"; head {head} has [{', '.join(f'{entry + 0.0:.3g}' for entry in entries[head])}] there"
    )
    return f"it should be {should} and is {listed}{has}"


def _sparse(rng: random.Random, h: int, d_v: int, d_model: int) -> Tensor:
    """A W_O in which a head reaches about half of the output channels, by few knobs, of either sign.

    In columns 0 to 3: nobody, everybody by one knob, a head whose knobs cancel, a head below zero.
    """
    generator = numbers_from(rng)
    values = torch.randn(h, d_v, d_model, generator=generator)
    values = values.sign() * (values.abs() + 0.25)
    some = torch.rand(h, d_v, d_model, generator=generator) < 0.3
    bands = torch.rand(h, 1, d_model, generator=generator) < 0.6
    w_o = values * some * bands  # (h, d_v, d_model)
    w_o[:, :, :4] = 0
    w_o[:, 0, 1] = 0.5
    w_o[0, 0, 1] = 0.001  # small, and not zero
    w_o[1, 0, 2], w_o[1, -1, 2] = 0.25, -0.25
    w_o[2, 1, 3] = -1.0
    return w_o.flatten(0, 1)


def _draw_knobs(rng: random.Random) -> list[Case]:
    h, d_v, d_model = distinct(rng, h=3, d_v=3, d_model=5)
    w_o = _sparse(rng, h, d_v, d_model)
    square = _sparse(rng, h, d_v, h * d_v)
    twin = _sparse(rng, h, d_v, d_model)
    slim = torch.zeros(h, 2)  # heads of width 1
    slim[0, 1] = slim[h - 1, 1] = -2.0
    return [
        Case((w_o, d_model - 1, h)),
        Case((twin, d_model - 1, h)),
        *(Case((w_o, j, h)) for j in range(d_model - 1)),
        *(Case((square, j, h)) for j in rng.sample(range(h * d_v), 6)),
        Case((square, h * d_v - 1, h)),
        Case((slim, 1, h)),
        Case((w_o, 1, 1)),
    ]


HEADS_REACHING = Exercise(
    page="01",
    stub='''
def my_heads_reaching(w_o, j, num_heads):
    """The numbers of the heads that can reach output channel j, as a sorted list.

    w_o (h·d_v, d_model) is W_O as in the maths, y = z_cat W_O, so d_v is
    w_o.shape[0] // num_heads. Some entries are zero; a head reaches channel j if at
    least one entry in its own rows is not zero there.
    """
    ...
''',
    reference=heads_reaching,
    others=(_with_loop, _with_set, _with_blocks),
    mistakes=(
        Mistake(
            "row j",
            "It reads row j of W_O: what channel j of z_cat sends out. What arrives at output channel j is "
            "column j.",
            partial(_heads, column=False),
        ),
        Mistake(
            "row j, cut",
            "It reads the channels of each head in row j of W_O, and a head owns rows. What arrives at "
            "output channel j is column j.",
            lambda w_o, j, num_heads: [
                i
                for i, block in enumerate(range(0, w_o.shape[0], w_o.shape[0] // num_heads))
                if (w_o[j, block : block + w_o.shape[0] // num_heads] != 0).any()
            ],
        ),
        Mistake(
            "last channel missing",
            "It leaves out the last channel of each head: a slice stops before its second number.",
            partial(_heads, meets=lambda knobs: (knobs[:, :-1] != 0).any(dim=1)),
        ),
        Mistake(
            "head 0 only asked",
            "It asks only head 0: a `return` inside the loop ends it after the first round.",
            lambda w_o, j, num_heads: [head for head in heads_reaching(w_o, j, num_heads) if head == 0],
        ),
        Mistake("heads from 1", "It counts heads from 1; the first one is head 0.", partial(_heads, first=1)),
        Mistake(
            "sum",
            "It misses entries that cancel, such as 0.25 and −0.25: it adds them up, or moves all "
            "channels of a head by the same step.",
            partial(_heads, meets=lambda knobs: knobs.sum(dim=1) != 0),
        ),
        Mistake(
            "only above zero",
            "It counts only entries above zero; a negative entry reaches as well.",
            partial(_heads, meets=lambda knobs: (knobs > 0).any(dim=1)),
        ),
        Mistake(
            "every entry",
            "It asks that every channel of a head reach j; one is enough.",
            partial(_heads, meets=lambda knobs: (knobs != 0).all(dim=1)),
        ),
        Mistake(
            "first channel only",
            "It looks only at the first channel of each head; any of the d_v can reach.",
            partial(_heads, meets=lambda knobs: knobs[:, 0] != 0),
        ),
        Mistake(
            "small entries",
            "It leaves out small entries, such as 0.001; whatever is not zero reaches.",
            partial(_heads, meets=lambda knobs: (knobs.abs() > 0.01).any(dim=1)),
        ),
        Mistake(
            "sum above zero",
            "It asks whether a head's entries add up to more than zero; they may be negative, or cancel.",
            partial(_heads, meets=lambda knobs: knobs.sum(dim=1) > 0),
        ),
        Mistake(
            "largest entry",
            "It looks only at a head's largest entry, which is zero where the others are negative.",
            partial(_heads, meets=lambda knobs: knobs.amax(dim=1) != 0),
        ),
        Mistake(
            "those with a zero",
            "It lists the heads that have a zero there; a single other entry is enough to reach.",
            partial(_heads, meets=lambda knobs: (knobs == 0).any(dim=1)),
        ),
        Mistake(
            "head 0 never asked",
            "It never asks head 0; heads are counted from 0.",
            lambda w_o, j, num_heads: [head for head in heads_reaching(w_o, j, num_heads) if head > 0],
        ),
        Mistake(
            "last head never asked",
            "It never asks the last head, num_heads − 1.",
            lambda w_o, j, num_heads: [
                head for head in heads_reaching(w_o, j, num_heads) if head < num_heads - 1
            ],
        ),
        Mistake(
            "first found",
            "It stops at the first head that reaches j: a `return` inside the loop ends it.",
            _first_found,
        ),
        Mistake(
            "j not used",
            "It does not use j: it lists the heads that reach any output channel.",
            lambda w_o, j, num_heads: (
                (w_o.reshape(num_heads, -1) != 0).any(dim=1).nonzero().flatten().tolist()
            ),
        ),
        Mistake(
            "any over the heads",
            "It asks for each channel whether any head reaches j with it; the question is put to each head.",
            partial(_heads, meets=lambda knobs: (knobs != 0).any(dim=0)),
        ),
        Mistake(
            "row i",
            "It looks at row i of W_O; head i owns d_v rows.",
            lambda w_o, j, num_heads: [i for i in range(num_heads) if w_o[i, j] != 0],
        ),
        Mistake(
            "width from d_model",
            "It takes d_model / h for the width of a head; W_O has h·d_v rows, and that is what the "
            "heads share.",
            _width_from_d_model,
        ),
        Mistake(
            "those that do not",
            "It lists the heads that do not reach channel j.",
            partial(_heads, meets=lambda knobs: (knobs == 0).all(dim=1)),
        ),
        Mistake(
            "dealt like cards",
            "It deals the rows of W_O out to the heads like cards; a head's rows are neighbours, d_v in "
            "one band.",
            lambda w_o, j, num_heads: (
                (w_o[:, j].reshape(-1, num_heads) != 0).any(dim=0).nonzero().flatten().tolist()
            ),
        ),
        Mistake(
            "owner",
            "It names the head in whose slice channel j would lie. That is so in z_cat; after W_O "
            "channels have no owner.",
            lambda w_o, j, num_heads: [j // (w_o.shape[0] // num_heads)],
        ),
        Mistake(
            "channels",
            "It lists channels of z_cat; each belongs to a head, and the heads are asked for.",
            lambda w_o, j, num_heads: (w_o[:, j] != 0).nonzero().flatten().tolist(),
        ),
        Mistake(
            "once for each channel",
            "It names a head once for each of its channels that reach j; once is enough.",
            lambda w_o, j, num_heads: [
                row // (w_o.shape[0] // num_heads) for row in (w_o[:, j] != 0).nonzero().flatten().tolist()
            ],
        ),
        Mistake(
            "every head",
            "It names every head whatever W_O holds; a head whose entries in column j are all zero cannot "
            "reach j.",
            lambda w_o, j, num_heads: list(range(num_heads)),
        ),
        Mistake(
            "other way round",
            "The heads are right, and listed from the last to the first.",
            lambda w_o, j, num_heads: heads_reaching(w_o, j, num_heads)[::-1],
        ),
        Mistake(
            "how many",
            "It counts the heads; their numbers are asked for, as a list.",
            lambda w_o, j, num_heads: len(heads_reaching(w_o, j, num_heads)),
        ),
    ),
    hints=(
        "y[j] = Σ z_cat[c] · w_o[c, j]. Which entries of w_o take part in output channel j?",
        "Column j of w_o has h·d_v entries. Those of head i are the d_v rows of its slice, with "
        "d_v = w_o.shape[0] // num_heads.",
        "Cut the column into (h, d_v), by .reshape(num_heads, -1); ask of every row whether any entry "
        "is not zero, and list the rows that say yes.",
    ),
    draw=_draw_knobs,
    right="The heads that reach channel j, read off column j of W_O; cancelling and negative entries count.",
    reader=whole_numbers,
    evidence=_entries_in_dispute,
)

EXERCISES = (HEAD_SLICE, HEADS_REACHING)
