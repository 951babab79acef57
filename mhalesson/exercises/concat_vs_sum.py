"""The exercises of 02: the sum of the heads as a matrix, and what the sum cannot see."""

import random
from functools import partial

import torch
from torch import Tensor

from mhalesson.exercises.engine import Case, Exercise, Mistake, distinct, numbers_from

# ---------------------------------------------------------------------------------- sum_as_matrix


def sum_as_matrix(num_heads, d_v):
    identity = torch.eye(d_v)  # (d_v, d_v): hands one report on as it is
    return identity.repeat(num_heads, 1)  # (h·d_v, d_v): once for every head, stacked


def _entry_by_entry(num_heads, d_v):
    S = torch.zeros(num_heads * d_v, d_v)
    for head in range(num_heads):
        for channel in range(d_v):
            S[head * d_v + channel, channel] = 1
    return S


def _draw_sizes(rng: random.Random) -> list[Case]:
    h, d_v = distinct(rng, h=3, d_v=2)
    return [Case(sizes) for sizes in ((h, d_v), (d_v, h), (1, 1), (1, 3), (4, 1), (2, 2))]


SUM_AS_MATRIX = Exercise(
    page="02",
    stub='''
def my_sum_as_matrix(num_heads, d_v):
    """A matrix S (h·d_v, d_v): z_cat @ S is the sum of the heads' reports."""
    ...
''',
    reference=sum_as_matrix,
    others=(
        _entry_by_entry,
        lambda num_heads, d_v: torch.cat([torch.eye(d_v)] * num_heads),
        lambda num_heads, d_v: torch.kron(torch.ones(num_heads, 1), torch.eye(d_v)),
        lambda num_heads, d_v: torch.eye(d_v, dtype=torch.float64).expand(num_heads, d_v, d_v).flatten(0, 1),
        lambda num_heads, d_v: (torch.arange(num_heads * d_v)[:, None] % d_v == torch.arange(d_v)).to(
            torch.float16
        ),
    ),
    mistakes=(
        Mistake(
            "mean",
            "It gives the mean of the reports: every number comes out num_heads times too small.",
            lambda num_heads, d_v: sum_as_matrix(num_heads, d_v) / num_heads,
        ),
        Mistake(
            "transposed",
            "It is the transpose, as nn.Linear stores it; z_cat @ S needs h·d_v rows, one for each "
            "channel of z_cat.",
            lambda num_heads, d_v: sum_as_matrix(num_heads, d_v).T,
        ),
        Mistake(
            "interleaved",
            "It repeats every row in its place, so a result adds up num_heads neighbours of z_cat, not "
            "the same channel of all heads.",
            lambda num_heads, d_v: torch.eye(d_v).repeat_interleave(num_heads, dim=0),
        ),
        Mistake(
            "ones",
            "It is full of ones, so each of the d_v results adds up all channels of all heads.",
            lambda num_heads, d_v: torch.ones(num_heads * d_v, d_v),
        ),
        Mistake(
            "one big identity",
            "It is one identity for all of z_cat: everything stays side by side and nothing is added.",
            lambda num_heads, d_v: torch.eye(num_heads * d_v),
        ),
        Mistake(
            "head 0 only",
            "It hands on head 0 and drops every other head.",
            lambda num_heads, d_v: torch.eye(num_heads * d_v)[:, :d_v],
        ),
        Mistake(
            "sizes swapped",
            "It stacks d_v identities of size num_heads; it should be num_heads identities of size d_v.",
            lambda num_heads, d_v: torch.eye(num_heads).repeat(d_v, 1),
        ),
        Mistake(
            "beside",
            "It lays the identities side by side and below each other, so the result is again h·d_v wide.",
            lambda num_heads, d_v: torch.eye(d_v).repeat(num_heads, num_heads),
        ),
        Mistake(
            "not flattened",
            "The identities stand one behind the other, (h, d_v, d_v); z_cat @ S needs them below each "
            "other.",
            lambda num_heads, d_v: torch.eye(d_v).repeat(num_heads, 1, 1),
        ),
        Mistake(
            "one identity",
            "It is a single identity (d_v, d_v); z_cat is num_heads times as long.",
            lambda num_heads, d_v: torch.eye(d_v),
        ),
        Mistake(
            "two identities",
            "It stacks two identities, whatever num_heads is.",
            lambda num_heads, d_v: torch.eye(d_v).repeat(2, 1),
        ),
        Mistake(
            "two wide",
            "Its identities are always of size 2, as on the page; they should be of size d_v.",
            lambda num_heads, d_v: torch.eye(2).repeat(num_heads, 1),
        ),
        Mistake(
            "one column",
            "It is one column of ones, so all channels end up in a single number.",
            lambda num_heads, d_v: torch.ones(num_heads * d_v, 1),
        ),
    ),
    hints=(
        "Row c of S says where channel c of z_cat goes. Where does channel 0 of head 0 go? Channel 0 of "
        "head 1?",
        "Channel c of *every* head goes to result c. So for each head S holds the same small matrix.",
        "That small matrix is torch.eye(d_v). Put num_heads of them below each other (cat or repeat).",
    ),
    draw=_draw_sizes,
    right="z_cat @ S is the sum: every head's channel c goes to result c, once.",
    shape="(h·d_v, d_v)",
    axes=("row", "column"),
    any_float=True,
)


# --------------------------------------------------------------------------------------- same_sum


def same_sum(z):
    step = z.abs().max() + 1  # as large as the reports, so that nobody can overlook it
    moved = z.clone()
    moved[0] += step
    moved[1] -= step
    return moved


def _random_steps(z):
    steps = torch.randn_like(z) * (z.abs().max() + 1)
    return z + steps - steps.mean(dim=0)


def _all_to_one(z):
    moved = torch.zeros_like(z)
    moved[0] = z.sum(dim=0)
    return moved if (moved - z).abs().max() > 0.1 * z.abs().max() else moved.roll(1, dims=0) + _swing(z)


def _swing(z):
    swing = torch.zeros_like(z)
    swing[0, 0, 0], swing[1, 0, 0] = 2 * z.abs().max() + 1, -2 * z.abs().max() - 1
    return swing


def _stretched(z):
    mean = z.mean(dim=0)
    return mean + torch.linspace(-1, 1, len(z)).view(-1, 1, 1) * (3 * z.abs().max() + 1)


def _fault_of_same_sum(case: Case, inputs: tuple[object, ...], moved: object) -> str:
    (z,) = case.inputs
    assert isinstance(z, Tensor) and isinstance(moved, Tensor)
    if moved.dim() == 0:
        return "It returned a single number, where all reports z′ (h, T, d_v) belong."
    if moved.shape != z.shape:
        return f"z′ has the shape {tuple(moved.shape)}; it should have that of z, {tuple(z.shape)}."
    if moved.dtype != z.dtype:
        dtypes = (str(dtype).removeprefix("torch.") for dtype in (moved.dtype, z.dtype))
        return "z′ is of type (dtype) {}; z is {}.".format(*dtypes)
    if not moved.isfinite().all():
        return "z′ holds NaN or infinity, and such reports have no sum."
    largest, step = z.abs().max().item(), (moved - z).abs().max().item()
    off = (moved.double().sum(dim=0) - z.double().sum(dim=0)).abs()  # (T, d_v)
    changed = off > _tolerance(z, moved)
    if changed.any() and off.max() <= 1e-6 * step * len(z):
        return "Beside its step this z is so small that rounding swallows the reports, and the sum with them."
    if changed.any():
        return f"The sum over the heads has changed, in {int(changed.sum())} of {off.numel()} places."
    if step == 0:
        return "For some z nothing moves: the sum is the same, and so is every report."
    if step < 0.0099 * largest:
        return "The sum is the same, but the reports have moved by less than 1 % of the largest entry."
    return ""


def _tolerance(z: Tensor, moved: Tensor) -> float:
    """What rounding may do to a sum: a thousandth of the largest entry, and what a step of about 1 costs."""
    return 1e-3 * z.abs().max().item() + 2e-6 + (0 if z.any() else 1e-6 * moved.abs().max().item())


def _in_numbers(case: Case, inputs: tuple[object, ...], moved: object) -> str:
    (z,) = case.inputs
    assert isinstance(z, Tensor) and isinstance(moved, Tensor)
    if moved.shape != z.shape:
        return f"it should have the shape {tuple(z.shape)} and has {tuple(moved.shape)}"
    off = (moved.double().sum(dim=0) - z.double().sum(dim=0)).abs()  # (T, d_v)
    if (off > _tolerance(z, moved)).any() or not off.isfinite().all():
        t, c = divmod(int(off.nan_to_num(nan=torch.inf).argmax()), z.shape[2])
        sums = (f"{reports[:, t, c].double().sum().item():.6g}" for reports in (z, moved))
        return "at token {}, channel {} the sum should be {} and is {}".format(t, c, *sums)
    step, largest = (moved - z).abs().max().item(), z.abs().max().item()
    return f"the largest entry is {largest:.6g}, and none has moved by more than {step:.6g}"


def _draw_reports(rng: random.Random) -> list[Case]:
    h, T, d_v = distinct(rng, h=3, T=3, d_v=2)
    generator = numbers_from(rng)

    def reports(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    alike = reports(T, d_v).repeat(h, 1, 1)  # (h, T, d_v)
    alone, silent = torch.zeros(2, h, T, d_v)
    alone[0] = reports(T, d_v)
    silent[1:] = 1000 * reports(h - 1, T, d_v)
    second, last = torch.zeros(2, h, T, d_v)
    spike = torch.zeros(h, 40, 40)
    second[1], last[-1] = reports(T, d_v), reports(T, d_v)
    spike[1, 0, 0] = 1e6
    opposite = 1e6 * torch.tensor([1.0, -1.0]).view(2, 1, 1).repeat(1, 3, 2)
    mixed = 1e6 * reports(h, T, d_v)
    loud = torch.stack([0 * reports(T, d_v), 1e6 * reports(T, d_v).abs()])  # (2, T, d_v)
    faint = -reports(h, T, d_v).abs()
    faint[0] *= 1e4
    notes = {
        "the same from every head": (alike, alike[:, :1, :1].clone(), torch.ones(2, 1, 1)),
        "in the thousands": (1000 * reports(h, T, d_v),),
        "in the millions": (1e6 * reports(h, T, d_v),),
        "in the thousandths": (0.001 * reports(h, T, d_v),),
        "with reports from head 0 alone": (alone,),
        "with head 0 silent": (silent,),
        "with reports from one head alone": (second, last),
        "zero but for one entry": (spike, -spike),
        "the same from every head, in the millions": (1e6 * alike, spike[1].repeat(h, 1, 1)),
        "in the millions, with heads that cancel": (opposite, -opposite, mixed - mixed.mean(dim=0)),
        "with one head far louder than the others": (loud, faint),
        "all zeros": (torch.zeros(h, T, d_v),),
        "one negative number everywhere": (-torch.ones(h, T, d_v), -2 * torch.ones(h, T, d_v)),
        "7 everywhere": (7 * torch.ones(h, T, d_v),),
        "": (reports(2, T, d_v), reports(h, 1, 1)),
    }
    usual = [Case((reports(h, T, d_v),)) for _ in range(2)]
    return usual + [Case((z,), note=note) for note, tensors in notes.items() for z in tensors]


def _move(z, head=0, other=1, back=1.0, step=lambda z: z.abs().max() + 1):
    """Move head `head` by a step and head `other` by −`back` steps."""
    moved = z.clone()
    moved[head] += step(z)
    moved[other] -= back * step(z)
    return moved


def _one_against_all(z):
    step = z.abs().max() + 1
    return torch.cat([z[:1] + step, z[1:] - step])


SAME_SUM = Exercise(
    page="02",
    stub='''
def my_same_sum(z):
    """Other reports z′ for z (h, T, d_v), h ≥ 2, with the same sum over the heads.

    Some entry should move by at least 1 % of the largest entry of z, whatever z is: all
    zeros (then by anything), in the thousands, or with every head saying the same;
    but not by so much that rounding swallows z.
    """
    ...
''',
    reference=same_sum,
    others=(
        _random_steps,
        _all_to_one,
        _stretched,
        lambda z: z + (z.abs().amax() + 1) * torch.tensor([1.0, -1.0] + [0.0] * (len(z) - 2)).view(-1, 1, 1),
        lambda z: _move(z, head=-1, other=0, step=lambda z: 0.5 * z.abs().max() + 0.1),
    ),
    mistakes=(
        Mistake(
            "unchanged",
            "It gives back z as it was: the same sum, but from the same reports.",
            lambda z: z.clone(),
        ),
        Mistake(
            "only one head moves",
            "It moves one head and leaves the others, so the sum moves along; another head has to make up "
            "for it.",
            partial(_move, back=0.0),
        ),
        Mistake(
            "both the same way",
            "Both heads move the same way, so the sum moves twice as far; one step has to undo the other.",
            partial(_move, back=-1.0),
        ),
        Mistake(
            "one against all",
            "It moves one head by a step and every other head back by a whole step: with more than two "
            "heads that is too much.",
            _one_against_all,
        ),
        Mistake(
            "every head the same step",
            "It moves every head by the same step, so the sum moves by h of them.",
            lambda z: z + z.abs().max() + 1,
        ),
        Mistake(
            "heads swapped",
            "It hands the reports round among the heads. Where all heads say the same, nothing has moved.",
            lambda z: z.flip(0),
        ),
        Mistake(
            "heads rolled",
            "It hands every report on to the next head. Where all heads say the same, nothing has moved.",
            lambda z: z.roll(1, dims=0),
        ),
        Mistake(
            "heads rolled back",
            "It hands every report on to the head before. Where all heads say the same, nothing has moved.",
            lambda z: z.roll(-1, dims=0),
        ),
        Mistake(
            "swapped through a view",
            "Both heads end up with what head 1 said: z[0] is a view, overwritten before it was read again.",
            lambda z: torch.cat([z[1:2], z[1:]]),
        ),
        Mistake(
            "largest without sign",
            "Its step is z.max() + 1, which is zero where the largest entry is −1.",
            partial(_move, step=lambda z: z.max() + 1),
        ),
        Mistake(
            "tokens against each other",
            "It moves tokens against each other; the sum runs over the heads, so the sum of each token "
            "moves.",
            lambda z: _move(z.transpose(0, 1)).transpose(0, 1) if z.shape[1] > 1 else z[1:],
        ),
        Mistake(
            "two heads swapped",
            "Two heads change places. Where these two say the same, nothing has moved.",
            lambda z: torch.cat([z[1:2], z[0:1], z[2:]]),
        ),
        Mistake(
            "tokens swapped",
            "It changes the order of the tokens, not of the heads, so the sum of each token is another's.",
            lambda z: z.flip(1),
        ),
        Mistake(
            "tokens rolled",
            "It hands every report on to the next token, so the sum of each token is another's.",
            lambda z: z.roll(1, dims=1),
        ),
        Mistake(
            "channels swapped",
            "It changes the order of the channels, so the sum changes its order, too.",
            lambda z: z.flip(2),
        ),
        Mistake(
            "fixed step",
            "It moves by 1 whatever z is. For large reports that is under 1 % of the largest entry: too "
            "small to see.",
            partial(_move, step=lambda z: 1.0),
        ),
        Mistake(
            "step of head 0's own size",
            "Its step is a multiple of head 0's report. Where that report is zero, nothing moves.",
            partial(_move, step=lambda z: z[0]),
        ),
        Mistake(
            "mean for all",
            "Every head gets the mean of all. The sum stays, but where all heads say the same nothing has "
            "moved.",
            lambda z: z.mean(dim=0, keepdim=True).expand_as(z).clone(),
        ),
        Mistake(
            "all in head 0",
            "Head 0 says it all and the others fall silent. Where they were silent before, nothing has "
            "moved.",
            lambda z: torch.cat([z.sum(dim=0, keepdim=True), torch.zeros_like(z[1:])]),
        ),
        Mistake(
            "the sum itself",
            "It returns the sum, (T, d_v); other reports with that sum are asked for, (h, T, d_v).",
            lambda z: z.sum(dim=0),
        ),
        Mistake(
            "opposite",
            "It turns every report around, and the sum with them.",
            lambda z: -z,
        ),
    ),
    hints=(
        "Two reports, [1, 2] and [3, 4]. Move the first by any step you like. What keeps the sum?",
        "Add a step to head 0 and take the same step from head 1, in a copy of z.",
        "The step must be seen for every z, and not swallow it: 1 vanishes beside 1000, and a multiple "
        "of z[0] may be zero. z.abs().max() + 1 is always of the right size.",
    ),
    draw=_draw_reports,
    right="Other reports, the same sum: the sum has forgotten who said what.",
    shape="(h, T, d_v)",
    axes=("head", "token", "channel"),
    fault=_fault_of_same_sum,
    evidence=_in_numbers,
)

EXERCISES = (SUM_AS_MATRIX, SAME_SUM)
