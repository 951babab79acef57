"""Answers wrong in ways nobody catalogued: none is accepted, none leads to a traceback or to a third line."""

import pytest
import torch
from mutated_answers import different, mutants

from mhalesson.exercises import EXERCISES
from mhalesson.exercises.engine import Exercise, judge

NUMBER = 300
of_each_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))
pytestmark = [pytest.mark.variant, pytest.mark.usefixtures("as_a_learner_calls")]


@of_each_exercise
def test_no_random_edit_is_accepted_and_wrong(exercise: Exercise, capfd):
    answers = list(mutants(exercise, NUMBER, seed=0))
    assert len({source for source, _ in answers}) == NUMBER
    verdicts = [judge(exercise, function) for _, function in answers]
    for (_, function), verdict in zip(answers[:30], verdicts, strict=False):
        again = judge(exercise, function)
        if "was stopped after" not in verdict.says + again.says:  # that depends on the machine
            assert again == verdict
    assert capfd.readouterr() == ("", "")

    told = [(source, str(verdict)) for (source, _), verdict in zip(answers, verdicts, strict=True)]
    too_much = [(source, says) for source, says in told if says.count("\n") > 1 or "Traceback" in says]
    assert not too_much
    holes = [
        (where, source)
        for (source, function), verdict in zip(answers, verdicts, strict=True)
        if verdict.mark == "✓" and (where := different(exercise, function))
    ]
    assert not holes


@of_each_exercise
def test_right_answers_are_right_on_the_whole_domain(exercise: Exercise):
    for answer in (exercise.reference, *exercise.others):
        assert different(exercise, answer) == ""


def right_unless(wrong):
    """A way to merge heads that is right on every input that the check draws, and on others is not."""

    def my_merge_heads(z):
        return wrong(z) if len(z) == 8 else z.transpose(1, 2).flatten(2)

    return my_merge_heads


@pytest.mark.parametrize(
    "wrong",
    [
        lambda z: z.flip(1).transpose(1, 2).flatten(2),
        lambda z: z.transpose(1, 2).flatten(2).double(),
        lambda z: z.zero_().transpose(1, 2).flatten(2),
        lambda z: z.add_(1).transpose(1, 2).flatten(2) - 1,
        lambda z: None,
        lambda z: 1 / 0,
    ],
    ids=["moved", "of another type", "zeros", "input changed", "nothing", "an error"],
)
def test_what_the_check_cannot_see_the_domain_shows(wrong):
    exercise = EXERCISES["merge_heads"]
    assert judge(exercise, right_unless(wrong)).mark == "✓"
    assert "z (8, " in different(exercise, right_unless(wrong))


def test_a_loop_over_heads_is_different_too():
    exercise = EXERCISES["batch_the_loop"]

    def head_by_head(q, k, v):
        heads = zip(q.unbind(1), k.unbind(1), v.unbind(1), strict=True)
        return torch.stack([exercise.reference(*head) for head in heads], dim=1)

    assert "loop over heads" in different(exercise, head_by_head)
