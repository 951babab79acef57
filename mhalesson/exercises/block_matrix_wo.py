"""The exercises of 03: the blocks of W_O, what each head adds, a W_O of one's own, and what it costs."""

import random
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from mhalesson.exercises.engine import Case, Exercise, Mistake, distinct, numbers_from, twin_of
from mhalesson.exercises.forms import a_whole_number

# ----------------------------------------------------------------------------------- output_block


def output_block(weight, i, num_heads):
    d_model, width = weight.shape
    d_v = width // num_heads
    columns = weight[:, i * d_v : (i + 1) * d_v]  # (d_model, d_v): the columns of head i
    return columns.T  # (d_v, d_model)


def _by_rows_of_w_o(weight, i, num_heads):
    return weight.T.chunk(num_heads)[i]


def _by_indexing(weight, i, num_heads):
    d_v = weight.shape[1] // num_heads
    rows = [weight[:, i * d_v + c] for c in range(d_v)]
    return torch.stack(rows)


def _block(weight, i, num_heads, first=0, width_of=1, more=0):
    """Head numbers from `first`; the width of a head taken from axis `width_of`; `more` channels too many."""
    d_v = weight.shape[width_of] // num_heads
    start = (i - first) * d_v
    return weight[:, max(start, 0) : max(start + d_v + more, 0)].T


def _draw_weights(rng: random.Random) -> list[Case]:
    h, d_v = distinct(rng, h=3, d_v=2)
    tall = h * d_v + rng.randint(1, 5)  # d_model, the rows of weight
    low = rng.choice([n for n in range(2, h * d_v) if n not in (h, d_v)])
    middle = rng.randrange(1, h - 1)

    def case(h: int, d_v: int, d_model: int, i: int) -> Case:
        weight = torch.arange(1.0, d_model * h * d_v + 1).view(d_model, h * d_v)
        names = [
            f"head {n}, channel {c}, output {o}" for o in range(d_model) for n in range(h) for c in range(d_v)
        ]
        return Case((weight, i, h), ["0", *names])

    first = case(h, d_v, tall, middle)
    sizes = [(h, d_v, tall, 0), (h, d_v, low, h - 1), (h, d_v, h * d_v, middle)]  # square, as in most models
    sizes += [
        (h, d_v, h * tall, h - 1),
        (h, d_v, h * low, 1),
        (h, 1, tall, 1),
        (1, d_v, low, 0),
        (h, d_v, 1, h - 1),
    ]
    return [first, twin_of(first), *(case(*s) for s in sizes)]


OUTPUT_BLOCK = Exercise(
    page="03",
    stub='''
def my_output_block(weight, i, num_heads):
    """Block i of W_O, (d_v, d_model).

    It is cut from what nn.Linear stores: weight (d_model, h·d_v).
    """
    ...
''',
    reference=output_block,
    others=(
        _by_rows_of_w_o,
        _by_indexing,
        lambda weight, i, num_heads: weight.T.reshape(num_heads, -1, weight.shape[0])[i],
        lambda weight, i, num_heads: torch.einsum("ohc->hco", weight.unflatten(1, (num_heads, -1)))[i],
        lambda weight, i, num_heads: weight.view(weight.shape[0], num_heads, -1)[:, i].t().contiguous(),
    ),
    mistakes=(
        Mistake(
            "rows of weight",
            "It cuts a band of rows out of weight. The rows are output channels; the channels of a head are "
            "columns.",
            lambda weight, i, num_heads: weight.reshape(num_heads, -1, weight.shape[1])[i],
        ),
        Mistake(
            "d_v rows of weight",
            "It cuts d_v rows out of weight. The rows are output channels; the channels of a head are "
            "columns.",
            lambda weight, i, num_heads: weight[
                i * (weight.shape[1] // num_heads) : (i + 1) * (weight.shape[1] // num_heads)
            ],
        ),
        Mistake(
            "d_v rows, turned",
            "It cuts d_v rows out of weight and turns them over. The rows are output channels; the "
            "channels of a head are columns.",
            lambda weight, i, num_heads: (
                weight[i * (weight.shape[1] // num_heads) : (i + 1) * (weight.shape[1] // num_heads)].T
            ),
        ),
        Mistake(
            "block 0 always",
            "It gives block 0 whatever i is.",
            lambda weight, i, num_heads: output_block(weight, 0, num_heads),
        ),
        Mistake(
            "last block always",
            "It gives the last block whatever i is.",
            lambda weight, i, num_heads: output_block(weight, num_heads - 1, num_heads),
        ),
        Mistake(
            "on its side",
            "The numbers are right and lie on their side: (d_model, d_v). The maths multiplies from the "
            "left, z_i W, with one row for each channel of the head.",
            lambda weight, i, num_heads: output_block(weight, i, num_heads).T,
        ),
        Mistake(
            "reshape for transpose",
            "It turns (d_model, d_v) into (d_v, d_model) by reshape, which keeps the reading order: right "
            "shape, wrong places. Turning a matrix over is a transpose.",
            lambda weight, i, num_heads: output_block(weight, i, num_heads).T.reshape(-1, weight.shape[0]),
        ),
        Mistake(
            "view of weight",
            "It lays (h, d_v, d_model) over weight as it is stored. That is the shape of W_O's blocks, "
            "but weight is W_O transposed, so its numbers land elsewhere.",
            lambda weight, i, num_heads: weight.reshape(num_heads, -1, weight.shape[0])[i],
        ),
        Mistake(
            "heads from 1",
            "It counts heads from 1: this is the block of the head before.",
            partial(_block, first=1),
        ),
        Mistake(
            "next head",
            "It starts where head i ends: this is the block of the head after.",
            partial(_block, first=-1),
        ),
        Mistake(
            "width from d_model",
            "It takes d_model / h for the width of a head. That is so where W_O is square; the width is "
            "that of z_cat, h·d_v, over h.",
            partial(_block, width_of=0),
        ),
        Mistake(
            "last channel missing", "It leaves out the last channel of the head.", partial(_block, more=-1)
        ),
        Mistake(
            "one channel too many",
            "It takes one channel too many, the first of the next head.",
            partial(_block, more=1),
        ),
        Mistake(
            "channel i",
            "It starts at channel i, not at head i: i heads of d_v channels each lie before it.",
            lambda weight, i, num_heads: weight[:, i : i + weight.shape[1] // num_heads].T,
        ),
        Mistake(
            "dealt like cards",
            "It takes every h-th column: one channel from each head in place of all channels of head i.",
            lambda weight, i, num_heads: weight[:, i::num_heads].T,
        ),
        Mistake(
            "columns of W_O",
            "It cuts columns out of W_O, some output channels of every head; a block is a band of its rows.",
            lambda weight, i, num_heads: weight.T[
                :, i * (weight.shape[0] // num_heads) : (i + 1) * (weight.shape[0] // num_heads)
            ],
        ),
        Mistake(
            "heads in reverse",
            "It counts the heads from the end: for head 0 this is the last block.",
            lambda weight, i, num_heads: output_block(weight, num_heads - 1 - i, num_heads),
        ),
        Mistake(
            "h channels wide",
            "It cuts the columns into pieces of h, the number of heads; a head is h·d_v / h = d_v wide.",
            lambda weight, i, num_heads: weight[:, i * num_heads : (i + 1) * num_heads].T,
        ),
        Mistake(
            "every block",
            "It returns the blocks of all heads; the one of head i is asked for.",
            lambda weight, i, num_heads: weight.T.unflatten(0, (num_heads, -1)),
        ),
    ),
    hints=(
        "weight has one row for each output channel and one column for each channel of z_cat. Which of "
        "the two does head i own?",
        "Head i owns d_v columns, from i·d_v on, with d_v = weight.shape[1] // num_heads.",
        "weight[:, start:stop] is (d_model, d_v). The maths wants (d_v, d_model): turn it over with .T.",
    ),
    draw=_draw_weights,
    right="Columns of weight, turned over: the rows of W_O that belong to head i, also where W_O is not "
    "square.",
    shape="(d_v, d_model)",
    axes=("channel", "output"),
)


# ---------------------------------------------------------------------------------- contributions


def contributions(z, weight):
    B, h, T, d_v = z.shape
    blocks = weight.T.unflatten(0, (h, d_v))  # (h, d_v, d_model)
    return z @ blocks  # (B, h, T, d_v) @ (h, d_v, d_model) → (B, h, T, d_model)


def _head_by_head(z, weight):
    blocks = weight.chunk(z.shape[1], dim=1)  # h times (d_model, d_v)
    return torch.stack([F.linear(z[:, i], block) for i, block in enumerate(blocks)], dim=1)


def _others_silent(z, weight):
    y = []
    for i in range(z.shape[1]):
        only = torch.zeros_like(z)
        only[:, i] = z[:, i]
        y.append(only.transpose(1, 2).flatten(2) @ weight.T)
    return torch.stack(y, dim=1)


def _with_einsum(z, weight):
    return torch.einsum("bhtc,ohc->bhto", z, weight.view(weight.shape[0], z.shape[1], z.shape[3]))


def _layer(z: Tensor, weight: Tensor) -> Tensor:
    return z.transpose(1, 2).flatten(2) @ weight.T  # (B, T, d_model)


def _contributions(z, weight, cut="rows of W_O", order="bhto", blocks_of=lambda blocks: blocks):
    """The steps one by one: how W_O is cut, which block meets which head, how the axes are ordered."""
    h, d_v, d_model = z.shape[1], z.shape[3], weight.shape[0]
    blocks = {
        "rows of W_O": lambda: weight.T.reshape(h, d_v, d_model),
        "rows of weight": lambda: weight.reshape(h, d_v, d_model),
        "cards": lambda: weight.T.reshape(d_v, h, d_model).transpose(0, 1),
    }[cut]()
    return torch.einsum(f"bhtc,hco->{order}", z, blocks_of(blocks))


def _draw_layers(rng: random.Random) -> list[Case]:
    B, h, T, d_v, d_model = distinct(rng, B=2, h=3, T=2, d_v=2, d_model=2)
    generator = numbers_from(rng)

    def case(B: int, h: int, T: int, d_v: int, d_model: int) -> Case:
        z, weight = (torch.randn(s, generator=generator) for s in ((B, h, T, d_v), (d_model, h * d_v)))
        return Case((z, weight))

    sizes = [(B, h, T, d_v, d_model)] * 2 + [(1, h, T, d_v, h * d_v), (B, h, 1, d_v, d_model)]
    sizes += [(B, 1, T, d_v, d_model), (B, h, T, 1, d_model), (B, h, h, d_v, 1), (B, h, T, d_v, h * d_v + 2)]
    return [case(*s) for s in sizes]


CONTRIBUTIONS = Exercise(
    page="03",
    stub='''
def my_contributions(z, weight):
    """What each head adds to the stream, (B, h, T, d_model), for z (B, h, T, d_v).

    weight (d_model, h·d_v) is what nn.Linear stores. Summed over h, the result is
    the layer's output without its bias.
    """
    ...
''',
    reference=contributions,
    others=(
        _head_by_head,
        _others_silent,
        _with_einsum,
        lambda z, weight: torch.stack([z[:, i] @ W for i, W in enumerate(weight.T.chunk(z.shape[1]))], dim=1),
    ),
    mistakes=(
        Mistake(
            "rows of weight",
            "It cuts weight into bands of rows. They are output channels; a head owns columns of weight, "
            "so every head meets numbers of other heads.",
            partial(_contributions, cut="rows of weight"),
        ),
        Mistake(
            "dealt like cards",
            "It deals the rows of W_O out to the heads like cards; those of a head are neighbours, d_v in "
            "one band.",
            partial(_contributions, cut="cards"),
        ),
        Mistake(
            "already added",
            "It adds the heads up: that is the layer's output, (B, T, d_model), and nobody sees any more who "
            "added what.",
            partial(_contributions, order="bto"),
        ),
        Mistake(
            "token before head",
            "Tokens stand before heads: (B, T, h, d_model).",
            partial(_contributions, order="btho"),
        ),
        Mistake(
            "block 0 for all",
            "Every head goes through block 0; each has a block of its own.",
            partial(_contributions, blocks_of=lambda blocks: blocks[:1].expand_as(blocks)),
        ),
        Mistake(
            "heads before batch",
            "The heads stand before the batch: (h, B, T, d_model).",
            partial(_contributions, order="hbto"),
        ),
        Mistake(
            "report of head 0 for all",
            "Every block gets the report of head 0; each head has a report of its own.",
            lambda z, weight: contributions(z[:, :1].expand_as(z), weight),
        ),
        Mistake(
            "head 0 missing",
            "Head 0 is missing from the result.",
            lambda z, weight: contributions(z, weight)[:, 1:],
        ),
        Mistake(
            "last head missing",
            "The last head is missing from the result.",
            lambda z, weight: contributions(z, weight)[:, :-1],
        ),
        Mistake(
            "head 0 only",
            "It returns what head 0 adds, without the others.",
            lambda z, weight: contributions(z, weight)[:, :1],
        ),
        Mistake(
            "blocks in reverse",
            "The blocks meet the heads in reverse order: head 0 goes through the last one.",
            partial(_contributions, blocks_of=lambda blocks: blocks.flip(0)),
        ),
        Mistake(
            "next block",
            "Every head goes through the block of the next one.",
            partial(_contributions, blocks_of=lambda blocks: blocks.roll(-1, dims=0)),
        ),
        Mistake(
            "block before",
            "Every head goes through the block of the one before.",
            partial(_contributions, blocks_of=lambda blocks: blocks.roll(1, dims=0)),
        ),
        Mistake(
            "the mean block",
            "Every head goes through the mean of all blocks; each has a block of its own.",
            partial(
                _contributions, blocks_of=lambda blocks: blocks.mean(dim=0, keepdim=True).expand_as(blocks)
            ),
        ),
        Mistake(
            "the sum of all blocks",
            "Every head goes through all blocks, added up; each has a block of its own.",
            partial(
                _contributions, blocks_of=lambda blocks: blocks.sum(dim=0, keepdim=True).expand_as(blocks)
            ),
        ),
        Mistake(
            "divided by h",
            "It divides by the number of heads; W_O takes no average.",
            lambda z, weight: contributions(z, weight) / z.shape[1],
        ),
        Mistake(
            "equal shares",
            "It gives every head an equal share of the output. What a head adds is its own report through "
            "its own block.",
            lambda z, weight: (
                (_layer(z, weight) / z.shape[1]).unsqueeze(1).expand(-1, z.shape[1], -1, -1).clone()
            ),
        ),
        Mistake(
            "the whole output",
            "It gives every head the whole output, so that the sum over heads is h times too large.",
            lambda z, weight: _layer(z, weight).unsqueeze(1).expand(-1, z.shape[1], -1, -1).clone(),
        ),
        Mistake(
            "running total",
            "What it gives for a head includes all heads before it.",
            lambda z, weight: contributions(z, weight).cumsum(dim=1),
        ),
        Mistake(
            "all but this head",
            "It gives what remains when the head is silent: what the other heads add.",
            lambda z, weight: _layer(z, weight).unsqueeze(1) - contributions(z, weight),
        ),
        Mistake(
            "slots without W_O",
            "It leaves every report in its slot of z_cat, with zeros elsewhere; W_O is not used.",
            lambda z, weight: torch.stack(
                [
                    F.pad(z[:, i], (i * z.shape[3], (z.shape[1] - 1 - i) * z.shape[3]))
                    for i in range(z.shape[1])
                ],
                1,
            ),
        ),
    ),
    hints=(
        "The sum y = Σ z_i W_O^i has one term for each head. What is wanted is these terms, before they "
        "are added.",
        "W_O is weight.T, (h·d_v, d_model). Cut its rows into (h, d_v, d_model): one block for each head.",
        "z (B, h, T, d_v) @ blocks (h, d_v, d_model) multiplies each head with its own block, for all B "
        "at once.",
    ),
    draw=_draw_layers,
    right="Each head through its own block; their sum is the layer's output.",
    shape="(B, h, T, d_model)",
    axes=("batch", "head", "token", "output"),
)


# ---------------------------------------------------------------------------- rotate_heads_weight


def rotate_heads_weight(num_heads, d_v):
    stay = torch.eye(num_heads * d_v)  # row c, column c: channel c goes to channel c
    return stay.roll(d_v, dims=1)  # every channel goes d_v channels further, the last d_v to the start


def _block_by_block(num_heads, d_v):
    W = torch.zeros(num_heads * d_v, num_heads * d_v)
    for head in range(num_heads):
        slot = (head + 1) % num_heads
        for c in range(d_v):
            W[head * d_v + c, slot * d_v + c] = 1
    return W


def _ones_at_heads(num_heads, d_v):
    W = torch.zeros(num_heads * d_v, num_heads * d_v)
    for head in range(num_heads):
        W[head, (head + 1) % num_heads] = 1
    return W


def _draw_rotations(rng: random.Random) -> list[Case]:
    h, d_v = distinct(rng, h=4, d_v=2)
    return [Case(sizes) for sizes in ((h, d_v), (d_v + 2, h), (h, 1), (3, 3), (5, 4))]


def _eye(num_heads: int, d_v: int) -> Tensor:
    return torch.eye(num_heads * d_v)


ROTATE_HEADS_WEIGHT = Exercise(
    page="03",
    stub='''
def my_rotate_heads_weight(num_heads, d_v):
    """A W_O as in y = z_cat W_O, (h·d_v, h·d_v), that hands every report on by one slot.

    Slot i is the channels of head i in z_cat. z_cat @ W has the report of head i in
    slot i + 1, and that of the last head in slot 0. There are at least three heads.
    """
    ...
''',
    reference=rotate_heads_weight,
    others=(
        _block_by_block,
        lambda num_heads, d_v: torch.kron(torch.eye(num_heads).roll(1, dims=1), torch.eye(d_v)),
        lambda num_heads, d_v: torch.eye(num_heads * d_v, dtype=torch.float64).roll(-d_v, dims=0),
        lambda num_heads, d_v: F.one_hot((torch.arange(num_heads * d_v) + d_v) % (num_heads * d_v)).float(),
    ),
    mistakes=(
        Mistake(
            "other direction",
            "It moves the report of head i to slot i − 1. (That is also what you get for "
            "nn.Linear.weight, the transpose.)",
            lambda num_heads, d_v: _eye(num_heads, d_v).roll(-d_v, dims=1),
        ),
        Mistake(
            "one channel",
            "It moves everything by one channel, not by one head, so that the last channel of each head "
            "slips into the next slot.",
            lambda num_heads, d_v: _eye(num_heads, d_v).roll(1, dims=1),
        ),
        Mistake(
            "one channel back",
            "It moves everything back by one channel, not on by one head.",
            lambda num_heads, d_v: _eye(num_heads, d_v).roll(-1, dims=1),
        ),
        Mistake(
            "h channels",
            "It moves everything by h channels; a head is d_v wide.",
            lambda num_heads, d_v: _eye(num_heads, d_v).roll(num_heads, dims=1),
        ),
        Mistake("identity", "It is the identity: every report stays in its slot.", _eye),
        Mistake(
            "last head lost",
            "The last head's report goes nowhere, and slot 0 stays empty.",
            lambda num_heads, d_v: torch.diag(torch.ones((num_heads - 1) * d_v), d_v),
        ),
        Mistake(
            "first head lost",
            "It moves reports to slot i − 1, and head 0's goes nowhere.",
            lambda num_heads, d_v: torch.diag(torch.ones((num_heads - 1) * d_v), -d_v),
        ),
        Mistake(
            "heads reversed",
            "It puts the heads in reverse order; each should move on by one slot.",
            lambda num_heads, d_v: torch.kron(torch.eye(num_heads).flip(0), torch.eye(d_v)),
        ),
        Mistake(
            "all reversed",
            "It puts all channels in reverse order, and with them the heads.",
            lambda num_heads, d_v: _eye(num_heads, d_v).flip(0),
        ),
        Mistake(
            "heads only",
            "It is (h, h), one number for each pair of heads; a head has d_v channels, so each number "
            "becomes a block.",
            lambda num_heads, d_v: torch.eye(num_heads).roll(1, dims=1),
        ),
        Mistake(
            "inside the heads",
            "It moves the channels inside each head; the heads stay where they are.",
            lambda num_heads, d_v: torch.kron(torch.eye(num_heads), torch.eye(d_v).roll(1, dims=1)),
        ),
        Mistake(
            "blocks of ones",
            "The blocks are full of ones, so every channel of a slot gets the sum of the report.",
            lambda num_heads, d_v: torch.kron(torch.eye(num_heads).roll(1, dims=1), torch.ones(d_v, d_v)),
        ),
        Mistake(
            "interleaved",
            "It is laid out as if the channels of a head lay h apart; in z_cat they are neighbours.",
            lambda num_heads, d_v: torch.kron(torch.eye(d_v), torch.eye(num_heads).roll(1, dims=1)),
        ),
        Mistake(
            "heads for channels",
            "It places one 1 for each head, at head numbers; a head is d_v channels wide.",
            _ones_at_heads,
        ),
        Mistake(
            "first channels only",
            "It moves only the first channel of each head.",
            lambda num_heads, d_v: torch.diag((torch.arange(num_heads * d_v) % d_v == 0).float()).roll(
                d_v, dims=1
            ),
        ),
        Mistake(
            "kept and moved",
            "Every report is moved on and stays where it was as well.",
            lambda num_heads, d_v: rotate_heads_weight(num_heads, d_v) + _eye(num_heads, d_v),
        ),
        Mistake(
            "rolled without an axis",
            "It rolls the matrix as one long strip (roll without dims): where a row ends, the "
            "next one goes on, and the last head's ones land a row too low.",
            lambda num_heads, d_v: _eye(num_heads, d_v).roll(d_v),
        ),
        Mistake(
            "two slots",
            "It moves every report on by two slots.",
            lambda num_heads, d_v: _eye(num_heads, d_v).roll(2 * d_v, dims=1),
        ),
    ),
    hints=(
        "Row c of W says where channel c of z_cat goes. The identity leaves everything in place.",
        "Channel c should go to channel c + d_v, and the last d_v channels to the first d_v.",
        "Start from torch.eye(num_heads * d_v) and move its ones d_v columns to the right, round the corner: "
        "roll along one axis.",
    ),
    draw=_draw_rotations,
    right="Every report moves on by one slot, whole, and the last one comes round to slot 0.",
    shape="(h·d_v, h·d_v)",
    axes=("row", "column"),
    any_float=True,
    stretch=True,
)


# ------------------------------------------------------------------------------- attention_params


def attention_params(d_model, num_heads, num_kv_heads, d_head, bias):
    q_width = num_heads * d_head
    kv_width = num_kv_heads * d_head
    weights = d_model * (q_width + 2 * kv_width) + q_width * d_model  # q, k and v; then o
    biases = q_width + 2 * kv_width + d_model  # one for each output of a projection
    return weights + biases if bias else weights


def _from_modules(d_model, num_heads, num_kv_heads, d_head, bias):
    wide, narrow = num_heads * d_head, num_kv_heads * d_head
    layers = [
        torch.nn.Linear(a, b, bias=bias, device="meta")
        for a, b in ((d_model, wide), (d_model, narrow), (d_model, narrow), (wide, d_model))
    ]
    return sum(p.numel() for layer in layers for p in layer.parameters())


def _row_by_row(d_model, num_heads, num_kv_heads, d_head, bias):
    one = 1 if bias else 0
    q = (d_model + one) * num_heads * d_head
    kv = (d_model + one) * num_kv_heads * d_head
    return q + kv + kv + (num_heads * d_head + one) * d_model


def _count(
    d_model,
    num_heads,
    num_kv_heads,
    d_head,
    bias,
    width="d_head",
    kv="kv heads",
    kv_bias="as k and v",
    o="h·d_head",
    o_bias="d_model",
    when="asked",
    v="counted",
):
    """The steps one by one: the widths, which matrices and which biases count, and when biases do."""
    d = d_model // num_heads if width == "d_model / h" else d_head
    wide = num_heads * d
    narrow = {"kv heads": num_kv_heads * d, "all heads": wide, "one head": d}[kv]
    both = {"counted": 2, "forgotten": 1, "weights forgotten": 1}[v]
    weights = (
        d_model * (wide + both * narrow) + {"h·d_head": wide, "d_model": d_model, "none": 0}[o] * d_model
    )
    k_bias = {"as k and v": narrow, "as q": wide, "d_model": d_model}[kv_bias]
    biases = {"d_model": d_model, "h·d_head": wide, "each head": num_heads * d_model, "none": 0}[o_bias]
    biases += (d_model if kv_bias == "d_model" else wide) + (1 if v == "forgotten" else 2) * k_bias
    return weights + (biases if {"asked": bias, "never": False, "always": True}[when] else 0)


def _draw_models(rng: random.Random) -> list[Case]:
    kv, group, d_head = distinct(rng, kv=2, group=2, d_head=3)
    d_model = rng.choice([n for n in range(20, 60) if n != kv * group * d_head])
    sizes = [(d_model, kv * group, kv, d_head), (kv * group * d_head, kv * group, kv, d_head)]
    sizes += [(d_model, kv, kv, d_head), (d_model, 1, 1, d_head), (kv * d_head, kv, kv, d_head)]
    cases = [Case((*s, bias)) for s in sizes for bias in (True, False)]
    return [*cases, Case((4096, 32, 8, 128, False)), Case((768, 12, 12, 64, True))]


ATTENTION_PARAMS = Exercise(
    page="03",
    stub='''
def my_attention_params(d_model, num_heads, num_kv_heads, d_head, bias):
    """How many numbers q_proj, k_proj, v_proj and o_proj hold together, as an int.

    Biases count if bias is True. There may be fewer key and value heads than query
    heads, and num_heads · d_head need not be d_model.
    """
    ...
''',
    reference=attention_params,
    others=(
        _from_modules,
        _row_by_row,
        lambda d_model, num_heads, num_kv_heads, d_head, bias: (
            2 * d_head * d_model * (num_heads + num_kv_heads)
            + bias * (d_head * (num_heads + 2 * num_kv_heads) + d_model)
        ),
    ),
    mistakes=(
        Mistake(
            "k and v for all heads",
            "It counts k and v for all num_heads heads; they have only num_kv_heads.",
            partial(_count, kv="all heads"),
        ),
        Mistake(
            "one k and v head",
            "It counts one key and one value head; there are num_kv_heads.",
            partial(_count, kv="one head"),
        ),
        Mistake(
            "square W_O",
            "It counts W_O as (d_model, d_model); it is (h·d_head, d_model).",
            partial(_count, o="d_model"),
        ),
        Mistake(
            "no W_O",
            "It leaves out the weights of q_proj or of o_proj; both have as many.",
            partial(_count, o="none"),
        ),
        Mistake(
            "bias of o per input",
            "It gives o_proj one bias for each input, h·d_head; a bias belongs to an output, and there "
            "are d_model.",
            partial(_count, o_bias="h·d_head"),
        ),
        Mistake(
            "bias of o per head",
            "It gives o_proj a bias for each head; it has one, of d_model numbers, for all of them.",
            partial(_count, o_bias="each head"),
        ),
        Mistake(
            "no bias of o",
            "It leaves out the bias of o_proj, d_model numbers.",
            partial(_count, o_bias="none"),
        ),
        Mistake(
            "never biases", "It never counts biases, even where bias is True.", partial(_count, when="never")
        ),
        Mistake(
            "always biases", "It counts biases even where bias is False.", partial(_count, when="always")
        ),
        Mistake(
            "bias of o only",
            "It counts no biases but those of o_proj; q, k and v have theirs, too.",
            lambda d_model, num_heads, num_kv_heads, d_head, bias: (
                attention_params(d_model, num_heads, num_kv_heads, d_head, False) + (d_model if bias else 0)
            ),
        ),
        Mistake(
            "bias of k or v missing",
            "It counts the biases of one of k_proj and v_proj only, though the weights of both.",
            lambda d_model, num_heads, num_kv_heads, d_head, bias: (
                attention_params(d_model, num_heads, num_kv_heads, d_head, bias)
                - (num_kv_heads * d_head if bias else 0)
            ),
        ),
        Mistake(
            "k or v missing",
            "It counts one of k_proj and v_proj, and there are both.",
            partial(_count, v="forgotten"),
        ),
        Mistake(
            "weights of k or v missing",
            "It counts the weights of one of k_proj and v_proj only, though the biases of both.",
            partial(_count, v="weights forgotten"),
        ),
        Mistake(
            "d_head from d_model",
            "It takes d_model / num_heads for the width of a head; d_head is given, and need not be that.",
            partial(_count, width="d_model / h"),
        ),
        Mistake(
            "four biases of d_model",
            "It counts d_model biases for each projection; a bias belongs to an output, and q, k and v "
            "have other widths.",
            partial(_count, kv_bias="d_model"),
        ),
        Mistake(
            "biases of k and v as of q",
            "It counts as many biases for k and v as for q; they have num_kv_heads heads.",
            partial(_count, kv_bias="as q"),
        ),
        Mistake(
            "q and o square",
            "It counts q and o as (d_model, d_model); they lead to and from h·d_head.",
            lambda d_model, num_heads, num_kv_heads, d_head, bias: (
                2 * d_model * d_model
                + 2 * d_model * num_kv_heads * d_head
                + (2 * d_model + 2 * num_kv_heads * d_head if bias else 0)
            ),
        ),
        Mistake(
            "FLOPs",
            "It counts two for every number: those are the FLOPs of a token, not the parameters.",
            lambda d_model, num_heads, num_kv_heads, d_head, bias: (
                2 * attention_params(d_model, num_heads, num_kv_heads, d_head, bias)
            ),
        ),
        Mistake(
            "nothing without bias",
            "Where bias is False it counts nothing at all; the weights are there.",
            lambda d_model, num_heads, num_kv_heads, d_head, bias: (
                attention_params(d_model, num_heads, num_kv_heads, d_head, bias) if bias else 0
            ),
        ),
        Mistake(
            "heads times whole layers",
            "It counts a whole (d_model, d_model) projection for each head; the heads share one of that "
            "size.",
            lambda d_model, num_heads, num_kv_heads, d_head, bias: (
                num_heads * 4 * (d_model * d_model + (d_model if bias else 0))
            ),
        ),
        Mistake(
            "four squares",
            "It counts four (d_model, d_model) projections; q, k and v have widths of their own, and "
            "h·d_head need not be d_model.",
            lambda d_model, num_heads, num_kv_heads, d_head, bias: (
                4 * (d_model * d_model + (d_model if bias else 0))
            ),
        ),
        Mistake(
            "four squares without biases",
            "It counts four (d_model, d_model) matrices and no biases; q, k and v have widths of their own.",
            lambda d_model, num_heads, num_kv_heads, d_head, bias: 4 * d_model * d_model,
        ),
        Mistake(
            "one head",
            "It counts the projections of one head only.",
            lambda d_model, num_heads, num_kv_heads, d_head, bias: (
                4 * d_model * d_head + (3 * d_head + d_model if bias else 0)
            ),
        ),
    ),
    hints=(
        "A projection from a to b numbers has a · b weights and, if it has a bias, b more. Write a and b "
        "for each of the four.",
        "q: d_model → num_heads·d_head. k and v: d_model → num_kv_heads·d_head each. o: num_heads·d_head "
        "→ d_model.",
        "The biases are the outputs, added up: num_heads·d_head + 2·num_kv_heads·d_head + d_model, if "
        "bias is True.",
    ),
    draw=_draw_models,
    right="Grouped heads, a W_O that is not square, biases where they are asked for: all counted. "
    "Llama-3-8B's layer has 41,943,040.",
    reader=a_whole_number,
    stretch=True,
)

EXERCISES = (OUTPUT_BLOCK, CONTRIBUTIONS, ATTENTION_PARAMS, ROTATE_HEADS_WEIGHT)
