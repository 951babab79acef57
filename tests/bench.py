"""`make bench`: our three implementations beside torch's own, in one table of times and ratios.

Nothing is asserted here: times belong to a machine and an hour. The last column is the same function
timed twice, so differences of its size mean nothing.
"""

import torch
import torch.nn.functional as F

from mhalesson import MultiHeadAttention, attention_ledger, compare
from mhalesson.recording import and_backward, machine, ways
from mhalesson.timing import measure_cost_model

SIZES = [
    (1, 128, 768, 12),
    (1, 1024, 768, 12),
    (8, 128, 768, 12),
    (1, 1, 768, 12),
    (8, 16, 64, 8),
]  # B, T, d, h


def by_hand(mha):
    """The four projections around torch's fused kernel, and nothing else: the least a layer can be."""

    def run(x):
        B, T, _ = x.shape
        q, k, v = (
            p(x).view(B, T, mha.num_heads, -1).transpose(1, 2) for p in (mha.q_proj, mha.k_proj, mha.v_proj)
        )  # each (B, h, T, d)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, h, T, d)
        return mha.o_proj(z.transpose(1, 2).reshape(B, T, -1))  # (B, T, d_model)

    return run


def hugging_face(mha):
    """GPT-2's attention with the same weights, where transformers is installed."""
    try:
        from transformers import GPT2Config
        from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
    except ImportError:
        return {}
    d_model = mha.q_proj.in_features
    config = GPT2Config(n_embd=d_model, n_head=mha.num_heads, attn_implementation="sdpa")
    module = GPT2Attention(config, layer_idx=0).to(mha.q_proj.weight.device).eval()
    three = (mha.q_proj, mha.k_proj, mha.v_proj)
    with torch.no_grad():  # its Conv1D stores (in, out)
        module.c_attn.weight.copy_(torch.cat([p.weight for p in three]).T)
        module.c_attn.bias.copy_(torch.cat([p.bias for p in three]))
        module.c_proj.weight.copy_(mha.o_proj.weight.T)
        module.c_proj.bias.copy_(mha.o_proj.bias)
    return {"HF GPT-2": lambda x: module(x)[0]}


def table(B, T, d_model, h, backward, device):
    torch.manual_seed(0)
    mha = MultiHeadAttention(d_model, h).to(device)
    five = ways(mha)
    contestants = {name: five[name] for name in ("loop", "batched", "fused", "nn.MultiheadAttention")}
    contestants |= {"SDPA by hand": by_hand(mha)} | hugging_face(mha) | {"fused again": five["fused"]}
    if backward:
        contestants = {name: and_backward(way) for name, way in contestants.items()}
    inputs = [(torch.randn(B, T, d_model, device=device),) for _ in range(3)]
    with torch.set_grad_enabled(backward):
        times = compare(contestants, inputs=inputs, device=device, repeats=15)
    rivals = [times["nn.MultiheadAttention"], times["SDPA by hand"]]
    fused, again = times["fused"], times["fused again"]
    ratio = fused / min(rivals, key=lambda t: t.median)
    twice = again / fused
    cells = [f"{1000 * t.median:>10.3f}" for name, t in times.items() if name != "fused again"]
    title = f"{(B, T, d_model, h)!s:<19} {'both' if backward else 'forward':<8}"
    print(
        f"{title}{''.join(cells)}   {ratio.median:.2f} ({ratio.quartiles[0]:.2f} to {ratio.quartiles[1]:.2f})"
        f"   {twice.median:.2f} ({twice.quartiles[0]:.2f} to {twice.quartiles[1]:.2f})",
        flush=True,
    )
    return fused.median


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)  # as page 05, and for its reasons
    print(", ".join(f"{key}: {value}" for key, value in machine(device).items() if value is not None))
    mha = MultiHeadAttention(8, 2)
    names = ["loop", "batched", "fused", "nn.MHA", "by hand", *hugging_face(mha)]
    print(
        f"{'milliseconds':<28}{''.join(f'{name:>10}' for name in names)}   fused / best rival   fused twice"
    )
    forward = {}
    for backward in (False, True):
        for size in SIZES:
            forward[size, backward] = table(*size, backward, device)
    B, T, d_model, h = size = (1, 1024, 768, 12)
    flops = B * T * attention_ledger(d_model, h, context=T).flops_per_token
    reached = flops / forward[size, False]
    peak = measure_cost_model(device).peak
    print(
        f"{size}, forward: {reached / 1e9:.0f} of at most {peak / 1e9:.0f} billion FLOPs a second, "
        f"{reached / peak:.0%} of this machine's largest product (FLOPs nominal, as if nothing were masked)"
    )


if __name__ == "__main__":
    main()
