r"""Attacks: what Byzantine peers send instead of their models.

With :math:`y_i` the model of a peer, :math:`s_i` its public model before (``since``) and
:math:`u_i = y_i - s_i` its update, over the honest peers H and for a scale c:

========== ============================================================================================ ==========
sign_flip  :math:`s_i - c\, u_i`                                                                         c = 1
scaled     :math:`s_i + c\, u_i`                                                                         c = 10
random     :math:`s_i + c\, \mathcal N(0, I)`                                                            c = 1
alie       :math:`\mu - c\, \sigma`, mean and deviation of :math:`y_H` in each number                    c = z
ipm        :math:`\bar s - c\, \bar u`, means over H                                                     c = 0.1
dissensus  to i: :math:`y_i - c \sum_{k \in H} W_{ik} (y_k - y_i) / \sum_{j \notin H} W_{ij}`            c = 1
label_flip an honest update on labels y turned to C - 1 - y
========== ============================================================================================ ==========

where :math:`z = \Phi^{-1}\left(\frac{N - m - s}{N - m}\right)`, :math:`s = \lfloor N / 2 + 1 \rfloor - m` for m
Byzantine peers among N. They attack in each gossip step and train honestly otherwise: they distort a real update.

References
----------
Baruch, Baruch, Goldberg, A little is enough: circumventing defenses for distributed learning, NeurIPS 2019 (alie).
Xie, Koyejo, Gupta, Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation, UAI 2020 (ipm).
He, Karimireddy, Jaggi, Byzantine-robust decentralized learning via ClippedGossip, arXiv 2202.01545, 2022 (dissensus).
Allouah et al., Fixing by mixing, AISTATS 2023 (sign_flip, label_flip). Bagdasaryan et al., How to backdoor federated
learning, AISTATS 2020 (scaled).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist

import numpy as np

from p2pfl.algorithms.robust.net import StepObserver, average_received
from p2pfl.core.draws import draw
from p2pfl.core.imports import translate_errors
from p2pfl.core.neighbourhood import Neighbourhood, Public, ReceivedModels, Released, Wrapped
from p2pfl.core.rows import Rows, to_device
from p2pfl.core.tensors import torch

Sums = Callable[[torch.Tensor], torch.Tensor]
"""Function that adds up a tensor over all processes that share the peers."""

OwnAttack = Callable[..., Rows]
"""Function of an attacker's rows and public rows before, ``[L, P]`` both, with the keywords ``scale`` and ``noise``."""


def flip_sign(rows: Rows, since: Rows, *, noise: Callable[[], Rows], scale: float = 1.0) -> Rows:  # noqa: ARG001
    """Return the public rows before less the updates."""
    return since - scale * (rows - since)


def scale_update(rows: Rows, since: Rows, *, noise: Callable[[], Rows], scale: float = 10.0) -> Rows:  # noqa: ARG001
    """Return the public rows before with larger updates."""
    return since + scale * (rows - since)


def add_noise(rows: Rows, since: Rows, *, noise: Callable[[], Rows], scale: float = 1.0) -> Rows:  # noqa: ARG001
    """Return the public rows before with normal noise."""
    return since + scale * noise()


OWN: dict[str, OwnAttack] = {"sign_flip": flip_sign, "scaled": scale_update, "random": add_noise}
"""Attacks that need only the attacker's own model; each has its scale as a default."""

MODEL_BASED_ATTACKS = {"alie": None, "ipm": 0.1, "dissensus": 1.0}
"""Attacks that need the models of honest peers, which only a simulation can provide, with their scales."""


def sum_locally(values: torch.Tensor) -> torch.Tensor:
    """Return the sum over all processes where one has all peers."""
    return values


@dataclass(frozen=True)
class Attack:
    """Attack, with its Byzantine peers.

    Attributes
    ----------
    name
        Name of the attack, see above, or of ``function``.
    attackers
        Names of the Byzantine peers.
    peers
        Number of all peers.
    scale
        c; ``None`` for the default above.
    seed
        Seed of the draws.
    function
        An attack of your own, called as those of :data:`OWN` are; ``noise()`` returns normal noise ``[L, P]``, drawn by
        key.
    """

    name: str
    attackers: frozenset[str]
    peers: int
    scale: float | None = None
    seed: int = 0
    function: OwnAttack | None = None

    @property
    def factor(self) -> float:
        """Scale c of an attack that needs the models of honest peers."""
        if self.scale is not None:
            return self.scale
        return MODEL_BASED_ATTACKS[self.name] or little(self.peers, len(self.attackers))

    def among(self, peers: Sequence[str]) -> torch.Tensor:
        """Return which of ``peers`` are Byzantine, ``[R]`` bool."""
        return torch.tensor([peer in self.attackers for peer in peers])

    def corrupted(
        self, rows: Rows, *, since: Rows, peers: Sequence[str], round: int, step: int, sums: Sums = sum_locally
    ) -> Rows:
        """Return what is sent instead of the rows, ``[R, P]``; those of honest peers stay as they are.

        Parameters
        ----------
        rows, since
            ``[R, P]``; the update is the difference.
        peers
            Names of the R peers.
        round, step
            Round and gossip step of the draws.
        sums
            Function that adds up over all processes; each has some of the peers.

        Raises
        ------
        InputError
            A function of your own fails.
        """
        lying = self.among(peers)  # [R]
        bad, good = (to_device(each.nonzero().squeeze(-1), rows.device) for each in (lying, ~lying))
        out = rows.clone()
        if (function := self.function or OWN.get(self.name)) is not None:
            noise = partial(self._noise, rows[bad], peers, round=round, step=step)
            scale = {} if self.scale is None else {"scale": self.scale}
            with translate_errors(self.name, key="attack.name"):
                out[bad] = function(rows[bad], since[bad], noise=noise, **scale)
            return out
        honest, before = rows[good], since[good]
        match self.name:
            case "alie":
                mean, deviation = moments(honest, sums)
                out[bad] = mean - self.factor * deviation
            case "ipm":
                means = sums(torch.stack([before.sum(0), (honest - before).sum(0)])) / _count(honest, sums)  # [2, P]
                out[bad] = means[0] - self.factor * means[1]
        return out

    def _noise(self, rows: Rows, peers: Sequence[str], *, round: int, step: int) -> Rows:
        drawn = [
            draw(self.seed, f"lie {step}", peer, round).standard_normal(rows.shape[-1])
            for peer in peers
            if peer in self.attackers
        ]
        return to_device(torch.from_numpy(np.array(drawn).reshape(rows.shape)).to(rows.dtype), rows.device)  # [L, P]


def moments(rows: Rows, sums: Sums = sum_locally) -> tuple[torch.Tensor, torch.Tensor]:
    r"""Return the mean of the rows of all processes and their deviation, :math:`\sqrt{\sum (y_i - \mu)^2 / (n - 1)}`.

    Parameters
    ----------
    rows
        Rows of this process, ``[R, P]``.
    sums
        Function that adds up over all processes.

    Returns
    -------
    tuple
        Mean and deviation, ``[P]`` each.

    Examples
    --------
    >>> [each.tolist() for each in moments(torch.tensor([[1.0], [3.0], [5.0]]))]
    [[3.0], [2.0]]
    """
    count = _count(rows, sums)
    mean = sums(rows.sum(0)) / count  # [P]
    return mean, (sums((rows - mean).square_().sum(0)) / (count - 1)).sqrt()


def _count(rows: Rows, sums: Sums) -> torch.Tensor:
    """Return the number of rows of all processes."""
    return to_device(sums(torch.tensor([len(rows)])), rows.device)


def little(peers: int, attackers: int) -> float:
    r"""Return the number of deviations by which attackers stay among the honest peers (Baruch et al. 2019).

    :math:`z = \Phi^{-1}\left(\frac{N - m - s}{N - m}\right)` with :math:`s = \lfloor N / 2 + 1 \rfloor - m`, or 0.

    Examples
    --------
    >>> round(little(50, 24), 3), round(little(20, 4), 3)
    (1.426, 0.157)
    """
    honest = peers - attackers
    share = (honest - (math.floor(peers / 2 + 1) - attackers)) / honest
    return max(0.0, NormalDist().inv_cdf(share)) if 0 < share < 1 else 0.0


def flip_labels(targets: torch.Tensor, *, classes: int) -> torch.Tensor:
    """Flip labels y to C - 1 - y.

    Examples
    --------
    >>> flip_labels(torch.tensor([0, 1, 9]), classes=10)
    tensor([9, 8, 0])
    """
    return classes - 1 - targets


def add_attack(
    net: Neighbourhood,
    attack: Attack | None,
    *,
    round: int,
    observer: StepObserver | None = None,
    together: Sequence[str] | None = None,
    sums: Sums = sum_locally,
) -> Neighbourhood:
    """Wrap a neighbourhood so that Byzantine peers send the models of an attack.

    Parameters
    ----------
    net
        Neighbourhood to wrap.
    attack
        Attack; with ``None``, or without peers that attack by their model, the neighbourhood itself returns.
    round
        Round of the draws.
    observer
        Observer that records how far each gossip step moves the models.
    together
        Peers among which any may attack; the local ones by default.
    sums
        Function that adds up over all processes that simulate peers.

    Returns
    -------
    Neighbourhood
        The wrapped neighbourhood.
    """
    if attack is None or attack.name == "label_flip" or not attack.among(together or net.peers).any():
        return net
    return AttackedNeighbourhood(net, attack, round=round, observer=observer, sums=sums)


class AttackedNeighbourhood(Wrapped):
    """Neighbourhood with Byzantine peers; :func:`add_attack` makes it and explains the parameters.

    A Byzantine peer uses its own true model: it mixes as if it were honest, and it adds its true integers to totals.
    """

    def __init__(
        self, net: Neighbourhood, attack: Attack, *, round: int, observer: StepObserver | None, sums: Sums
    ) -> None:
        super().__init__(net)
        self._sums = sums
        self._attack = attack
        self._round = round
        self._observer = observer
        self._step = 0
        self._since: Public | None = None

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release as the wrapped neighbourhood does."""
        self._since = since
        return await self._net.release(rows, since=since, masses=masses)

    async def mix(self, released: Released) -> Released:
        """Return the plain average of the received models."""
        own = released.values
        mixed = Released(average_received(await self.receive(released), own))  # [R, P]
        if self._observer is not None:
            self._observer.record_step(released, mixed)
        return mixed

    async def receive(self, released: Released) -> ReceivedModels:
        """Return the received models under the attack; models received before a release are true."""
        if self._since is None:
            return await self._net.receive(released)
        attack, own = self._attack, released.values
        sent = attack.corrupted(
            own, since=self._since.rows, peers=self.peers, round=self._round, step=self._step, sums=self._sums
        )  # [R, P]
        self._step += 1
        received = await self._net.receive(Released(sent))
        return dissent(received, own, attack) if attack.name == "dissensus" else true_to_self(received, own)


def true_to_self(received: ReceivedModels, own: Rows) -> ReceivedModels:
    """Return the same with the own model of each receiver unchanged, whatever it sent."""
    count = len(own)  # the first R rows are those of the receivers
    others = received.sender != received.listener  # [E]
    again = others & (received.sender < count)
    sender = torch.where(again, received.sender + len(received.rows), received.sender)  # [E]
    rows = torch.cat([own.to(received.rows), received.rows[count:], received.rows[:count]])  # [S + R, P]
    return replace(received, rows=rows, sender=sender, peers=received.peers + received.peers[:count])


def dissent(received: ReceivedModels, own: Rows, attack: Attack) -> ReceivedModels:
    """Return models that Byzantine peers send to each receiver to move it away from its honest neighbours."""
    bad, others = attack.among(received.peers), received.sender != received.listener  # [S], [E]
    lying = bad[received.sender]  # [E]
    hit = others & lying & ~bad[received.listener]  # [E]
    power = torch.zeros(len(own), dtype=torch.float64).index_add_(
        0, received.listener[hit], received.weights[hit]
    )  # [R]
    pull = torch.where(power > 0, attack.factor / power, 0.0)[received.listener]  # [E]
    away = torch.where(lying, 0.0, -pull * received.weights)  # [E]; the receiver's own model gets what these leave
    lies = average_received(replace(received, weights=away), own)  # [R, P]
    sender = torch.where(hit, len(received.rows) + received.listener, received.sender)  # [E]
    return replace(
        received,
        rows=torch.cat([received.rows, lies.to(received.rows)]),
        sender=sender,
        peers=received.peers + ("",) * len(own),
    )
