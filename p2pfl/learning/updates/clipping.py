"""Clipping of gradients by their norm, each model of a stack by its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

TINY = 1e-6
"""Number that :func:`torch.nn.utils.clip_grad_norm_` adds to the norm before it divides."""


def clip(gradients: Sequence[torch.Tensor], *, max_norm: float) -> list[torch.Tensor]:
    r"""Return :math:`g \min(1, c / (\|g\| + 10^{-6}))` for the gradient of each model, as torch's ``clip_grad_norm_``.

    Parameters
    ----------
    gradients
        Gradients of each tensor, for K models: ``[K, *shape]`` each.
    max_norm
        Largest L2 norm c of the gradient of a model over all its tensors.

    Returns
    -------
    list of torch.Tensor
        Clipped gradients ``[K, *shape]``. A gradient that is not finite becomes NaN.

    Examples
    --------
    >>> weights, biases = clip([torch.tensor([[3.0], [0.3]]), torch.tensor([[4.0], [0.4]])], max_norm=1.0)
    >>> [[round(value, 4) for value in each.flatten().tolist()] for each in (weights, biases)]
    [[0.6, 0.3], [0.8, 0.4]]
    """
    each = [torch.linalg.vector_norm(part.unsqueeze(-1).flatten(1), dim=1) for part in gradients]  # [K] each
    norms = torch.linalg.vector_norm(torch.stack(each), dim=0)  # [K]
    shares = (max_norm / (norms + TINY)).clamp_max(1.0)  # [K]
    return [part * shares.view(-1, *[1] * (part.dim() - 1)) for part in gradients]
