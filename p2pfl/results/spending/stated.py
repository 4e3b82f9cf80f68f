"""Statements on privacy in ``summary.json``: the guarantee, and whether the budget stopped the run."""

from __future__ import annotations

from typing import Any

import msgspec


class BudgetStop(msgspec.Struct, frozen=True):
    """Early stop by the privacy budget.

    Attributes
    ----------
    done
        Rounds that ran.
    rounds
        Of the experiment.
    epsilon
    account
        Costs of earlier runs.
    peers
        Peers that stopped so.
    among
        All peers.
    """

    done: int
    rounds: int
    epsilon: float
    account: str | None = None
    peers: int = 1
    among: int = 1

    def __str__(self) -> str:
        before = "" if self.account is None else f", including what {self.account} had before"
        who = "" if self.peers == self.among else f" ({self.peers} of {self.among} peers)"
        rounds = f"{self.done} of {self.rounds} rounds"
        return f"{rounds}: another one would exceed privacy.epsilon = {self.epsilon:g}{before}{who}"


class ObserverGuarantee(msgspec.Struct, frozen=True):
    """Guarantee of all rounds against one observer.

    Attributes
    ----------
    observer
    peer
        Peer that is worst off.
    promised
        Whether it is what the run promises.
    epsilon
        Null if unbounded.
    auc
        Of the best possible attack.
    tpr
        Its rate of true positives at 1 % of false ones.
    """

    observer: str
    peer: str
    promised: bool
    epsilon: float | None
    auc: float
    tpr: float


class StatedGuarantee(msgspec.Struct, frozen=True, omit_defaults=True):
    """Protection of the models; the fields from ``delta`` to ``observers`` are absent without a claim.

    Attributes
    ----------
    mode
        ``privacy.mode``.
    clip
        Bound of the released change.
    noise
        Deviation of the private noise.
    mask
        Deviation of a mask.
    participation
        Probability in a round.
    statement
    epsilon
        Of each peer's data so far.
    examples
        Guarantee for single samples.
    delta
    adjacency
    colluders
    observers
        Guarantee of this run by observer, if no peer disappears; absent above 64 peers.
    account
    learned
        What each party learns from exact totals.
    """

    mode: str
    clip: float | None
    noise: float
    mask: float
    participation: float
    statement: str
    epsilon: float | None
    examples: dict[str, Any] | None
    delta: float | msgspec.UnsetType = msgspec.UNSET
    adjacency: str | msgspec.UnsetType = msgspec.UNSET
    colluders: int | msgspec.UnsetType = msgspec.UNSET
    account: str | msgspec.UnsetType | None = msgspec.UNSET
    observers: tuple[ObserverGuarantee, ...] = ()
    learned: dict[str, str] = {}
