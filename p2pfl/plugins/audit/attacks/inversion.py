r"""Gradient inversion: reconstruction of the sample behind a released update.

The attack assumes the worst case: the peer takes one step of gradient descent on one sample, so that its update is
:math:`-\eta \nabla F(x)`, and releases it as usual.

- *Analytic*, exact and cheap, if the model begins with a linear layer: its gradients are
  :math:`\partial W_i = \delta_i x` and :math:`\partial b_i = \delta_i`, so
  :math:`\hat x = \sum_i \partial b_i\, \partial W_i / \sum_i \partial b_i^2`, the least squares of all units.
- *Optimised*, for any model: the attacker searches for the x that minimises
  :math:`1 - \cos(\nabla F(x), g) + \alpha\, \mathrm{TV}(x)` by Adam on the signs of its gradient (Geiping et
  al.); the class is the row of the last layer's bias that moved up the most.

Inversion fails long before differential privacy gives a meaningful guarantee, so its failure proves little.

References
----------
L. T. Phong et al., "Privacy-preserving deep learning via additively homomorphic encryption", IEEE TIFS 2018.
J. Geiping et al., "Inverting gradients: how easy is it to break privacy in federated learning?", NeurIPS 2020.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.ndimage import uniform_filter
from torch import nn
from torch.func import functional_call

from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.process import one_thread
from p2pfl.core.rows import draw
from p2pfl.data import Federation, IntArray
from p2pfl.learning import TorchLearner
from p2pfl.learning.losses import mean
from p2pfl.plugins.audit.observer_bounds import Observer
from p2pfl.plugins.audit.pipeline import OPEN, Floats, Fresh, Pipeline, Train
from p2pfl.privacy import Settings
from p2pfl.topology import Topology, Weights

SAMPLES = 4
"""Number of attacked samples."""

ITERATIONS = 300
"""Number of iterations of the optimisation."""

RATE = 0.1
"""Step size of the optimisation, in units of the features' range."""

SMOOTH = 1e-3
"""Weight of the total variation."""

LARGEST = 200_000
"""Largest number of parameters of a model that the optimisation attacks."""

BEST = 200.0
"""Decibels of a sample that is reconstructed exactly."""


@dataclass(frozen=True)
class Inversion:
    """Result of one attack of one observer.

    Parameters
    ----------
    observer
        Name of the observer; ``"nothing hidden"`` reads the update as it is.
    attack
        ``"analytic"`` or ``"optimised"``.
    psnr, ssim
        Peak signal-to-noise ratio in decibels and structural similarity to the truth, means over the
        samples; similarity is ``None`` where samples are not pictures.
    baseline
        PSNR of a constant, the mean of all features.
    pictures
        Reconstructions, ``[S, *shape]``.
    """

    observer: str
    attack: str
    psnr: float
    ssim: float | None
    baseline: float
    pictures: Floats

    @property
    def recognised(self) -> bool:
        """True if the reconstruction is more than 3 dB better than a constant."""
        return self.psnr > self.baseline + 3


@dataclass(frozen=True)
class Inversions:
    """Attacked samples, ``[S, *shape]``, and their reconstructions."""

    truth: Floats
    found: tuple[Inversion, ...]


@one_thread()
def invert(
    settings: Settings,
    observers: Sequence[Observer],
    *,
    graph: Topology,
    weights: Sequence[Weights],
    fresh: Fresh,
    federation: Federation,
    train: Train,
    samples: int = SAMPLES,
    iterations: int = ITERATIONS,
    seed: int = 0,
) -> Inversions:
    """Attack single samples of the observers' victims.

    Parameters
    ----------
    settings, graph, weights
        Arguments of the pipeline.
    observers
        Observers that attack.
    fresh
        Function that makes the source of the run of each sample.
    federation
        Data of all peers.
    train
        Function that makes a learner which takes one step of gradient descent.
    samples, iterations
        Number of samples, and of iterations of the optimisation.
    seed
        Seed of the choice of samples.

    Returns
    -------
    Inversions
        Samples and reconstructions.
    """
    everything = np.concatenate([federation.train[peer] for peer in graph.peers])
    chosen = draw(seed, "audit inversion").choice(everything, size=min(samples, len(everything)), replace=False)
    learner = train(_only(federation, graph.peers, chosen[:1]))
    gradients: dict[str, list[torch.Tensor]] = {OPEN: [], **{observer.name: [] for observer in observers}}
    for number, sample in enumerate(chosen):
        stepping = train(_only(federation, graph.peers, np.array([sample])))
        start = stepping.start(graph.peers).double()  # [N, P]
        one = stepping.fit(start[:1].to(stepping.dtype), peers=graph.peers[:1], round=0).rows.double()  # [1, P]
        rows = one.repeat(len(start), 1)  # [N, P]: any peer may be the victim
        pipeline = Pipeline.keyed(settings, graph=graph, weights=weights, source=fresh(number))
        released = run_without_loop(pipeline.round(0).release(rows, since=Public(start)))
        gradients[OPEN].append((start - rows)[0])
        for observer in observers:
            seen = observer.sees(pipeline, released, round=0)  # [H, P]
            row = int(np.flatnonzero(observer.watched == graph.peers.index(observer.victim))[0])
            gradients[observer.name].append(start[0] - torch.from_numpy(seen[row]))
    return _attacked(learner, gradients, chosen, federation, iterations=iterations)


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


def optimise_sample(
    learner: TorchLearner, gradient: torch.Tensor, *, low: float, high: float, iterations: int = ITERATIONS
) -> torch.Tensor:
    """Return the sample whose gradient at the initial parameters is most nearly parallel to this one.

    Parameters
    ----------
    learner
        Model, loss and initial parameters.
    gradient
        Gradient ``[P]``.
    low, high
        Range of the features.
    iterations
        Steps of Adam on signs, its rate divided by ten at 3/8, 5/8 and 7/8 of them.
    """
    model, layout = learner.model, learner.layout
    model.eval()
    start = layout.split(learner.start(("",)).to(learner.device))
    parts = {name: part[0].clone().requires_grad_() for name, part in start.items()}
    goal = (gradient / gradient.norm().clamp_min(1e-300)).to(learner.device, learner.dtype)  # [P]
    target = _target(learner, gradient)
    shape = learner.features.shape[1:]
    x = torch.full((1, *shape), (low + high) / 2, dtype=learner.dtype, device=learner.device, requires_grad=True)
    adam = torch.optim.Adam([x], lr=RATE * (high - low))
    stages = torch.optim.lr_scheduler.MultiStepLR(adam, [iterations * k // 8 for k in (3, 5, 7)], gamma=0.1)
    for _ in range(iterations):
        loss = mean(learner.loss, functional_call(model, parts, (x,)), target)
        found = torch.autograd.grad(loss, list(parts.values()), create_graph=True)
        flat = torch.cat([part.flatten() for part in found])  # [P]
        cosine = flat @ goal / flat.norm().clamp_min(1e-20)
        (x.grad,) = torch.autograd.grad(1 - cosine + SMOOTH * _variation(x) / (high - low), (x,))
        x.grad.sign_()
        adam.step()
        stages.step()
        with torch.no_grad():
            x.clamp_(low, high)
    return x.detach()[0]


def psnr(found: Floats, truth: Floats, *, span: float) -> float:
    r"""Return :math:`10 \log_{10}(\text{span}^2 / \mathrm{MSE})`, at most ``BEST``.

    Examples
    --------
    >>> psnr(np.array([0.1, 0.0]), np.zeros(2), span=1.0) > 20
    True
    """
    error = float(np.square(found - truth).mean())
    return min(BEST, 10 * math.log10(span**2 / max(error, np.finfo(np.float64).tiny)))


def ssim(found: Floats, truth: Floats, *, span: float) -> float:
    """Return the structural similarity of two pictures ``[..., height, width]``, by windows of at most 7 pixels.

    References
    ----------
    Z. Wang et al., "Image quality assessment: from error visibility to structural similarity", IEEE TIP 2004.

    Examples
    --------
    >>> picture = np.random.default_rng(0).random((8, 8))
    >>> round(ssim(picture, picture, span=1.0), 6)
    1.0
    """
    width = min(7, *truth.shape[-2:])
    size = (1,) * (truth.ndim - 2) + (width, width)

    def local(values: Floats) -> Floats:
        smooth: Floats = uniform_filter(values, size=size)
        return smooth

    a, b = local(found), local(truth)
    spread_a, spread_b = local(found * found) - a * a, local(truth * truth) - b * b
    common = local(found * truth) - a * b
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    similar = (2 * a * b + c1) * (2 * common + c2) / ((a * a + b * b + c1) * (spread_a + spread_b + c2))
    half = width // 2
    inner = similar[..., half : similar.shape[-2] - half, half : similar.shape[-1] - half]
    return float(inner.mean())


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


def _attacked(
    learner: TorchLearner,
    gradients: Mapping[str, Sequence[torch.Tensor]],
    chosen: IntArray,
    federation: Federation,
    *,
    iterations: int,
) -> Inversions:
    """Run both attacks on the gradients of every observer."""
    features = federation.dataset.features.double().numpy()
    truth, low, high = features[chosen], float(features.min()), float(features.max())
    names = first_linear(learner)
    constant = np.mean([psnr(np.full_like(one, features.mean()), one, span=high - low) for one in truth])
    found = []
    for observer, each in gradients.items():
        attacks: dict[str, list[Floats]] = {}
        if names is not None:
            parts = [learner.layout.split(gradient) for gradient in each]
            inputs = [analytic(part, weight=names[0], bias=names[1]) for part in parts]
            attacks["analytic"] = [one.numpy().reshape(truth.shape[1:]) for one in inputs]
        if learner.layout.size <= LARGEST and learner.features.is_floating_point():
            with contextlib.suppress(RuntimeError):  # a user-defined layer may have no second derivative
                back = [
                    optimise_sample(learner, gradient, low=low, high=high, iterations=iterations) for gradient in each
                ]
                attacks["optimised"] = [one.double().cpu().numpy() for one in back]
        for attack, pictures in attacks.items():
            found.append(
                _inversion(observer, attack, np.stack(pictures), truth, span=high - low, baseline=float(constant))
            )
    return Inversions(truth, tuple(found))


def _inversion(
    observer: str, attack: str, pictures: Floats, truth: Floats, *, span: float, baseline: float
) -> Inversion:
    pairs = list(zip(pictures, truth, strict=True))
    similar = None
    if truth.ndim >= 3 and min(truth.shape[-2:]) >= 3:
        similar = float(np.mean([ssim(found, right, span=span) for found, right in pairs]))
    quality = float(np.mean([psnr(found, right, span=span) for found, right in pairs]))
    return Inversion(observer, attack, quality, similar, baseline, pictures)


def _only(federation: Federation, peers: Sequence[str], samples: IntArray) -> Federation:
    """Return a federation in which every peer holds only these samples."""
    return replace(federation, train=dict.fromkeys(peers, samples))


def _target(learner: TorchLearner, gradient: torch.Tensor) -> torch.Tensor:
    """Return the class by the gradient of the last bias, whose only negative entry is that of the true class."""
    last = learner.layout.split(gradient)[learner.layout.names[-1]]
    kind = learner.targets.dtype
    if kind.is_floating_point:
        return learner.targets.mean(dim=0, keepdim=True)
    if last.numel() != learner.federation.dataset.classes:  # without such a bias, guess the most frequent class
        return learner.targets.mode().values.view(1)
    return last.flatten().argmin().view(1).to(learner.device, kind)


def _variation(x: torch.Tensor) -> torch.Tensor:
    """Return the mean absolute difference of neighbouring pixels; 0 for samples that are not pictures."""
    if x.dim() < 3:
        return x.new_zeros(())
    return (x[..., 1:, :] - x[..., :-1, :]).abs().mean() + (x[..., :, 1:] - x[..., :, :-1]).abs().mean()


__all__ = ["Inversion", "Inversions", "analytic", "invert", "optimise_sample", "psnr", "ssim"]
