"""Our attention equals torch's own, whichever of the three ways it runs: values, gradients, edge cases."""

import copy
import itertools
import pickle

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from skips import CUDA, ONE_GRAPH
from torch import nn
from torch.testing import assert_close

from mhalesson import MultiHeadAttention, merge_heads, split_heads

IMPLEMENTATIONS = ("loop", "batched", "fused")
each_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


# Cases and oracles


def build(d_model=6, num_heads=3, *, seed=0, dtype=torch.float64, **options):
    """A module with weights so large that attention picks: from torch's own start it nearly averages."""
    torch.manual_seed(seed)
    mha = MultiHeadAttention(d_model, num_heads, **options).to(dtype)
    for name, parameter in mha.named_parameters():
        nn.init.normal_(parameter, std=1.5 / d_model**0.5 if name.endswith("weight") else 1)
    return mha


@st.composite
def cases(draw, dtype=torch.float64, plain=False, causal=None):
    """(mha, x, attention_mask) of any sizes; `plain` keeps to what nn.MultiheadAttention can do."""
    size = st.integers(1, 4)
    num_kv_heads, group = draw(size), 1 if plain else draw(st.integers(1, 3))
    d_head = draw(size)
    num_heads = num_kv_heads * group
    square = plain or draw(st.booleans())
    mha = build(
        num_heads * d_head if square else draw(st.integers(1, 10)),
        num_heads,
        num_kv_heads=None if group == 1 and draw(st.booleans()) else num_kv_heads,
        d_head=None if square else d_head,
        bias=draw(st.booleans()),
        causal=draw(st.booleans()) if causal is None else causal,
        seed=draw(st.integers(0, 999)),
        dtype=dtype,
    )
    B, T = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    x = torch.randn(B, T, mha.q_proj.in_features, dtype=dtype)
    mask = None
    if draw(st.booleans()):
        mask = torch.tensor(draw(st.lists(st.booleans(), min_size=B * T, max_size=B * T))).view(B, T)
    return mha, x, mask


def allowed_by_hand(mha, x, mask):
    """(B, T, T): may token i look at token j? Asked pair by pair."""
    B, T, _ = x.shape
    allowed = torch.zeros(B, T, T, dtype=torch.bool)
    for b, i, j in itertools.product(range(B), range(T), range(T)):
        allowed[b, i, j] = (j <= i or not mha.causal) and (mask is None or mask[b, j])
    return allowed


def by_hand(mha, x, mask):
    """z and y from torch's own SDPA, fed one head at a time with slices cut by hand: no split, no merge."""
    d_head = mha.q_proj.out_features // mha.num_heads
    group = mha.num_heads // mha.num_kv_heads
    allowed = allowed_by_hand(mha, x, mask)
    sees = allowed.any(-1, keepdim=True)  # (B, T, 1)
    q, k, v = mha.q_proj(x), mha.k_proj(x), mha.v_proj(x)
    z = []
    for i in range(mha.num_heads):
        own, shared = (slice(n * d_head, (n + 1) * d_head) for n in (i, i // group))
        q_i, k_i, v_i = q[..., own], k[..., shared], v[..., shared]  # (B, T, d_head)
        z_i = F.scaled_dot_product_attention(q_i, k_i, v_i, attn_mask=allowed | ~sees)
        z.append(z_i.masked_fill(~sees, 0))
    return torch.stack(z, 1), F.linear(torch.cat(z, -1), mha.o_proj.weight, mha.o_proj.bias)


def gradients(mha, x, mask, run=None):
    """d/d(everything) of one fixed weighing of y, by name."""
    x = x.clone().requires_grad_()
    y = (run or mha)(x, mask)
    parameters = dict(mha.named_parameters())
    weighing = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y) + 0.3
    found = torch.autograd.grad((y * weighing).sum(), [x, *parameters.values()])
    return dict(zip(["x", *parameters], found, strict=True))


# Values


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=["float32", "float64"]
)
@given(data=st.data())
def test_all_three_equal_sdpa_fed_by_hand(dtype, tolerance, data):
    mha, x, mask = data.draw(cases(dtype))
    z, y = by_hand(mha, x, mask)
    for mha.implementation in IMPLEMENTATIONS:
        assert_close(mha.heads(x, mask), z, rtol=tolerance, atol=tolerance)
        assert_close(mha(x, mask), y, rtol=tolerance, atol=tolerance)


@given(cases(plain=True))
def test_all_three_equal_torchs_module_with_the_same_weights(case):
    mha, x, mask = case
    d_model, T = x.shape[-1], x.shape[1]
    theirs = nn.MultiheadAttention(
        d_model, mha.num_heads, bias=mha.q_proj.bias is not None, batch_first=True, dtype=x.dtype
    )
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([mha.q_proj.weight, mha.k_proj.weight, mha.v_proj.weight]))
        theirs.out_proj.weight.copy_(mha.o_proj.weight)
        if mha.q_proj.bias is not None:
            theirs.in_proj_bias.copy_(torch.cat([mha.q_proj.bias, mha.k_proj.bias, mha.v_proj.bias]))
            theirs.out_proj.bias.copy_(mha.o_proj.bias)
    y, weights = theirs(
        x,
        x,
        x,
        key_padding_mask=None if mask is None else ~mask,  # theirs is True where the token is NOT real
        attn_mask=torch.ones(T, T, dtype=torch.bool).triu(1) if mha.causal else None,
        average_attn_weights=False,
    )
    sees = allowed_by_hand(mha, x, mask).any(-1)  # (B, T); theirs is NaN in the other rows
    for mha.implementation in IMPLEMENTATIONS:
        assert_close(mha(x, mask)[sees], y[sees], rtol=1e-12, atol=1e-12)
    ours = mha.weights(x, mask)
    assert_close(ours.transpose(1, 2)[sees], weights.transpose(1, 2)[sees], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(data=st.data())
def test_half_precision_is_close_to_float64(dtype, data):
    mha, x, mask = data.draw(cases(dtype))
    exact = copy.deepcopy(mha).double()(x.double(), mask)
    # A rounding is half an eps; scores of a few units amplify it, and the softmax passes that on.
    tolerance = 16 * torch.finfo(dtype).eps * max(1, exact.abs().max().item())
    for mha.implementation in IMPLEMENTATIONS:
        y = mha(x, mask)
        assert y.dtype == dtype
        assert_close(y.double(), exact, rtol=0, atol=tolerance)


@given(cases())
def test_weights_are_what_the_heads_used(case):
    mha, x, mask = case
    weights = mha.weights(x, mask)  # (B, h, T, T)
    allowed = allowed_by_hand(mha, x, mask)[:, None]  # (B, 1, T, T)
    assert not weights.masked_select(~allowed).any()
    assert (weights >= 0).all()
    assert_close(weights.sum(-1), allowed.any(-1).double().expand(weights.shape[:3]))
    v = split_heads(mha.v_proj(x), mha.num_kv_heads).repeat_interleave(mha.num_heads // mha.num_kv_heads, 1)
    assert_close(weights @ v, mha.heads(x, mask))


@each_implementation
@pytest.mark.parametrize(("B", "T"), [(0, 3), (2, 0)])
def test_no_sentences_and_no_tokens_are_fine(implementation, B, T):
    mha = build(implementation=implementation)
    x = torch.zeros(B, T, 6, dtype=torch.float64)
    for mask in (None, torch.ones(B, T, dtype=torch.bool)):
        assert mha(x, mask).shape == (B, T, 6)
        assert mha.weights(x, mask).shape == (B, 3, T, T)


# Gradients


@given(cases())
def test_gradients_are_equal_in_all_three_and_by_hand(case):
    mha, x, mask = case
    right = gradients(mha, x, mask, run=lambda x, mask: by_hand(mha, x, mask)[1])
    for mha.implementation in IMPLEMENTATIONS:
        found = gradients(mha, x, mask)
        assert_close(found, right, rtol=1e-9, atol=1e-9)


@each_implementation
def test_gradients_are_true(implementation):
    mha = build(d_model=2, num_heads=2, num_kv_heads=1, d_head=2, implementation=implementation)
    x = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[False, True, True], [True, True, False]])  # token 0 of sentence 0 sees nothing
    assert torch.autograd.gradcheck(lambda x, *_: mha(x, mask), (x, *mha.parameters()))


@each_implementation
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_a_row_that_sees_nothing_is_zero_and_stays_out_of_every_gradient(implementation, bias, causal):
    mha = build(implementation=implementation, bias=bias, causal=causal)
    x = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[False, False, True, True], [False] * 4])
    empty = ~allowed_by_hand(mha, x, mask).any(-1)  # (B, T)
    assert empty.tolist() == [[causal, causal, False, False], [True] * 4]

    assert not mha.weights(x, mask).transpose(1, 2)[empty].any()
    assert not mha.heads(x, mask).transpose(1, 2)[empty].any()
    y = mha(x, mask)
    assert torch.equal(y[empty], (mha.o_proj.bias if bias else torch.zeros(6)).double().expand_as(y[empty]))

    inward = [x, *(p for name, p in mha.named_parameters() if name != "o_proj.bias")]
    for g in torch.autograd.grad(y[empty].sum(), inward, retain_graph=True):
        assert not g.any()  # NaN would count as true
    for g in torch.autograd.grad(y.sum(), inward):
        assert g.isfinite().all()


# What attention is, whatever the weights


@each_implementation
@given(data=st.data())
def test_without_a_causal_mask_the_order_of_tokens_carries_nothing(implementation, data):
    mha, x, mask = data.draw(cases(causal=False))
    mha.implementation = implementation
    order = torch.tensor(data.draw(st.permutations(range(x.shape[1]))))
    moved = mha(x[:, order], None if mask is None else mask[:, order])
    assert_close(moved, mha(x, mask)[:, order])


@each_implementation
def test_a_token_feels_itself_and_the_past_and_no_token_that_is_not_real(implementation):
    mha = build(implementation=implementation)
    x = torch.randn(1, 5, 6, dtype=torch.float64)
    mask = torch.tensor([[True, True, False, True, True]])
    jacobian = torch.autograd.functional.jacobian(lambda x: mha(x, mask), x)  # (1, T, d_model, 1, T, d_model)
    feels = jacobian[0, :, :, 0].norm(dim=(1, 3)) > 0  # (T, T)
    right = allowed_by_hand(mha, x, mask)[0]
    right[2, 2] = True  # token 2 is not real, yet its row asks with its own query
    assert torch.equal(feels, right)


@each_implementation
@settings(max_examples=5)
@given(seed=st.integers(0, 999))
def test_changing_the_future_changes_nothing_before_it(implementation, seed):
    mha = build(seed=seed, implementation=implementation)
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    for t in range(1, 5):
        changed = x.clone()
        changed[:, t:] = torch.randn(2, 5 - t, 6, dtype=torch.float64)
        same = (mha(changed) - mha(x)).abs().amax((0, 2)) < 1e-12  # (T,)
        assert same.tolist() == [True] * t + [False] * (5 - t)


# Split and merge

SIZES = list(itertools.product(range(1, 4), repeat=4))


def index_coded(*shape):
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def test_split_gives_head_i_the_ith_band_of_channels():
    for B, T, h, d in SIZES:
        x = index_coded(B, T, h * d)
        bands = [x[:, :, i * d : (i + 1) * d] for i in range(h)]
        assert torch.equal(split_heads(x, h), torch.stack(bands, 1))


def test_merge_lays_the_heads_of_a_token_side_by_side():
    for B, T, h, d in SIZES:
        z = index_coded(B, h, T, d)
        assert torch.equal(merge_heads(z), torch.cat([z[:, i] for i in range(h)], -1))


def test_split_and_merge_undo_each_other():
    for B, T, h, d in SIZES:
        x, z = index_coded(B, T, h * d), index_coded(B, h, T, d)
        assert torch.equal(merge_heads(split_heads(x, h)), x)
        assert torch.equal(split_heads(merge_heads(z), h), z)


def test_split_is_a_view_whatever_the_strides():
    for B, T, h, d in SIZES:
        contiguous, turned = index_coded(B, T, h * d), index_coded(h * d, T, B).transpose(0, 2)
        for x in (contiguous, turned, contiguous[:1, :1].expand(B, T, -1)):
            assert split_heads(x, h).data_ptr() == x.data_ptr()


def test_merge_copies_only_where_strides_cannot_express_the_result():
    for B, T, h, d in SIZES:
        x, z = index_coded(B, T, h * d), index_coded(B, h, T, d)
        assert merge_heads(split_heads(x, h)).data_ptr() == x.data_ptr()
        no_copy = merge_heads(z).data_ptr() == z.data_ptr()
        assert no_copy == (h == 1 or T == 1 or d == 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_split_and_merge_keep_the_dtype_and_pass_gradients(dtype):
    x = index_coded(2, 3, 8).to(dtype).requires_grad_()
    y = merge_heads(split_heads(x, 4))
    assert y.dtype == dtype
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


# The module as a module


@pytest.mark.parametrize("bias", [True, False])
def test_state_dict_has_the_names_of_llama(bias):
    names = [f"{p}_proj.{kind}" for p in "qkvo" for kind in (["weight", "bias"] if bias else ["weight"])]
    assert list(build(bias=bias).state_dict()) == names


def test_a_state_dict_brings_the_same_function_to_another_instance():
    mha, other = build(seed=1, implementation="loop"), build(seed=2)
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    other.load_state_dict(mha.state_dict())
    assert_close(other(x), mha(x))


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_clone_is_equal_and_independent(how):
    mha = build(implementation="loop")
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    twin = copy.deepcopy(mha) if how == "deepcopy" else pickle.loads(pickle.dumps(mha))
    assert twin.implementation == "loop"
    assert torch.equal(twin(x), mha(x))
    twin.implementation = "fused"
    with torch.no_grad():
        twin.o_proj.weight.zero_()
    assert mha.implementation == "loop"
    assert not torch.equal(twin(x), mha(x))


def test_the_default_is_fused_and_causal():
    mha = MultiHeadAttention(6, 3)
    assert mha.implementation == "fused"
    assert mha.causal
    assert mha.q_proj.bias is not None


@each_implementation
def test_the_implementation_that_is_named_is_the_one_that_runs(implementation):
    mha = build(implementation=implementation)
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    with torch.profiler.profile() as profile:
        mha(x)
    calls = {event.key: event.count for event in profile.key_averages()}
    assert ("aten::scaled_dot_product_attention" in calls) == (implementation == "fused")
    assert calls.get("aten::softmax", 0) == {"loop": 3, "batched": 1, "fused": 0}[implementation]


@each_implementation
@pytest.mark.parametrize("masked", [True, False])
def test_it_runs_on_the_meta_device(implementation, masked):
    with torch.device("meta"):
        mha = MultiHeadAttention(768, 12, num_kv_heads=4, d_head=32, implementation=implementation)
        x, mask = torch.empty(2, 5, 768), torch.ones(2, 5, dtype=torch.bool) if masked else None
        assert mha(x, mask).shape == (2, 5, 768)
        assert mha(x, mask).is_meta
        assert mha.weights(x, mask).shape == (2, 12, 5, 5)


@each_implementation
@pytest.mark.parametrize("masked", [True, False])
def test_it_runs_under_autocast(implementation, masked):
    mha = build(dtype=torch.float32, implementation=implementation)
    x = torch.randn(2, 4, 6)
    mask = torch.tensor([[True, True, False, True], [False] * 4]) if masked else None
    with torch.autocast("cpu", torch.bfloat16):
        y = mha(x, mask)
    assert y.dtype == torch.bfloat16
    assert_close(y.float(), mha(x, mask), rtol=0, atol=16 * torch.finfo(torch.bfloat16).eps * 4)


@ONE_GRAPH
@each_implementation
@pytest.mark.usefixtures("as_a_learner_calls")
def test_it_compiles_to_one_graph(implementation):
    mha = build(implementation=implementation)
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    compiled = torch.compile(mha, backend="eager", fullgraph=True)  # traces, but builds no C++
    assert_close(compiled(x, mask), mha(x, mask))


@CUDA
@each_implementation
@given(data=st.data())
def test_a_cuda_device_agrees_with_the_cpu(implementation, data):
    mha, x, mask = data.draw(cases(torch.float32))
    mha.implementation = implementation
    y = mha(x, mask)
    cuda = mha.cuda()(x.cuda(), None if mask is None else mask.cuda())
    assert_close(cuda.cpu(), y, rtol=1e-4, atol=1e-4)


@each_implementation
def test_large_scores_do_not_overflow_in_float16(implementation):
    """q kᵀ alone would be 64 · 33² = 69,696, over the largest float16; q kᵀ / √d is 8,712."""
    mha = MultiHeadAttention(64, 1, bias=False, implementation=implementation).half()
    for projection in (mha.q_proj, mha.k_proj, mha.v_proj, mha.o_proj):
        torch.nn.init.eye_(projection.weight)
    x = torch.full((1, 3, 64), 33.0, dtype=torch.float16)  # (B, T, d_model)
    torch.testing.assert_close(mha(x), x)
