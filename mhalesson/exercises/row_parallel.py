"""The exercise of 06: W_O cut into shards, each with the channels it needs."""

import random
from functools import partial

import torch

from mhalesson.exercises.engine import Case, Exercise, Mistake, distinct, numbers_from


def row_parallel(z_shards, w_shards, bias):
    partial_sums = [z @ w for z, w in zip(z_shards, w_shards, strict=True)]  # each (B, T, d_model)
    y = sum(partial_sums)  # the all-reduce: a sum over the machines
    return y if bias is None else y + bias  # once, after the sum


def _whole_again(z_shards, w_shards, bias):
    y = torch.cat(z_shards, dim=-1) @ torch.cat(w_shards, dim=0)
    return y + bias if bias is not None else y


def _step_by_step(z_shards, w_shards, bias):
    y = torch.zeros(*z_shards[0].shape[:2], w_shards[0].shape[1])
    for z, w in zip(z_shards, w_shards, strict=True):
        y += torch.einsum("btc,cd->btd", z, w)
    if bias is not None:
        y += bias
    return y


def _sharded(z_shards, w_shards, bias, bias_added="once", joined="sum", without_bias="handled"):
    """The steps one by one: when the bias is added, and what becomes of the machines' products."""
    parts = [z @ w for z, w in zip(z_shards, w_shards, strict=True)]
    n = len(parts)
    y = {
        "sum": lambda: sum(parts),
        "mean": lambda: sum(parts) / n,
        "first": lambda: parts[0],
        "last": lambda: parts[-1],
        "all but the first": lambda: sum(parts[1:]),
        "all but the last": lambda: sum(parts[:-1]),
        "two": lambda: sum(parts[:2]),
        "cat": lambda: torch.cat(parts, dim=-1),
        "stack": lambda: torch.stack(parts),
    }[joined]()
    if bias is None:
        return y if without_bias == "handled" else None
    return y + {"once": 1, "each": n, "twice": 2, "never": 0, "away": -1, "share": 1 / n}[bias_added] * bias


def _draw_shards(rng: random.Random) -> list[Case]:
    B, T, d_model, a, b, c = distinct(rng, B=2, T=2, d_model=2, a=1, b=1, c=1)
    generator = numbers_from(rng)

    def case(B: int, T: int, d_model: int, widths: tuple[int, ...], with_bias: bool = True) -> Case:
        z = [torch.randn(B, T, width, generator=generator) for width in widths]
        w = [torch.randn(width, d_model, generator=generator) for width in widths]
        return Case((z, w, torch.randn(d_model, generator=generator) + 1 if with_bias else None))

    widths = (a, b, c)
    return [
        case(B, T, d_model, widths),
        case(B, T, d_model, widths),
        case(B, T, d_model, widths, with_bias=False),
        case(B, T, d_model, (b, a)),
        case(1, T, d_model, (c,)),
        case(B, 1, d_model, (a, a, a, b)),
        case(B, T, 1, widths),
        case(B, T, 4, (4, 4, 4), with_bias=False),  # square: a transposed shard would fit
    ]


ROW_PARALLEL = Exercise(
    page="06",
    stub='''
def my_row_parallel(z_shards, w_shards, bias):
    """y (B, T, d_model), where each machine holds a part of z_cat and of W_O.

    z_shards: a list of tensors (B, T, c_i), some channels of z_cat each. w_shards: as
    many tensors (c_i, d_model), the rows of W_O that meet them. The widths c_i may
    differ. bias is (d_model,) or None.
    """
    ...
''',
    reference=row_parallel,
    others=(
        _whole_again,
        _step_by_step,
        lambda z_shards, w_shards, bias: (
            torch.stack([z @ w for z, w in zip(z_shards, w_shards, strict=True)]).sum(dim=0)
            + (0 if bias is None else bias)
        ),
    ),
    mistakes=(
        Mistake(
            "bias on each machine",
            "Every machine adds the bias before the sum, so it counts as many times as there are machines.",
            partial(_sharded, bias_added="each"),
        ),
        Mistake("bias forgotten", "The bias is left out.", partial(_sharded, bias_added="never")),
        Mistake(
            "bias divided",
            "It adds one share of the bias; after the sum the whole bias is due, once.",
            partial(_sharded, bias_added="share"),
        ),
        Mistake("bias twice", "The bias counts twice.", partial(_sharded, bias_added="twice")),
        Mistake(
            "bias taken away", "The bias is taken away, not added.", partial(_sharded, bias_added="away")
        ),
        Mistake(
            "first machine missing",
            "The product of the first machine is missing.",
            partial(_sharded, joined="all but the first"),
        ),
        Mistake(
            "last machine missing",
            "The product of the last machine is missing.",
            partial(_sharded, joined="all but the last"),
        ),
        Mistake(
            "two machines",
            "It uses the first two machines, however many there are.",
            partial(_sharded, joined="two"),
        ),
        Mistake(
            "bias None",
            "Where bias is None, it comes to no result.",
            partial(_sharded, without_bias="forgotten"),
        ),
        Mistake(
            "mean",
            "It takes the mean of the machines' products; y is their sum.",
            partial(_sharded, joined="mean"),
        ),
        Mistake(
            "side by side",
            "It lays the machines' products side by side. Each is already d_model wide, a part of every "
            "output channel: they are added.",
            partial(_sharded, joined="cat"),
        ),
        Mistake(
            "stacked",
            "It stacks the machines' products without adding them up.",
            partial(_sharded, joined="stack"),
        ),
        Mistake(
            "first machine only",
            "It returns what the first machine has, without the others.",
            partial(_sharded, joined="first"),
        ),
        Mistake(
            "last machine only",
            "It returns what the last machine has, without the others.",
            partial(_sharded, joined="last"),
        ),
        Mistake(
            "w transposed",
            "It multiplies with the transposed shards, as nn.Linear stores them; these are rows of W_O as "
            "in the maths. Where they are not square, that is an error.",
            lambda z_shards, w_shards, bias: (
                sum(z @ w.T for z, w in zip(z_shards, w_shards, strict=True)) + (0 if bias is None else bias)
            ),
        ),
        Mistake(
            "shards in reverse",
            "It meets the channels of one machine with the rows of another, in reverse order.",
            lambda z_shards, w_shards, bias: _sharded(z_shards, w_shards[::-1], bias),
        ),
        Mistake(
            "summed first",
            "Every machine's channels meet every machine's rows; each part of z_cat has its own rows of W_O.",
            lambda z_shards, w_shards, bias: sum(z_shards) @ sum(w_shards) + (0 if bias is None else bias),
        ),
    ),
    hints=(
        "y = z_cat W_O is a sum over the channels of z_cat. Each machine has some of the channels.",
        "Each machine multiplies what it has: (B, T, c_i) @ (c_i, d_model). How do these become one y?",
        "Add up z @ w for z, w in zip(z_shards, w_shards). Then, after the sum, add the bias once, if "
        "bias is not None.",
    ),
    draw=_draw_shards,
    right="All machines' products together, and the bias once: the sum over blocks again.",
    shape="(B, T, d_model)",
    axes=("batch", "token", "output"),
)

EXERCISES = (ROW_PARALLEL,)
