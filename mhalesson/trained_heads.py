"""Heads of a real trained model: what each one says, where W_O takes it, what losing it costs."""

import hashlib
import io
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from mhalesson._records import DATA, RESTORE, read_bytes, read_record


@dataclass(frozen=True, eq=False)  # eq=False: tensors have no single == to compare two of these by
class TrainedLayer:
    """The attention of one layer: y = z_cat @ W_O + b_O, as the maths writes it."""

    W_O: Float32[Tensor, "hd d_model"]  # (h·d_v, d_model), the transpose of nn.Linear.weight
    b_O: Float32[Tensor, " d_model"]
    z: Float32[Tensor, "sentences h T d_v"]  # what each head says, before W_O
    damage: Float32[Tensor, " h"]  # 0: nobody would miss this head; see load_trained_heads


@dataclass(frozen=True, eq=False)
class TrainedHeads:
    """Eight sentences on their way through every layer, and a few recorded figures of the whole model."""

    sentences: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...]
    layers: tuple[TrainedLayer, ...]
    figures: dict[str, float]


def load_trained_heads() -> TrainedHeads:
    """Six layers of twelve trained heads (d_model 384, d_v 32, not causal), as float32 tensors on the CPU.

    They come from all-MiniLM-L6-v2, a model that turns a sentence into one vector: the mean over its
    tokens. Our eight sentences are 12 tokens each. `z` and `W_O` are stored in float16, so they are good
    to three digits; they carry no unit.

    A head's `damage` says how far the sentence's vector turns when that head falls silent (its z becomes
    0, the bias stays): 1 - cosine similarity, averaged over the sentences. `figures` holds the cosine
    similarity that is left when W_O itself changes in all layers at once: `shared_block_cosine` when all
    heads of a layer share their mean block, `identity_cosine` when W_O is the identity. For comparison,
    `other_sentence_cosine` is that of two different sentences. Damage and figures were measured once, on
    the full float32 model. `data/trained_heads.json` tells the rest.

    Raises ValueError when a data file is missing, cut short or changed.

    >>> heads = load_trained_heads()
    >>> heads.sentences[0]
    'The old cat sleeps on the warm kitchen chair.'
    >>> layer = heads.layers[5]
    >>> z_cat = layer.z.transpose(1, 2).flatten(2)  # (8, T, h·d_v)
    >>> y = z_cat @ layer.W_O + layer.b_O
    >>> tuple(y.shape)
    (8, 12, 384)
    >>> layer.damage.argmax().item()  # the head this layer would miss most
    11
    """
    recorded = read_record(DATA / "trained_heads.json")
    npz = DATA / "trained_heads.npz"
    content = read_bytes(npz)
    if len(content) < recorded["npz_bytes"]:
        raise ValueError(f"{npz} is cut short ({len(content)} of {recorded['npz_bytes']} bytes); {RESTORE}")
    if hashlib.sha256(content).hexdigest() != recorded["npz_sha256"]:
        raise ValueError(f"{npz} was changed: its sha256 is not the one in trained_heads.json; {RESTORE}")

    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = [stored[name].astype(np.float32) for name in ("W_O", "b_O", "z", "damage")]
    return TrainedHeads(
        sentences=tuple(recorded["sentences"]),
        tokens=tuple(map(tuple, recorded["tokens"])),
        layers=tuple(TrainedLayer(*map(torch.tensor, layer)) for layer in zip(*arrays, strict=True)),
        figures={name: figure["value"] for name, figure in recorded["figures"].items()},
    )


def load_training_ablation() -> dict:
    """The recorded training runs of notebook 02; `data/training_ablation.py` made them.

    Raises ValueError when the file is missing or is not the one that was recorded.

    >>> [variant["name"] for variant in load_training_ablation()["variants"]][:2]
    ['concat + W_O', 'concat only']
    """
    return read_record(DATA / "training_ablation.json")
