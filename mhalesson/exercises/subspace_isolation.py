"""The exercises of 01: where a head writes, and who reaches whom through W_O."""

import random
from functools import partial

import torch
from torch import Tensor

from mhalesson.exercises.engine import Case, Exercise, Mistake, distinct
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
    """The channels of head i in z_cat, as a slice: z_cat[..., my_head_slice(i, d_v)] is z_i.

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
        "slice(start, stop) takes start, start + 1, …, stop − 1. So stop is where the next head starts.",
    ),
    draw=_draw_slices,
    right="Each head gets its own d_v channels, none twice, none left out.",
    reader=a_slice,
)


# --------------------------------------------------------------------------------- heads_reaching


def heads_reaching(w_o, j, num_heads):
    knobs = w_o[:, j].view(num_heads, -1)  # (h, d_v): what each head's channels send to output j
    reaches = (knobs != 0).any(dim=1)  # (h,)
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


def _sparse(rng: random.Random, h: int, d_v: int, d_model: int) -> Tensor:
    """A W_O in which a head reaches about half of the output channels, by few knobs, of either sign.

    In columns 0 to 3: nobody, everybody by one knob, a head whose knobs cancel, a head below zero.
    """
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    values = torch.randn(h, d_v, d_model, generator=generator)
    some = torch.rand(h, d_v, d_model, generator=generator) < 0.3
    bands = torch.rand(h, 1, d_model, generator=generator) < 0.6
    w_o = values * some * bands  # (h, d_v, d_model)
    w_o[:, :, :4] = 0
    w_o[:, 0, 1] = 0.5
    w_o[1, 0, 2], w_o[1, -1, 2] = 0.25, -0.25
    w_o[2, 1, 3] = -1.0
    return w_o.flatten(0, 1)


def _draw_knobs(rng: random.Random) -> list[Case]:
    h, d_v, d_model = distinct(rng, h=3, d_v=2, d_model=5)
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

    w_o (h·d_v, d_model) is W_O as in the maths, y = z_cat W_O. Some of its entries are zero;
    a head reaches channel j if at least one of its own entries for j is not.
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
        Mistake("heads from 1", "It counts heads from 1; the first one is head 0.", partial(_heads, first=1)),
        Mistake(
            "sum",
            "It adds up the entries of a head, and entries that cancel, such as 0.25 and −0.25, still reach.",
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
        "Column j of w_o has h·d_v entries. Those of head i are the d_v rows of its slice.",
        "Cut the column into (h, d_v), ask of every row whether any entry is not zero, and list the rows "
        "that say yes.",
    ),
    draw=_draw_knobs,
    right="The heads that reach channel j, read off column j of W_O; cancelling and negative entries count.",
    reader=whole_numbers,
)

EXERCISES = (HEAD_SLICE, HEADS_REACHING)
