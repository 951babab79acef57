"""How the heads become one stream: concat, sum, and the blocks of W_O.

The maths writes y = z_cat W_O with W_O (h·d_v, d_model). `weight`, here, is always what nn.Linear
stores: the transpose, (d_model, h·d_v).
"""

import reprlib
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from mhalesson._checks import check_count, check_split, check_tensor


def output_blocks(weight: Float[Tensor, "d_model width"], num_heads: int) -> Float[Tensor, "h d_v d_model"]:
    """Cut W_O into one block a head: (d_model, h·d_v) → (h, d_v, d_model), a view.

    Block i is a band of rows of W_O, which is a band of columns of `weight`.
    Raises ValueError if `weight` is not a matrix whose second size divides by `num_heads`.
    Source: Elhage et al. 2021, "Attention heads are independent and additive".

    >>> weight = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    >>> output_blocks(weight, num_heads=2)[0].tolist()
    [[1.0, 5.0], [2.0, 6.0]]
    """
    check_tensor("weight", weight, "d_model h·d_v")
    check_count("num_heads", num_heads)
    d_model, width = weight.shape
    check_split(f"weight with {width} columns", width, "num_heads", num_heads)
    W_O = weight.T  # (h·d_v, d_model)
    return W_O.unflatten(0, (num_heads, width // num_heads))  # (h, d_v, d_model)


def head_contributions(
    z: Float[Tensor, "B h T d_v"], weight: Float[Tensor, "d_model width"]
) -> Float[Tensor, "B h T d_model"]:
    """What each head adds to the stream: z_i W_O^i, for every head, (B, h, T, d_model).

    Their sum over h, plus the bias once, is the layer's output.
    Raises ValueError unless `weight` is (d_model, h·d_v) for the h and d_v of `z`, in one dtype.
    Source: Elhage et al. 2021, "Attention heads are independent and additive".

    >>> z = torch.ones(1, 2, 1, 1)  # two heads, each one number wide
    >>> head_contributions(z, torch.tensor([[3.0, 4.0]])).flatten().tolist()
    [3.0, 4.0]
    """
    check_tensor("z", z, "B h T d_v")
    B, h, T, d_v = z.shape
    check_tensor("weight", weight, "d_model h·d_v", z.dtype, z.device, **{"h·d_v": h * d_v})
    return z @ output_blocks(weight, h)  # (B, h, T, d_v) @ (h, d_v, d_model) → (B, h, T, d_model)


def stacked_identity(num_heads: int, d_v: int) -> Float[Tensor, "width d_v"]:
    """The sum of the heads as a matrix: z_cat @ stacked_identity(h, d_v) = Σ z_i. Shape (h·d_v, d_v).

    Raises ValueError unless both are whole numbers of at least 1.

    >>> stacked_identity(2, 2).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    check_count("num_heads", num_heads)
    check_count("d_v", d_v)
    return torch.eye(d_v).repeat(num_heads, 1)  # (h·d_v, d_v)


def reach(
    fn: Callable[[Tensor], Tensor], z: Float[Tensor, "h d_v"], num_blocks: int
) -> Float[Tensor, "h num_blocks"]:
    """How strongly each head reaches each block of the output: (h, num_blocks), 0 where it cannot.

    `fn` takes the reports of one token, z (h, d_v), to that token's output; the output, flattened, is cut
    into `num_blocks` equal blocks. Entry (i, j) is the Frobenius norm of the Jacobian ∂ block j / ∂ z_i.
    Where `fn` detaches its input, nothing can be seen to arrive and the entry is 0.
    Raises ValueError if `z` or the output is not a finite floating-point tensor, or the output does not
    divide into `num_blocks`.

    >>> reach(lambda z: z.flatten(), torch.ones(2, 3), num_blocks=2)  # concat: each head, its own block
    tensor([[1.7321, 0.0000],
            [0.0000, 1.7321]])
    """
    if not callable(fn):
        raise ValueError(f"fn={reprlib.repr(fn)} should be a function from z to a tensor")
    check_tensor("z", z, "h d_v")
    check_count("num_blocks", num_blocks)
    if not z.isfinite().all():
        raise ValueError("z holds NaN or infinity, which no nudge can move; every entry should be finite")

    def flat_output(z: Tensor) -> Tensor:
        y = fn(z)
        if not isinstance(y, Tensor):
            raise ValueError(f"fn(z) is of type {type(y).__name__}; it should be a tensor")
        out = y.numel()
        if not (y.is_floating_point() and y.isfinite().all() and out):
            found = f"{out} numbers of dtype {str(y.dtype).removeprefix('torch.')}"
            raise ValueError(f"fn(z) has {found}; it should have finite floating-point numbers")
        check_split(f"fn(z) of {out} numbers", out, "num_blocks", num_blocks, "blocks of equal width")
        return y.flatten()  # (out,)

    with torch.inference_mode(False):  # where no slope is recorded; a clone may leave that mode
        jacobian = torch.autograd.functional.jacobian(flat_output, z.clone())  # (out, h, d_v)
    blocks = jacobian.unflatten(0, (num_blocks, -1))  # (num_blocks, out / num_blocks, h, d_v)
    return blocks.norm(dim=(1, 3)).T  # (h, num_blocks)
