"""What another machine's rounding could do: every number that leaves a tensor moves a little."""

import torch


def shift(eps: float) -> None:
    """Add `eps` to all that a floating-point tensor hands to Python or NumPy, whole numbers aside."""
    for name in ("item", "tolist", "numpy"):
        original = getattr(torch.Tensor, name)

        def shifted(self, *args, original=original, **kwargs):
            if self.is_floating_point():
                self = self.detach()
                whole = (self - self.round()).abs() < 1e-5
                self = torch.where(whole, self, self + eps)
            return original(self, *args, **kwargs)

        setattr(torch.Tensor, name, shifted)
