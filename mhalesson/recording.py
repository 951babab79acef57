"""Recording a run: `python -m mhalesson record` times attention on this machine, for others to read."""

import copy
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhalesson.attention import IMPLEMENTATIONS, MultiHeadAttention, attention_weights
from mhalesson.journey import Journey, record_journey
from mhalesson.timing import CostModel, compare, measure_cost_model

D_MODEL = 768
TOKENS = (1, 8, 32, 128, 512, 2048)
HEADS = (1, 4, 12, 48, 96)
BACKWARD_TO = 512  # tokens
COMPILED = ((1, 12), (128, 12), (2048, 12))  # (tokens, heads), on CUDA only
MINUTES = 4


def ways(mha: MultiHeadAttention) -> dict[str, Callable[[Tensor], Tensor]]:
    """Five ways to run one causal layer, with biases, on its weights: (B, T, d_model) → (B, T, d_model)."""
    same_weights = {name: copy.copy(mha) for name in IMPLEMENTATIONS}
    for name, module in same_weights.items():
        module.implementation = name
    return {
        "loop": same_weights["loop"],
        "loop, split projections": loop_with_split_projections(mha),
        "batched": same_weights["batched"],
        "fused": same_weights["fused"],
        "nn.MultiheadAttention": torch_attention(mha),
    }


def loop_with_split_projections(mha: MultiHeadAttention) -> Callable[[Tensor], Tensor]:
    """The loop as it is often written: each head projects x for itself, with its rows of the weights."""
    d = mha.q_proj.out_features // mha.num_heads

    def run(x: Tensor) -> Tensor:
        T = x.shape[1]
        allowed = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()  # (T, T)
        z = []
        for i in range(mha.num_heads):
            rows = slice(i * d, (i + 1) * d)
            q, k, v = (
                F.linear(x, p.weight[rows], p.bias[rows]) for p in (mha.q_proj, mha.k_proj, mha.v_proj)
            )  # each (B, T, d)
            z.append(attention_weights(q, k, allowed) @ v)  # (B, T, d)
        return mha.o_proj(torch.cat(z, dim=-1))  # (B, T, d_model)

    return run


def torch_attention(mha: MultiHeadAttention) -> Callable[[Tensor], Tensor]:
    """torch's own module with copies of the same weights."""
    weight, d_model = mha.q_proj.weight, mha.q_proj.in_features
    module = nn.MultiheadAttention(
        d_model, mha.num_heads, batch_first=True, device=weight.device, dtype=weight.dtype
    ).eval()
    projections = (mha.q_proj, mha.k_proj, mha.v_proj)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        module.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        module.out_proj.load_state_dict(mha.o_proj.state_dict())

    def run(x: Tensor) -> Tensor:
        T = x.shape[1]
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(diagonal=1)  # True: may not look
        return module(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)[0]

    return run


def and_backward(way: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Forward and backward, returning the output and the gradient of its sum with respect to x."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        y = way(x)
        y.sum().backward()
        return y, x.grad

    return run


def sweep(device: str, minutes: int | float = MINUTES, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Time all `ways` at every point of the sweep, until the `minutes` are over: then points are skipped.

    Returns what `save_run` saves: the machine, its cost model, and for each point the quartile, median and
    quartile of every way, in seconds, with the seconds that the model predicts and how many launches and how
    many views it counts; or why it was skipped.
    """
    deadline = time.monotonic() + 60 * minutes
    models, points, journeys = [measure_cost_model(device)], [], []
    sweep_points = [
        {"T": T, "direction": direction, "h": h}
        for T in TOKENS
        for direction in ("forward", "forward + backward")
        for h in HEADS
        if direction == "forward" or T <= BACKWARD_TO
    ]
    # The cheap ones first: backward costs about as much as forward with a text five times as long.
    sweep_points.sort(key=lambda point: point["T"] * (1 if point["direction"] == "forward" else 5))
    for place, point in enumerate(sweep_points):
        about = {"B": 1, "d_model": D_MODEL}
        try:
            if place == len(sweep_points) // 2:
                models.append(measure_cost_model(device))
            timed, recorded = time_point(**point, device=device, deadline=deadline)
        except torch.OutOfMemoryError:
            timed, recorded = {"skipped": "not enough memory"}, {}
        except KeyboardInterrupt:  # what is measured is kept
            timed, recorded, deadline = {"skipped": "interrupted"}, {}, 0.0
        points.append(point | about | timed)
        journeys.append(recorded)
        say(describe(points[-1]))
    model = middle_of([*models, measure_cost_model(device)])
    for point, recorded in zip(points, journeys, strict=True):
        if recorded:
            known = {name: journey for name, journey in recorded.items() if journey.flops is not None}
            point["predicted"] = {name: model.predict(journey) for name, journey in known.items()}
            views = {name: sum(step.kind == "view" for step in journey) for name, journey in known.items()}
            point["operations"] = {
                name: [len(known[name].steps) - views[name], views[name]] for name in known
            }
    return {"machine": machine(device), "cost_model": vars(model), "points": points}


def middle_of(models: list[CostModel]) -> CostModel:
    """Each constant as the median: a machine is not equally fast for four minutes."""
    return CostModel(
        **{name: median(getattr(model, name) for model in models) for name in ("launch", "view", "peak")},
        bandwidth=[
            (pairs[0][0], median(speed for _, speed in pairs))
            for pairs in zip(*(model.bandwidth for model in models), strict=True)
        ],
    )


def time_point(
    T: int, direction: str, h: int, device: str, deadline: float
) -> tuple[dict[str, Any], dict[str, Journey]]:
    """The times of every way at one point, or why there are none; and the journeys of all ways."""
    if time.monotonic() > deadline:
        return {"skipped": "no time left"}, {}
    if not fits(T, h, device):
        return {"skipped": "not enough memory"}, {}
    torch.manual_seed(0)
    mha = MultiHeadAttention(D_MODEL, h).to(device)
    x = [(torch.randn(1, T, D_MODEL, device=device),) for _ in range(3)]  # each (B, T, d_model)
    functions = ways(mha)
    if direction == "forward + backward":
        functions = {name: and_backward(way) for name, way in functions.items()}
    repeats = 5 if T <= 128 else 3
    with torch.set_grad_enabled(direction == "forward + backward"):
        needed = (len(x) + 2 * repeats) * sum(
            _seconds_of_a_call(way, x[0], device) for way in functions.values()
        )
        if time.monotonic() + needed > deadline:
            return {"skipped": f"no time left: it would take about {needed:.0f} s"}, {}
        journeys = {name: record_journey(way, *x[0]) for name, way in functions.items()}
        times = compare(functions, inputs=x, device=device, repeats=repeats)
        timed = {"seconds": {name: [t.quartiles[0], t.median, t.quartiles[1]] for name, t in times.items()}}
        if device == "cuda" and (T, h) in COMPILED and direction == "forward":
            timed["compiled"] = time_compiled(functions["batched"], x, repeats)
    return timed, journeys


def time_compiled(way: Callable, x: list[tuple[Tensor]], repeats: int) -> dict[str, Any]:
    """The batched form through torch.compile, which not every machine with a GPU can do."""
    torch._dynamo.reset()  # or a third size would run what was compiled for two others
    try:
        times = compare({"batched, compiled": torch.compile(way)}, inputs=x, device="cuda", repeats=repeats)
    except Exception as error:  # the compiler's own, of many kinds; the rest of the run is not to be lost
        return {"skipped": f"{type(error).__name__}"}
    t = times["batched, compiled"]
    return {"seconds": [t.quartiles[0], t.median, t.quartiles[1]]}


def _seconds_of_a_call(way: Callable, arguments: tuple, device: str) -> float:
    started = time.monotonic()
    way(*arguments)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - started


def fits(T: int, h: int, device: str) -> bool:
    """Is there memory for about eight tensors like the scores, (B, h, T, T)? Where nobody knows: yes."""
    if device == "cuda":
        torch.cuda.empty_cache()  # what torch keeps for itself counts as free
        free = torch.cuda.mem_get_info()[0]
    elif "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        return True
    return 8 * h * T * T * 4 < free


def describe(point: dict[str, Any]) -> str:
    head = f"T = {point['T']}, h = {point['h']}, {point['direction']}: "
    if "skipped" in point:
        return head + point["skipped"]
    return head + ", ".join(f"{name} {1000 * s[1]:.3g} ms" for name, s in point["seconds"].items())


def machine(device: str = "cpu") -> dict[str, Any]:
    """What a recorded time must not go without: device, driver, versions, threads, date."""
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else _cpu_name(),
        "driver": _driver() if device == "cuda" else None,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": date.today().isoformat(),
    }


def _driver() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("\n")[0] or None


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
