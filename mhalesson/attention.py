"""Multi-head attention, once: one set of weights, run three ways.

Dimensions, here and in the whole course: B batch, T tokens, h heads, d_head the width of one head
(the d_k and the d_v of the maths, which are equal here), d_model the width of the stream.
"""

import math
import reprlib

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mhalesson._checks import check_count, check_flag, check_split, check_tensor, head_sizes


def split_heads(x: Float[Tensor, "B T width"], num_heads: int) -> Float[Tensor, "B h T d"]:
    """Cut the channels of every token into heads: (B, T, h·d) → (B, h, T, d), a view of the same memory.

    Raises ValueError if `x` is not (B, T, h·d) or its width does not divide by `num_heads`.
    Source: Vaswani et al. 2017, section 3.2.2.

    >>> split_heads(torch.zeros(1, 5, 12), num_heads=3).shape
    torch.Size([1, 3, 5, 4])
    """
    check_tensor("x", x, "B T width")
    check_count("num_heads", num_heads)
    B, T, width = x.shape
    check_split(f"x of width {width}", width, "num_heads", num_heads)
    x = x.view(B, T, num_heads, width // num_heads)  # (B, T, h, d): name the two halves of a channel
    return x.transpose(1, 2)  # (B, h, T, d): let every head see its own sequence


def merge_heads(z: Float[Tensor, "B h T d"]) -> Float[Tensor, "B T width"]:
    """Lay the heads of every token side by side again: (B, h, T, d) → (B, T, h·d).

    Undoes `split_heads`. Copies only where strides cannot express the result.
    Raises ValueError if `z` is not (B, h, T, d). Source: Vaswani et al. 2017, section 3.2.2 ("Concat").

    >>> x = torch.arange(24.0).view(1, 2, 12)
    >>> torch.equal(merge_heads(split_heads(x, 3)), x)
    True
    """
    check_tensor("z", z, "B h T d")
    B, h, T, d = z.shape
    z = z.transpose(1, 2)  # (B, T, h, d): a token's heads become neighbours
    return z.reshape(B, T, h * d)  # (B, T, h·d)


def attention_weights(
    q: Float[Tensor, "*heads T d"], k: Float[Tensor, "*heads T d"], allowed: Bool[Tensor, "*#heads T T"]
) -> Float[Tensor, "*heads T T"]:
    """How much each token (row) takes from each token (column): softmax(q kᵀ / √d), rows summing to 1.

    `allowed[..., i, j]` says whether token i may look at token j; each row needs at least one True.
    Source: Vaswani et al. 2017, equation 1.

    >>> q = k = torch.zeros(3, 2)
    >>> attention_weights(q, k, allowed=torch.ones(3, 3, dtype=torch.bool).tril())[1].tolist()
    [0.5, 0.5, 0.0]
    """
    d = q.shape[-1]
    scores = q / math.sqrt(d) @ k.transpose(-2, -1)  # (..., T, T); q first, or float16 may overflow
    scores = scores.where(allowed, -math.inf)
    return scores.softmax(dim=-1)


def _attend_loop(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """One head after the other, as the formula is written. All (B, h, T, d)."""
    z = [attention_weights(q[:, i], k[:, i], allowed[:, 0]) @ v[:, i] for i in range(q.shape[1])]
    return torch.stack(z, dim=1)  # h times (B, T, d) → (B, h, T, d)


def _attend_batched(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """All heads in two batched products. All (B, h, T, d)."""
    return attention_weights(q, k, allowed) @ v


IMPLEMENTATIONS = {"loop": _attend_loop, "batched": _attend_batched, "fused": F.scaled_dot_product_attention}


class MultiHeadAttention(nn.Module):
    """Multi-head self-attention, (B, T, d_model) → (B, T, d_model).

    `implementation` is "loop", "batched" or "fused" (torch's scaled_dot_product_attention) and can be
    changed on the instance: same weights, same result, same gradients (second derivatives only through
    the first two). With `num_kv_heads` < `num_heads`, groups of query heads share one key and one value
    head (Ainslie et al. 2023, section 2.2). `d_head` defaults to d_model / num_heads.

    `attention_mask` (B, T), bool, is True where the token is real: the convention of Hugging Face, the
    opposite of torch's `key_padding_mask`. A token with nothing to attend to gets weights 0, z 0, and
    the bias as y.

    Raises ValueError, before any arithmetic, for an argument or a tensor that does not fit.
    Source: Vaswani et al. 2017, section 3.2.2.

    >>> mha = MultiHeadAttention(d_model=12, num_heads=3)
    >>> mha(torch.zeros(1, 5, 12)).shape
    torch.Size([1, 5, 12])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        d_head: int | None = None,
        bias: bool = True,
        causal: bool = True,
        implementation: str = "fused",
    ) -> None:
        super().__init__()
        num_kv_heads, d_head = head_sizes(d_model, num_heads, num_kv_heads, d_head)
        check_flag("bias", bias)
        check_flag("causal", causal)
        self.num_heads, self.num_kv_heads, self.causal = num_heads, num_kv_heads, causal
        self.implementation = implementation
        self.q_proj = nn.Linear(d_model, num_heads * d_head, bias=bias)
        self.k_proj = nn.Linear(d_model, num_kv_heads * d_head, bias=bias)
        self.v_proj = nn.Linear(d_model, num_kv_heads * d_head, bias=bias)
        self.o_proj = nn.Linear(num_heads * d_head, d_model, bias=bias)

    @property
    def implementation(self) -> str:
        return self._implementation

    @implementation.setter
    def implementation(self, name: str) -> None:
        if not isinstance(name, str) or name not in IMPLEMENTATIONS:
            names = ", ".join(map(repr, IMPLEMENTATIONS))
            raise ValueError(f"implementation={reprlib.repr(name)} should be one of {names}")
        self._implementation = name

    def forward(
        self, x: Float[Tensor, "B T d_model"], attention_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T d_model"]:
        z = self.heads(x, attention_mask)  # (B, h, T, d_head)
        return self.o_proj(merge_heads(z))  # (B, T, d_model)

    def heads(
        self, x: Float[Tensor, "B T d_model"], attention_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B h T d_head"]:
        """What each head found, before W_O: z, (B, h, T, d_head)."""
        self._check(x, attention_mask)
        q, k, v = self._project(x)
        if self.implementation == "fused" and attention_mask is None:
            # Without a mask tensor, the fastest kernels can run.
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        allowed, empty = self._allowed(x, attention_mask)
        z = IMPLEMENTATIONS[self.implementation](q, k, v, allowed)  # (B, h, T, d_head)
        return z.masked_fill(empty, 0)

    def weights(
        self, x: Float[Tensor, "B T d_model"], attention_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B h T T"]:
        """The attention pattern of each head, (B, h, T, T): row i sums to 1, or to 0 if it sees nothing."""
        self._check(x, attention_mask)
        q, k, _ = self._project(x)
        allowed, empty = self._allowed(x, attention_mask)
        return attention_weights(q, k, allowed).masked_fill(empty, 0)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v, each (B, h, T, d_head); a shared key or value head is repeated for its group."""
        q = split_heads(self.q_proj(x), self.num_heads)  # (B, h, T, d_head)
        k = split_heads(self.k_proj(x), self.num_kv_heads)  # (B, h_kv, T, d_head)
        v = split_heads(self.v_proj(x), self.num_kv_heads)  # (B, h_kv, T, d_head)
        group = self.num_heads // self.num_kv_heads
        if group > 1:
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)  # (B, h, T, d_head)
        return q, k, v

    def _allowed(self, x: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Who may look at whom, (1 or B, 1, T, T), and which rows see nothing, (1 or B, 1, T, 1).

        Softmax cannot weigh nothing (0/0), so an empty row is opened here and zeroed by the caller.
        """
        T = x.shape[1]
        allowed = torch.ones(1, 1, T, T, dtype=torch.bool, device=x.device)  # (1, 1, T, T)
        if self.causal:
            allowed = allowed.tril()  # token i sees tokens 0 … i
        if attention_mask is not None:
            allowed = allowed & attention_mask[:, None, None, :]  # (B, 1, T, T)
        empty = ~allowed.any(dim=-1, keepdim=True)
        return allowed | empty, empty

    def _check(self, x: Tensor, attention_mask: Tensor | None) -> None:
        weight = self.q_proj.weight
        # Under autocast (which the meta device lacks) torch itself casts x and the weights to one dtype.
        device = weight.device.type
        autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        dtype = None if autocast else weight.dtype
        check_tensor("x", x, "B T d_model", dtype, weight.device, d_model=weight.shape[1])
        if attention_mask is not None:
            B, T, _ = x.shape
            check_tensor("attention_mask", attention_mask, "B T", torch.bool, x.device, B=B, T=T)
