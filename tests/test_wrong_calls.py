"""Every wrong call gets one sentence, the right one, and leaves everything as it was."""

import copy

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from mhalesson import (
    GPT2_SMALL,
    MultiHeadAttention,
    attention_ledger,
    head_contributions,
    merge_heads,
    output_blocks,
    reach,
    split_heads,
    stacked_identity,
)

NAN, INF = float("nan"), float("inf")

# One module for all calls: d_model 8, 2 heads of width 4, float32.
torch.manual_seed(0)
MHA = MultiHeadAttention(d_model=8, num_heads=2)
X = torch.ones(2, 5, 8)
MASK = torch.ones(2, 5, dtype=torch.bool)
Z = torch.ones(2, 3)
META = torch.device("meta")


def assign(name):
    MHA.implementation = name


COUNT = "should be a whole number (int) of at least 1"
X_RIGHT = "it should be a float32 tensor of shape (B, T, d_model=8)"
MASK_RIGHT = "it should be a bool tensor of shape (B=2, T=5)"
FINITE = "z holds NaN or infinity, which no nudge can move; every entry should be finite"
NAMES = "should be one of 'loop', 'batched', 'fused'"

WRONG_CALLS = [
    # Sizes of a module
    (lambda: MultiHeadAttention(0, 2), f"d_model=0 {COUNT}"),
    (lambda: MultiHeadAttention(8, -2), f"num_heads=-2 {COUNT}"),
    (lambda: MultiHeadAttention(8.0, 2), f"d_model=8.0 {COUNT}"),
    (lambda: MultiHeadAttention(NAN, 2), f"d_model=nan {COUNT}"),
    (lambda: MultiHeadAttention("8", 2), f"d_model='8' {COUNT}"),
    (lambda: MultiHeadAttention(8, True), f"num_heads=True {COUNT}"),
    (lambda: MultiHeadAttention(8, None), f"num_heads=None {COUNT}"),
    (lambda: MultiHeadAttention(8, np.int64(2)), f"num_heads=np.int64(2) {COUNT}"),
    (lambda: MultiHeadAttention(8, 2, num_kv_heads=0), f"num_kv_heads=0 {COUNT}"),
    (lambda: MultiHeadAttention(8, 2, d_head=2.5), f"d_head=2.5 {COUNT}"),
    (lambda: MultiHeadAttention(8, 2, d_head=0), f"d_head=0 {COUNT}"),
    (
        lambda: MultiHeadAttention(10, 3),
        "d_model=10 cannot be split into num_heads=3 heads of equal width; "
        "num_heads=2 or num_heads=5 would fit",
    ),
    (
        lambda: MultiHeadAttention(4, 8),
        "d_model=4 cannot be split into num_heads=8 heads of equal width; num_heads=4 would fit",
    ),
    (
        lambda: MultiHeadAttention(8, 4, num_kv_heads=3),
        "num_heads=4 cannot be split into num_kv_heads=3 groups of equal size; "
        "num_kv_heads=2 or num_kv_heads=4 would fit",
    ),
    (
        lambda: MultiHeadAttention(8, 2, num_kv_heads=4),
        "num_heads=2 cannot be split into num_kv_heads=4 groups of equal size; num_kv_heads=2 would fit",
    ),
    (lambda: MultiHeadAttention(8, 2, bias="no"), "bias='no' should be True or False"),
    (lambda: MultiHeadAttention(8, 2, causal=0), "causal=0 should be True or False"),
    # The implementation, when it is built and afterwards
    (lambda: MultiHeadAttention(8, 2, implementation="flash"), f"implementation='flash' {NAMES}"),
    (lambda: MultiHeadAttention(8, 2, implementation=None), f"implementation=None {NAMES}"),
    (lambda: assign("Fused"), f"implementation='Fused' {NAMES}"),
    (lambda: assign(["loop"]), f"implementation=['loop'] {NAMES}"),
    # x
    (lambda: MHA(X[0]), f"x has shape (5, 8); {X_RIGHT}"),
    (lambda: MHA(X[None]), f"x has shape (1, 2, 5, 8); {X_RIGHT}"),
    (lambda: MHA(torch.tensor(1.0)), f"x has shape (); {X_RIGHT}"),
    (lambda: MHA(X.mT), f"x has shape (2, 8, 5); {X_RIGHT}"),
    (lambda: MHA(X.int()), f"x has dtype int32; {X_RIGHT}"),
    (lambda: MHA(X.double()), f"x has dtype float64; {X_RIGHT}"),
    (lambda: MHA(X.bfloat16(), MASK), f"x has dtype bfloat16; {X_RIGHT}"),
    (lambda: MHA(X > 0), f"x has dtype bool; {X_RIGHT}"),
    (lambda: MHA(None), f"x=None is of type NoneType; {X_RIGHT}"),
    (lambda: MHA([[1.0, 2.0]]), f"x=[[1.0, 2.0]] is of type list; {X_RIGHT}"),
    (lambda: MHA(np.ones((2, 1))), f"x=array([[1.], [1.]]) is of type ndarray; {X_RIGHT}"),
    (lambda: MHA("three tokens"), f"x='three tokens' is of type str; {X_RIGHT}"),
    (lambda: MHA.heads(X[0]), f"x has shape (5, 8); {X_RIGHT}"),
    (lambda: MHA.weights(X[0]), f"x has shape (5, 8); {X_RIGHT}"),
    (lambda: MHA(X.to(META)), "x is on meta; it should be on cpu: x.to('cpu')"),
    # attention_mask
    (lambda: MHA(X, MASK.long()), f"attention_mask has dtype int64; {MASK_RIGHT}"),
    (lambda: MHA(X, MASK.float()), f"attention_mask has dtype float32; {MASK_RIGHT}"),
    (lambda: MHA(X, MASK[:, :4]), f"attention_mask has shape (2, 4); {MASK_RIGHT}"),
    (lambda: MHA(X, MASK[:1]), f"attention_mask has shape (1, 5); {MASK_RIGHT}"),
    (lambda: MHA(X, MASK.T), f"attention_mask has shape (5, 2); {MASK_RIGHT}"),
    (lambda: MHA(X, MASK[:, None, None, :]), f"attention_mask has shape (2, 1, 1, 5); {MASK_RIGHT}"),
    (lambda: MHA.weights(X, [True]), f"attention_mask=[True] is of type list; {MASK_RIGHT}"),
    (
        lambda: MHA(X, MASK.to(META)),
        "attention_mask is on meta; it should be on cpu: attention_mask.to('cpu')",
    ),
    # Split and merge
    (
        lambda: split_heads(X, 3),
        "x of width 8 cannot be split into num_heads=3 heads of equal width; "
        "num_heads=2 or num_heads=4 would fit",
    ),
    (lambda: split_heads(X, 0), f"num_heads=0 {COUNT}"),
    (lambda: split_heads(X, 2.0), f"num_heads=2.0 {COUNT}"),
    (
        lambda: split_heads(X[0], 2),
        "x has shape (5, 8); it should be a floating-point tensor of shape (B, T, width)",
    ),
    (
        lambda: split_heads(X.long(), 2),
        "x has dtype int64; it should be a floating-point tensor of shape (B, T, width)",
    ),
    (
        lambda: merge_heads(X),
        "z has shape (2, 5, 8); it should be a floating-point tensor of shape (B, h, T, d)",
    ),
    # The blocks of W_O
    (
        lambda: output_blocks(torch.ones(8, 10), 4),
        "weight with 10 columns cannot be split into num_heads=4 heads of equal width; "
        "num_heads=2 or num_heads=5 would fit",
    ),
    (lambda: output_blocks(torch.ones(8, 8), NAN), f"num_heads=nan {COUNT}"),
    (
        lambda: output_blocks(torch.ones(8), 2),
        "weight has shape (8,); it should be a floating-point tensor of shape (d_model, h·d_v)",
    ),
    (
        lambda: head_contributions(torch.ones(2, 2, 5, 3), torch.ones(8, 7)),
        "weight has shape (8, 7); it should be a float32 tensor of shape (d_model, h·d_v=6)",
    ),
    (  # the W_O of the maths in place of what nn.Linear stores
        lambda: head_contributions(torch.ones(2, 2, 5, 3), torch.ones(8, 6).T),
        "weight has shape (6, 8); it should be a float32 tensor of shape (d_model, h·d_v=6)",
    ),
    (
        lambda: head_contributions(torch.ones(2, 2, 5, 3), torch.ones(8, 6).double()),
        "weight has dtype float64; it should be a float32 tensor of shape (d_model, h·d_v=6)",
    ),
    (
        lambda: head_contributions(torch.ones(2, 5, 6), torch.ones(8, 6)),
        "z has shape (2, 5, 6); it should be a floating-point tensor of shape (B, h, T, d_v)",
    ),
    (lambda: stacked_identity(2, "3"), f"d_v='3' {COUNT}"),
    (lambda: stacked_identity(0, 3), f"num_heads=0 {COUNT}"),
    # reach
    (
        lambda: reach(torch.flatten, torch.tensor([[1.0, NAN]]), 1),
        FINITE,
    ),
    (
        lambda: reach(torch.flatten, torch.tensor([[1.0, -INF]]), 1),
        FINITE,
    ),
    (
        lambda: reach(torch.flatten, Z, 4),
        "fn(z) of 6 numbers cannot be split into num_blocks=4 blocks of equal width; "
        "num_blocks=3 or num_blocks=6 would fit",
    ),
    (lambda: reach(torch.flatten, Z, 0), f"num_blocks=0 {COUNT}"),
    (
        lambda: reach(torch.flatten, X, 2),
        "z has shape (2, 5, 8); it should be a floating-point tensor of shape (h, d_v)",
    ),
    (lambda: reach(lambda z: z.tolist(), Z, 2), "fn(z) is of type list; it should be a tensor"),
    (lambda: reach(lambda z: (z, z), Z, 2), "fn(z) is of type tuple; it should be a tensor"),
    (lambda: reach(lambda z: None, Z, 2), "fn(z) is of type NoneType; it should be a tensor"),
    (
        lambda: reach(lambda z: z.new_empty(0), Z, 2),
        "fn(z) has 0 numbers of dtype float32; it should have finite floating-point numbers",
    ),
    (
        lambda: reach(lambda z: z.int(), Z, 2),
        f"fn(z) has {Z.numel()} numbers of dtype int32; it should have finite floating-point numbers",
    ),
    (
        lambda: reach(lambda z: z * NAN, Z, 2),
        f"fn(z) has {Z.numel()} numbers of dtype float32; it should have finite floating-point numbers",
    ),
    (
        lambda: head_contributions(Z.view(1, 2, 1, 3), torch.zeros(4, Z.numel(), device="meta")),
        "weight is on meta; it should be on cpu: weight.to('cpu')",
    ),
    (lambda: reach("concat", Z, 2), "fn='concat' should be a function from z to a tensor"),
    # The ledger
    (lambda: attention_ledger(768, 0), f"num_heads=0 {COUNT}"),
    (lambda: attention_ledger(NAN, 12), f"d_model=nan {COUNT}"),
    (
        lambda: attention_ledger(768, 10),
        "d_model=768 cannot be split into num_heads=10 heads of equal width; "
        "num_heads=8 or num_heads=12 would fit",
    ),
    (lambda: attention_ledger(**GPT2_SMALL, context=1e3), f"context=1000.0 {COUNT}"),
    (lambda: attention_ledger(**GPT2_SMALL, d_ff=-1), f"d_ff=-1 {COUNT}"),
    (lambda: attention_ledger(**GPT2_SMALL, bias=None), "bias=None should be True or False"),
    (
        lambda: attention_ledger(**GPT2_SMALL)["W_V "],
        "the ledger has no row 'W_V '; it has W_Q, W_K, W_V, W_O",
    ),
]


def error_of(call):
    try:
        call()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.usefixtures("as_a_learner_calls")
@pytest.mark.parametrize(
    ("call", "sentence"), WRONG_CALLS, ids=[sentence[:40] for _, sentence in WRONG_CALLS]
)
def test_a_wrong_call_gets_its_sentence_and_changes_nothing(call, sentence):
    weights, attributes = copy.deepcopy(MHA.state_dict()), sorted(vars(MHA))
    assert error_of(call) == (ValueError, sentence)
    assert all(torch.equal(weights[name], now) for name, now in MHA.state_dict().items())
    assert MHA.implementation == "fused"
    assert sorted(vars(MHA)) == attributes
    assert MHA(X, MASK).shape == X.shape  # and it still works


@pytest.mark.usefixtures("as_a_learner_calls")
def test_a_long_value_is_cut_short():
    shown = "[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ...]"
    assert error_of(lambda: MHA([0.0] * 1000)) == (ValueError, f"x={shown} is of type list; {X_RIGHT}")


def test_in_all_other_tests_jaxtyping_and_beartype_check_every_shape_and_type():
    """The option --jaxtyping-packages does it; without it no test would hold the signatures to their word."""
    with pytest.raises(TypeCheckError):
        split_heads(X[0], 2)
    with pytest.raises(TypeCheckError):
        split_heads(X, 2.0)
