r"""Gradient inversion: reconstruction of the sample behind a released update.

The attack assumes the worst case: the peer takes one step of gradient descent on one sample, so that its update is
:math:`-\eta \nabla F(x)`, and releases it as usual. If the model begins with a linear layer, whose gradients are
:math:`\partial W_i = \delta_i x` and :math:`\partial b_i = \delta_i`, then the least squares of all units are
:math:`\hat x = \sum_i \partial b_i\, \partial W_i / \sum_i \partial b_i^2`.

Inversion fails long before differential privacy gives a meaningful guarantee, so its failure proves little.

References
----------
L. T. Phong et al., "Privacy-preserving deep learning via additively homomorphic encryption", IEEE TIFS 2018.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.process import one_thread
from p2pfl.data import Federation, IntArray
from p2pfl.learning import TorchLearner
from p2pfl.plugins.audit.pipeline import OPEN, Floats, Observer, Target, Train

SAMPLES = 4
"""Number of attacked samples."""

BEST_PSNR = 200.0
"""Decibels of a sample that is reconstructed exactly."""


@dataclass(frozen=True)
class Inversion:
    """Result of one observer.

    Parameters
    ----------
    observer
        Name of the observer; ``"nothing hidden"`` reads the update as it is.
    psnr
        Peak signal-to-noise ratio in decibels, mean over the samples.
    baseline
        PSNR of a constant, the mean of all features.
    """

    observer: str
    psnr: float
    baseline: float

    @property
    def recognised(self) -> bool:
        """True if the reconstruction is more than 3 dB better than a constant."""
        return self.psnr > self.baseline + 3

    @property
    def figures(self) -> dict[str, str]:
        """Row of a table."""
        quality = f"{self.psnr:.1f} dB (constant {self.baseline:.1f})"
        return {"observer": self.observer, "PSNR": quality, "recognised": "yes" if self.recognised else "no"}

    @property
    def sentence(self) -> str:
        """Result in words."""
        came = "comes back" if self.recognised else "does not come back"
        quality = f"{self.psnr:.0f} dB, where a constant has {self.baseline:.0f} dB"
        return f"From the first layer's gradient the one sample of a step {came}: {quality}."


@one_thread()
def invert(
    target: Target, observers: Sequence[Observer], *, federation: Federation, train: Train, samples: int = SAMPLES
) -> tuple[Inversion, ...]:
    """Attack single samples of the observers' victims; nothing comes of it if the first layer is not linear.

    Parameters
    ----------
    target
        Release that is attacked; each sample has a run of its own.
    observers
        Observers that attack.
    federation
        Data of all peers.
    train
        Function that makes a learner which takes one step of gradient descent.
    samples
        Number of samples.
    """
    peers = target.graph.peers
    everything = np.concatenate([federation.train[peer] for peer in peers])
    chosen = draw(target.seed, "audit inversion").choice(everything, size=min(samples, len(everything)), replace=False)
    learner = train(_only(federation, peers, chosen[:1]))
    tensors = first_linear(learner)
    if tensors is None:
        return ()
    gradients: dict[str, list[torch.Tensor]] = {OPEN: [], **{observer.name: [] for observer in observers}}
    for number, sample in enumerate(chosen):
        stepping = train(_only(federation, peers, np.array([sample])))
        start = stepping.start(peers).double()  # [N, P]
        one = stepping.fit(start[:1].to(stepping.dtype), peers=peers[:1], round=0).rows.double()  # [1, P]
        rows = one.repeat(len(start), 1)  # [N, P]: any peer may be the victim
        pipeline = target.run(number)
        released = run_without_loop(pipeline.round(0).release(rows, since=Public(start)))
        gradients[OPEN].append((start - rows)[0])
        for observer in observers:
            seen = observer.sees(pipeline, released, round=0)  # [H, P]
            row = int(np.flatnonzero(observer.watched == peers.index(observer.victim))[0])
            gradients[observer.name].append(start[0] - torch.from_numpy(seen[row]))
    features = federation.dataset.features.double().numpy()
    truth, span = features[chosen], float(features.max() - features.min())
    baseline = float(np.mean([psnr(np.full_like(one, features.mean()), one, span=span) for one in truth]))
    return tuple(
        Inversion(name, float(np.mean(_qualities(learner, tensors, found, truth, span=span))), baseline)
        for name, found in gradients.items()
    )


def _qualities(
    learner: TorchLearner,
    tensors: tuple[str, str],
    gradients: Sequence[torch.Tensor],
    truth: Floats,
    *,
    span: float,
) -> list[float]:
    """Return the PSNR of the sample behind each gradient."""
    parts = [learner.layout.split(gradient) for gradient in gradients]
    inputs = [analytic(part, weight=tensors[0], bias=tensors[1]).numpy() for part in parts]
    return [psnr(found.reshape(one.shape), one, span=span) for found, one in zip(inputs, truth, strict=True)]


def analytic(gradient: Mapping[str, torch.Tensor], *, weight: str, bias: str) -> torch.Tensor:
    r"""Return the input of a linear layer, computed from its gradients.

    .. math:: \hat x = \sum_i \partial b_i\, \partial W_i / \sum_i \partial b_i^2

    Parameters
    ----------
    gradient
        ``[units, features]`` and ``[units]`` by name, up to a factor.
    weight, bias
        Names of the layer's tensors.

    Examples
    --------
    >>> x, delta = torch.tensor([0.5, 1.0]), torch.tensor([[2.0], [-1.0]])
    >>> analytic({"w": delta * x, "b": delta[:, 0]}, weight="w", bias="b")
    tensor([0.5000, 1.0000])
    """
    moved = gradient[bias]  # [units]
    return (moved @ gradient[weight]) / moved.square().sum().clamp_min(torch.finfo(moved.dtype).tiny)


def psnr(found: Floats, truth: Floats, *, span: float) -> float:
    r"""Return :math:`10 \log_{10}(\text{span}^2 / \mathrm{MSE})`, at most :data:`BEST_PSNR`.

    Examples
    --------
    >>> psnr(np.array([0.1, 0.0]), np.zeros(2), span=1.0) > 20
    True
    """
    error = float(np.square(found - truth).mean())
    return min(BEST_PSNR, 10 * math.log10(span**2 / max(error, np.finfo(np.float64).tiny)))


def first_linear(learner: TorchLearner) -> tuple[str, str] | None:
    """Return the names of weight and bias of a linear layer that takes the features unchanged, if there is one."""
    features = math.prod(learner.features.shape[1:])
    for path, module in learner.model.named_modules():
        if isinstance(module, nn.Sequential | nn.Flatten | nn.Identity) or (not path and list(module.children())):
            continue
        if not isinstance(module, nn.Linear) or module.bias is None or module.in_features != features:
            return None
        prefix = f"{path}." if path else ""
        names = f"{prefix}weight", f"{prefix}bias"
        return names if set(names) <= set(learner.layout.names) else None
    return None


def _only(federation: Federation, peers: Sequence[str], samples: IntArray) -> Federation:
    """Return a federation in which every peer holds only these samples."""
    return replace(federation, train=dict.fromkeys(peers, samples))
