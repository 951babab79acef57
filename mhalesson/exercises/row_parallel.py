"""The exercise of 06: W_O cut into shards, each with the channels it needs."""

import random
from functools import partial

import torch
from torch import Tensor

from mhalesson.exercises.engine import Case, Exercise, Mistake, distinct


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


def _sharded(z_shards, w_shards, bias, bias_added="once", joined="sum", none_is=0.0):
    """The steps one by one: when the bias is added, and what becomes of the machines' products."""
    parts = [z @ w for z, w in zip(z_shards, w_shards, strict=True)]
    n, b = len(parts), none_is if bias is None else bias
    y = {
        "sum": lambda: sum(parts),
        "mean": lambda: sum(parts) / n,
        "first": lambda: parts[0],
        "last": lambda: parts[-1],
        "cat": lambda: torch.cat(parts, dim=-1),
        "stack": lambda: torch.stack(parts),
    }[joined]()
    if joined == "cat" and bias_added in ("once", "each") and isinstance(b, Tensor):
        return y + b.repeat(n)
    return y + {"once": 1, "each": n, "never": 0, "share": 1 / n}[bias_added] * b


def _draw_shards(rng: random.Random) -> list[Case]:
    B, T, d_model, a, b, c = distinct(rng, B=2, T=2, d_model=2, a=1, b=1, c=1)
    generator = torch.Generator().manual_seed(rng.randrange(2**31))

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
    """y (B, T, d_model) when each machine holds a few channels of z_cat and the rows of W_O that meet them.

    z_shards: a list of tensors (B, T, c_i). w_shards: as many tensors (c_i, d_model). The widths c_i may
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
        Mistake(
            "bias None",
            "Without a bias (None) it stops with an error: nothing can be added to None.",
            lambda z_shards, w_shards, bias: (
                sum(z @ w for z, w in zip(z_shards, w_shards, strict=True)) + bias
            ),
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
            "It adds up the shards before it multiplies; each has rows of W_O of its own.",
            lambda z_shards, w_shards, bias: sum(z_shards) @ sum(w_shards) + (0 if bias is None else bias),
        ),
    ),
    hints=(
        "y = z_cat W_O is a sum over the channels of z_cat. Each machine has some of the channels.",
        "Each machine multiplies what it has: (B, T, c_i) @ (c_i, d_model). How do these become one y?",
        "Add the products up. Then, after the sum, add the bias once, unless it is None.",
    ),
    draw=_draw_shards,
    right="The products of all machines, added up, and the bias once: the sum over blocks again.",
    shape="(B, T, d_model)",
    axes=("batch", "token", "output"),
)

EXERCISES = (ROW_PARALLEL,)
