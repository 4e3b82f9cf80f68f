r"""Quadratics :math:`a_i x^2 / 2 + b_i x` that show their gradients, one number and one sample a peer."""

import numpy as np
import torch

from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner

A, B = np.array([2.0, 0.5, 1.0, 3.0]), np.array([4.0, -3.0, 1.0, -6.0])
OPTIMUM = -B.sum() / A.sum()


class Quadratic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.x = torch.nn.Parameter(torch.zeros(1))

    def forward(self, features):
        return features[:, 0] * self.x**2 / 2 + features[:, 1] * self.x


def quadratics(a=A, b=B, *, rate=0.05, steps=1, **settings):
    """Gradient descent on one quadratic a peer, in double precision."""
    features = torch.tensor(np.stack([a, b], axis=1), dtype=torch.float32)
    assert np.array_equal(features.double().numpy(), np.stack([a, b], axis=1))  # no rounding
    own = {f"peer{number}": np.array([number]) for number in range(len(a))}
    federation = Federation(Dataset(features, torch.zeros(len(a)), classes=None), own, own, own)
    settings = {"seed": 3, "rate": rate, "steps": steps, "dtype": torch.float64, "device": "cpu"} | settings
    return TorchLearner(Quadratic(), federation, loss=lambda outputs, _: outputs, **settings)
