"""Every statement of claims.toml that running code can settle, settled by running code.

A test stands for the claim of its name, test_<id>. Where a claim says how *not* to do it, the test does that
too and expects to see it fail: a check that cannot fail shows nothing.
"""

import copy
import itertools
import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from make_what_holds import NOTEBOOKS, PAGE, name_of_test, read_claims, render
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import mhalesson
from mhalesson import (
    GEMMA_7B,
    GPT2_SMALL,
    LLAMA3_8B,
    LLAMA3_70B,
    LLAMA3_405B,
    MultiHeadAttention,
    attention_ledger,
    head_contributions,
    merge_heads,
    output_blocks,
    reach,
    split_heads,
    stacked_identity,
)
from mhalesson.trained_heads import load_trained_heads

CLAIMS = {claim["id"]: claim for claim in read_claims()}
MIB = 2**20

# One small size for most tests, all numbers different, so that no two axes can be mistaken for each other.
B, T, h, d_v = 2, 5, 3, 4
d_model = h * d_v


# --------------------------------------------------------------------------------------------- helpers


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def rand(*shape: int) -> Tensor:
    """Random numbers in float64: what should be zero is then far below anything that should not."""
    return torch.randn(*shape, dtype=torch.float64)


def attention(**kwargs) -> MultiHeadAttention:
    """Our module in float64; the same weights each time it is called with the same sizes."""
    torch.manual_seed(0)
    return MultiHeadAttention(**{"d_model": d_model, "num_heads": h, **kwargs}).double()


def on_meta(module: type, *args, **kwargs) -> nn.Module:
    """A module of any size that holds no numbers, so that shapes and counts cost nothing."""
    with torch.device("meta"):
        return module(*args, **kwargs)


def count_parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def rank(matrix: Tensor) -> int:
    return torch.linalg.matrix_rank(matrix).item()


def off_diagonal(matrix: Tensor) -> Tensor:
    return matrix[~torch.eye(len(matrix), dtype=torch.bool)]


def differ(a: Tensor, b: Tensor) -> bool:
    """Not by rounding: really different, in the same shape."""
    assert a.shape == b.shape
    return (a - b).abs().max().item() > 1e-2


def needs_both(f) -> Tensor:
    """The part of f(a, b) that neither head gives alone. It is 0 if f only adds."""
    a, b = rand(d_v), rand(d_v)
    zero = torch.zeros_like(a)
    return (f(a, b) - f(a, zero) - f(zero, b) + f(zero, zero)).abs().max()


def read_back(source: Tensor, target: Tensor) -> float:
    """R² of the best linear reading of `target` from `source`, both (observations, channels)."""
    solution = torch.linalg.lstsq(source, target).solution
    return (1 - (target - source @ solution).square().sum() / target.square().sum()).item()


def spearman(a: Tensor, b: Tensor) -> float:
    """Rank correlation: the ordinary one, of the places in the ranking (no ties here)."""
    places = torch.stack([a, b]).argsort(dim=1).argsort(dim=1).double()
    return torch.corrcoef(places)[0, 1].item()


def change_frame(mha: MultiHeadAttention, i: int, M: Tensor, with_bias: bool = True) -> MultiHeadAttention:
    """A copy in which head i speaks another language: W_V^i M, b_V^i M, and M⁻¹ W_O^i to understand it."""
    mha = copy.deepcopy(mha)
    head = slice(i * len(M), (i + 1) * len(M))
    with torch.no_grad():
        mha.v_proj.weight[head] = M.T @ mha.v_proj.weight[head]  # nn.Linear stores transposes: (W M)ᵀ = Mᵀ Wᵀ
        if with_bias:
            mha.v_proj.bias[head] = mha.v_proj.bias[head] @ M
        mha.o_proj.weight[:, head] = mha.o_proj.weight[:, head] @ torch.linalg.inv(M).T
    return mha


class Record(TorchDispatchMode):
    """Inside `with Record() as record:` every operation torch runs is written down, views included."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.inputs: list[list[tuple[int, ...]]] = []
        self.outputs: list[Tensor] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.names.append(func.overloadpacket.__name__)
        self.inputs.append([tuple(a.shape) for a in args if isinstance(a, Tensor)])
        results = out if isinstance(out, tuple | list) else [out]
        self.outputs += [t for t in results if isinstance(t, Tensor)]
        return out

    def __len__(self) -> int:
        return len(self.names)

    def inputs_of(self, name: str) -> list[list[tuple[int, ...]]]:
        return [shapes for called, shapes in zip(self.names, self.inputs, strict=True) if called == name]

    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(t.shape) for t in self.outputs]


def record(fn, *args) -> Record:
    with torch.no_grad(), Record() as recorded:
        fn(*args)
    return recorded


def flops(module: nn.Module, *shape: int) -> int:
    """What torch itself counts, on a machine that does not exist."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(torch.empty(*shape, device="meta"))
    return counter.get_total_flops()


def largest_allocation(fn, *args) -> int:
    """Bytes of the largest piece of memory asked for while fn runs, inside the kernels too.

    Judged with one thread (see conftest.py), since a kernel keeps some scratch memory for each.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.no_grad(), torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        fn(*args)
    return max(event.self_cpu_memory_usage for event in profile.events())


def says(id: str, *figures: str) -> None:
    """The text of the claim gives these figures: no number stands there that was not computed here."""
    for figure in figures:
        figure = figure.replace("-", "−")
        assert re.search(rf"(?<![\d.,−]){re.escape(figure)}(?![\d]|[.,]\d)", CLAIMS[id]["exactly"]), figure


# ------------------------------------------------------------------------------ 01 · where heads write


def test_isolated_slices():
    """Who reaches whom: only the diagonal in z_cat, everything after W_O."""
    o_proj, z = attention().o_proj, rand(h, d_v)

    def concat(z):
        return merge_heads(z[None, :, None, :]).flatten()  # (h·d_v,): one sequence of one token

    before, after = reach(concat, z, h), reach(lambda z: o_proj(concat(z)), z, h)
    assert (off_diagonal(before) == 0).all()
    assert (before.diagonal() > 0).all()
    assert (after > 1e-3).all()


def test_private_frame():
    """Every head reads every channel of x; a head's frame can be changed, if its bias changes too."""
    mha, x = attention(), rand(B, T, d_model)

    def heads_that_move(mha, channel):
        nudged = x.clone()
        nudged[:, 0, channel] += 1  # in the first token, which all the others see
        return (mha.heads(nudged) - mha.heads(x)).abs().amax(dim=(0, 2, 3)) > 1e-6  # (h,)

    assert all(heads_that_move(mha, channel).all() for channel in range(d_model))
    owners = copy.deepcopy(mha)  # the control: heads that only read a slice of x
    for proj in (owners.q_proj, owners.k_proj, owners.v_proj):
        proj.weight.data *= torch.block_diag(*[torch.ones(d_v, d_v)] * h)
    assert heads_that_move(owners, channel=0).tolist() == [True, False, False]

    y, M = mha(x), rand(d_v, d_v)
    other = change_frame(mha, 1, M)
    assert differ(other.heads(x), mha.heads(x))  # the head does say something else
    torch.testing.assert_close(other(x), y)
    assert differ(change_frame(mha, 1, M, with_bias=False)(x), y)


def test_until_next_layer():
    """With W_O = I the heads meet in the LayerNorm and the MLP of the same block; in parallel they do not."""
    x, z, norm = rand(d_model), rand(h, d_v), nn.LayerNorm(d_model).double()
    mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)).double()

    def attention_and_residual(z):
        return x + z.flatten()

    def block(z):
        a = attention_and_residual(z)
        return a + mlp(norm(a))

    def parallel_block(z):
        return attention_and_residual(z) + mlp(norm(x))

    def mixing(fn):
        return off_diagonal(reach(fn, z, h))

    assert (mixing(attention_and_residual) == 0).all()
    assert (mixing(lambda z: norm(attention_and_residual(z))) > 1e-3).all()
    assert (mixing(block) > 1e-3).all()
    assert (mixing(parallel_block) == 0).all()


def test_modulate():
    """f(a, b) − f(a, 0) − f(0, b) + f(0, 0): nothing after W_O, something after the MLP's GELU."""
    o_proj, up = attention().o_proj, nn.Linear(d_model, 4 * d_model).double()
    third = rand(d_v)

    def y(a, b):
        return o_proj(torch.cat([a, b, third]))

    assert needs_both(y) < 1e-12
    assert needs_both(lambda a, b: F.gelu(up(y(a, b)))) > 1e-3


def test_must_recombine():
    """Without W_O the layer has the right width, gradients reach its weights, and it learns."""
    mha = attention()
    mha.o_proj = nn.Identity()
    x, target = rand(B, T, d_model), 0.1 * rand(B, T, d_model)
    optimizer = torch.optim.SGD(mha.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        y = mha(x)  # (B, T, d_model)
        loss = F.mse_loss(y, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert y.shape == x.shape
    assert all(p.grad.abs().max() > 1e-6 for name, p in mha.named_parameters() if "weight" in name)
    assert losses[-1] < 0.9 * losses[0]


def test_chief_reads():
    """Superposition: W_O treats every token alike, and each head as if the others were silent."""
    mha, z, more = attention(), rand(B, h, T, d_v), rand(B, h, T, d_v)

    def y(z):
        return F.linear(merge_heads(z), mha.o_proj.weight)  # the bias is nobody's report

    torch.testing.assert_close(y(z + more), y(z) + y(more))
    torch.testing.assert_close(y(z.flip(2)), y(z).flip(1))  # tokens in another order: the same for each
    x, other = rand(B, T, d_model), rand(B, T, d_model)
    assert differ(mha(x + other), mha(x) + mha(other))  # content has its say before, in the softmax


def test_fully_integrated():
    """A sum of h maps, each of rank d_v; any one alone, added up, gives the whole."""
    mha, z = attention(), rand(B, h, 4 * d_model, d_v)
    contributions = head_contributions(z, mha.o_proj.weight)  # (B, h, T, d_model)
    assert rank(mha.o_proj.weight) == d_model
    for i in range(h):
        assert rank(contributions[:, i].flatten(0, 1)) == d_v
        alone = torch.zeros_like(z)
        alone[:, i] = z[:, i]
        torch.testing.assert_close(F.linear(merge_heads(alone), mha.o_proj.weight), contributions[:, i])
    torch.testing.assert_close(mha.o_proj(merge_heads(z)), contributions.sum(dim=1) + mha.o_proj.bias)


# -------------------------------------------------------------------------------- 02 · concat or sum


def test_concat_lossless():
    """z comes back from z_cat untouched, and from y by solving; from the sum it does not."""
    W_O, z = attention().o_proj.weight.T, rand(B, h, 20 * T, d_v)
    z_cat = merge_heads(z)  # (B, T, h·d_v)
    assert torch.equal(split_heads(z_cat, h), z)
    torch.testing.assert_close(torch.linalg.solve(W_O, z_cat @ W_O, left=False), z_cat)
    assert read_back(z.sum(dim=1).flatten(0, 1), z_cat.flatten(0, 1)) < 0.5


def test_sum_loses():
    """The sum as a matrix, what it forgets, a collision, and how much of head 1 can be read back."""
    z = rand(B, h, T, d_v)
    total = z.sum(dim=1)  # (B, T, d_v)
    S = stacked_identity(h, d_v).double()  # (h·d_v, d_v)
    torch.testing.assert_close(merge_heads(z) @ S, total)
    torch.testing.assert_close(total, h * z.mean(dim=1))

    kept = rank(stacked_identity(num_heads=12, d_v=64))
    assert (kept, 12 * 64 - kept) == (64, (12 - 1) * 64)
    says("sum-loses", str(kept), str(12 * 64 - kept))

    torch.testing.assert_close(total - z[:, 1:].sum(dim=1), z[:, 0])  # nothing was overwritten
    shift = rand(B, 1, T, d_v)
    twin = z + torch.cat([shift, -shift, 0 * shift], dim=1)  # what one head gains, another loses
    for other in (twin, z.flip(1)):
        torch.testing.assert_close(other.sum(dim=1), total)
        assert differ(merge_heads(other), merge_heads(z))

    for heads in (2, 4, 8):
        z = rand(1, heads, 20_000, d_v)
        assert read_back(merge_heads(z)[0], z[0, 0]) == pytest.approx(1.00, abs=1e-6)
        assert read_back(z.sum(dim=1)[0], z[0, 0]) == pytest.approx(1 / heads, abs=0.02)
    says("sum-loses", "1.00")


def test_mha_is_a_sum():
    """z_cat W_O = Σ z_i W_O^i; with one block for all, it is the raw sum, and heads can be swapped."""
    weight, z = attention().o_proj.weight, rand(B, h, T, d_v)
    blocks = output_blocks(weight, h)  # (h, d_v, d_model)
    swapped = z[:, [1, 0, 2]]
    y = merge_heads(z) @ weight.T
    torch.testing.assert_close(y, sum(z[:, i] @ blocks[i] for i in range(h)))
    assert differ(merge_heads(swapped) @ weight.T, y)

    tied = blocks[:1].expand(h, -1, -1).flatten(0, 1)  # (h·d_v, d_model): the same block h times
    torch.testing.assert_close(merge_heads(z) @ tied, z.sum(dim=1) @ blocks[0])
    torch.testing.assert_close(merge_heads(swapped) @ tied, merge_heads(z) @ tied)


def test_training_ablation():
    """What the recorded runs support, seed by seed: sum and mean behind the concats, which change places."""
    path = Path(mhalesson.__file__).parent / "data" / "training_ablation.json"
    variants = json.loads(path.read_text(encoding="utf-8"))["variants"]
    says("training-ablation", *(f"{variant['mean']:.3f} ± {variant['sd']:.3f}" for variant in variants))
    assert [variant["name"] for variant in variants] == [
        "concat + W_O",
        "concat only",
        "concat only, equal parameters",
        "raw sum",
        "mean",
    ]
    losses = torch.tensor([[run["validation_loss"] for run in variant["runs"]] for variant in variants])
    concats, sums = losses.tensor_split([3])  # (3, seeds), (2, seeds)
    assert losses.shape[1] >= 5
    assert (sums > concats.max(dim=0).values).all()
    for a, b in itertools.combinations(concats, 2):
        assert (a < b).any()
        assert (b < a).any()


# --------------------------------------------------------------------------------- 03 · W_O in blocks


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_block_identity(dtype):
    """The layer's own output equals the sum of the blocks; the wrong axis or h biases do not."""
    mha = attention().to(dtype)
    x = rand(B, T, d_model).to(dtype)
    z, y, weight, bias = mha.heads(x), mha(x), mha.o_proj.weight, mha.o_proj.bias
    by_heads = sum(z[:, i] @ weight.T[i * d_v : (i + 1) * d_v] for i in range(h))  # bands of rows of W_O
    torch.testing.assert_close(by_heads + bias, y)
    torch.testing.assert_close(head_contributions(z, weight).sum(dim=1) + bias, y)

    wrong_axis = weight.view(h, d_v, d_model)  # bands of rows of nn.Linear.weight: the right shape
    assert differ((z @ wrong_axis).sum(dim=1) + bias, y)
    assert differ(by_heads + h * bias, y)


EXAMPLE_W_O = torch.tensor([[0.5, 0.1, 0, 0], [0, 0.5, 0.1, 0], [0.1, 0, 0.5, 0], [0, 0, 0.1, 0.5]])
EXAMPLE_Z = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).view(1, 2, 1, 2)  # (B, h, T, d_v)


def test_worked_example():
    """Both heads' shares, their sum, and what the untransposed matrix makes of it."""
    o_proj = nn.Linear(4, 4, bias=False)

    def y(weight):
        o_proj.weight.data = weight
        return o_proj(merge_heads(EXAMPLE_Z)).flatten().detach()  # (d_model,)

    shares = head_contributions(EXAMPLE_Z, EXAMPLE_W_O.T)[0, :, 0]  # (h, d_model)
    torch.testing.assert_close(shares, torch.tensor([[0.5, 1.1, 0.2, 0.0], [0.3, 0.0, 1.9, 2.0]]))
    torch.testing.assert_close(y(EXAMPLE_W_O.T), torch.tensor([0.8, 1.1, 2.1, 2.0]))
    torch.testing.assert_close(y(EXAMPLE_W_O), torch.tensor([0.7, 1.3, 1.6, 2.3]))


def test_example_mixing():
    """Which entries join which heads: two within a head, two across, two outputs that read both."""
    entries = [(i, j) for i, j in EXAMPLE_W_O.nonzero().tolist() if i != j]
    across = [(i + 1, j + 1) for i, j in entries if i // 2 != j // 2]
    assert len(entries) == 4
    assert across == [(2, 3), (3, 1)]
    heard = output_blocks(EXAMPLE_W_O.T, num_heads=2).abs().sum(dim=1) > 0  # (h, d_model)
    assert heard.int().tolist() == [[1, 1, 1, 0], [1, 0, 1, 1]]


def test_wo_square():
    """GPT-2's W_O is square, Gemma's is not; the ledger and the module agree."""
    for preset, shape in ((GPT2_SMALL, (768, 768)), (GEMMA_7B, (4096, 3072))):
        mha = on_meta(MultiHeadAttention, **preset)
        assert attention_ledger(**preset)["W_O"].shape == tuple(mha.o_proj.weight.T.shape) == shape
        x = torch.empty(B, T, preset["d_model"], device="meta")
        assert mha(x).shape == x.shape  # the width of the stream is restored, square or not
    says("wo-square", *map(str, (GEMMA_7B["num_heads"], GEMMA_7B["d_head"], *shape)))


def test_wo_params():
    """The ledger's formula, and a module counted."""
    o_proj = on_meta(MultiHeadAttention, **GPT2_SMALL).o_proj
    assert o_proj.weight.numel() == 768 * 768 == 589_824
    assert o_proj.bias.numel() == 768
    assert attention_ledger(**GPT2_SMALL)["W_O"].parameters == count_parameters(o_proj) == 590_592


def test_wo_flops():
    """The ledger against torch's own counter, for W_O, for attention and for the block."""
    context, width = 1024, 768
    mha = on_meta(MultiHeadAttention, **GPT2_SMALL, implementation="batched")
    mlp = on_meta(lambda: nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)))
    ledger = attention_ledger(**GPT2_SMALL, context=context)
    block = attention_ledger(**GPT2_SMALL, context=context, d_ff=4 * width)

    W_O, whole, beside = (flops(part, 1, context, width) // context for part in (mha.o_proj, mha, mlp))
    assert W_O == ledger["W_O"].flops_per_token == 2 * width**2 == 1_179_648
    assert (whole, whole + beside) == (ledger.flops_per_token, block.flops_per_token)
    says("wo-flops", *(f"{100 * W_O / total:.0f} %" for total in (whole, whole + beside)))


def test_same_as_qkv_gpt2():
    """A third of the fused matrix is as large as W_O; the whole is three times as large."""
    width = GPT2_SMALL["d_model"]
    c_attn, c_proj = torch.empty(width, 3 * width, device="meta"), torch.empty(width, width, device="meta")
    assert tuple(c_attn.shape) == (768, 2304)
    assert [third.shape for third in c_attn.chunk(3, dim=1)] == [c_proj.shape] * 3
    assert c_attn.numel() == 3 * c_proj.numel()
    ledger, mha = attention_ledger(**GPT2_SMALL), on_meta(MultiHeadAttention, **GPT2_SMALL)
    assert {ledger[name].shape for name in ("W_Q", "W_K", "W_V", "W_O")} == {tuple(c_proj.shape)}
    assert ledger.parameters == count_parameters(mha) == c_attn.numel() + c_proj.numel() + 4 * width


def test_same_as_qkv_llama3():
    """Grouped heads: the ratios of three models, and the sum of the whole 8B model."""
    for name, preset in {"8B": LLAMA3_8B, "70B": LLAMA3_70B, "405B": LLAMA3_405B}.items():
        ledger, mha = attention_ledger(**preset), on_meta(MultiHeadAttention, **preset)
        q, k, v, o = (p.weight.numel() for p in (mha.q_proj, mha.k_proj, mha.v_proj, mha.o_proj))
        assert [ledger[name].parameters for name in ("W_Q", "W_K", "W_V", "W_O")] == [q, k, v, o]
        ratio = preset["num_heads"] // preset["num_kv_heads"]
        assert q == o == ratio * k == ratio * v
        says("same-as-qkv-llama3", f"{ratio} for {name}", *((f"{o:,}", f"{k:,}") if name == "8B" else ()))

    def whole_model(num_kv_heads, width=4096, d_ff=14_336, vocabulary=128_256, layers=32):
        mha = on_meta(MultiHeadAttention, **{**LLAMA3_8B, "num_kv_heads": num_kv_heads})
        mlp = [on_meta(nn.Linear, width, d_ff, bias=False) for _ in range(3)]  # gate, up, down (transposed)
        norm = on_meta(nn.RMSNorm, width)
        layer = nn.ModuleList([mha, *mlp, norm, norm])
        per_layer = count_parameters(layer) + count_parameters(norm)  # parameters() lists a module once
        ends = [on_meta(nn.Embedding, vocabulary, width), on_meta(nn.Linear, width, vocabulary, bias=False)]
        return layers * per_layer + sum(map(count_parameters, [*ends, norm]))

    fits = [kv for kv in (1, 2, 4, 8, 16, 32) if whole_model(kv) == 8_030_261_248]
    assert fits == [8]
    says("same-as-qkv-llama3", f"{8_030_261_248:,}")


def test_rows_reveal_importance():
    """The right axis; a frame for any ranking; and trained heads, by block norm and by contribution."""
    mha, x = attention(), rand(B, T, d_model)

    def block_norms(mha):
        return output_blocks(mha.o_proj.weight, h).norm(dim=(1, 2)).detach()  # (h,)

    norms = block_norms(mha)
    by_columns = torch.stack([band.norm() for band in mha.o_proj.weight.chunk(h, dim=1)])
    by_rows = torch.stack([band.norm() for band in mha.o_proj.weight.chunk(h, dim=0)])
    torch.testing.assert_close(by_columns, norms)
    assert not torch.allclose(by_rows, norms, rtol=1e-3)

    for wanted in map(torch.tensor, itertools.permutations([1.0, 2.0, 3.0])):  # any ranking you like
        scaled = mha
        for i in range(h):
            scaled = change_frame(scaled, i, torch.eye(d_v).double() * norms[i] / wanted[i])
        torch.testing.assert_close(block_norms(scaled), wanted.double())
        torch.testing.assert_close(scaled(x), mha(x))

    by_block, by_contribution = [], []
    for layer in load_trained_heads().layers:
        blocks = layer.W_O.unflatten(0, (12, -1))  # (h, d_v, d_model)
        sizes = head_contributions(layer.z, layer.W_O.T).norm(dim=-1).mean(dim=(0, 2))  # (h,)
        by_block.append(spearman(blocks.norm(dim=(1, 2)), layer.damage))
        by_contribution.append(spearman(sizes, layer.damage))
    for figures in (by_block, by_contribution):
        says("rows-reveal-importance", ", ".join(f"{figure:.2f}" for figure in figures))
    by_chance = torch.rand(100_000, 12).argsort(dim=1).double() - torch.arange(12)  # differences of places
    spread = 1 - 6 * by_chance.square().sum(dim=1) / (12 * (12**2 - 1))
    assert (spread.abs() > 0.585).double().mean().item() == pytest.approx(0.05, abs=0.003)
    says("rows-reveal-importance", "0.59")
    assert min(by_contribution) > 0.59 > sorted(map(abs, by_block))[len(by_block) // 2]
    assert all(a > b for a, b in zip(by_contribution, by_block, strict=True))


def test_full_rank():
    """Random: full. Tied blocks: d_v, and the layer runs. Trained: what float16 lets us say."""
    mha = attention()
    assert rank(mha.o_proj.weight) == d_model
    assert [rank(block) for block in output_blocks(mha.o_proj.weight, h)] == [d_v] * h
    with torch.no_grad():
        mha.o_proj.weight.copy_(mha.o_proj.weight[:, :d_v].repeat(1, h))
    assert rank(mha.o_proj.weight) == d_v
    assert mha(rand(B, T, d_model)).isfinite().all()

    clear = []
    for layer in load_trained_heads().layers:
        W_O = layer.W_O.double()
        # Storing in float16 moves an entry by 2⁻¹¹ of itself (a tiny one by 2⁻²⁵) at most, and so, by Weyl's
        # inequality, a singular value by no more than this.
        rounding = 2**-11 * W_O.norm() + 2**-25 * len(W_O)
        values = torch.linalg.svdvals(W_O)
        clear.append((values > rounding).sum().item())
        assert values[-1] < values[0] / 1000
        assert all(torch.linalg.svdvals(block).min() > rounding for block in W_O.unflatten(0, (12, -1)))
    says("full-rank", "32", str(len(W_O)), str(min(clear)))


def test_shared_block():
    """The recorded figures, and each layer's own output with the mean block, from the shipped heads."""
    heads = load_trained_heads()
    says("shared-block", *(f"{heads.figures[f'{name}_cosine']:.2f}" for name in ("shared_block", "identity")))
    for layer in heads.layers:
        z_cat = merge_heads(layer.z)  # (sentences, T, h·d_v)
        shared = layer.W_O.unflatten(0, (12, -1)).mean(dim=0).repeat(12, 1)  # (h·d_v, d_model)
        y, same, none = z_cat @ layer.W_O, z_cat @ shared, z_cat
        kept = [F.cosine_similarity(y, other, dim=-1).mean().item() for other in (y, same, none)]
        assert kept[0] > 0.999
        assert 0.5 > kept[1] > kept[2]


# ---------------------------------------------------------------------- 04 · the journey of a 4D tensor


def test_shape_ledger():
    """The shapes in the order in which they came; and the three cases in which one is different."""
    journey = iter(record(attention(implementation="batched"), rand(B, T, d_model)).shapes())
    ledger = [(B, T, d_model), (B, T, h, d_v), (B, h, T, d_v), (B, h, T, T), (B, h, T, d_v), (B, T, h * d_v)]
    assert all(shape in journey for shape in [*ledger, (B, T, d_model)])  # `in` reads on from where it was

    grouped = record(attention(num_heads=6, num_kv_heads=2, d_head=d_v), rand(B, T, d_model)).shapes()
    assert (B, 2, T, d_v) in grouped
    assert (B, 6, T, d_v) in grouped
    assert (B, T, 6 * d_v) in grouped
    assert grouped[-1] == (B, T, d_model) != (B, T, 6 * d_v)
    q, k = rand(B, h, T, d_v), rand(B, h, T + 2, d_v)
    assert (q @ k.transpose(-2, -1)).shape == (B, h, T, T + 2)


def test_transpose_is_strides():
    """Same memory, other strides, and nothing but views on the way; a copy would not share."""
    x = rand(B, T, d_model)
    heads = split_heads(x, h)
    assert heads.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    cut = x.view(B, T, h, d_v)
    assert heads.shape == (B, h, T, d_v)
    assert heads.stride() == tuple(cut.stride(axis) for axis in (0, 2, 1, 3)) != cut.stride()
    heads[1, 2, 3, 0] = 77.0
    assert x[1, 3, 2 * d_v].item() == 77.0
    heads.contiguous()[1, 2, 3, 0] = 88.0
    assert x[1, 3, 2 * d_v].item() == 77.0


def test_contiguous_required():
    """When view works without it: all small sizes; never needed by others; and what attention returns."""
    for batch, heads, tokens, width in itertools.product((1, 2, 3), repeat=4):
        z = rand(batch, heads, tokens, width)
        back = z.transpose(1, 2)  # (B, T, h, d_v)
        merged = back.contiguous().view(batch, tokens, -1)  # (B, T, h·d_v)
        for other in (back.reshape(batch, tokens, -1), back.flatten(2), torch.cat(z.unbind(1), dim=-1)):
            assert torch.equal(other, merged)
        if 1 in (heads, tokens, width):
            assert torch.equal(back.view(batch, tokens, -1), merged)
        else:
            with pytest.raises(RuntimeError, match="view"):
                back.view(batch, tokens, -1)

    q = split_heads(rand(B, T, h * d_v), h)  # a transposed view
    for causal in (False, True):
        fused = F.scaled_dot_product_attention(q, q, q, is_causal=causal)
        assert fused.transpose(1, 2).is_contiguous()
        fused = F.scaled_dot_product_attention(q.contiguous(), q, q, is_causal=causal)
        assert not fused.transpose(1, 2).is_contiguous()
    wide = split_heads(rand(B, T, h * (d_v + 1)), h)  # values wider than keys
    assert not F.scaled_dot_product_attention(q, q, wide).transpose(1, 2).is_contiguous()
    for z in (q, q.contiguous()):
        by_hand = (z @ z.transpose(-2, -1)).softmax(dim=-1) @ z
        assert not by_hand.transpose(1, 2).is_contiguous()


def test_contiguous_rearranges():
    """New memory in row-major order, the old untouched; and no copy of what is contiguous."""
    z = rand(B, h, T, d_v)
    back = z.transpose(1, 2)  # (B, T, h, d_v)
    before = z.flatten().clone()  # the memory, as it lies
    copied = back.contiguous()
    assert copied.data_ptr() != z.data_ptr()
    assert torch.equal(copied, back)
    assert copied.stride() == (T * h * d_v, h * d_v, d_v, 1) != back.stride()
    assert torch.equal(z.flatten(), before)
    assert not back.is_contiguous()
    assert copied.contiguous().data_ptr() == copied.data_ptr()
    assert record(copied.contiguous).names.count("clone") == 0


def test_view_scrambles():
    """Every value says whose it is; then a Jacobian over positions finds the leak."""
    batch, head, token, channel = torch.meshgrid(*map(torch.arange, (B, h, T, d_v)), indexing="ij")
    z = (1000 * batch + 100 * head + 10 * token + channel).double()  # contiguous, (B, h, T, d_v)
    right, wrong = merge_heads(z), z.view(B, T, h * d_v)
    assert right.shape == wrong.shape == (B, T, h * d_v)
    strided = split_heads(right, h)  # the same z, not contiguous
    assert torch.equal(strided, z)
    assert torch.equal(strided.reshape(B, T, h * d_v), wrong)

    def origin(merged):
        """(head, token) of the values that stand in token 0 of the first sequence."""
        return {(int(v) // 100, int(v) // 10 % 10) for v in merged[0, 0].tolist()}

    assert origin(right) == {(0, 0), (1, 0), (2, 0)}
    assert origin(wrong) == {(0, 0), (0, 1), (0, 2)}

    mha = attention(implementation="batched")  # causal
    x = rand(1, T, d_model)

    def hears_the_future(merge):
        jacobian = torch.autograd.functional.jacobian(lambda x: mha.o_proj(merge(mha.heads(x))), x)
        strength = jacobian[0, :, :, 0].norm(dim=(1, 3))  # (T, T): of token i for a nudge of token j
        return strength.triu(diagonal=1).max().item() > 1e-6

    assert not hears_the_future(merge_heads)
    assert hears_the_future(lambda z: z.view(1, T, d_model))
    mha.implementation = "fused"
    assert hears_the_future(lambda z: z.reshape(1, T, d_model))
    with pytest.raises(RuntimeError, match="view"):
        mha.heads(x).view(1, T, d_model)


def test_kv_same_width():
    """Llama-3-8B's grouped keys and values, and torch's own cross-attention."""
    llama, x = on_meta(MultiHeadAttention, **LLAMA3_8B), torch.empty(B, T, 4096, device="meta")
    assert llama.q_proj(x).shape == (B, T, 4096)
    for proj in (llama.k_proj, llama.v_proj):
        assert proj(x).shape == (B, T, 1024)
        assert split_heads(proj(x), 8).shape == (B, 8, T, 128)
    gpt2, x = on_meta(MultiHeadAttention, **GPT2_SMALL), torch.empty(B, T, 768, device="meta")
    assert {proj(x).shape for proj in (gpt2.q_proj, gpt2.k_proj, gpt2.v_proj)} == {x.shape}

    cross, memory = nn.MultiheadAttention(d_model, h, kdim=7, vdim=9, batch_first=True), T + 2
    y, weights = cross(torch.randn(B, T, d_model), torch.randn(B, memory, 7), torch.randn(B, memory, 9))
    assert y.shape == (B, T, d_model)
    assert weights.shape == (B, T, memory)


@pytest.mark.parametrize(("batch", "clones"), [(1, 0), (2, 1)])
def test_gpu_reshapes(batch, clones):
    """Split: only views. The products: a clone of each operand if B > 1. Merge: one."""
    x = rand(batch, T, d_model)
    split = record(split_heads, x, h)
    assert set(split.names) <= {"view", "transpose"}
    assert all(t.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for t in split.outputs)

    q = k = v = split_heads(x, h)
    scores = record(torch.matmul, q, k.transpose(-2, -1))
    context = record(torch.matmul, torch.ones(batch, h, T, T).double(), v)
    assert (scores.names.count("clone"), context.names.count("clone")) == (2 * clones, clones)
    assert record(merge_heads, rand(batch, h, T, d_v)).names.count("clone") == 1


def test_single_bmm():
    """Two bmm over B·h matrices and four projections; none when fused; and the memory of both."""
    x = rand(B, T, d_model)
    batched, fused = (record(attention(implementation=name), x) for name in ("batched", "fused"))
    assert batched.inputs_of("bmm") == [[(B * h, T, d_v), (B * h, d_v, T)], [(B * h, T, T), (B * h, T, d_v)]]
    assert batched.names.count("addmm") == fused.names.count("addmm") == 4
    assert "bmm" not in fused.names
    assert (B, h, T, T) in batched.shapes()
    assert (B, h, T, T) not in fused.shapes()
    with pytest.raises(RuntimeError, match="3D"):
        torch.bmm(rand(B, h, T, d_v), rand(B, h, d_v, T))

    scores, z = (torch.empty(1, 12, 1024, n, device="meta", dtype=torch.float32) for n in (1024, 64))
    sizes = [t.numel() * t.element_size() // MIB for t in (scores, z)]
    says("single-bmm", *(f"{size} MiB" for size in sizes))
    q = torch.randn(z.shape)  # now for real, and torch's profiler watches inside the kernel too
    by_hand = largest_allocation(lambda q: (q @ q.transpose(-2, -1)).softmax(dim=-1) @ q, q)
    by_kernel = largest_allocation(F.scaled_dot_product_attention, q, q, q)
    assert [by_hand // MIB, by_kernel // MIB] == sizes


@pytest.mark.filterwarnings("ignore:The use of `x.T` on tensors of dimension other than 2")
def test_transpose_notation():
    """.T turns four dimensions around, .transpose(-2, -1) two."""
    k = rand(B, h, T, d_v)
    assert k.T.shape == (d_v, T, h, B)
    assert torch.equal(k.T, k.permute(3, 2, 1, 0))
    assert k.transpose(-2, -1).shape == (B, h, d_v, T)
    torch.testing.assert_close((k @ k.transpose(-2, -1))[1, 2], k[1, 2] @ k[1, 2].T)  # head by head it is ᵀ
    with pytest.raises(RuntimeError):
        k @ k.T


def test_universal_pipeline():
    """torch's own multi-head attention: sequence first, 3D products, and the same maths as ours."""
    ours = attention(causal=False)
    theirs = nn.MultiheadAttention(d_model, h).double()
    with torch.no_grad():
        projections = (ours.q_proj, ours.k_proj, ours.v_proj)
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        theirs.out_proj.load_state_dict(ours.o_proj.state_dict())

    x = rand(B, T, d_model)
    x_first = x.transpose(0, 1)  # (T, B, d_model)
    y_first, _ = theirs(x_first, x_first, x_first)
    torch.testing.assert_close(y_first.transpose(0, 1), ours(x))

    steps = record(theirs, x_first, x_first, x_first)
    assert steps.inputs_of("bmm")[0][0] == (B * h, T, d_v)
    assert (B, h, T, d_v) not in steps.shapes()
    assert (B, h, T, d_v) in record(ours, x).shapes()


# ------------------------------------------------------------------ 05 · loop or one batched product


def test_loop_catastrophic():
    """Count, do not time: the loop's operations grow with h, the batched form's do not."""

    def run(name, heads):
        mha = attention(d_model=48, num_heads=heads, implementation=name)
        x = torch.linspace(-1, 1, B * T * 48, dtype=torch.float64).view(B, T, 48)  # the same for all
        return record(mha, x), mha(x)

    (loop_2, y), (loop_4, _), (loop_8, y_8) = (run("loop", heads) for heads in (2, 4, 8))
    assert len(loop_8) - len(loop_4) == 2 * (len(loop_4) - len(loop_2)) > 0  # so many for each head
    for name in ("batched", "fused"):
        few, many = run(name, 2), run(name, 8)
        assert len(few[0]) == len(many[0]) < len(loop_2)
        torch.testing.assert_close(few[1], y)
        torch.testing.assert_close(many[1], y_8)
    assert (B, 8, T, T) not in loop_8.shapes()
    assert (B, T, T) in loop_8.shapes()
    assert (B, 8, T, T) in run("batched", 8)[0].shapes()

    layers = [on_meta(MultiHeadAttention, 48, 8, implementation=name) for name in ("loop", "batched")]
    assert len({flops(layer, B, T, 48) for layer in layers}) == 1  # the same arithmetic


def test_single_gemm():
    """Products counted, at two h: 4 + 2 batched, 4 + 1 kernel fused, 4 + 2 a head in a loop."""
    for heads in (2, 8):
        x = rand(B, T, 48)
        names = {
            name: record(attention(d_model=48, num_heads=heads, implementation=name), x).names
            for name in ("loop", "batched", "fused")
        }
        assert [called.count("addmm") for called in names.values()] == [4, 4, 4]
        assert [called.count("bmm") for called in names.values()] == [2 * heads, 2, 0]
        assert sum("scaled_dot_product" in name for name in names["fused"]) == 1


# --------------------------------------------------------------------------- the list and its page

VERDICTS = {
    "isolated-slices": "holds",
    "isolation-term": "no source",
    "private-frame": "holds when",
    "until-next-layer": "does not hold",
    "modulate": "does not hold",
    "must-recombine": "imprecise",
    "chief-reads": "imprecise",
    "fully-integrated": "imprecise",
    "concat-lossless": "holds",
    "sum-loses": "imprecise",
    "mha-is-a-sum": "imprecise",
    "training-ablation": "no source",
    "averaging-history": "no source",
    "vaswani-insight": "does not hold",
    "formalized-2017": "holds",
    "why-wo": "no source",
    "block-identity": "holds",
    "worked-example": "holds",
    "example-mixing": "imprecise",
    "wo-square": "holds when",
    "wo-params": "holds",
    "wo-flops": "holds",
    "same-as-qkv-gpt2": "holds when",
    "same-as-qkv-llama3": "does not hold",
    "rows-reveal-importance": "imprecise",
    "full-rank": "holds when",
    "shared-block": "holds",
    "shape-ledger": "holds when",
    "transpose-is-strides": "holds",
    "contiguous-required": "imprecise",
    "contiguous-rearranges": "imprecise",
    "view-scrambles": "holds",
    "kv-same-width": "holds when",
    "gpu-reshapes": "imprecise",
    "single-bmm": "imprecise",
    "transpose-notation": "imprecise",
    "universal-pipeline": "does not hold",
    "t2t-pioneered": "imprecise",
    "volta": "does not hold",
    "loop-catastrophic": "imprecise",
    "single-gemm": "imprecise",
}


def test_list_of_verdicts():
    """The ids, their order and their verdicts are these, and nobody changes one in passing."""
    assert [(claim["id"], claim["verdict"]) for claim in read_claims()] == list(VERDICTS.items())


def test_list_is_complete():
    """Every claim belongs to a notebook, says something, and shows evidence; ours are marked and hold."""
    known = {"id", "notebook", "statement", "verdict", "exactly", "test", "source", "ours"}
    for claim in read_claims():
        assert claim.keys() <= known, claim["id"]
        assert claim["notebook"] in NOTEBOOKS, claim["id"]
        assert all(claim[field].endswith((".", ".)")) for field in ("statement", "exactly")), claim["id"]
        assert claim.get("test") or claim["source"], claim["id"]
        assert "ours" not in claim or (claim["ours"] is True and claim["verdict"] == "holds"), claim["id"]


def test_list_names_its_tests():
    """A test for each claim that says so, each with a docstring of one line, and none for any other."""
    tests = {name: fn for name, fn in globals().items() if name.startswith("test_")}
    claimed = {name_of_test(claim["id"]) for claim in read_claims() if claim.get("test")}
    assert claimed == {name for name in tests if not name.startswith("test_list_")}
    assert all(fn.__doc__ and "\n" not in fn.__doc__ for fn in tests.values())


def test_list_is_the_page():
    """notebooks/what_holds.md is what claims.toml makes it; otherwise: python tests/make_what_holds.py."""
    assert PAGE.read_text(encoding="utf-8") == render()
