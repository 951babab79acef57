"""What multi-head attention costs, by formula: parameters and floating-point operations."""

from collections.abc import Iterator
from dataclasses import dataclass

from mhalesson._checks import check_count, check_flag, head_sizes

# The attention of one layer of some well-known models, ready for `attention_ledger(**GPT2_SMALL)`.
GPT2_SMALL = dict(d_model=768, num_heads=12)  # Radford et al. 2019
LLAMA3_8B = dict(d_model=4096, num_heads=32, num_kv_heads=8, bias=False)  # The Llama 3 Herd, table 3
LLAMA3_70B = dict(d_model=8192, num_heads=64, num_kv_heads=8, bias=False)
LLAMA3_405B = dict(d_model=16384, num_heads=128, num_kv_heads=8, bias=False)
GEMMA_7B = dict(d_model=3072, num_heads=16, d_head=256, bias=False)  # Gemma team 2024, table 1


@dataclass(frozen=True)
class Row:
    """One product: a token is multiplied with a matrix of `shape` (in, out), or h of them (h, in, out)."""

    name: str
    shape: tuple[int, ...]
    parameters: int
    flops_per_token: int


@dataclass(frozen=True)
class Ledger:
    """The rows of `attention_ledger`, their totals, and `ledger["W_O"]` for one of them."""

    rows: tuple[Row, ...]

    @property
    def parameters(self) -> int:
        return sum(row.parameters for row in self)

    @property
    def flops_per_token(self) -> int:
        return sum(row.flops_per_token for row in self)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Row:
        for row in self:
            if row.name == name:
                return row
        raise ValueError(f"the ledger has no row {name!r}; it has {', '.join(row.name for row in self)}")

    def __str__(self) -> str:
        def line(name: object, shape: object, parameters: object, flops: object) -> str:
            return f"{name:<10} {shape!s:<18} {parameters:>13} {flops:>16}"

        head = line("", "shape", "parameters", "FLOPs per token")
        body = [line(r.name, r.shape, f"{r.parameters:,}", f"{r.flops_per_token:,}") for r in self]
        total = line("total", "", f"{self.parameters:,}", f"{self.flops_per_token:,}")
        return "\n".join([head, *body, total])


def attention_ledger(
    d_model: int,
    num_heads: int,
    *,
    num_kv_heads: int | None = None,
    d_head: int | None = None,
    bias: bool = True,
    context: int | None = None,
    d_ff: int | None = None,
) -> Ledger:
    """Parameters (weights and biases) and FLOPs per token of every product in one attention layer.

    A multiplication and an addition count as two; adding a bias, scaling and softmax are not counted.
    With `context`, the two score products too, each token against `context` keys, as an unmasked
    product computes them. With `d_ff`, the two matrices of the MLP beside it (Vaswani et al. 2017,
    section 3.3). Shapes are those of the maths, (in, out).
    Raises ValueError as `MultiHeadAttention` does. Source: Vaswani et al. 2017, section 3.2.2.

    >>> attention_ledger(**GPT2_SMALL)["W_O"]
    Row(name='W_O', shape=(768, 768), parameters=590592, flops_per_token=1179648)
    """
    h = num_heads
    h_kv, d = head_sizes(d_model, num_heads, num_kv_heads, d_head)
    check_flag("bias", bias)
    for name, size in (("context", context), ("d_ff", d_ff)):
        if size is not None:
            check_count(name, size)

    def projection(name: str, d_in: int, d_out: int) -> Row:
        return Row(name, (d_in, d_out), d_in * d_out + (d_out if bias else 0), 2 * d_in * d_out)

    rows = [
        projection("W_Q", d_model, h * d),
        projection("W_K", d_model, h_kv * d),
        projection("W_V", d_model, h_kv * d),
    ]
    if context is not None:
        rows += [
            Row("q kᵀ", (h, d, context), 0, 2 * h * d * context),
            Row("weights v", (h, context, d), 0, 2 * h * context * d),
        ]
    rows.append(projection("W_O", h * d, d_model))
    if d_ff is not None:
        rows += [projection("MLP up", d_model, d_ff), projection("MLP down", d_ff, d_model)]
    return Ledger(tuple(rows))
