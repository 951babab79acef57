"""The pictures of the pages; each carries its caption with it.

A caption says in words and numbers what its picture shows, computed from the same values: it is what
a screen reader reads, and what strict nbval compares.
"""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product

import numpy as np
import torch
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from mhalesson.journey import STRIP, Journey, Step, record_journey
from mhalesson.text import number, vector, words

# After Okabe and Ito: safe for colour-blind eyes, and dark enough for lines on white (contrast over 3:1).
# Every use also carries a label, a hatch or a line style.
COLOURS = ("#0072B2", "#B86E00", "#00805D", "#B0568A", "#3A7CA5", "#C44E00")
TINTS = ("#BBD9EE", "#FBE3B0", "#B5E2D3", "#F1D7E5", "#D6EDFA", "#F5CDAE")  # the same, behind black text
HATCHES = ("", "//", "..", "xx", "\\\\", "oo")


@dataclass(frozen=True)
class Picture:
    """A PNG and its caption; as the last line of a cell it shows both."""

    png: bytes
    caption: str

    def _ipython_display_(self) -> None:
        image = {"image/png": base64.b64encode(self.png).decode(), "text/plain": "picture"}
        display(image, raw=True)
        display({"text/markdown": f"*{self.caption}*", "text/plain": self.caption}, raw=True)


def _canvas(width: int | float, height: int | float) -> Figure:
    """A white figure of fixed size, without pyplot: no global state, the same under every backend."""
    return Figure(figsize=(width, height), dpi=100, layout="constrained", facecolor="white")


def _picture(figure: Figure, caption: str) -> Picture:
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})  # without the version that drew it
    return Picture(png.getvalue(), caption)


# ---------------------------------------------------------------- 01 · who reaches whom


def reach_diagram(panels: dict[str, Tensor], left: Sequence[str], right: Sequence[str]) -> Picture:
    """Who reaches whom, one panel a map (n_left, n_right): a line wherever the entry is not 0.

    `left` and `right` name the nodes of each panel, for example "head" → "head 0", "head 1" …
    """
    figure = _canvas(9, 3.2)
    row_of_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    sentences = []
    for axes, (title, reach), a, b in zip(row_of_axes, panels.items(), left, right, strict=True):
        n_left, n_right = reach.shape
        share = reach / reach.max()
        reached = share > 1e-6
        for i, j in reached.nonzero().tolist():
            axes.plot([0, 1], [-i, -j], color=COLOURS[i], linewidth=0.8 + 3 * share[i, j].item())
        for x, align, name, count in ((0, "right", a, n_left), (1, "left", b, n_right)):
            for k in range(count):  # only the senders have a colour: what arrives belongs to nobody
                box = dict(boxstyle="round,pad=0.35", facecolor="white" if x else TINTS[k])
                axes.text(x, -k, f"{name} {k}", ha=align, va="center", fontsize=9, bbox=box)
        axes.set(title=title, xlim=(-0.75, 1.75), ylim=(-max(n_left, n_right) + 0.4, 0.6))
        axes.axis("off")
        numbers = sorted(set(reached.sum(dim=1).tolist()))
        sentences.append(f"{title}: each {a} reaches {words(numbers)} of {n_right}")
    legend = "Colour: who sends; thickness: how strongly, within one panel"
    return _picture(figure, f"{legend}. {'; '.join(sentences)}.")


def reach_map(reach: Tensor, title: str) -> Picture:
    """How strongly each head (row) reaches each slice of the output (column), as shades of grey."""
    h, blocks = reach.shape
    share = reach / reach.max()
    figure = _canvas(6, 4.6)
    axes = figure.subplots()
    image = axes.imshow(share.numpy(), cmap="Greys", vmin=0, vmax=1)
    for i, j in product(range(h), range(blocks)):
        shade = "white" if share[i, j] > 0.63 else "black"
        axes.text(j, i, f"{share[i, j]:.1f}", ha="center", va="center", fontsize=7, color=shade)
    axes.set(title=title, xlabel="slice of the output", ylabel="head", xticks=range(blocks), yticks=range(h))
    figure.colorbar(image, label="reach, strongest pair = 1")
    caption = (
        f"{title}: {int((share > 1e-6).sum())} of the {h * blocks} pairs of head and output slice are "
        f"connected; the weakest has {share.min():.2f} of the reach of the strongest. "
        f"Mean on the diagonal {share.diagonal().mean():.2f}, over all pairs {share.mean():.2f}."
    )
    return _picture(figure, caption)


# ---------------------------------------------------------------- 02 · concat or sum


def two_pairs_one_sum(first: Tensor, second: Tensor) -> Picture:
    """Two pairs of reports, each (2 heads, 2 channels): tip to tail, where sums show, and side by side."""
    figure = _canvas(9, 3.4)
    arrows, bars = figure.subplots(1, 2, width_ratios=(1, 1.3))
    box = dict(facecolor="white", edgecolor="none", pad=1)
    for k, (pair, name) in enumerate(((first, "A"), (second, "B"))):
        stops = np.concatenate([np.zeros((1, 2)), pair.numpy().cumsum(axis=0)])  # start, after head 0, sum
        style = dict(arrowstyle="->", color=COLOURS[k], linewidth=2, linestyle=("-", "--")[k])
        for head, (start, end) in enumerate(pairwise(stops)):
            arrows.annotate("", end, start, arrowprops=style)
            arrows.text(*(start + end) / 2, f"{name}: head {head}", fontsize=8, ha="center", bbox=box)
        arrows.plot(*stops.T, "o", color=COLOURS[k], markersize=4)
        look = dict(color=TINTS[k], edgecolor="black", hatch=HATCHES[k], label=f"pair {name}")
        bars.bar(np.arange(4) + 0.4 * k, pair.flatten().numpy(), 0.38, **look)
    arrows.set(title="tip to tail", xlabel="channel 0", ylabel="channel 1")
    arrows.margins(0.2)
    labels = [f"head {i}\nchannel {j}" for i in range(2) for j in range(2)]
    bars.set(title="side by side", xticks=np.arange(4) + 0.2, xticklabels=labels, ylabel="value")
    bars.legend()
    sums, concats = (first - second).sum(dim=0).norm(), (first - second).norm()
    caption = (
        f"Pair A sums to {vector(first.sum(dim=0))}, pair B to {vector(second.sum(dim=0))}: the sums are "
        f"{number(sums)} apart, the concats {number(concats)} (distances; 0 is the same)."
    )
    return _picture(figure, caption)


def training_ablation(record: dict) -> Picture:
    """Validation loss of the recorded training runs, one row a way to recombine the heads."""
    variants = record["variants"]
    figure = _canvas(8, 2.8)
    axes = figure.subplots()
    for k, variant in enumerate(variants):
        losses = [run["validation_loss"] for run in variant["runs"]]
        axes.plot(losses, [-k] * len(losses), "o", color=COLOURS[k], markerfacecolor="none")
        axes.plot(variant["mean"], -k, "|", color="black", markersize=18, markeredgewidth=2)
    axes.set(yticks=[-k for k in range(len(variants))], yticklabels=[v["name"] for v in variants])
    axes.set(xlabel="validation loss, nats per character (lower is better)", ylim=(-len(variants) + 0.4, 0.6))
    axes.grid(axis="x", alpha=0.3)
    runs = len(variants[0]["runs"])
    parts = [f"{v['name']} {v['mean']:.2f} (standard deviation {v['sd']:.2f})" for v in variants]
    caption = (
        f"Circles: {runs} training runs each; bar: their mean. Mean validation loss: {'; '.join(parts)}."
    )
    return _picture(figure, caption)


# ---------------------------------------------------------------- 03 · W_O in blocks


def _matrix(axes: Axes, matrix: Tensor, owner: Tensor, title: str) -> None:
    """A matrix as cells with their numbers, each tinted by the head that owns it."""
    rows, columns = matrix.shape
    for i, j in product(range(rows), range(columns)):
        axes.add_patch(
            Rectangle((j, -i), 1, -1, facecolor=TINTS[owner[i, j]], edgecolor="black", linewidth=0.6)
        )
        axes.text(j + 0.5, -i - 0.5, number(matrix[i, j]), ha="center", va="center", fontsize=9)
    axes.set(title=title, xlim=(-0.1, columns + 0.1), ylim=(-rows - 0.1, 0.1), aspect="equal")
    axes.set(xticks=np.arange(columns) + 0.5, xticklabels=range(columns))
    axes.set(yticks=-np.arange(rows) - 0.5, yticklabels=range(rows))
    axes.spines[:].set_visible(False)


def blocks_and_bars(W_O: Tensor, contributions: Tensor) -> Picture:
    """W_O (h·d_v, d_model) in bands, its transpose as nn.Linear keeps it, and what each head adds.

    `contributions` is (h, d_model), all of one token.
    """
    h, d_model = contributions.shape
    d_v = len(W_O) // h
    figure = _canvas(10, 3.3)
    rows, columns, bars = figure.subplots(1, 3)
    owner = torch.arange(h).repeat_interleave(d_v)[:, None].expand(h * d_v, d_model)
    _matrix(rows, W_O, owner, "W_O: each head a band of rows")
    _matrix(columns, W_O.T, owner.T, "nn.Linear.weight:\neach head a band of columns")
    for i, c in enumerate(contributions):
        rows.text(d_model + 0.2, -(i + 0.5) * d_v, f"head {i}", rotation=90, va="center", fontsize=9)
        columns.text((i + 0.5) * d_v, -d_model - 0.75, f"head {i}", ha="center", va="top", fontsize=9)
        earlier = contributions[:i]
        below = earlier.where(earlier.sign() == c.sign(), 0).sum(dim=0)  # what points down is stacked down
        style = dict(color=TINTS[i], edgecolor="black", hatch=HATCHES[i], label=f"head {i}")
        bars.bar(range(d_model), c.numpy(), bottom=below.numpy(), **style)
    bars.set(title="contributions add up to y", xlabel="output channel", xticks=range(d_model))
    bars.legend()
    hears = W_O.view(h, d_v, d_model).ne(0).any(dim=1).all(dim=0)  # (d_model,): has every head a way in?
    both = hears.nonzero().flatten().tolist()
    added = "; ".join(f"head {i} adds {vector(c)}" for i, c in enumerate(contributions))
    caption = (
        f"{added[0].upper()}{added[1:]}; together y = {vector(contributions.sum(dim=0))}. "
        f"Output channels that hear every head: {words(both) if both else 'none'}."
    )
    return _picture(figure, caption)


def size_and_damage(norms: Tensor, damage: Tensor, layer: int, marked: Sequence[int]) -> Picture:
    """Two bars a head of one trained layer: the norm of its block, and what its silence costs."""
    h = len(norms)
    figure = _canvas(9, 3.6)
    upper, lower = figure.subplots(2, 1, sharex=True)
    mark = [marked.index(i) + 1 if i in marked else 0 for i in range(h)]
    colours = [("#DDDDDD", *TINTS[1:])[k] for k in mark]
    style = dict(color=colours, hatch=[HATCHES[k] for k in mark], edgecolor="black")
    upper.bar(range(h), norms.numpy(), **style)
    lower.bar(range(h), damage.numpy(), **style)
    upper.set(ylabel="norm of block")
    lower.set(ylabel="damage (1 - cosine)", xlabel="head", xticks=range(h))
    by_norm, by_damage = ((v > v[:, None]).sum(dim=1) + 1 for v in (norms, damage))  # 1 is the largest
    parts = [
        f"head {i} is number {by_norm[i]} of {h} by norm and number {by_damage[i]} by damage" for i in marked
    ]
    return _picture(figure, f"Layer {layer}: {'; '.join(parts)}.")


def rank_correlations(by_block: Sequence[float], by_contribution: Sequence[float]) -> Picture:
    """Per layer: how well two sizes rank the heads by the damage of silencing them."""
    layers = range(len(by_block))
    figure = _canvas(8, 3)
    axes = figure.subplots()
    axes.plot(layers, by_block, "s--", color=COLOURS[5], label="norm of the block of W_O")
    axes.plot(layers, by_contribution, "o-", color=COLOURS[0], label="mean size of the contribution")
    for line, label in ((0.59, "1 in 20 by chance, 12 heads"), (-0.59, None)):
        axes.axhline(line, color="grey", linewidth=1, linestyle=":", label=label)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set(xlabel="layer", ylabel="rank correlation\nwith damage", xticks=layers, ylim=(-1.05, 1.05))
    axes.legend(fontsize=8, loc="lower right")
    blocks, contributions = (", ".join(f"{r:.2f}" for r in row) for row in (by_block, by_contribution))
    caption = (
        f"Rank correlation with damage, layers 0 to {layers[-1]}: block norm {blocks}; contribution "
        f"{contributions}. Dotted: -0.59 and 0.59, which chance exceeds in one layer of twenty."
    )
    return _picture(figure, caption)


# ---------------------------------------------------------------- 04 · right shape, wrong tensor


def _cell(axes: Axes, x: int | float, y: int | float, name: str, hatch: str | None = None) -> None:
    """One entry with its name, like "h0t1c0", on the tint of its head."""
    tint = TINTS[int(name[1])]
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=tint, edgecolor="black", hatch=hatch))
    label = None if hatch is None else dict(facecolor="white", edgecolor="none", pad=1)
    axes.text(x + 0.5, y + 0.5, name, ha="center", va="center", fontsize=8, bbox=label)


def memory_strip(strips: dict[str, Tensor], names: Sequence[str], row: str = "token") -> Picture:
    """Tensors in reading order, as strips, cut where the row of one token (or head) ends.

    `strips` maps a title to a (rows, width) tensor of index codes; `names[v]`, like "h0t1c0", says where
    the value v belongs. Tint is the head, hatch the token.
    """
    figure = _canvas(10, 1.15 * len(strips) + 0.2)
    sentences = []
    for axes, (title, tensor) in zip(
        np.atleast_1d(figure.subplots(len(strips), 1)), strips.items(), strict=True
    ):
        count, width = tensor.shape
        for place, value in enumerate(tensor.flatten().tolist()):
            name = names[int(value)]
            x = place + 0.25 * (place // width)  # a gap where a row ends
            _cell(axes, x, 0, name, hatch=HATCHES[int(name[3])])
        for k in range(count):
            axes.text(
                k * (width + 0.25) + width / 2, -0.12, f"row of {row} {k}", ha="center", va="top", fontsize=8
            )
        axes.set(xlim=(-0.1, count * (width + 0.25)), ylim=(-0.5, 1.05))
        axes.set_title(title, fontsize=10, loc="left")
        axes.axis("off")
        first = dict.fromkeys(
            names[int(v)][:4] for v in tensor[0].tolist()
        )  # "h0t1": each place once, in order
        places = words([f"head {place[1]} of token {place[3]}" for place in first])
        sentences.append(f"With {title}, the row of {row} 0 reads {places}")
    legend = "Cells in reading order. Colour: head; hatch: token"
    return _picture(figure, f"{legend}. {'. '.join(sentences)}.")


def _in_index_order(step: Step) -> list[float]:
    """The entries of the tensor that a step left: its memory, read by its shape and strides."""
    return torch.tensor(step.strip).as_strided(step.shape, step.strides).flatten().tolist()


def _grouped(names: Sequence[str]) -> str:
    for place, order in ((3, "token by token"), (1, "head by head")):
        if sorted(names, key=lambda name: name[place]) == list(names):
            return order
    return "in mixed order"


def _check_moves(steps: Sequence[Step], names: Sequence[str]) -> None:
    """Each step should view or copy what the one before it left; the first one stands for the input."""
    n = len(names)
    for k, (before, step) in enumerate(pairwise((steps[0], *steps))):
        who = f"step {k} of journey ({step.operation})" if k else "z"
        if step.strip is None:
            raise ValueError(f"{who} has a memory of over {STRIP} cells; there is room to draw up to 12")
        if not sorted(step.strip) == sorted(_in_index_order(step)) == list(range(n)):
            raise ValueError(f"{who} holds other values; it should hold each of the codes 0 to {n - 1} once")
        stays = step.memory == before.memory
        if step.kind != ("view" if stays else "copy") or (stays and step.strip != before.strip):
            raise ValueError(f"{who} starts elsewhere; it should view or copy what the step before it left")
    if n > 12:
        raise ValueError(f"names lists {n} cells; there is room to draw up to 12")


def _what_happened(before: Step, step: Step, names: Sequence[str]) -> tuple[str, str]:
    """In words: the title of a step's row, and its sentence in the caption."""
    order, strip = ([names[int(v)] for v in values] for values in (_in_index_order(step), step.strip))
    if _in_index_order(before) != _in_index_order(step):
        boxes, detail = "the boxes change", f"the boxes now go {_grouped(order)}"
    elif step.shape != before.shape:
        boxes = "the boxes are re-cut"
        detail = f"{boxes} to {step.shape}: the first row reads {words(order[: step.shape[-1]])}"
    else:
        boxes = detail = "the boxes stay"
    if step.kind == "view":
        memory, cells = "same memory", "the strip stays"
        moved = f"{cells}, the strides are now {step.strides}"
    else:
        anew = f"written anew, {_grouped(strip)}"
        memory, cells = "new memory", f"the strip is {anew}"
        moved = f"{len(strip)} cells are {anew}: the strip now begins {words(strip[:4])}"
    title = f"{step.operation}: {memory}, strides {step.strides}, shape {step.shape}; {boxes}, {cells}"
    return title, f"{step.operation}: {moved}; {detail}"


def journey_strips(journey: Journey, z: Tensor, names: Sequence[str]) -> Picture:
    """A small journey of `z`, step by step: the tensor as boxes, and the memory they are read from.

    `z` holds index codes; `names[v]`, like "h0t1c0", says where the value v belongs. Tint is the head.
    Raises ValueError unless every step just moves up to 12 such codes.
    """
    steps = [record_journey(torch.detach, z).steps[0], *journey]  # z itself first: detached, nothing changes
    _check_moves(steps, names)
    cuts = [(1, 1, *step.shape) for step in steps]  # the last two axes make a box
    left = max(math.prod(cut[:-2]) * (cut[-1] + 0.3) for cut in cuts) + 0.7
    tops = [0, *accumulate(cut[-2] + 2.2 for cut in cuts)]
    figure = _canvas(10, 0.26 * tops[-1])
    axes = figure.subplots()
    axes.set(xlim=(-0.1, left + len(names) + 0.1), ylim=(tops[-1], 0))  # y points down
    axes.axis("off")
    below = dict(ha="center", va="top", fontsize=7)
    first = [names[int(v)] for v in steps[0].strip[:4]]
    title = f"input: strides {steps[0].strides}, shape {steps[0].shape}"
    sentences = [f"I{title[1:]}; the strip begins {words(first)}"]
    for k, (step, (*_, rows, columns)) in enumerate(zip(steps, cuts, strict=True)):
        if k:
            title, sentence = _what_happened(steps[k - 1], step, names)
            sentences.append(sentence)
        y = tops[k] + 1.1
        axes.text(0, y - 0.2, f"{k}. {title}", va="bottom", fontsize=9)
        for place, value in enumerate(_in_index_order(step)):
            box, inside = divmod(place, rows * columns)
            x = box * (columns + 0.3) + inside % columns
            _cell(axes, x, y + inside // columns, names[int(value)])
        for box, index in enumerate(np.ndindex(step.shape[:-2])):
            label = f"[{', '.join(map(str, index))}]" if index else ""
            axes.text(box * (columns + 0.3) + columns / 2, y + rows + 0.1, label, **below)
        for place, value in enumerate(step.strip):
            _cell(axes, left + place, y + (rows - 1) / 2, names[int(value)])
            axes.text(left + place + 0.5, y + (rows + 1) / 2 + 0.1, place, **below)
    legend = "Left: the tensor, in index order; right: its memory, cell by cell. Colour: head"
    return _picture(figure, f"{legend}. {'. '.join(sentences)}.")


# ---------------------------------------------------------------- 05 · loop or batched


def ratio_against_tokens(tokens: Sequence[int], ratios: dict[str, Sequence[float]], where: str) -> Picture:
    """Up to four ratios of two times, such as "loop / batched", against T; 1 means as fast."""
    figure = _canvas(8, 3.6)
    axes = figure.subplots()
    styles = ("o-", "s--", "^:", "d-.")
    for (name, values), style, colour in zip(ratios.items(), styles, COLOURS, strict=False):
        axes.plot(tokens, values, style, color=colour, label=name)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(xticks=tokens, xticklabels=tokens, xlabel="tokens T", ylabel="time as a multiple")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend()
    parts = [
        f"{name} is {values[0]:.1f} at T = {tokens[0]} and {values[-1]:.1f} at T = {tokens[-1]}"
        for name, values in ratios.items()
    ]
    return _picture(figure, f"On {where}: {words(parts)}.")
