r"""Gradient inversion: reconstruction of the sample behind a released update.

The attack assumes the worst case: the peer takes one step of gradient descent on one sample, so that its update is
:math:`-\eta \nabla F(x)`, and releases it as usual.

- *Analytic*, if the model begins with a linear layer, whose gradients are :math:`\partial W_i = \delta_i x` and
  :math:`\partial b_i = \delta_i`: the least squares of all units are
  :math:`\hat x = \sum_i \partial b_i\, \partial W_i / \sum_i \partial b_i^2`.
- *Search*, for other models of at most :data:`MAX_SEARCHED` parameters: the x that minimises
  :math:`1 - \cos(\nabla F(x), g) + \alpha\, \mathrm{TV}(x)`, by Adam on the signs of its gradient (Geiping et al.).

Inversion fails long before differential privacy gives a meaningful guarantee, so its failure proves little.

References
----------
L. T. Phong et al., "Privacy-preserving deep learning via additively homomorphic encryption", IEEE TIFS 2018.
J. Geiping et al., "Inverting gradients: how easy is it to break privacy in federated learning?", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.process import one_thread
from p2pfl.data import Federation, IntArray
from p2pfl.learning import TorchLearner
from p2pfl.learning.losses import mean
from p2pfl.plugins.audit.pipeline import OPEN_OBSERVER, Floats, Observer, Target, Train

ATTACKED_SAMPLES = 4
"""Number of attacked samples."""

MAX_SEARCHED = 200_000
"""Largest number of parameters of a model whose gradients are searched."""

SEARCH_STEPS = 300
"""Steps of a search."""

SEARCH_RATE = 0.1
"""Size of the first steps of a search, in units of the features' range."""

VARIATION_WEIGHT = 1e-3
"""Weight of the total variation in a search."""

BEST_PSNR = 200.0
"""Decibels of a sample that is reconstructed exactly."""


@dataclass(frozen=True)
class Inversion:
    """Result of one observer.

    Parameters
    ----------
    observer
        Name of the observer; ``"nothing hidden"`` reads the update as it is.
    attack
        ``"analytic"`` or ``"search"``.
    psnr
        Peak signal-to-noise ratio in decibels, mean over the samples.
    baseline
        PSNR of a constant, the mean of all features.
    """

    observer: str
    attack: str
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
        names = {"observer": self.observer, "attack": self.attack}
        return {**names, "PSNR": quality, "recognised": "yes" if self.recognised else "no"}

    @property
    def sentence(self) -> str:
        """Result in words."""
        came = "comes back" if self.recognised else "does not come back"
        quality = f"{self.psnr:.0f} dB, where a constant has {self.baseline:.0f} dB"
        source = "From the first layer's gradient" if self.attack == "analytic" else "By a search with the gradient"
        return f"{source} the one sample of a step {came}: {quality}."


@one_thread()
def invert(
    target: Target,
    observers: Sequence[Observer],
    *,
    federation: Federation,
    train: Train,
    samples: int = ATTACKED_SAMPLES,
) -> tuple[Inversion, ...]:
    """Attack single samples of the observers' victims; return nothing if neither attack fits the model.

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
    if tensors is None and not (learner.features.is_floating_point() and learner.layout.size <= MAX_SEARCHED):
        return ()
    gradients: dict[str, list[torch.Tensor]] = {OPEN_OBSERVER: [], **{observer.name: [] for observer in observers}}
    for number, sample in enumerate(chosen):
        stepping = train(_only(federation, peers, np.array([sample])))
        start = stepping.start(peers).double()  # [N, P]
        one = stepping.fit(start[:1].to(stepping.dtype), peers=peers[:1], round=0).rows.double()  # [1, P]
        rows = one.repeat(len(start), 1)  # [N, P]: any peer may be the victim
        pipeline = target.run(number)
        released = run_without_loop(pipeline.round(0).release(rows, since=Public(start)))
        gradients[OPEN_OBSERVER].append((start - rows)[0])
        for observer in observers:
            seen = observer.sees(pipeline, released, round=0)  # [H, P]
            row = int(np.flatnonzero(observer.watched == peers.index(observer.victim))[0])
            gradients[observer.name].append(start[0] - torch.from_numpy(seen[row]))
    features = federation.dataset.features.double().numpy()
    truth, low, high = features[chosen], float(features.min()), float(features.max())
    baseline = float(np.mean([psnr(np.full_like(one, features.mean()), one, span=high - low) for one in truth]))

    def quality(gradient: torch.Tensor, sample: Floats) -> float:
        if tensors is None:
            guess = search(learner, gradient, low=low, high=high)
        else:
            guess = analytic(learner.layout.split(gradient), weight=tensors[0], bias=tensors[1])
        return psnr(guess.double().cpu().numpy().reshape(sample.shape), sample, span=high - low)

    try:
        qualities = {name: float(np.mean([*map(quality, each, truth)])) for name, each in gradients.items()}
    except RuntimeError:
        if tensors is not None:
            raise
        return ()  # a layer has no second derivative
    attack = "search" if tensors is None else "analytic"
    return tuple(Inversion(name, attack, mean_quality, baseline) for name, mean_quality in qualities.items())


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


def search(learner: TorchLearner, gradient: torch.Tensor, *, low: float, high: float) -> torch.Tensor:
    """Return the sample whose gradient at the initial parameters is most nearly parallel to this one.

    Parameters
    ----------
    learner
        Model, loss and initial parameters.
    gradient
        Gradient ``[P]``, up to a factor.
    low, high
        Range of the features.
    """
    learner.model.eval()
    rows = learner.layout.split(learner.start(("",))[0].to(learner.device))
    parameters = {name: rows[name].clone().requires_grad_() for name in learner.trained.names}
    parts = learner.layout.split(gradient.to(learner.device, learner.dtype))
    goal = torch.cat([parts[name].flatten() for name in parameters])  # [P]
    target = _target(learner, parts[learner.trained.names[-1]])
    x = torch.full_like(learner.features[:1], (low + high) / 2, requires_grad=True)
    adam = torch.optim.Adam([x], lr=SEARCH_RATE * (high - low))
    stages = torch.optim.lr_scheduler.MultiStepLR(adam, [SEARCH_STEPS * k // 8 for k in (3, 5, 7)], gamma=0.1)
    for _ in range(SEARCH_STEPS):
        loss = mean(learner.loss, functional_call(learner.model, parameters, (x,)), target)
        slopes = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        cosine = torch.cosine_similarity(torch.cat([slope.flatten() for slope in slopes]), goal, dim=0)
        (x.grad,) = torch.autograd.grad(VARIATION_WEIGHT * _variation(x) / (high - low) - cosine, (x,))
        x.grad.sign_()
        adam.step()
        stages.step()
        with torch.no_grad():
            x.clamp_(low, high)
    return x.detach()[0]


def _target(learner: TorchLearner, last: torch.Tensor) -> torch.Tensor:
    """Return the class with the only negative slope of the last bias; the median target if there is no such bias."""
    if learner.targets.dim() == 1 and last.numel() == learner.federation.dataset.classes:
        return last.flatten().argmin(0, keepdim=True).to(learner.targets.dtype)
    return learner.targets.median(dim=0, keepdim=True).values


def _variation(x: torch.Tensor) -> torch.Tensor:
    """Return the mean absolute difference of neighbouring pixels; 0 for samples that are not pictures."""
    if x.dim() < 4:
        return x.new_zeros(())
    return x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean()


def psnr(guess: Floats, truth: Floats, *, span: float) -> float:
    r"""Return :math:`10 \log_{10}(\text{span}^2 / \mathrm{MSE})`, at most :data:`BEST_PSNR`.

    Examples
    --------
    >>> psnr(np.array([0.1, 0.0]), np.zeros(2), span=1.0) > 20
    True
    """
    error = float(np.square(guess - truth).mean())
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
