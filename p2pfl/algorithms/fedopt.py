"""Server optimisers without a server: each peer keeps the moments of the mean update."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, Local, State, lacks_moments
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.neighbourhood import Neighbourhood, Public, derived
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits

Decay = Annotated[float, Meta(ge=0, lt=1)]
Positive = Annotated[float, Meta(gt=0)]

Moments = Mapping[str, torch.Tensor]
"""Moments of the mean update by name, each ``[R, P]``."""


@dataclass(frozen=True)
class FedOpt(Local):
    r"""Local training, then a step of an optimiser that takes the mean update as its gradient.

    .. math:: \Delta = \frac{\sum_{k \in S} n_k x_k}{\sum_{k \in S} n_k} - x, \qquad x \leftarrow x + u(\Delta)

    If averages are exact, all peers compute what the server would: the same moments and the same model. On a sparse
    graph each peer's :math:`\Delta` also contains the distance of its model from the mean, so the step brings it
    back. The moments depend on mixed models alone and are as public as these.

    References
    ----------
    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan, Adaptive federated optimization, ICLR 2021,
    Algorithm 2.
    """

    average: Averaging = Averaging()

    @abstractmethod
    def step(self, change: Rows, kept: Moments) -> tuple[Rows, Moments]:
        r"""Return :math:`u(\Delta)` ``[R, P]`` and the moments after it."""

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of local training, averaging and the optimiser's step."""
        active = self.average.participants(net.peers, round=round)  # [R]
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active)
        masses = await self.average.masses(learner, net, active)
        mean = await self.average(net, fitted.rows, since=state.public, masses=masses)
        return replace(self._step(state, mean, round=round), report=fitted.report)

    def _step(self, state: State, mean: Public, *, round: int) -> State:
        """Return the state after the optimiser's step towards a mean."""
        change = mean.rows - state.public.rows
        if lacks_moments(self, state, round=round):
            change = torch.zeros_like(change)
        step, kept = self.step(change, state.extra)  # moments are made of changes, which are public
        # and not x + step, so that a step that is the change gives the mean itself
        public = derived(lambda rows: rows + (step - change), mean)
        return replace(state, rows=public.rows, public=public, extra=kept)


@dataclass(frozen=True)
class FedAvgM(FedOpt):
    r"""Momentum: :math:`m \leftarrow \beta m + \Delta`, and the step is :math:`\eta m`.

    Without momentum and with rate 1 it is FedAvg, bit for bit.

    Parameters
    ----------
    average
        Average over the participants: who they are, their weights and the gossip steps.
    epochs, steps
        Training of a peer per round; the learner's default if both are ``None``.
    global_rate
        :math:`\eta`.
    momentum
        :math:`\beta`.

    Examples
    --------
    >>> step, kept = FedAvgM(momentum=0.5).step(torch.ones(1, 2), {"momentum": torch.ones(1, 2)})
    >>> step.tolist()
    [[1.5, 1.5]]

    References
    ----------
    Hsu, Qi, Brown, Measuring the effects of non-identical data distribution for federated visual classification,
    2019, section 4.3.
    """

    traits: ClassVar[Traits] = Traits(linear=True, idle_alike=True, moments=("momentum",))
    global_rate: Positive = 1.0
    momentum: Decay = 0.9

    def step(self, change: Rows, kept: Moments) -> tuple[Rows, Moments]:
        """Return the step along the momentum, and the momentum."""
        momentum = self.momentum * kept.get("momentum", torch.zeros_like(change)) + change
        return self.global_rate * momentum, {"momentum": momentum}


@dataclass(frozen=True)
class Adaptive(FedOpt):
    r"""A step with its own length for each parameter, by the size of its changes.

    .. math:: m \leftarrow \beta_1 m + (1 - \beta_1) \Delta, \qquad u = \eta \frac{m}{\sqrt v + \tau}

    from m = 0 and :math:`v = \tau^2`. The subclasses differ in v.

    Parameters
    ----------
    average
        Average over the participants: who they are, their weights and the gossip steps.
    global_rate
        :math:`\eta`, which must be tuned together with ``learning.rate``.
    beta1
        Decay of the first moment.
    tau
        Adaptivity, where smaller values adapt more; 0.001 in the paper.
    """

    traits: ClassVar[Traits] = Traits(
        nonlinear="takes steps that are no linear function of sums", idle_alike=True, moments=("first", "second")
    )
    global_rate: Positive = 0.1
    beta1: Decay = 0.9
    tau: Positive = 1e-3

    @abstractmethod
    def second(self, v: Rows, square: Rows) -> Rows:
        r"""Return v after a change with the squares ``square``, ``[R, P]``."""

    def step(self, change: Rows, kept: Moments) -> tuple[Rows, Moments]:
        """Return the adaptive step and both moments."""
        first = kept.get("first", torch.zeros_like(change))
        v = kept.get("second", torch.full_like(change, self.tau**2))
        first = self.beta1 * first + (1 - self.beta1) * change
        v = self.second(v, change**2)
        return self.global_rate * first / (v.sqrt() + self.tau), {"first": first, "second": v}


@dataclass(frozen=True)
class FedAdam(Adaptive):
    r"""Adam: :math:`v \leftarrow \beta_2 v + (1 - \beta_2) \Delta^2`, without bias correction.

    Examples
    --------
    >>> FedAdam(beta2=0.9).second(torch.ones(1), torch.zeros(1)).tolist()
    [0.8999999761581421]
    """

    beta2: Decay = 0.99

    def second(self, v: Rows, square: Rows) -> Rows:
        """Return the exponential mean of the squares."""
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class FedYogi(Adaptive):
    r"""Yogi: :math:`v \leftarrow v - (1 - \beta_2) \Delta^2 \operatorname{sign}(v - \Delta^2)`.

    Examples
    --------
    >>> FedYogi(beta2=0.5).second(torch.ones(1), torch.full((1,), 0.5)).tolist()
    [0.75]
    """

    beta2: Decay = 0.99

    def second(self, v: Rows, square: Rows) -> Rows:
        """Return v moved towards the squares by an amount that depends on the sign of the difference alone."""
        return v - (1 - self.beta2) * square * torch.sign(v - square)


@dataclass(frozen=True)
class FedAdagrad(Adaptive):
    r"""Adagrad: :math:`v \leftarrow v + \Delta^2`, without momentum, as in the paper's experiments.

    Examples
    --------
    >>> FedAdagrad().second(torch.ones(1), torch.ones(1)).tolist()
    [2.0]
    """

    beta1: Decay = 0.0

    def second(self, v: Rows, square: Rows) -> Rows:
        """Return the sum of all squares."""
        return v + square
