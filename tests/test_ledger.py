"""The formulas of the ledger, held against modules that are built and products that are counted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import mhalesson
from mhalesson import MultiHeadAttention, attention_ledger

PRESETS = {name: getattr(mhalesson, name) for name in mhalesson.__all__ if name.isupper()}
each_preset = pytest.mark.parametrize("sizes", PRESETS.values(), ids=PRESETS)
PROJECTIONS = {"W_Q": "q_proj", "W_K": "k_proj", "W_V": "v_proj", "W_O": "o_proj"}


@st.composite
def all_sizes(draw):
    """Any sizes that make a module; half of them with grouped heads, half with h·d_head ≠ d_model."""
    size = st.integers(1, 6)
    num_kv_heads, d_head = draw(size), draw(size)
    num_heads = num_kv_heads * draw(st.integers(1, 4))
    square = draw(st.booleans())
    return dict(
        d_model=num_heads * d_head if square else draw(st.integers(1, 40)),
        num_heads=num_heads,
        num_kv_heads=None if num_kv_heads == num_heads else num_kv_heads,
        d_head=None if square else d_head,
        bias=draw(st.booleans()),
    )


def count(sizes, B, T, d_ff=None, implementation="batched"):
    """A module on the meta device and its FLOPs: no number is computed, every product is counted."""
    with torch.device("meta"):
        mha = MultiHeadAttention(**sizes, implementation=implementation)
        x = torch.empty(B, T, sizes["d_model"])
        bias = sizes.get("bias", True)
        mlp = nn.Sequential(nn.Linear(x.shape[-1], d_ff, bias), nn.GELU(), nn.Linear(d_ff, x.shape[-1], bias))
    counter = FlopCounterMode(display=False)
    with counter:
        mlp(mha(x))
    return mha, mlp, counter.get_flop_counts()


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def hold_against_a_module(sizes, B, T, d_ff):
    ledger = attention_ledger(**sizes, context=T, d_ff=d_ff)
    mha, mlp, flops = count(sizes, B, T, d_ff)

    def flops_per_token(module):
        assert sum(flops[module].values()) % (B * T) == 0
        return sum(flops[module].values()) // (B * T)

    for row, name in PROJECTIONS.items():
        linear = getattr(mha, name)
        assert ledger[row].shape == (linear.in_features, linear.out_features)
        assert ledger[row].parameters == parameters(linear)
        assert ledger[row].flops_per_token == flops_per_token(f"MultiHeadAttention.{name}")
    assert ledger["MLP up"].parameters + ledger["MLP down"].parameters == parameters(mlp)
    assert ledger["MLP up"].flops_per_token == flops_per_token("Sequential.0")
    assert ledger["MLP down"].flops_per_token == flops_per_token("Sequential.2")

    scores = flops["MultiHeadAttention"][torch.ops.aten.bmm] // (B * T)
    assert ledger["q kᵀ"].flops_per_token == ledger["weights v"].flops_per_token == scores // 2
    assert ledger.parameters == parameters(mha) + parameters(mlp)
    assert ledger.flops_per_token == flops_per_token("Global")


@settings(max_examples=15)
@given(sizes=all_sizes(), B=st.integers(2, 3), T=st.integers(2, 5), d_ff=st.integers(1, 9))
def test_every_row_and_total_equals_a_module_that_is_counted(sizes, B, T, d_ff):
    hold_against_a_module(sizes, B, T, d_ff)


@each_preset
def test_every_preset_equals_a_module_that_is_counted(sizes):
    hold_against_a_module(sizes, B=2, T=3, d_ff=4 * sizes["d_model"])


@settings(max_examples=5)
@given(sizes=all_sizes(), T=st.integers(1, 5))
def test_the_loop_costs_as_many_flops_as_the_batched_products(sizes, T):
    _, _, loop = count(sizes, 2, T, d_ff=1, implementation="loop")
    _, _, batched = count(sizes, 2, T, d_ff=1)
    assert sum(loop["Global"].values()) == sum(batched["Global"].values())


@given(sizes=all_sizes(), context=st.integers(1, 9), d_ff=st.integers(1, 9))
def test_what_is_not_asked_for_is_not_counted(sizes, context, d_ff):
    plain = attention_ledger(**sizes)
    full = attention_ledger(**sizes, context=context, d_ff=d_ff)
    names = [row.name for row in full.rows]
    assert names == ["W_Q", "W_K", "W_V", "q kᵀ", "weights v", "W_O", "MLP up", "MLP down"]
    assert plain.rows == tuple(row for row in full.rows if row.name in PROJECTIONS)
    assert attention_ledger(**sizes, context=context).rows == full.rows[:6]


@each_preset
def test_the_printed_table_holds_every_number_in_aligned_columns(sizes):
    ledger = attention_ledger(**sizes, context=131_072, d_ff=4 * sizes["d_model"])
    head, *lines, total = str(ledger).splitlines()
    for line, row in zip(lines, ledger.rows, strict=True):
        assert line.startswith(row.name)
        assert line.split()[-2:] == [f"{row.parameters:,}", f"{row.flops_per_token:,}"]
        assert str(row.shape) in line
    assert total.split() == ["total", f"{ledger.parameters:,}", f"{ledger.flops_per_token:,}"]
    assert len({len(line) for line in (head, *lines, total)}) == 1
