"""Sections on privacy, and on Byzantine peers."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from msgspec import Meta

from p2pfl.experiment.schema.values import Endless, File, NotNegative, Number, Positive, Reference, Section


class PrivacySettings(Section, frozen=True):
    """Protection of a peer's update.

    Attributes
    ----------
    mode
        ``none``; ``independent``: private noise only; ``pairwise``: also masks that cancel; ``secagg``: each peer
        receives the exact sum of its neighbours' models and none of them; or a ``package.module:Class``, which receives
        those of the keys below that it has parameters for.
    clip
        Bound of the norm of an update; 1 if ``epsilon`` is set and this is not.
    clipping
        ``flat`` clips the update as a whole; ``layer`` clips each of the m tensors of the model to clip / sqrt(m), so
        that the same bound holds for the whole.
    noise
        Standard deviation of the private noise in each number.
    mask
        Standard deviation of the mask of each edge in each number (pairwise). The default follows from the initial
        parameters, the learning rate, the steps and the graph (docs/protection.md); with ``noise`` and ``clip`` it is
        the clip.
    bits
        Fraction bits of the fixed-point grid on which masks cancel.
    participation
        Probability with which a peer takes part in a release (FedAvg). Who does stays secret, so the guarantee counts
        it.
    mask_graph
        Which peers share masks: the neighbours (``same``), or a denser graph, which hides better and costs no gossip
        step: ``complete``, ``circulant`` or ``random``.
    mask_degree
        Mask partners of a peer under ``circulant`` and ``random``; by default as many as ``colluders`` asks for.
    epsilon
        The guarantee over the whole run. Without ``noise``, the least costly noise and mask are calibrated to it; with
        ``noise`` it is a budget, and the run stops before it is exceeded.
    delta
        The probability in the guarantee (epsilon, delta).
    colluders
        Number of peers that may collude with the broker.
    partners
        Number of mask partners that must be present before a model leaves under masks (pairwise): by default
        ``colluders + 1`` where masks alone hide it; 1 with ``noise`` and ``clip``, because the budget counts missing
        partners.
    departures
        Reaction of live peers under masks when a peer disappears during a round. ``unsettled``: they continue at
        once, and the masks that it shared stay in the models. ``go_on``: a majority of its neighbours decides whether
        its model counts; if not, they remove its masks before they train again, which can show its update under its
        private noise alone, and exactly without noise; a malicious neighbour can bring this about. On a graph that is
        not complete, all peers decide whether the round counts, and play it again without those that are gone.
        ``stop``: they decide the same; if it does not count, they wait for the peer for ``transport.outage`` and play
        the round again with it, or end (docs/churn.md).
    adjacency
        Change that the guarantee hides: a peer's update with nothing (``zero-out``), or with any other (``replace``).
    budget
        A file that adds up what all runs on the same data spend, under one adjacency and number of colluders;
        ``epsilon`` then bounds them together. For data in a file it lies beside that file by default.
    """

    mode: Reference = "none"
    clip: Endless = math.inf
    clipping: Literal["flat", "layer"] = "flat"
    noise: NotNegative = 0.0
    mask: NotNegative | None = None
    bits: Annotated[int, Meta(ge=1, le=40)] = 20
    participation: Annotated[float, Meta(gt=0, le=1)] = 1.0
    mask_graph: Literal["same", "complete", "circulant", "random"] = "same"
    mask_degree: Number | None = None
    epsilon: Positive | None = None
    delta: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    colluders: Annotated[int, Meta(ge=0)] = 1
    partners: Number | None = None
    departures: Literal["unsettled", "go_on", "stop"] = "unsettled"
    adjacency: Literal["zero-out", "replace"] = "zero-out"
    budget: File | None = None


class RobustnessSettings(Section, frozen=True):
    """Robust rule in place of the average, if peers may be Byzantine.

    Attributes
    ----------
    rule
        ``none``; ``clipped_gossip``; ``self_centred_clipping``; ``trimmed_mean``, ``median``, ``krum`` and
        ``multi_krum``, which weight all models alike; or a ``package.module:Class``, which receives ``attackers`` and
        ``radius`` if it has such parameters.
    attackers
        Number of received models that may be Byzantine.
    radius
        Distance by which one model may pull the average (self_centred_clipping).
    nearest
        Average each model with those nearest to it first (trimmed_mean, median, krum, multi_krum).
    """

    rule: Reference = "none"
    attackers: Annotated[int, Meta(ge=0)] = 1
    radius: Positive | None = None
    nearest: bool = False


class AttackSettings(Section, frozen=True):
    """Byzantine peers, to see what becomes of the others.

    Attributes
    ----------
    name
        ``none``; ``sign_flip``, ``scaled``, ``random``, ``label_flip``; or attacks that know all honest models, which
        only ``simulate`` can run: ``alie``, ``ipm``, ``dissensus``.
    share
        Share of the peers that attack, drawn from the seed.
    peers
        Names of the peers that attack, instead of ``share``.
    scale
        Strength of the attack; by default that of its paper.
    """

    name: Literal["none", "sign_flip", "scaled", "random", "label_flip", "alie", "ipm", "dissensus"] = "none"
    share: Annotated[float, Meta(ge=0, lt=1)] = 0.2
    peers: tuple[str, ...] = ()
    scale: Positive | None = None
