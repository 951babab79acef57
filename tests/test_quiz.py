"""The quiz: its keys computed a second way, its wrong answers, and what it prints."""

import re

import pytest
import torch

from mhalesson import recorded_runs
from mhalesson.exercises import quiz
from mhalesson.exercises.quiz import LETTERS, QUESTIONS, RIGHT, score

pytestmark = pytest.mark.usefixtures("as_a_learner_calls")

ASKED = {when: [make() for make in questions] for when, questions in QUESTIONS.items()}
each_time = pytest.mark.parametrize("when", ASKED)


def right_text(when, n):
    question = ASKED[when][n]
    return question.answers[LETTERS.index(question.key)][1]


def numbers(text):
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?", text)]


# ------------------------------------------------------------------ the keys, from the questions' own text


@each_time
def test_key_of_the_nudged_channel(when):
    """One matrix product over all channels: no entry of q_proj.weight is zero, so every head is reached."""
    d_model, h, channel, _ = map(int, numbers(ASKED[when][0].text))
    torch.manual_seed(1)
    q = torch.nn.Linear(d_model, d_model).weight[:, channel].view(h, -1)
    assert bool((q.abs() > 0).any(dim=1).all()) and right_text(when, 0).startswith(f"all {h} heads'")


@each_time
def test_key_of_the_pair_with_the_same_sum(when):
    a0, a1, b0, b1, s0, s1 = numbers(ASKED[when][1].text)
    assert (a0 + b0, a1 + b1) == (s0, s1)
    same = []
    for letter, (_, text) in zip(LETTERS, ASKED[when][1].answers, strict=True):
        found = numbers(text)
        if len(found) == 4 and (found[0] + found[2], found[1] + found[3]) == (s0, s1):
            same.append(letter)
    assert same == [ASKED[when][1].key]


@each_time
def test_key_of_the_silent_head(when):
    *reports, w00, w01, w10, w11, y0, y1, silent, zero = numbers(ASKED[when][2].text)
    rows = [(w00, w01), (w10, w11)]
    assert [sum(r * row[j] for r, row in zip(reports, rows, strict=True)) for j in (0, 1)] == [y0, y1]
    left = [0 if i == silent else r for i, r in enumerate(reports)]
    assert zero == 0
    assert numbers(right_text(when, 2)) == [
        sum(r * row[j] for r, row in zip(left, rows, strict=True)) for j in (0, 1)
    ]


@each_time
def test_key_of_the_columns_of_weight(when):
    """Only one head's report reaches the output through these columns."""
    width, out, h, d_v, start, stop = map(int, numbers(ASKED[when][3].text))
    weight = torch.zeros(out, width)
    weight[:, start:stop] = 1
    z = torch.eye(h).repeat_interleave(d_v, dim=1)  # row i: head i speaks alone
    heads = (z @ weight.T).abs().sum(dim=1).nonzero().flatten().tolist()
    assert len(heads) == 1
    assert right_text(when, 3) == f"head {heads[0]}'s rows of W_O, transposed"


@each_time
def test_key_of_the_bias(when):
    h = int(numbers(ASKED[when][4].text)[0])
    torch.manual_seed(0)
    o_proj, z = torch.nn.Linear(2 * h, 3), torch.randn(h, 2)
    apart = sum(z[i] @ o_proj.weight[:, 2 * i : 2 * i + 2].T for i in range(h))
    assert (
        torch.allclose(o_proj(z.flatten()) - apart, o_proj.bias, atol=1e-5)
        and right_text(when, 4) == "b: it belongs to the layer"
    )


@each_time
def test_key_of_the_bad_merge(when):
    _, h, T, d_v, _, T_again, width, row = map(int, numbers(ASKED[when][5].text))
    assert (T_again, width) == (T, h * d_v)
    cells = range(row * width, (row + 1) * width)  # of the memory, head after head, token after token
    read = sorted({(cell // (T * d_v), cell // d_v % T) for cell in cells})
    heads = {head for head, _ in read}
    assert len(heads) == 1
    tokens = " and ".join(str(token) for _, token in read)
    assert right_text(when, 5) == f"tokens {tokens} of head {heads.pop()}"


@each_time
def test_key_of_the_view(when):
    """By strides: head and channel join into one axis if one of them is alone, or the steps fit."""
    fits = []
    for letter, (_, text) in zip(LETTERS, ASKED[when][6].answers, strict=True):
        if shape := re.match(r"\((\d+), (\d+), (\d+), (\d+)\)", text):
            _, h, T, d_v = map(int, shape.groups())
            if h == 1 or d_v == 1 or T * d_v == d_v:
                fits.append(letter)
    assert fits == [ASKED[when][6].key]


@each_time
def test_key_of_the_clock(when):
    h, one, T = (int(n) for n in numbers(ASKED[when][7].text.replace(",", "")))
    points = {(p["T"], p["h"]): p for p in recorded_runs()["cpu"]["points"] if p["direction"] == "forward"}
    ratios = [points[t, h]["seconds"]["loop"][1] / points[t, h]["seconds"]["batched"][1] for t in (one, T)]
    assert ratios[0] > 1.5 and ratios[1] < 1.1
    assert right_text(when, 7).startswith("for 1 token the loop takes much longer")


# --------------------------------------------------------------------------------------- the questions


def test_the_same_eight_questions_with_other_numbers():
    assert [len(questions) for questions in ASKED.values()] == [8, 8]
    for before, after in zip(*ASKED.values(), strict=True):
        assert {code for code, _ in before.answers} == {code for code, _ in after.answers}
        assert (before.text, before.answers) != (after.text, after.answers) and before.page == after.page
        assert [code for code, _ in before.answers] != [code for code, _ in after.answers]


@each_time
def test_every_wrong_answer_stands_for_one_misconception_that_is_spoken_to(when):
    for question in ASKED[when]:
        codes = [code for code, _ in question.answers]
        assert len(codes) == len(LETTERS) and len(set(codes)) == len(codes)
        assert set(codes) == {RIGHT, *question.speaks_to}
        assert len({text for _, text in question.answers}) == len(codes)


def test_letters_tell_nothing():
    keys = {when: "".join(question.key for question in ASKED[when]) for when in ASKED}
    assert all(set(key) == set(LETTERS) for key in keys.values())
    assert sum(a == b for a, b in zip(*keys.values(), strict=True)) <= 3


# ------------------------------------------------------------------------------------ what is printed


def printed(capsys, *arguments, **keywords):
    assert quiz(*arguments, **keywords) is None
    out, err = capsys.readouterr()
    assert err == "" and all(len(line) <= 88 for line in out.split("\n") if not line.startswith("✗ answers"))
    return out


KEYS = {when: "".join(question.key for question in ASKED[when]) for when in ASKED}


@each_time
def test_unanswered(when, capsys):
    out = printed(capsys, when, "--------")
    assert len(re.findall(r"^○ \d  ", out, re.M)) == 8
    later = "; once all are marked, each is explained" if when == "after" else ""
    assert f"○ not answered yet: 1, 2, 3, 4, 5, 6, 7 and 8{later}\n" in out
    assert "✓" not in out and "Right:" not in out
    assert out.endswith(f"Your code: quiz {when} --------\n")


def test_before_the_course_nothing_says_what_is_right(capsys):
    """Two answers differ only in the letters that were given."""
    given = re.compile(r"Your (answer|code): .*")
    outs = {given.sub("", printed(capsys, "before", marks)) for marks in (KEYS["before"], "A" * 8, "?" * 8)}
    assert len(outs) == 1
    assert "✓" not in outs.pop()


def test_after_the_course_every_answer_is_explained(capsys):
    out = printed(capsys, "after", KEYS["after"], before="?" * 8)
    assert len(re.findall(r"^✓ \d  ", out, re.M)) == 8 and "✗" not in out
    assert "Before → after: right 0 → 8 of 8, unsure 8 → 0\n" in out
    assert out.endswith(f"Your code: quiz after {KEYS['after']}, before ????????\n")
    unwrapped = " ".join(out.split())
    for question in ASKED["after"]:
        assert " ".join(question.because.replace("\xa0", " ").split()) in unwrapped


def test_a_wrong_answer_is_spoken_to(capsys):
    for letter in LETTERS:
        unwrapped = " ".join(printed(capsys, "after", letter * 8).split())
        for question in ASKED["after"]:
            if letter != question.key:
                assert question.speaks_to[question.code_of(letter)] in unwrapped
        assert f"Right: {KEYS['after'].count(letter)} of 8." in unwrapped


def test_after_the_course_nothing_is_explained_before_all_is_answered(capsys):
    out = printed(capsys, "after", KEYS["after"][:7] + "-")
    assert "✓" not in out and "; right: " not in out and "(Page" not in out
    out = printed(capsys, "after", "?" * 8)
    assert out.startswith("? 1  ") and out.count("Your answer: unsure; right: ") == 8


def test_the_code_can_be_pasted(capsys):
    code = printed(capsys, "before", "ABCD?--A").split("\n")[-2]
    for pasted in (code, code.removeprefix("Your code: "), "A, B, C, D, ?, -, -, A"):
        out = printed(capsys, "after", KEYS["after"], before=pasted)
        assert "Before → after: right" in out and "(2 not answered before)" in out
    after = printed(capsys, "after", KEYS["after"], before="ABCD?--A").split("\n")[-2]
    assert f"quiz after {KEYS['after']}, before ABCD?--A" in after
    assert printed(capsys, "after", after) == printed(capsys, "after", KEYS["after"])


def test_small_letters_and_spaces_are_fine(capsys):
    marks = KEYS["before"]
    loose = f" {marks[:4].lower()} {marks[4:]} "
    assert printed(capsys, "before", loose) == printed(capsys, "before", marks)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (("befor", "--------"), '✗ when=\'befor\' should be "before" or "after"'),
        (
            ("before", "ABC"),
            '✗ answers="ABC" has 3 marks; the quiz takes 8, each of them A, B, C',
        ),
        (("before", "ABCDEFGH"), "✗ answers=\"ABCDEFGH\" has 'E', 'F', 'G' and 'H'; the quiz takes 8"),
        (("after", None), "✗ answers is of type NoneType and should be a string; the quiz takes 8"),
        (("after", "--------", "AB"), '✗ before="AB" has 2 marks; the quiz takes 8'),
        (("after", "--------", 7), "✗ before is of type int and should be a string; the quiz takes 8"),
        (([], "--------"), '✗ when=[] should be "before" or "after"'),
    ],
    ids=str,
)
def test_a_wrong_call_gets_one_sentence(call, says, capsys):
    quiz(*call)
    out = capsys.readouterr().out
    assert out.startswith(says) and out.count("\n") == 1


def test_the_score_counts_keys():
    assert score("before", KEYS["before"]) == 8 and score("before", "????????") == 0
    assert score("before", KEYS["after"]) < 8


def test_the_learners_random_numbers_stay(capsys):
    torch.manual_seed(3)
    state = torch.get_rng_state()
    quiz("before", "--------")
    assert torch.equal(torch.get_rng_state(), state)
