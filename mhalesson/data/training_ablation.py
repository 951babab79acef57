"""Train one toy language model five times over, each time with another way to recombine the heads.

    python -m mhalesson.data.training_ablation [--seeds 5] [--steps 1200] [--out FILE]

The model predicts the next character: two pre-LayerNorm blocks (causal attention, then an MLP), d_model 64,
h = 8 heads, d_v = 8. z_i is what head i puts out; W is (d_in, d_model) as in the maths. In both blocks:

- concat + W_O: y = [z_1 … z_h] W_O. Every head has a block of W_O of its own.
- concat only: y = [z_1 … z_h]. Each head writes into its own 8 of the 64 channels, nowhere else.
- concat only, equal parameters: the same, and the MLP is 32 units wider, about what W_O would have held.
- raw sum: y = (z_1 + … + z_h) W. All heads share the one block W (d_v, d_model).
- mean: y = (z_1 + … + z_h) W / h. With W h times as large this is the raw sum, so both can learn the same
  functions; but W starts as it does there, and AdamW's steps do not grow to make up for the 1/h.

This is toy evidence: one small model, one text, one short training. Nothing was tuned, for no variant. The
layers start as torch starts them, so entries of the smaller W start larger (like 1/√d_in). For one seed all
variants see the same batches, and layers of the same name and shape start from the same weights. The text is
CPython's own help: another version of Python may bring another text.
"""

import argparse
import datetime
import hashlib
import platform
import pydoc_data.topics
import statistics
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from mhalesson._records import write_record

D_MODEL, HEADS, LAYERS, CONTEXT, BATCH, LEARNING_RATE = 64, 8, 2, 64, 32, 1e-3
D_V, D_MLP = D_MODEL // HEADS, 4 * D_MODEL
EVALUATE_EVERY = 300


def concat(z):
    return z.transpose(1, 2).flatten(2)  # (B, T, h·d_v)


def raw_sum(z):
    return z.sum(dim=1)  # (B, T, d_v)


def mean(z):
    return z.mean(dim=1)  # (B, T, d_v)


class Variant(NamedTuple):
    name: str
    computes: str
    join: Callable  # the heads' outputs (B, h, T, d_v) -> one vector a token
    d_joined: int | None  # what the output projection reads; None: there is no projection
    d_mlp: int = D_MLP


# One more unit in the MLP costs 2·d_model weights and a bias; 32 of them cost 4128, W_O 4096.
WIDER = D_MLP + round(D_MODEL * D_MODEL / (2 * D_MODEL + 1))
VARIANTS = (
    Variant("concat + W_O", "concat(z_1 … z_h) W_O, W_O (h·d_v, d_model)", concat, D_MODEL),
    Variant("concat only", "concat(z_1 … z_h)", concat, None),
    Variant("concat only, equal parameters", f"concat(z_1 … z_h), and d_mlp {WIDER}", concat, None, WIDER),
    Variant("raw sum", "(z_1 + … + z_h) W, one shared W (d_v, d_model)", raw_sum, D_V),
    Variant("mean", "(z_1 + … + z_h) W / h, one shared W (d_v, d_model)", mean, D_V),
)


class Attention(nn.Module):
    def __init__(self, variant):
        super().__init__()
        self.qkv_proj = nn.Linear(D_MODEL, 3 * D_MODEL, bias=False)
        self.join = variant.join
        d_in = variant.d_joined
        self.o_proj = nn.Linear(d_in, D_MODEL, bias=False) if d_in else nn.Identity()

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = self.qkv_proj(x).view(B, T, 3, HEADS, D_V).permute(2, 0, 3, 1, 4)  # three of (B, h, T, d_v)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(self.join(z))  # (B, T, d_model)


class Block(nn.Module):
    def __init__(self, variant):
        super().__init__()
        self.norm_1, self.attention = nn.LayerNorm(D_MODEL), Attention(variant)
        self.norm_2 = nn.LayerNorm(D_MODEL)
        self.mlp = nn.Sequential(
            nn.Linear(D_MODEL, variant.d_mlp), nn.GELU(), nn.Linear(variant.d_mlp, D_MODEL)
        )

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class LanguageModel(nn.Module):
    def __init__(self, variant, vocabulary, seed):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, D_MODEL), nn.Embedding(CONTEXT, D_MODEL)
        self.blocks = nn.Sequential(*(Block(variant) for _ in range(LAYERS)))
        self.norm, self.unembed = nn.LayerNorm(D_MODEL), nn.Linear(D_MODEL, vocabulary)
        # A seed for each layer's name: what one variant lacks does not shift the random numbers of the rest.
        for name, layer in self.named_modules():
            if hasattr(layer, "reset_parameters"):
                torch.manual_seed(zlib.crc32(f"{seed} {name}".encode()))
                layer.reset_parameters()

    def forward(self, characters):  # (B, T)
        x = self.token(characters) + self.position.weight  # (B, T, d_model)
        return self.unembed(self.norm(self.blocks(x)))  # (B, T, vocabulary)


def read_text():
    topics = pydoc_data.topics.topics
    return "".join(topics[name] for name in sorted(topics))


def loss(model, windows, reduction="mean"):
    """Nats per character: each of the first T characters of a window predicts the one after it."""
    logits = model(windows[:, :-1])  # (B, T, vocabulary)
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction=reduction)  # ()


@torch.no_grad()
def validation_loss(model, characters):
    windows = characters.unfold(0, CONTEXT + 1, CONTEXT)  # (all windows, T + 1)
    total = sum(loss(model, some, "sum").item() for some in windows.split(256))
    return round(total / (len(windows) * CONTEXT), 4)


def train(variant, seed, steps, training, validation, vocabulary):
    """One run from scratch: its final validation loss, and the losses on the way there."""
    model = LanguageModel(variant, vocabulary, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    generator, curve = torch.Generator().manual_seed(seed), []
    windows = training.unfold(0, CONTEXT + 1, 1)  # (all windows, T + 1)
    for step in range(1, steps + 1):
        batch = windows[torch.randint(len(windows), (BATCH,), generator=generator)]  # (B, T + 1)
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
        if step % EVALUATE_EVERY == 0 or step == steps:
            curve.append([step, validation_loss(model, validation)])
    print(f"{variant.name}, seed {seed}: {curve[-1][1]:.4f}", flush=True)
    return {"seed": seed, "validation_loss": curve[-1][1], "curve": curve}


def summary(values):
    """Mean and sample standard deviation; one value alone has no spread."""
    sd = round(statistics.stdev(values), 4) if len(values) > 1 else None
    return {"mean": round(statistics.mean(values), 4), "sd": sd}


def variant_record(variant, runs, baseline_runs, vocabulary):
    losses = [run["validation_loss"] for run in runs]
    differences = [
        round(run["validation_loss"] - other["validation_loss"], 4)
        for run, other in zip(runs, baseline_runs, strict=True)
    ]  # paired: same seed, same batches
    model = LanguageModel(variant, vocabulary, seed=0)
    return {
        "name": variant.name,
        "computes": variant.computes,
        "runs": runs,
        **summary(losses),
        "parameters": sum(p.numel() for p in model.parameters()),
        "minus_concat_w_o": {"per_seed": differences, **summary(differences)},
    }


def ablation(seeds, steps):
    """Train every variant from every seed; return what is written to the file."""
    text = read_text()
    alphabet = sorted(set(text))
    characters = torch.tensor([alphabet.index(character) for character in text])  # (all characters,)
    training, validation = characters.tensor_split([int(0.9 * len(characters))])
    runs = [
        [train(variant, seed, steps, training, validation, len(alphabet)) for seed in range(seeds)]
        for variant in VARIANTS
    ]
    return {
        "what": "Toy evidence: validation loss (nats per character) of a small character model trained from "
        "scratch with five ways to recombine the heads; sd is the sample standard deviation over seeds, "
        "minus_concat_w_o the difference to the first variant, seed by seed.",
        "variants": [
            variant_record(variant, its_runs, runs[0], len(alphabet))
            for variant, its_runs in zip(VARIANTS, runs, strict=True)
        ],
        "settings": {
            "d_model": D_MODEL,
            "heads": HEADS,
            "d_v": D_V,
            "layers": LAYERS,
            "d_mlp": D_MLP,
            "context": CONTEXT,
            "batch": BATCH,
            "steps": steps,
            "learning_rate": LEARNING_RATE,
            "optimizer": "AdamW, otherwise torch's defaults",
            "tuned": "nothing, for no variant",
        },
        "text": {
            "source": "CPython, pydoc_data.topics: all topics in sorted order",
            "characters": len(text),
            "training_characters": len(training),
            "validation_characters": len(validation),
            "vocabulary": len(alphabet),
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
        },
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": datetime.date.today().isoformat(),
        "script": "python -m mhalesson.data.training_ablation",
        "licence_of_text": "Python Software Foundation License Version 2; the text itself is not copied here",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    write_record(arguments.out, ablation(arguments.seeds, arguments.steps))


if __name__ == "__main__":
    main()
