"""Concat, sum and the blocks of W_O: one identity, many sizes."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from mhalesson import (
    MultiHeadAttention,
    head_contributions,
    merge_heads,
    output_blocks,
    reach,
    stacked_identity,
)

size = st.integers(1, 4)
seeds = st.integers(0, 999)


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# The blocks of W_O


@given(h=size, d_v=size, d_model=size)
def test_block_i_is_the_ith_band_of_columns_of_the_stored_weight(h, d_v, d_model):
    weight = randn(d_model, h * d_v)
    blocks = output_blocks(weight, h)
    assert blocks.shape == (h, d_v, d_model)
    for i in range(h):
        assert torch.equal(blocks[i], weight[:, i * d_v : (i + 1) * d_v].T)
    assert blocks.data_ptr() == weight.data_ptr()  # a view: changing a block changes W_O


@given(B=size, T=size, h=size, d_v=size, d_model=size, seed=seeds)
def test_z_cat_times_w_o_is_the_sum_over_its_blocks(B, T, h, d_v, d_model, seed):
    z, weight = randn(B, h, T, d_v, seed=seed), randn(d_model, h * d_v, seed=seed + 1)
    blocks = output_blocks(weight, h)
    one_by_one = sum(z[:, i] @ blocks[i] for i in range(h))  # (B, T, d_model)
    assert_close(one_by_one, torch.cat(z.unbind(1), -1) @ weight.T)


@given(B=size, T=size, h=size, d_v=size, d_model=size, seed=seeds)
def test_contribution_i_is_what_the_layer_says_when_only_head_i_speaks(B, T, h, d_v, d_model, seed):
    z, weight = randn(B, h, T, d_v, seed=seed), randn(d_model, h * d_v, seed=seed + 1)
    contributions = head_contributions(z, weight)
    for i in range(h):
        only_i = torch.zeros_like(z)
        only_i[:, i] = z[:, i]
        assert_close(contributions[:, i], F.linear(torch.cat(only_i.unbind(1), -1), weight))


@pytest.mark.parametrize("implementation", ["loop", "batched", "fused"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 2}, {"d_head": 5}], ids=str)
def test_contributions_and_the_bias_once_are_the_layers_output(implementation, bias, options):
    torch.manual_seed(0)
    mha = MultiHeadAttention(12, 4, bias=bias, implementation=implementation, **options).double()
    x, mask = randn(2, 5, 12), torch.tensor([[False, True, True, True, True], [True] * 5])
    y = head_contributions(mha.heads(x, mask), mha.o_proj.weight).sum(1)  # (B, T, d_model)
    assert_close(y + (mha.o_proj.bias if bias else 0), mha(x, mask))


def test_contributions_pass_gradients_to_z_and_to_the_weight():
    z, weight = randn(2, 3, 2, 2).requires_grad_(), randn(5, 6).requires_grad_()
    assert torch.autograd.gradcheck(head_contributions, (z, weight))


# The sum as a matrix


@given(h=size, d_v=size)
def test_stacked_identity_sums_the_heads_and_forgets_all_else(h, d_v):
    z, W = randn(2, h, 3, d_v), stacked_identity(h, d_v).double()
    assert_close(merge_heads(z) @ W, z.sum(1))
    assert torch.linalg.matrix_rank(W) == d_v  # so (h-1)·d_v directions of z_cat are lost


# Who can reach whom


@given(h=size, d_v=size, num_blocks=size, width=size, seed=seeds)
def test_reach_of_a_linear_map_is_the_size_of_its_blocks(h, d_v, num_blocks, width, seed):
    W_O = randn(h * d_v, num_blocks * width, seed=seed)
    found = reach(lambda z: z.flatten() @ W_O, randn(h, d_v), num_blocks)
    for i, j in itertools.product(range(h), range(num_blocks)):
        block = W_O[i * d_v : (i + 1) * d_v, j * width : (j + 1) * width]
        assert_close(found[i, j], block.norm())


@given(h=size, d_v=size, num_blocks=size, width=size, seed=seeds)
def test_reach_of_a_bent_map_is_what_nudging_shows(h, d_v, num_blocks, width, seed):
    W, z = randn(h * d_v, num_blocks * width, seed=seed), randn(h, d_v, seed=seed + 1)

    def fn(z):
        return F.gelu(z.flatten() @ W).view(num_blocks, width)  # an output of any shape is cut flat

    squares = torch.zeros(h, num_blocks, dtype=torch.float64)
    nudge = 1e-5
    for i, c in itertools.product(range(h), range(d_v)):
        step = torch.zeros_like(z)
        step[i, c] = nudge
        moved = (fn(z + step) - fn(z - step)) / (2 * nudge)  # (num_blocks, width)
        squares[i] += (moved**2).sum(1)
    assert_close(reach(fn, z, num_blocks), squares.sqrt(), rtol=1e-6, atol=1e-8)


@given(h=size, d_v=size)
def test_concat_keeps_heads_apart_and_the_sum_does_not(h, d_v):
    z = randn(h, d_v)
    apart = reach(lambda z: z.flatten(), z, h)
    assert torch.equal(apart > 0, torch.eye(h, dtype=torch.bool))
    assert (reach(lambda z: z.sum(0), z, 1) > 0).all()


def test_reach_takes_a_single_number_and_a_constant_too():
    z = randn(3, 2)
    assert_close(reach(lambda z: z.sum(), z, 1), torch.full((3, 1), 2**0.5, dtype=torch.float64))
    assert not reach(lambda z: torch.ones(4), z, 2).any()  # an output that ignores z: nobody reaches it


def test_reach_leaves_z_and_the_mode_of_autograd_alone():
    z = randn(3, 2).requires_grad_()
    before = z.detach().clone()
    with torch.no_grad():
        found = reach(lambda z: z.flatten(), z, 3)
    assert torch.equal(z, before)
    assert z.grad is None
    assert not found.requires_grad
    assert (found.diagonal() > 0).all()
