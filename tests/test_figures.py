"""A picture says in its caption what it shows, whatever it is given; its PNG is the same every time."""

import re
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mhalesson import load_trained_heads, merge_heads, reach, record_journey, split_heads
from mhalesson.figures import (
    blocks_and_bars,
    journey_strips,
    memory_strip,
    rank_correlations,
    ratio_against_tokens,
    reach_diagram,
    reach_map,
    size_and_damage,
    training_ablation,
    two_pairs_one_sum,
)
from mhalesson.text import grid, index_codes, journey_table, number, vector, words
from mhalesson.trained_heads import load_training_ablation

W_O = torch.tensor([[0.5, 0.1, 0.0, 0.0], [0.0, 0.5, 0.1, 0.0], [0.1, 0.0, 0.5, 0.0], [0.0, 0.0, 0.1, 0.5]])
Z = torch.tensor([[1.0, 2.0], [3.0, 4.0]])  # (h, d_v)
CONTRIBUTIONS = torch.einsum("hv,hvm->hm", Z, W_O.view(2, 2, 4))  # (h, d_model)
CODES = torch.arange(12.0).view(1, 3, 4)  # (B, T, h·d): index codes t, h, c
HEADS = torch.arange(12.0).view(1, 2, 3, 2)  # (B, h, T, d): index codes h, t, c
NAMES = index_codes(h=2, t=3, c=2)


def strips_of(fn, z=HEADS, names=NAMES):
    return journey_strips(record_journey(fn, z), z, names)


PICTURES = {
    "reach_diagram": lambda: reach_diagram({"concat": torch.eye(3)}, ["head"], ["slice"]),
    "reach_map": lambda: reach_map(torch.tensor([[4.0, 2.0], [1.0, 3.0]]), "a layer"),
    "two_pairs_one_sum": lambda: two_pairs_one_sum(Z, Z.flip(0)),
    "training_ablation": lambda: training_ablation(load_training_ablation()),
    "blocks_and_bars": lambda: blocks_and_bars(W_O, CONTRIBUTIONS),
    "size_and_damage": lambda: size_and_damage(torch.tensor([3.0, 1.0]), torch.tensor([0.1, 0.2]), 4, (0,)),
    "rank_correlations": lambda: rank_correlations([-0.5, 0.25], [0.75, 1.0]),
    "memory_strip": lambda: memory_strip({"a view": CODES[0]}, index_codes(t=3, h=2, c=2)),
    "journey_strips": lambda: strips_of(merge_heads),
    "ratio_against_tokens": lambda: ratio_against_tokens(
        [1, 8], {"loop / batched": [12.0, 2.0], "fused / batched": [0.5, 0.25]}, "it"
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_picture_every_time(name):
    first, second = PICTURES[name](), PICTURES[name]()
    assert first == second
    width, height = struct.unpack(">II", first.png[16:24])
    assert 600 <= width <= 1000 and 100 <= height <= 500
    assert first.caption.endswith(".") and "nan" not in first.caption


def test_a_picture_shows_itself_and_then_its_caption(monkeypatch):
    shown = []
    monkeypatch.setattr("mhalesson.figures.display", lambda data, raw: shown.append(data))
    picture = PICTURES["reach_map"]()
    picture._ipython_display_()
    assert [sorted(data) for data in shown] == [["image/png", "text/plain"], ["text/markdown", "text/plain"]]
    assert shown[1]["text/plain"] == picture.caption


def caption(name):
    return PICTURES[name]().caption


def test_captions_hold_the_numbers():
    assert "each head reaches 1 of 3" in caption("reach_diagram")
    assert "4 of the 4 pairs" in caption("reach_map") and "weakest has 0.25" in caption("reach_map")
    assert "Mean on the diagonal 0.88, over all pairs 0.62" in caption("reach_map")
    assert "[4, 6], pair B to [4, 6]: the sums are 0 apart, the concats 4" in caption("two_pairs_one_sum")
    assert "y = [0.8, 1.1, 2.1, 2]" in caption("blocks_and_bars")
    assert "hear every head: 0 and 2" in caption("blocks_and_bars")
    assert "head 0 is number 1 of 2 by norm and number 2 by damage" in caption("size_and_damage")
    assert "block norm -0.50, 0.25; contribution 0.75, 1.00" in caption("rank_correlations")
    assert "reads head 0 of token 0 and head 1 of token 0" in caption("memory_strip")
    assert "the strides are now (12, 2, 6, 1)" in caption("journey_strips")
    assert "loop / batched is 12.0 at T = 1 and 2.0 at T = 8" in caption("ratio_against_tokens")
    for variant in load_training_ablation()["variants"]:
        assert f"{variant['name']} {variant['mean']:.2f}" in caption("training_ablation")


def test_captions_follow_their_input():
    """What the pages never draw: pairs with different sums, heads that share no channel, ties."""
    apart = two_pairs_one_sum(Z, torch.zeros(2, 2)).caption
    assert "pair B to [0, 0]" in apart and f"the sums are {number(52**0.5)} apart" in apart
    assert "hear every head: none" in blocks_and_bars(torch.eye(4), Z.new_ones(2, 4)).caption
    tied = size_and_damage(torch.ones(3), torch.ones(3), 0, (1,)).caption
    assert "head 1 is number 1 of 3 by norm and number 1 by damage" in tied
    wrong = memory_strip({"x": CODES.view(2, 6)}, index_codes(t=3, h=2, c=2), row="head").caption
    assert "row of head 0 reads head 0 of token 0, head 1 of token 0 and head 0 of token 1" in wrong


def test_journey_strips_tell_moves_of_boxes_from_moves_of_memory():
    swapped = HEADS.transpose(1, 2)
    in_memory = [NAMES[int(v)] for v in swapped.contiguous().flatten()]
    right = strips_of(merge_heads).caption
    assert f"Input: strides {HEADS.stride()}, shape (1, 2, 3, 2)" in right
    assert f"; the strip begins {words(NAMES[:4])}." in right
    moved = f"the strides are now {swapped.stride()}; the boxes now go token by token"
    assert f"transpose: the strip stays, {moved}." in right
    written = f"12 cells are written anew, token by token: the strip now begins {words(in_memory[:4])}"
    assert f"clone: {written}; the boxes stay." in right
    assert f"re-cut to (1, 3, 4): the first row reads {words(in_memory[:4])}." in right
    wrong = strips_of(lambda z: z.reshape(1, 3, 4)).caption
    assert f"re-cut to (1, 3, 4): the first row reads {words(NAMES[:4])}." in wrong and "anew" not in wrong
    split = strips_of(lambda x: split_heads(x, 2), CODES, index_codes(t=3, h=2, c=2)).caption
    assert split.count("the strip stays") == 2 and split.endswith("the boxes now go head by head.")
    mixed = strips_of(lambda z: z.flatten().flip(0)).caption
    assert "12 cells are written anew, in mixed order: the strip now begins h1t2c1, h1t2c0" in mixed


@pytest.mark.parametrize(
    "fn, z, message",
    [
        (merge_heads, torch.arange(80.0).view(1, 2, 20, 2), "z has a memory of over 64 cells"),
        (merge_heads, torch.ones(1, 2, 3, 2), "z holds other values"),
        (lambda z: z.transpose(1, 2) * 2, HEADS, r"step 2 of journey \(mul\) holds other values"),
        (lambda z: (z.clone(), z.view(12)), HEADS, r"step 2 of journey \(view\) starts elsewhere"),
        (lambda z: z.clone().copy_(z), HEADS, r"step 2 of journey \(copy\) starts elsewhere"),
        (lambda z: z * 1, HEADS, r"step 1 of journey \(mul\) starts elsewhere"),
    ],
)
def test_journey_strips_draw_only_moves_of_index_codes(fn, z, message):
    with pytest.raises(ValueError, match=message):
        strips_of(fn, z)


def test_journey_strips_have_room_for_twelve_cells():
    with pytest.raises(ValueError, match="names lists 16 cells; there is room to draw up to 12"):
        strips_of(merge_heads, torch.arange(16.0).view(1, 2, 4, 2), index_codes(h=2, t=4, c=2))


def test_the_trained_maps_say_what_reach_says():
    layer = load_trained_heads().layers[0]
    found = reach(lambda z: z.flatten() @ layer.W_O, layer.z[0, :, 0], num_blocks=12)
    weakest = (found.min() / found.max()).item()
    assert f"the weakest has {weakest:.2f} of the reach" in reach_map(found, "layer 0").caption


# ---------------------------------------------------------------- text


@given(st.floats(-1e4, 1e4))
def test_a_number_is_within_half_a_hundredth_and_never_minus_zero(value):
    text = number(value)
    assert abs(float(text) - value) <= 0.005 + 1e-9 + 1e-2 * (abs(value) >= 1e4 / 10)
    assert text != "-0" and re.fullmatch(r"-?\d+(\.\d{1,2})?", text)


def test_words_and_vectors():
    assert [words([1]), words([1, 2]), words([1, 2, 3])] == ["1", "1 and 2", "1, 2 and 3"]
    assert vector(torch.tensor([0.5, -0.001, 2.0])) == "[0.5, 0, 2]"


def test_a_grid_prints_each_value_under_its_label():
    names = index_codes(t=3, h=2, c=2)
    lines = grid(split_heads(CODES, 2)[0, 1], names=names).splitlines()
    assert lines[0].split() == ["channel", "0", "channel", "1"]
    assert [line.split()[2:] for line in lines[1:]] == [[f"h1t{t}c0", f"h1t{t}c1"] for t in range(3)]
    assert len(set(map(len, lines))) == 1
    assert grid(torch.tensor([-0.001, 1.0]), columns="y").split() == ["y", "0", "y", "1", "0.00", "1.00"]
    assert grid(torch.tensor([[7]]), rows=["seven"], columns="n").splitlines()[1].split() == ["seven", "7"]


def table_of(journey, expanded=False):
    """The cells of each row, without its number, and the last line."""
    header, *rows, last = journey_table(journey, expanded).splitlines()
    return [re.split(r"\s{2,}", row)[1:] for row in rows], last


def test_a_journey_table_tells_what_each_line_of_code_did_to_memory():
    def merge_and_project(z, weight):  # (1, 2, 3, 2), (4, 4)
        merged = z.transpose(1, 2).reshape(1, 3, 4)
        y = torch.nn.functional.linear(merged, weight)
        return y.mul_(2.0)

    journey = record_journey(merge_and_project, torch.ones(1, 2, 3, 2), torch.ones(4, 4))
    rows, last = table_of(journey)
    assert rows == [
        ["z.transpose(1, 2)", "transpose", "(1, 3, 2, 2)", "(12, 2, 6, 1)", "as memory from outside"],
        ["…1, 2).reshape(1, 3, 4)", "clone (1, 3, 2, 2)", "(1, 3, 4)", "(12, 4, 1)", "copy, 48 B"],
        ["…linear(merged, weight)", "mm (3, 4)", "(1, 3, 4)", "(12, 4, 1)", "new, 48 B"],
        ["y.mul_(2.0)", "mul", "(1, 3, 4)", "(12, 4, 1)", "48 B, into row 3"],
    ]
    hidden = len(journey.steps) - 4
    assert last == f"views not shown: {hidden}; bytes written: 144, by copies: 48"
    inside, _ = table_of(record_journey(lambda x: x.add_(1.0), torch.ones(2)))
    assert [row[-1] for row in inside] == ["8 B, into memory from outside"]
    assert len(table_of(journey, expanded=True)[0]) == len(journey.steps)
    assert table_of(journey, expanded=True)[1] == "bytes written: 144, by copies: 48"


def test_a_journey_table_looks_into_no_kernel():
    q = torch.ones(1, 2, 3, 4)
    rows, _ = table_of(record_journey(torch.nn.functional.scaled_dot_product_attention, q, q, q))
    assert [row[-1].rsplit(", ", 1)[0] for row in rows] == ["new, inside unseen"]
