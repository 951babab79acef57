"""The exercises: right answers pass, every mistake is refused and can be told from every other.

`make exhaustive` draws the inputs a thousand times instead of twenty.
"""

import functools
import random
import re

import pytest
import torch
import torch.nn.functional as F
from make_mistakes import TABLE, table
from torch import Tensor

import mhalesson
from mhalesson.exercises import EXERCISES, engine
from mhalesson.exercises.engine import cases_of, is_right, judge, outcome, together, ways_to_be_wrong

pytestmark = pytest.mark.usefixtures("as_a_learner_calls")

EVERY = list(EXERCISES.values())
each_exercise = pytest.mark.parametrize("exercise", EVERY, ids=EXERCISES)
each_draw = pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 1000), marks=pytest.mark.exhaustive)], ids=["20", "980 more"]
)
FROZEN = """head_slice heads_reaching sum_as_matrix same_sum output_block contributions attention_params
rotate_heads_weight journey_shapes split_heads merge_heads repair batch_the_loop fair_timer row_parallel"""


# --------------------------------------------------------------------------------------- the catalogue


def test_the_names_are_those_that_notebooks_rely_on():
    assert set(EXERCISES) == set(FROZEN.split())


@each_exercise
@each_draw
def test_no_right_answer_is_refused(exercise, seeds):
    for seed in seeds:
        for answer in (exercise.reference, *exercise.others):
            verdict = judge(exercise, answer, seed)
            assert str(verdict) == f"✓ {exercise.right}", f"seed {seed}: {verdict}"


@each_exercise
@each_draw
def test_no_mistake_is_accepted_and_each_can_be_told_from_all_others(exercise, seeds):
    for seed in seeds:
        cases = cases_of(exercise, seed)
        made = {m.name: [outcome(exercise, m.wrong, case) for case in cases] for m in exercise.mistakes}
        for name, outcomes in made.items():
            assert not all(map(functools.partial(is_right, exercise), cases, outcomes)), (
                f"seed {seed}, {name}"
            )
            alike = [other for other in made if engine.explains(made[other], outcomes)]
            assert alike == [name], f"seed {seed}"


@each_exercise
def test_every_mistake_is_named_by_its_own_sentence(exercise):
    for seed in range(3):
        for mistake in exercise.mistakes:
            verdict = judge(exercise, mistake.wrong, seed)
            assert (verdict.mark, verdict.says) == ("✗", mistake.says), f"seed {seed}, {mistake.name}"


@each_exercise
def test_two_mistakes_at_once_are_named_as_two_or_as_one_that_hides_the_other(exercise):
    """And never accepted. Where a pair looks like one mistake, or like another pair, it cannot be decided."""
    ways = [*ways_to_be_wrong(exercise, 1), *ways_to_be_wrong(exercise, 2)]
    cases = cases_of(exercise, 0)
    made = {mistakes: [outcome(exercise, wrong, case) for case in cases] for mistakes, wrong in ways}
    pairs = [mistakes for mistakes in made if len(mistakes) == 2]
    decided = 0
    for pair in random.Random(0).sample(pairs, min(len(pairs), 60)):
        verdict = judge(exercise, together(*pair))
        assert verdict.mark == "✗"
        alike = [other for other in made if engine.explains(made[other], made[pair])]
        if alike == [pair]:
            decided += 1
            assert verdict.says == f"Two things. {pair[0].says} {pair[1].says}"
        else:
            assert set(verdict.mistakes) != {mistake.name for mistake in pair}
    assert decided >= min(len(pairs), 4)


@each_exercise
def test_the_catalogue_is_readable(exercise):
    names, sentences = zip(*((m.name, m.says) for m in exercise.mistakes), strict=True)
    assert len(names) >= 5
    assert len(set(names)) == len(names) and len(set(sentences)) == len(sentences)
    for text in (*sentences, exercise.right, *exercise.hints):
        assert text.rstrip(")")[-1] in ".?", text
        assert len(text) < 200, text
        assert not re.search(r"\b(simply|just|easy|obviously)\b", text), text
    assert 2 <= len(exercise.hints) <= 3
    assert len(exercise.others) >= 3


def test_at_most_three_exercises_of_a_page_are_required():
    for page in {exercise.page for exercise in EVERY}:
        required = [e.id for e in EVERY if e.page == page and not e.stretch]
        assert len(required) <= 3, required


@pytest.mark.parametrize("exercise", [e for e in EVERY if e.id != "fair_timer"], ids=lambda e: e.id)
def test_inputs_are_of_unequal_sizes_and_never_the_same_twice(exercise):
    """The first input: no axis can be taken for another, and at least three heads."""
    sizes = set()
    for seed in range(20):
        first = cases_of(exercise, seed)[0].inputs
        shapes = [tuple(value.shape) for value in first if isinstance(value, Tensor)]
        sizes.add(str(shapes or [value for value in first if isinstance(value, int)]))
        for shape in shapes:
            assert len(set(shape)) == len(shape) and (len(shape) < 3 or 1 not in shape)
        if "num_heads" in exercise.parameters and exercise.id != "attention_params":
            assert first[exercise.parameters.index("num_heads")] >= 3
    assert len(sizes) > 1


# ------------------------------------------------------------- the references against other people's code


def attention(q, k, v, causal=False):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def all_parameters(d_model, num_heads, num_kv_heads, d_head, bias):
    sizes = dict(num_kv_heads=num_kv_heads, d_head=d_head, bias=bias)
    return mhalesson.attention_ledger(d_model, num_heads, **sizes).parameters


def cross_attention(q, k, v, num_heads):
    heads = (mhalesson.split_heads(a, num_heads) for a in (q, k, v))
    return mhalesson.merge_heads(attention(*heads))


def recorded_shapes(B, T, d_model, num_heads):
    x = torch.randn(B, T, d_model)
    mha = mhalesson.MultiHeadAttention(d_model, num_heads, causal=False)
    q, z, scores = mha.q_proj(x), mha.heads(x), mha.weights(x)
    made = [x, q, mhalesson.split_heads(q, num_heads), scores, z, mhalesson.merge_heads(z), mha(x)]
    return [tuple(tensor.shape) for tensor in made]


def reached(w_o, j, num_heads):
    z = torch.ones(num_heads, w_o.shape[0] // num_heads)
    strength = mhalesson.reach(lambda z: z.flatten() @ w_o[:, [j]], z, num_blocks=1)
    return strength.flatten().nonzero().flatten().tolist()


def channels_that_move(i, d_v):
    z = torch.zeros(1, i + 2, 1, d_v)
    z[0, i] = 1
    moved = mhalesson.merge_heads(z).flatten().nonzero().flatten().tolist()
    return slice(moved[0], moved[-1] + 1)


def whole_layer(z_shards, w_shards, bias):
    return F.linear(torch.cat(z_shards, -1), torch.cat(w_shards).T, bias)


ORACLES = {
    "head_slice": channels_that_move,
    "heads_reaching": reached,
    "sum_as_matrix": mhalesson.stacked_identity,
    "output_block": lambda weight, i, num_heads: mhalesson.output_blocks(weight, num_heads)[i],
    "contributions": mhalesson.head_contributions,
    "attention_params": all_parameters,
    "rotate_heads_weight": lambda h, d_v: torch.stack(
        [c.view(h, d_v).roll(1, dims=0).flatten() for c in torch.eye(h * d_v)]
    ),
    "journey_shapes": recorded_shapes,
    "split_heads": mhalesson.split_heads,
    "merge_heads": mhalesson.merge_heads,
    "repair": cross_attention,
    "batch_the_loop": lambda q, k, v: attention(q, k, v, causal=True),
    "row_parallel": whole_layer,
}


@pytest.mark.parametrize("name", ORACLES)
def test_the_reference_is_right(name):
    """Judged as an answer: what the package, or torch, computes for the same question."""
    exercise = EXERCISES[name]

    def answer(*inputs):
        return ORACLES[name](*inputs)

    for seed in range(5):
        for case in cases_of(exercise, seed):
            if name != "journey_shapes" or case.inputs[0] * case.inputs[1] < 1000:
                made = outcome(exercise, answer, case)
                assert is_right(exercise, case, made), (seed, case.inputs, made.problem)


def test_the_table_for_contributors_is_up_to_date():
    assert TABLE.read_text(encoding="utf-8") == table(), "run make mistakes"
