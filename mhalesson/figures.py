"""The pictures of the pages; each carries its caption with it.

A caption says in words and numbers what its picture shows, computed from the same values: it is what
a screen reader reads, and what strict nbval compares.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from mhalesson.text import number, words

# Okabe and Ito's palette, safe for colour-blind eyes; every use also carries a label or a hatch.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
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


def _canvas(width: float, height: float) -> Figure:
    """A white figure of fixed size, without pyplot: no global state, the same under every backend."""
    return Figure(figsize=(width, height), dpi=100, layout="constrained", facecolor="white")


def _picture(figure: Figure, caption: str) -> Picture:
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return Picture(png.getvalue(), caption)


# ---------------------------------------------------------------- 01 · who reaches whom


def reach_diagram(panels: dict[str, Tensor], left: Sequence[str], right: Sequence[str]) -> Picture:
    """Who reaches whom, one panel a map (n_left, n_right): a line wherever the entry is not 0.

    `left` and `right` name the nodes of each panel, for example "head" → "head 0", "head 1" …
    """
    figure = _canvas(9, 3.2)
    sentences = []
    for axes, (title, reach), a, b in zip(
        figure.subplots(1, len(panels)), panels.items(), left, right, strict=True
    ):
        n_left, n_right = reach.shape
        strongest = reach.max().item()
        for i, j in product(range(n_left), range(n_right)):
            if reach[i, j] > 1e-6 * strongest:
                axes.plot(
                    [0, 1], [-i, -j], color=COLOURS[i], linewidth=0.8 + 3 * reach[i, j].item() / strongest
                )
        for side, name, count in ((0, a, n_left), (1, b, n_right)):
            for k in range(count):
                box = dict(boxstyle="round,pad=0.35", facecolor=TINTS[k], edgecolor="black")
                axes.text(
                    side, -k, f"{name} {k}", ha=("right", "left")[side], va="center", fontsize=9, bbox=box
                )
        axes.set(title=title, xlim=(-0.75, 1.75), ylim=(-n_left + 0.4, 0.6))
        axes.axis("off")
        lines = int((reach > 1e-6 * strongest).sum())
        each = [int((row > 1e-6 * strongest).sum()) for row in reach]
        one_each = f"each {a} reaches {each[0]} of {n_right}" if len(set(each)) == 1 else "unevenly"
        sentences.append(f"{title}: {lines} of {n_left * n_right} lines, {one_each}")
    legend = "Colour: who sends; thickness: how strongly, within one panel"
    return _picture(figure, f"{legend}. {'; '.join(sentences)}.")


def reach_map(reach: Tensor, title: str) -> Picture:
    """How strongly each head (row) reaches each slice of the output (column), as shades of grey."""
    h, blocks = reach.shape
    share = reach / reach.max()
    figure = _canvas(6, 4.6)
    axes = figure.subplots()
    image = axes.imshow(share, cmap="Greys", vmin=0, vmax=1)
    for i, j in product(range(h), range(blocks)):
        shade = "white" if share[i, j] > 0.55 else "black"
        axes.text(j, i, f"{share[i, j]:.1f}", ha="center", va="center", fontsize=7, color=shade)
    axes.set(title=title, xlabel="slice of the output", ylabel="head", xticks=range(blocks), yticks=range(h))
    figure.colorbar(image, label="reach, strongest pair = 1")
    caption = (
        f"{title}: {int((reach > 0).sum())} of the {h * blocks} pairs of head and output slice are "
        f"connected; the weakest has {share.min():.2f} of the reach of the strongest. "
        f"Mean on the diagonal {share.diagonal().mean():.2f}, over all pairs {share.mean():.2f}."
    )
    return _picture(figure, caption)


# ---------------------------------------------------------------- 02 · concat or sum


def two_pairs_one_sum(first: Tensor, second: Tensor) -> Picture:
    """Two pairs of reports, each (2 heads, 2 channels), with one sum: as arrows, and as concats."""
    figure = _canvas(9, 3.4)
    arrows, bars = figure.subplots(1, 2, width_ratios=(1, 1.3))
    for k, (pair, name) in enumerate(((first, "pair A"), (second, "pair B"))):
        start = np.zeros(2)
        for head, report in enumerate(pair.numpy()):
            arrows.annotate(
                "",
                start + report,
                start,
                arrowprops=dict(arrowstyle="->", color=COLOURS[k], linewidth=2, linestyle=("-", "--")[k]),
            )
            middle = start + report / 2
            arrows.text(*middle, f"{name[-1]}: head {head}", fontsize=8, ha="center", backgroundcolor="white")
            start = start + report
        places = np.arange(pair.numel()) + 0.4 * k
        bars.bar(
            places, pair.flatten(), 0.38, color=TINTS[k], edgecolor="black", hatch=HATCHES[k], label=name
        )
    total = first.sum(0)
    arrows.plot(*total, "o", color="black")
    arrows.text(
        total[0] + 0.1,
        total[1] + 0.3,
        f"sum [{number(total[0])}, {number(total[1])}]",
        fontsize=9,
        ha="right",
    )
    arrows.set(
        title="tip to tail: one sum", xlabel="channel 0", ylabel="channel 1", xlim=(-0.3, 5), ylim=(-0.3, 7)
    )
    labels = [f"head {i}\nchannel {j}" for i in range(2) for j in range(2)]
    bars.set(title="side by side: two different concats", xticks=np.arange(4) + 0.2, xticklabels=labels)
    bars.legend()
    apart = (first - second).norm().item()
    caption = (
        f"Pair A and pair B both sum to [{number(total[0])}, {number(total[1])}], distance 0; "
        f"their concats are {number(apart)} apart."
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
    parts = [f"{v['name']} {v['mean']:.2f} (spread {v['sd']:.2f})" for v in variants]
    caption = (
        f"Circles: {runs} training runs each; bar: their mean. Mean validation loss: {'; '.join(parts)}."
    )
    return _picture(figure, caption)


# ---------------------------------------------------------------- 03 · W_O in blocks


def _matrix(axes: Axes, matrix: np.ndarray, owner: np.ndarray, title: str) -> None:
    """A matrix as cells with their numbers, each tinted and hatched by the head that owns it."""
    for i, j in np.ndindex(matrix.shape):
        head = owner[i, j]
        patch = Rectangle((j, -i), 1, -1, facecolor=TINTS[head], edgecolor="black", linewidth=0.6)
        axes.add_patch(patch)
        axes.text(
            j + 0.5, -i - 0.5, number(round(matrix[i, j].item(), 2)), ha="center", va="center", fontsize=9
        )
    axes.set(
        title=title, xlim=(-0.1, matrix.shape[1] + 0.1), ylim=(-matrix.shape[0] - 0.1, 0.1), aspect="equal"
    )
    axes.set(xticks=np.arange(matrix.shape[1]) + 0.5, xticklabels=range(matrix.shape[1]))
    axes.set(yticks=-np.arange(matrix.shape[0]) - 0.5, yticklabels=range(matrix.shape[0]))
    axes.spines[:].set_visible(False)


def blocks_and_bars(W_O: Tensor, contributions: Tensor) -> Picture:
    """W_O (h·d_v, d_model) in bands, its transpose as nn.Linear keeps it, and what each head adds.

    `contributions` is (h, d_model), all of one token.
    """
    h, d_model = contributions.shape
    d_v = W_O.shape[0] // h
    figure = _canvas(10, 3.3)
    rows, columns, bars = figure.subplots(1, 3)
    owner = np.repeat(np.arange(h), d_v)[:, None].repeat(d_model, axis=1)
    _matrix(rows, W_O.numpy(), owner, "W_O: a band of rows a head")
    _matrix(columns, W_O.T.numpy(), owner.T, "nn.Linear.weight:\na band of columns a head")
    for i in range(h):
        rows.text(d_model + 0.2, -(i + 0.5) * d_v, f"head {i}", rotation=90, va="center", fontsize=9)
        columns.text((i + 0.5) * d_v, -d_model - 0.75, f"head {i}", ha="center", va="top", fontsize=9)
        below = contributions[:i].sum(0)
        style = dict(color=TINTS[i], edgecolor="black", hatch=HATCHES[i])
        bars.bar(range(d_model), contributions[i], bottom=below, label=f"head {i}", **style)
    bars.set(title="what they say adds up to y", xlabel="output channel", xticks=range(d_model))
    bars.legend()
    both = [j for j in range(d_model) if (contributions[:, j] != 0).all()]
    y = contributions.sum(0)
    parts = [
        f"head {i} adds [{', '.join(map(number, c.round(decimals=2).tolist()))}]"
        for i, c in enumerate(contributions)
    ]
    caption = (
        f"{words(parts)}; together y = [{', '.join(map(number, y.round(decimals=2).tolist()))}]. "
        f"Output channels {words(both)} hear every head."
    )
    return _picture(figure, caption[0].upper() + caption[1:])


def size_and_damage(norms: Tensor, damage: Tensor, layer: int, marked: Sequence[int]) -> Picture:
    """Two bars a head of one trained layer: the norm of its block, and what its silence costs."""
    h = len(norms)
    figure = _canvas(9, 3.6)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for axes, values, label in ((upper, norms, "norm of block"), (lower, damage, "damage (1 - cosine)")):
        for i in range(h):
            k = list(marked).index(i) + 1 if i in marked else 0
            style = dict(color=TINTS[k] if k else "#DDDDDD", edgecolor="black", hatch=HATCHES[k])
            axes.bar(i, values[i].item(), **style)
        axes.set(ylabel=label)
    lower.set(xlabel="head", xticks=range(h))
    ranks = {
        name: v.argsort(descending=True).argsort() + 1 for name, v in (("size", norms), ("damage", damage))
    }
    parts = [
        f"head {i} is number {ranks['size'][i]} of {h} by norm and number {ranks['damage'][i]} by damage"
        for i in marked
    ]
    return _picture(figure, f"Layer {layer}: {'; '.join(parts)}.")


def rank_correlations(by_block: Sequence[float], by_contribution: Sequence[float]) -> Picture:
    """Per layer: how well two sizes rank the heads by the damage of silencing them."""
    layers = range(len(by_block))
    figure = _canvas(8, 3)
    axes = figure.subplots()
    axes.plot(layers, by_block, "s--", color=COLOURS[5], label="norm of the block of W_O")
    axes.plot(layers, by_contribution, "o-", color=COLOURS[0], label="mean size of the contribution")
    for line, label in ((0.59, "5 % lines for 12 heads"), (-0.59, None)):
        axes.axhline(line, color="grey", linewidth=1, linestyle=":", label=label)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set(xlabel="layer", ylabel="rank correlation\nwith damage", xticks=layers, ylim=(-1.05, 1.05))
    axes.legend(fontsize=8, loc="lower right")
    blocks, contributions = (", ".join(f"{r:.2f}" for r in row) for row in (by_block, by_contribution))
    caption = (
        f"Rank correlation with damage, layers 0 to {layers[-1]}: block norm {blocks}; contribution "
        f"{contributions}. Between the dotted lines at -0.59 and 0.59, chance is not excluded at 5 %."
    )
    return _picture(figure, caption)


# ---------------------------------------------------------------- 04 · right shape, wrong tensor


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
            head, token = int(name[1]), int(name[3])
            x = place + 0.25 * (place // width)  # a gap where a row ends
            axes.add_patch(
                Rectangle((x, 0), 1, 1, facecolor=TINTS[head], edgecolor="black", hatch=HATCHES[token])
            )
            label = dict(facecolor="white", edgecolor="none", pad=1)
            axes.text(x + 0.5, 0.5, name, ha="center", va="center", fontsize=8, bbox=label)
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
    return _picture(figure, f"Colour: head; hatch: token. {'. '.join(sentences)}.")


# ---------------------------------------------------------------- 05 · loop or batched


def ratio_against_tokens(tokens: Sequence[int], ratios: dict[str, Sequence[float]], where: str) -> Picture:
    """Time of each implementation as a multiple of the batched one, against T; 1 means as fast."""
    figure = _canvas(8, 3.6)
    axes = figure.subplots()
    for k, (name, values) in enumerate(ratios.items()):
        axes.plot(
            tokens, values, "os^"[k] + "--"[k % 2 :], color=COLOURS[(0, 5, 2)[k]], label=f"{name} / batched"
        )
    axes.axhline(1, color="black", linewidth=1)
    axes.set(
        xscale="log",
        yscale="log",
        xticks=tokens,
        xticklabels=tokens,
        xlabel="tokens T",
        ylabel="times batched",
    )
    axes.minorticks_off()
    yticks = [0.25, 0.5, 1, 2, 4, 8, 16]
    axes.set(yticks=yticks, yticklabels=[f"{y:g}" for y in yticks])
    axes.legend()
    parts = [
        f"{name} / batched is {values[0]:.1f} at T = {tokens[0]} and {values[-1]:.1f} at T = {tokens[-1]}"
        for name, values in ratios.items()
    ]
    return _picture(figure, f"On {where}: {words(parts)}.")
