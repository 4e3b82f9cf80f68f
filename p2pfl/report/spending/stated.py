"""Statements on privacy in ``summary.json``: the guarantee, and whether the budget stopped the run."""

from __future__ import annotations

from typing import Any

import msgspec


class BudgetStop(msgspec.Struct, frozen=True):
    """The privacy budget stopped a run early.

    Attributes
    ----------
    done
        Number of rounds that ran.
    rounds
        Number of rounds of the experiment.
    epsilon
        The budget, ``privacy.epsilon``.
    account
        File with costs of earlier runs on the same data; null if there were none.
    peers
        Number of peers that stopped so.
    among
        Number of all peers.
    """

    done: int
    rounds: int
    epsilon: float
    account: str | None = None
    peers: int = 1
    among: int = 1


class ObserverGuarantee(msgspec.Struct, frozen=True):
    """Guarantee of all rounds against one observer.

    Attributes
    ----------
    observer
        The observer, in words.
    peer
        Peer that is worst off against it.
    promised
        True for the line that the run promises.
    epsilon
        Epsilon of that peer's data; null if it is unbounded.
    auc
        Area under the ROC curve of the best attack that there can be.
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
    """Protection of the models, and its guarantee.

    Attributes
    ----------
    mode
        Privacy mode.
    clip
        Bound of the change that a peer releases; null without one.
    noise
        Standard deviation of the private noise.
    mask
        Standard deviation of a mask.
    participation
        Probability with which a peer takes part in a round.
    statement
        The guarantee in a sentence.
    epsilon
        Epsilon of each peer's data so far; null without a claim.
    examples
        Guarantee for single samples; null without one.
    delta
        Delta of the claim; absent without one.
    adjacency
        Data sets that the claim makes indistinguishable; absent without one.
    colluders
        Number of peers that may collude; absent without a claim.
    observers
        Guarantee of this run alone by observer, if no peer disappears; absent without a claim, and above 64 peers.
    account
        Name of the file that adds up what runs spend of the data, with ``{peer}`` for the name of a peer; null where
        none does, absent without a claim.
    learned
        What each party learns from exact totals; absent where models travel.
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
