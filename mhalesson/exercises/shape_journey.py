"""The exercises of 04: the shapes on the way, the split, the merge, and a repair."""

import random
from functools import partial

import torch
import torch.nn.functional as F

from mhalesson.exercises.engine import (
    Case,
    Exercise,
    Mistake,
    coded,
    distinct,
    numbers_from,
    strided,
    twin_of,
)
from mhalesson.exercises.forms import shapes

# --------------------------------------------------------------------------------- journey_shapes


def journey_shapes(B, T, d_model, num_heads):
    d = d_model // num_heads
    return [
        (B, T, d_model),  # x
        (B, T, d_model),  # q, before it is split
        (B, num_heads, T, d),  # q, split into heads
        (B, num_heads, T, T),  # scores
        (B, num_heads, T, d),  # z, what the heads found
        (B, T, d_model),  # merged, z_cat
        (B, T, d_model),  # y
    ]


def _measured(B, T, d_model, num_heads):
    x = torch.empty(B, T, d_model, device="meta")
    q = F.linear(x, torch.empty(d_model, d_model, device="meta"))
    split = q.unflatten(2, (num_heads, -1)).transpose(1, 2)
    scores = split @ split.transpose(2, 3)
    context = scores @ split
    merged = context.transpose(1, 2).flatten(2)
    return [tensor.shape for tensor in (x, q, split, scores, context, merged, merged)]


def _lists(B, T, d_model, num_heads):
    stream, heads = [B, T, d_model], [B, num_heads, T, d_model // num_heads]
    return [stream, stream, heads, [B, num_heads, T, T], heads, stream, stream]


def _shapes(
    B, T, d_model, num_heads, q="BTD", split="BhTd", scores="BhTT", context="BhTd", merged="BTD", y="BTD"
):
    """The seven shapes, each spelled by the letters of its axes: D is d_model, d the width of a head."""
    sizes = {"B": B, "T": T, "D": d_model, "h": num_heads, "d": d_model // num_heads}
    return [
        tuple(sizes[letter] for letter in shape) for shape in ("BTD", q, split, scores, context, merged, y)
    ]


def _draw_journeys(rng: random.Random) -> list[Case]:
    B, T, h, d = distinct(rng, B=2, T=2, h=3, d=2)
    sizes = [
        (B, T, h * d, h),
        (T, B, h * d, h),
        (1, T, 3 * d, 3),
        (B, 1, h * d, h),
        (B, T, d, 1),
        (B, T, h, h),
    ]
    return [Case(s) for s in [*sizes, (8, 1024, 768, 12)]]


JOURNEY_SHAPES = Exercise(
    page="04",
    stub='''
def my_journey_shapes(B, T, d_model, num_heads):
    """The shapes of seven tensors on the way, as a list of seven tuples:

    x, q as projected, q split into heads, the scores, z (what the heads found), the
    merged z_cat, and y. Here h·d_k = h·d_v = d_model.
    """
    ...
''',
    reference=journey_shapes,
    others=(
        _measured,
        _lists,
        lambda B, T, d_model, num_heads: (
            (B, T, d_model),
            (B, T, d_model),
            (B, num_heads, T, d_model // num_heads),
            (B, num_heads, T, T),
            (B, num_heads, T, d_model // num_heads),
            (B, T, num_heads * (d_model // num_heads)),
            (B, T, d_model),
        ),
    ),
    mistakes=(
        Mistake(
            "split not transposed",
            "The split q is (B, T, h, d_k): cut, but heads and tokens have not changed places, so no head "
            "has a sequence of its own.",
            partial(_shapes, split="BThd"),
        ),
        Mistake(
            "split not cut",
            "In the split q every head has all d_model channels; each has its share, d_model / h.",
            partial(_shapes, split="BhTD"),
        ),
        Mistake(
            "split sizes swapped",
            "In the split q the number of heads and their width have changed roles.",
            partial(_shapes, split="BdTh"),
        ),
        Mistake(
            "q already split",
            "q as projected is already cut into heads; the projection gives h·d_k numbers side by side.",
            partial(_shapes, q="BhTd"),
        ),
        Mistake(
            "q of one head",
            "q as projected is as wide as one head; one projection makes the numbers for all heads.",
            partial(_shapes, q="BTd"),
        ),
        Mistake(
            "scores per channel",
            "The scores are (B, h, d_k, d_k): channel against channel. Each token asks each token, (T, T).",
            partial(_shapes, scores="Bhdd"),
        ),
        Mistake(
            "scores without heads",
            "The scores are (B, T, T), one table for all heads; each head has its own.",
            partial(_shapes, scores="BTT"),
        ),
        Mistake(
            "scores not multiplied",
            "The scores still have q's shape; after q kᵀ the channels are summed up and a second T stands "
            "there.",
            partial(_shapes, scores="BhTd"),
        ),
        Mistake(
            "scores head by head",
            "The scores are (B, T, h, h), head against head: that comes of a product before heads and tokens "
            "changed places.",
            partial(_shapes, scores="BThh"),
        ),
        Mistake(
            "context of scores",
            "z still has the shape of the scores; weights times v brings the channels back.",
            partial(_shapes, context="BhTT"),
        ),
        Mistake(
            "context transposed",
            "z is (B, T, h, d_v): tokens come before heads only when the merge begins.",
            partial(_shapes, context="BThd"),
        ),
        Mistake(
            "context already merged",
            "z is already merged; it comes out head by head, (B, h, T, d_v).",
            partial(_shapes, context="BTD"),
        ),
        Mistake(
            "merged not joined",
            "The merged tensor still has four axes; its heads lie side by side in one axis, h·d_v wide.",
            partial(_shapes, merged="BThd"),
        ),
        Mistake(
            "merged not merged",
            "The merged tensor is still (B, h, T, d_v), as the heads left it.",
            partial(_shapes, merged="BhTd"),
        ),
        Mistake(
            "merged by adding",
            "The merged tensor is as wide as one head, as if the heads had been added up; they lie side "
            "by side.",
            partial(_shapes, merged="BTd"),
        ),
        Mistake(
            "heads never moved",
            "Tokens stand before heads in all three 4D shapes; then the heads of a token are compared, "
            "(h, h), and not the tokens.",
            partial(_shapes, split="BThd", scores="BThh", context="BThd"),
        ),
        Mistake(
            "heads as wide as the stream",
            "Every head has all d_model channels; each has its share, d_model / h.",
            partial(_shapes, split="BhTD", context="BhTD"),
        ),
        Mistake(
            "h and d swapped",
            "The number of heads and their width have changed roles throughout.",
            partial(_shapes, split="BdTh", scores="BdTT", context="BdTh"),
        ),
        Mistake(
            "heads first",
            "The heads stand before the batch throughout: (h, B, T, …).",
            partial(_shapes, split="hBTd", scores="hBTT", context="hBTd"),
        ),
        Mistake(
            "always the stream",
            "All seven are (B, T, d_model); in between, heads and scores have four axes.",
            partial(_shapes, split="BTD", scores="BTD", context="BTD"),
        ),
        Mistake(
            "y of one head",
            "y is as wide as one head; it goes back to a stream of d_model.",
            partial(_shapes, y="BTd"),
        ),
        Mistake(
            "y in heads",
            "y still has its heads apart; W_O has mixed them into one stream.",
            partial(_shapes, y="BhTd"),
        ),
    ),
    hints=(
        "Four of the seven have three axes, and these are all equal. Which ones?",
        "A head needs its own sequence, so heads stand before tokens in three of them: (B, h, T, …). What "
        "is left of d_model for each head?",
        "scores = q kᵀ: (B, h, T, d_k) times (B, h, d_k, T). Weights times v: (B, h, T, T) times (B, h, "
        "T, d_v).",
    ),
    draw=_draw_journeys,
    right="Seven shapes: out of the stream, into heads, and back.",
    reader=shapes,
    axes=("x", "q as projected", "q split into heads", "the scores", "z", "the merged z_cat", "y"),
)


# ------------------------------------------------------------------------------------ split_heads


def split_heads(x, num_heads):
    B, T, width = x.shape
    x = x.view(B, T, num_heads, width // num_heads)  # (B, T, h, d_k): which head, and which channel of it
    return x.transpose(1, 2)  # (B, h, T, d_k): every head gets its own sequence


def _head_after_head(x, num_heads):
    d = x.shape[2] // num_heads
    return torch.stack([x[:, :, i * d : (i + 1) * d] for i in range(num_heads)], dim=1)


def _filled(x, num_heads):
    B, T, width = x.shape
    d = width // num_heads
    heads = torch.empty(B, num_heads, T, d)
    for i in range(num_heads):
        for t in range(T):
            heads[:, i, t] = x[:, t, i * d : i * d + d]
    return heads


def _draw_streams(rng: random.Random) -> list[Case]:
    B, T, h, d = distinct(rng, B=2, T=2, h=3, d=2)

    def case(B: int, T: int, h: int, d: int) -> Case:
        x, names = coded(b=B, t=T, h=h, c=d)
        return Case((x.flatten(2), h), names)

    first = case(B, T, h, d)
    sizes = (
        (1, T, h, d),
        (B, 1, h, d),
        (B, T, 1, d),
        (B, T, h, 1),
        (B, h, h, d),
        (B, 2 * h, h, d),
        (B, d, h, d),
    )
    return [first, twin_of(first), *(case(*s) for s in sizes)]


SPLIT_HEADS = Exercise(
    page="04",
    stub='''
def my_split_heads(x, num_heads):
    """Cut every token's channels into heads: x (B, T, h·d_k) → (B, h, T, d_k)."""
    ...
''',
    reference=split_heads,
    others=(
        _head_after_head,
        _filled,
        lambda x, num_heads: torch.stack(x.chunk(num_heads, dim=-1)).transpose(0, 1),
        lambda x, num_heads: torch.einsum("bthd->bhtd", x.unflatten(2, (num_heads, -1))),
        lambda x, num_heads: (
            x.reshape(x.shape[0], x.shape[1], num_heads, -1).permute(0, 2, 1, 3).contiguous()
        ),
        lambda x, num_heads: x.transpose(1, 2).unflatten(1, (num_heads, -1)).transpose(2, 3),
    ),
    mistakes=(
        Mistake(
            "view at once",
            "It lays (B, h, T, d_k) over memory that is ordered token by token. Right shape, wrong "
            "tensor: a head gets stretches of the text with all heads in them.",
            lambda x, num_heads: x.reshape(x.shape[0], num_heads, x.shape[1], -1),
        ),
        Mistake(
            "not transposed",
            "It cuts the channels, but leaves (B, T, h, d_k): heads and tokens have not changed places.",
            lambda x, num_heads: x.unflatten(2, (num_heads, -1)),
        ),
        Mistake(
            "dealt like cards",
            "It deals the channels out to the heads like cards; those of a head are neighbours, d_k in a "
            "row.",
            lambda x, num_heads: x.unflatten(2, (-1, num_heads)).permute(0, 3, 1, 2),
        ),
        Mistake(
            "sizes swapped",
            "It makes d_k heads of width h: the two halves of the channel axis have changed roles.",
            lambda x, num_heads: x.unflatten(2, (-1, num_heads)).transpose(1, 2),
        ),
        Mistake(
            "channels before tokens",
            "It ends in (B, h, d_k, T), as kᵀ has it: tokens and channels have changed places as well.",
            lambda x, num_heads: x.unflatten(2, (num_heads, -1)).permute(0, 2, 3, 1),
        ),
        Mistake(
            "wrong axes swapped",
            "It swaps heads with channels, not heads with tokens: (B, T, d_k, h).",
            lambda x, num_heads: x.unflatten(2, (num_heads, -1)).transpose(2, 3),
        ),
        Mistake(
            "tokens and channels swapped",
            "It swaps tokens with channels, not tokens with heads: (B, d_k, h, T).",
            lambda x, num_heads: x.unflatten(2, (num_heads, -1)).transpose(1, 3),
        ),
        Mistake(
            "heads first",
            "The heads stand before the batch: (h, B, T, d_k).",
            lambda x, num_heads: torch.stack(x.chunk(num_heads, dim=-1)),
        ),
        Mistake(
            "batch and heads joined",
            "Batch and heads are joined in one axis, (B·h, T, d_k); four axes are asked for.",
            lambda x, num_heads: x.unflatten(2, (num_heads, -1)).transpose(1, 2).flatten(0, 1),
        ),
        Mistake(
            "a list",
            "It returns the heads one by one, as chunk does; one tensor with an axis for the heads is "
            "asked for.",
            lambda x, num_heads: x.chunk(num_heads, dim=-1),
        ),
        Mistake(
            "heads in reverse",
            "The heads come in reverse order: the last one first.",
            lambda x, num_heads: split_heads(x, num_heads).flip(1),
        ),
        Mistake(
            "channel i",
            "Head i starts at channel i, not at channel i·d_k, so neighbouring heads share channels.",
            lambda x, num_heads: torch.stack(
                [x[:, :, i : i + x.shape[2] // num_heads] for i in range(num_heads)], dim=1
            ),
        ),
        Mistake(
            "view, then transposed",
            "It lays (B, h, T, d_k) over the memory and swaps after that: (B, T, h, d_k), of scrambled "
            "tokens.",
            lambda x, num_heads: x.reshape(x.shape[0], num_heads, x.shape[1], -1).transpose(1, 2),
        ),
        Mistake(
            "transposed twice over",
            "It swaps the axes and then lays the shape over what is there in reading order: both "
            "scramble what belongs together.",
            lambda x, num_heads: x.transpose(1, 2).reshape(x.shape[0], num_heads, x.shape[1], -1),
        ),
    ),
    hints=(
        "Two steps. First cut the last axis, h·d_k, in two, without touching the tokens. What shape is that?",
        "x.view(B, T, num_heads, d_k) cuts the last axis in two: which head, and which channel of it.",
        "Every head needs its own sequence: let axis 1 (tokens) and axis 2 (heads) change places.",
    ),
    draw=_draw_streams,
    right="Head i of token t holds channels i·d_k to (i+1)·d_k of token t, and nothing else.",
    shape="(B, h, T, d_k)",
    axes=("batch", "head", "token", "channel"),
)


# ------------------------------------------------------------------------------------ merge_heads


def merge_heads(z):
    B, h, T, d_v = z.shape
    z = z.transpose(1, 2)  # (B, T, h, d_v): the reports about one token become neighbours
    return z.reshape(B, T, h * d_v)  # (B, T, h·d_v)


def _into_slots(z):
    B, h, T, d = z.shape
    z_cat = torch.zeros(B, T, h * d)
    for i in range(h):
        z_cat[:, :, i * d : (i + 1) * d] = z[:, i]
    return z_cat


def _draw_reports(rng: random.Random) -> list[Case]:
    B, h, T, d = distinct(rng, B=2, h=3, T=2, d=2)

    def case(B: int, h: int, T: int, d: int) -> Case:
        z, names = coded(b=B, h=h, t=T, c=d)
        return Case((z,), names)

    first = case(B, h, T, d)
    sizes = ((1, h, T, d), (B, h, 1, d), (B, 1, T, d), (B, h, T, 1), (B, h, h, d), (1, 3, 3, 3))
    z, names = coded(b=B, h=h, t=T, c=d)
    fused = Case((strided(z, 0, 2, 1, 3),), names, "not contiguous, as the fused kernel returns it")
    return [first, twin_of(first), *(case(*s) for s in sizes), fused]


MERGE_HEADS = Exercise(
    page="04",
    stub='''
def my_merge_heads(z):
    """Lay the reports about a token side by side: z (B, h, T, d_v) → (B, T, h·d_v).

    z need not be contiguous.
    """
    ...
''',
    reference=merge_heads,
    others=(
        _into_slots,
        lambda z: z.transpose(1, 2).contiguous().view(z.shape[0], z.shape[2], -1),
        lambda z: torch.cat(list(z.unbind(dim=1)), dim=-1),
        lambda z: z.permute(0, 2, 1, 3).flatten(2),
        lambda z: torch.einsum("bhtd->bthd", z).flatten(start_dim=2),
        lambda z: torch.stack(
            [torch.cat([z[:, i, t] for i in range(z.shape[1])], -1) for t in range(z.shape[2])], 1
        ),
    ),
    mistakes=(
        Mistake(
            "not transposed",
            "It joins what lies next to each other in reading order, and these are tokens of one head. "
            "Right shape, wrong tensor: token 0 gets reports about later tokens.",
            lambda z: z.reshape(z.shape[0], z.shape[2], -1),
        ),
        Mistake(
            "view, not transposed",
            "It lays (B, T, h·d_v) over the memory as it is, where one head's tokens are neighbours: "
            "token 0 gets reports about later tokens, unless `view` refuses.",
            lambda z: z.view(z.shape[0], z.shape[2], -1),
        ),
        Mistake(
            "view after transpose",
            "Transposing is right, but `view` raises an error then: the numbers of one row no longer lie "
            "in one piece of memory.",
            lambda z: z.transpose(1, 2).view(z.shape[0], z.shape[2], -1),
        ),
        Mistake(
            "dealt like cards",
            "It interleaves the heads: channel 0 of every head, then channel 1 of every head. Head i "
            "should keep its d_v neighbours.",
            lambda z: z.permute(0, 2, 3, 1).flatten(2),
        ),
        Mistake(
            "wrong axes swapped",
            "It swaps tokens with channels, not heads with tokens, so the numbers come channel by channel, "
            "each over all tokens.",
            lambda z: z.transpose(2, 3).reshape(z.shape[0], z.shape[2], -1),
        ),
        Mistake(
            "heads and channels swapped",
            "It swaps heads with channels, not heads with tokens, and then joins in reading order.",
            lambda z: z.transpose(1, 3).reshape(z.shape[0], z.shape[2], -1),
        ),
        Mistake(
            "added up",
            "It adds the heads up: (B, T, d_v), and who said what is gone.",
            lambda z: z.sum(dim=1),
        ),
        Mistake(
            "mean",
            "It takes the mean of the heads: (B, T, d_v), and who said what is gone.",
            lambda z: z.mean(dim=1),
        ),
        Mistake(
            "not joined",
            "Heads and tokens have changed places, but the heads are not joined: (B, T, h, d_v).",
            lambda z: z.transpose(1, 2),
        ),
        Mistake(
            "one after the other",
            "It lays the heads one after the other along the tokens, (B, h·T, d_v), not side by side.",
            lambda z: z.flatten(1, 2),
        ),
        Mistake(
            "joined with the batch",
            "It joins batch and heads, (B·h, T, d_v), not heads and channels.",
            lambda z: z.flatten(0, 1),
        ),
        Mistake(
            "heads in reverse",
            "Side by side, but in reverse order: the last head comes first.",
            lambda z: z.flip(1).transpose(1, 2).flatten(2),
        ),
        Mistake("head 0 only", "It keeps head 0 and drops the others.", lambda z: z[:, 0]),
        Mistake(
            "h for T",
            "Its second axis has the size of h, the number of heads; it should be T, axis 2 of z.",
            lambda z: z.transpose(1, 2).reshape(z.shape[0], z.shape[1], -1),
        ),
        Mistake("head 0 missing", "Head 0 is missing.", lambda z: merge_heads(z[:, 1:])),
        Mistake("last head missing", "The last head is missing.", lambda z: merge_heads(z[:, :-1])),
        Mistake(
            "tokens joined with channels",
            "It joins tokens and channels, (B, h, T·d_v): every head stays apart, its tokens in one row.",
            lambda z: z.flatten(2),
        ),
        Mistake(
            "token before batch",
            "Side by side, but with tokens before the batch: (T, B, h·d_v).",
            lambda z: z.permute(2, 0, 1, 3).flatten(2),
        ),
    ),
    hints=(
        "In the row of one token all its heads should stand. In z (B, h, T, d_v), what stands between "
        "head 0 and head 1 of one token?",
        "Let heads and tokens change places first, (B, T, h, d_v): then the heads of a token are neighbours.",
        "z.transpose(1, 2), then join the last two axes. `view` refuses there; `reshape` or `flatten(2)` "
        "copy.",
    ),
    draw=_draw_reports,
    right="Every report lies beside the other reports about its token, in the order of the heads.",
    shape="(B, T, h·d_v)",
    axes=("batch", "token", "channel"),
)


# ----------------------------------------------------------------------------------------- repair

STUB_OF_REPAIR = '''
def my_repair(q, k, v, num_heads):
    """Cross-attention without a mask: the queries come from another text.

    q (B, T_q, h·d_k), k (B, T_k, h·d_k), v (B, T_k, h·d_v) → (B, T_q, h·d_v).
    The shapes are right, no error is raised, and one line is wrong. Repair it.
    """
    # each (B, h, T, d)
    q, k, v = (torch.stack(a.chunk(num_heads, dim=-1), dim=1) for a in (q, k, v))
    scores = torch.einsum("bhqc,bhkc->bhqk", q, k)  # (B, h, T_q, T_k)
    weights = (scores / q.shape[-1] ** 0.5).softmax(dim=-1)
    z = torch.einsum("bhqk,bhkc->bhqc", weights, v)  # (B, h, T_q, d_v)
    return z.permute(0, 2, 3, 1).flatten(2)  # (B, T_q, h·d_v)
'''


def repair(q, k, v, num_heads):
    # each (B, h, T, d)
    q, k, v = (torch.stack(a.chunk(num_heads, dim=-1), dim=1) for a in (q, k, v))
    scores = torch.einsum("bhqc,bhkc->bhqk", q, k)  # (B, h, T_q, T_k)
    weights = (scores / q.shape[-1] ** 0.5).softmax(dim=-1)
    z = torch.einsum("bhqk,bhkc->bhqc", weights, v)  # (B, h, T_q, d_v)
    # heads before channels, so that each head keeps its d_v neighbours
    return z.permute(0, 2, 1, 3).flatten(2)  # (B, T_q, h·d_v)


def _by_torch(q, k, v, num_heads):
    q, k, v = (split_heads(a, num_heads) for a in (q, k, v))
    return merge_heads(F.scaled_dot_product_attention(q, k, v))


def _one_head_at_a_time(q, k, v, num_heads):
    z = []
    for q_i, k_i, v_i in zip(*(a.chunk(num_heads, dim=-1) for a in (q, k, v)), strict=True):
        weights = (q_i @ k_i.mT / q_i.shape[-1] ** 0.5).softmax(-1)
        z.append(weights @ v_i)
    return torch.cat(z, dim=-1)


def _cross(
    q,
    k,
    v,
    num_heads,
    merge="bqhc",
    split="heads",
    softmax=-1,
    scale=lambda q, v, h: q.shape[-1] ** 0.5,
    mask=False,
):
    """The steps one by one: how the heads are cut and joined, over which axis softmax runs, what divides."""
    B, T_q, T_k = q.shape[0], q.shape[1], k.shape[1]
    if split == "heads":
        q, k, v = (split_heads(a, num_heads) for a in (q, k, v))
    elif split == "view at once":
        q, k, v = (a.reshape(B, num_heads, a.shape[1], -1) for a in (q, k, v))
    else:
        q, k, v = (a.unflatten(2, (-1, num_heads)).permute(0, 3, 1, 2) for a in (q, k, v))
    scores = q @ k.transpose(2, 3) / scale(q, v, num_heads)
    if mask:
        scores = scores.masked_fill(torch.ones(T_q, T_k, dtype=torch.bool).triu(1), -torch.inf)
    z = (scores if softmax is None else scores.softmax(dim=softmax)) @ v
    if merge == "reshape":
        return z.reshape(B, T_q, -1)
    return torch.einsum(f"bhqc->{merge}", z).flatten(2)


def _draw_crossings(rng: random.Random) -> list[Case]:
    B, h, T_q, T_k, d_k, d_v = distinct(rng, B=2, h=3, T_q=2, T_k=2, d_k=2, d_v=2)
    generator = numbers_from(rng)

    def case(B: int, h: int, T_q: int, T_k: int, d_k: int, d_v: int) -> Case:
        sizes = ((B, T_q, h * d_k), (B, T_k, h * d_k), (B, T_k, h * d_v))
        return Case((*(torch.randn(s, generator=generator) for s in sizes), h))

    sizes = [(B, h, T_q, T_k, d_k, d_v)] * 2 + [(1, h, T_q, T_k, d_k, d_v), (3, h, 1, T_k, d_k, d_v)]
    sizes += [
        (2, h, T_q, 1, d_k, d_v),
        (2, 1, T_q, T_k, d_k, d_v),
        (2, h, T_q, T_k, 1, 1),
        (2, h, 4, 4, 2, 2),
    ]
    return [case(*s) for s in sizes]


REPAIR = Exercise(
    page="04",
    stub=STUB_OF_REPAIR,
    reference=repair,
    others=(
        _by_torch,
        _one_head_at_a_time,
        lambda q, k, v, num_heads: _cross(q, k, v, num_heads),
    ),
    mistakes=(
        Mistake(
            "not repaired",
            "The planted bug is still there: every shape is right, and channels of a token lie in the "
            "wrong place.",
            partial(_cross, merge="bqch"),
        ),
        Mistake(
            "merged by reshape",
            "It now joins in reading order without swapping heads and tokens, so a token gets reports "
            "about other tokens.",
            partial(_cross, merge="reshape"),
        ),
        Mistake(
            "heads before tokens",
            "It joins tokens with channels: (B, h, T_q·d_v).",
            partial(_cross, merge="bhqc"),
        ),
        Mistake(
            "split by view",
            "The cut into heads is changed, and it was right: now a head gets stretches of the text with "
            "all heads in them.",
            partial(_cross, split="view at once"),
        ),
        Mistake(
            "split like cards",
            "The cut into heads is changed, and it was right: now channels are dealt out like cards.",
            partial(_cross, split="cards"),
        ),
        Mistake(
            "no softmax",
            "There is no softmax any more: scores are no shares, and need not add up to 1.",
            partial(_cross, softmax=None),
        ),
        Mistake(
            "times the root",
            "The scores are multiplied by √d_k now; they are to be divided by it.",
            partial(_cross, scale=lambda q, v, h: q.shape[-1] ** -0.5),
        ),
        Mistake(
            "softmax over queries",
            "Softmax now runs over the queries, so that what one key gives to all queries adds up to 1. "
            "What one query takes from all keys should.",
            partial(_cross, softmax=-2),
        ),
        Mistake(
            "softmax over heads",
            "Softmax now runs over the heads, which makes them compete; each head has weights that sum to 1.",
            partial(_cross, softmax=1),
        ),
        Mistake(
            "scaled by d_v",
            "The scores are divided by √d_v; they are sums of d_k products, so it is √d_k.",
            partial(_cross, scale=lambda q, v, h: v.shape[-1] ** 0.5),
        ),
        Mistake(
            "scaled by all heads",
            "The scores are divided by √(h·d_k), the width of all heads; each is a sum of d_k products.",
            partial(_cross, scale=lambda q, v, h: (h * q.shape[-1]) ** 0.5),
        ),
        Mistake(
            "not scaled",
            "The scores are no longer divided by √d_k.",
            partial(_cross, scale=lambda q, v, h: 1.0),
        ),
        Mistake(
            "scaled by d_k",
            "The scores are divided by d_k, without the root.",
            partial(_cross, scale=lambda q, v, h: q.shape[-1]),
        ),
        Mistake(
            "masked",
            "It has a causal mask now; without a mask every query sees every key.",
            partial(_cross, mask=True),
        ),
    ),
    hints=(
        "All shapes fit, so ask of every line *what* it puts where. Which lines only move numbers?",
        "Two lines only move numbers: the first and the last. Send torch.arange(12.0).view(1, 2, 6) "
        "through the first, .view(1, 2, 3, 2) through the last, and look where each number lands.",
        "In the last line, z (B, h, T_q, d_v) becomes (B, T_q, d_v, h) before it is flattened. Which of "
        "the last two axes runs fastest then, and which should?",
    ),
    draw=_draw_crossings,
    right="Repaired: head i fills channels i·d_v to (i+1)·d_v. No mask test could have seen it, since no "
    "token was mixed with another.",
    shape="(B, T_q, h·d_v)",
    axes=("batch", "token", "channel"),
    stretch=True,
)

EXERCISES = (MERGE_HEADS, JOURNEY_SHAPES, SPLIT_HEADS, REPAIR)
