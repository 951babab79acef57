"""The recorded training ablation: complete, consistent with itself, and its script still runs."""

import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mhalesson.data import training_ablation as script

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "mhalesson" / "data" / "training_ablation.json"
NAMES = ["concat + W_O", "concat only", "concat only, equal parameters", "raw sum", "mean"]


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def recorded():
    return read(RECORDED)


def losses(variant):
    return [run["validation_loss"] for run in variant["runs"]]


def structure(value):
    """The keys and types of a record, whatever its numbers; of a list, those of its first item."""
    if isinstance(value, dict):
        return {key: structure(item) for key, item in value.items() if key != "sd"}  # one seed has no sd
    return [structure(value[0])] if isinstance(value, list) else type(value)


# ---- the recorded file


def test_every_variant_has_at_least_five_seeds(recorded):
    assert [variant["name"] for variant in recorded["variants"]] == NAMES
    seeds = [run["seed"] for run in recorded["variants"][0]["runs"]]
    assert len(set(seeds)) == len(seeds) >= 5
    for variant in recorded["variants"]:
        assert [run["seed"] for run in variant["runs"]] == seeds


def test_every_curve_ends_at_the_final_loss(recorded):
    for variant in recorded["variants"]:
        for run in variant["runs"]:
            steps = [step for step, _ in run["curve"]]
            assert len(steps) >= 3 and steps == sorted(set(steps))
            assert run["curve"][-1] == [recorded["settings"]["steps"], run["validation_loss"]]


def test_mean_and_sd_agree_with_the_runs(recorded):
    baseline = losses(recorded["variants"][0])
    for variant in recorded["variants"]:
        paired = [mine - theirs for mine, theirs in zip(losses(variant), baseline, strict=True)]
        assert variant["minus_concat_w_o"]["per_seed"] == pytest.approx(paired, abs=1e-4)
        for summary, values in ((variant, losses(variant)), (variant["minus_concat_w_o"], paired)):
            assert summary["mean"] == pytest.approx(statistics.mean(values), abs=1e-4)
            assert summary["sd"] == pytest.approx(statistics.stdev(values), abs=1e-4)


def test_file_is_small_sorted_and_says_nothing_of_the_machine(recorded):
    text = RECORDED.read_text(encoding="utf-8")
    assert len(text) < 30_000
    assert text == json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert not any(path in text for path in ("/home/", "/work/", "/root/", "/tmp/", "/usr/", "\\\\"))


def test_recorded_parameters_are_those_of_the_script(recorded):
    for variant, written in zip(script.VARIANTS, recorded["variants"], strict=True):
        assert written["name"] == variant.name and written["computes"] == variant.computes
        model = script.LanguageModel(variant, recorded["text"]["vocabulary"], seed=0)
        assert written["parameters"] == sum(p.numel() for p in model.parameters())


def test_equal_parameters_are_equal_within_one_percent(recorded):
    parameters = {variant["name"]: variant["parameters"] for variant in recorded["variants"]}
    with_w_o = parameters["concat + W_O"]
    assert abs(parameters["concat only, equal parameters"] - with_w_o) < 0.01 * with_w_o
    assert parameters["concat only"] == with_w_o - script.LAYERS * script.D_MODEL**2
    assert parameters["raw sum"] == parameters["mean"]


def test_sum_and_mean_are_clearly_worse(recorded):
    """On every seed, and by far more than the spread; the other two gaps are too small to rank."""
    for variant in recorded["variants"]:
        if variant["name"] in ("raw sum", "mean"):
            gap = variant["minus_concat_w_o"]
            assert min(gap["per_seed"]) > 0 and gap["mean"] > 3 * gap["sd"]


# ---- the recombination

sizes = st.integers(1, 4)


@settings(deadline=None)  # the first call of torch may be slow
@given(B=sizes, h=sizes, T=sizes, d_v=sizes, seed=st.integers(0, 999))
def test_sum_mean_and_concat_differ_as_the_docstring_says(B, h, T, d_v, seed):
    z = torch.randn(B, h, T, d_v, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    z_cat = script.concat(z)
    assert z_cat.shape == (B, T, h * d_v)
    for i in range(h):
        assert torch.equal(z_cat[..., i * d_v : (i + 1) * d_v], z[:, i])
    torch.testing.assert_close(script.raw_sum(z), h * script.mean(z))
    torch.testing.assert_close(z_cat @ torch.eye(d_v, dtype=z.dtype).repeat(h, 1), script.raw_sum(z))


def attention(name, seed=0):
    variant = script.VARIANTS[NAMES.index(name)]
    return script.LanguageModel(variant, vocabulary=5, seed=seed).blocks[0].attention


@torch.no_grad()
def test_the_layers_themselves_are_nested():
    """W_O = identity is concat only, W_O with all blocks tied is the raw sum, that is h times the mean."""
    x = torch.randn(2, 7, script.D_MODEL, generator=torch.Generator().manual_seed(0))
    full, bare, raw_sum, mean = (attention(name) for name in (NAMES[0], NAMES[1], NAMES[3], NAMES[4]))
    torch.testing.assert_close(raw_sum(x), script.HEADS * mean(x))
    full.o_proj.weight.copy_(torch.eye(script.D_MODEL))
    torch.testing.assert_close(full(x), bare(x))
    full.o_proj.weight.copy_(raw_sum.o_proj.weight.repeat(1, script.HEADS))
    torch.testing.assert_close(full(x), raw_sum(x))


def layers(variant, seed):
    """Each layer's own parameters by the layer's name."""
    model = script.LanguageModel(variant, vocabulary=5, seed=seed)
    named = {name: list(layer.parameters(recurse=False)) for name, layer in model.named_modules()}
    return {name: parameters for name, parameters in named.items() if parameters}


@pytest.mark.parametrize("one, other", list(itertools.combinations(script.VARIANTS, 2)))
def test_layers_of_the_same_name_and_shape_start_from_the_same_weights(one, other):
    one, other = layers(one, seed=3), layers(other, seed=3)
    shared = [name for name in one if name in other and one[name][0].shape == other[name][0].shape]
    assert {"token", "position", "blocks.0.attention.qkv_proj", "blocks.1.norm_2", "unembed"} <= set(shared)
    for name in shared:
        assert all(torch.equal(p, q) for p, q in zip(one[name], other[name], strict=True))


def test_another_seed_starts_from_other_weights():
    one, other = (layers(script.VARIANTS[0], seed=seed)["token"][0] for seed in (3, 4))
    assert not torch.equal(one, other)


def test_no_variant_looks_ahead():
    characters = torch.randint(5, (1, script.CONTEXT), generator=torch.Generator().manual_seed(0))
    changed = characters.clone()
    changed[0, 40] = (changed[0, 40] + 1) % 5
    for variant in script.VARIANTS:
        model = script.LanguageModel(variant, vocabulary=5, seed=0)
        same = torch.isclose(model(characters), model(changed), atol=1e-6).all(-1)[0]  # (T,)
        assert same[:40].all() and not same[40]


# ---- the script


def test_script_writes_the_same_structure(recorded, tmp_path):
    out = tmp_path / "short.json"
    command = [sys.executable, "-m", "mhalesson.data.training_ablation", "--steps", "2", "--seeds", "1"]
    subprocess.run([*command, "--out", str(out)], cwd=ROOT, check=True, capture_output=True, timeout=120)
    short = read(out)
    assert structure(short) == structure(recorded)
    assert [variant["name"] for variant in short["variants"]] == NAMES
    for variant in short["variants"]:
        assert [len(variant["runs"]), variant["sd"], variant["runs"][0]["curve"][-1][0]] == [1, None, 2]
