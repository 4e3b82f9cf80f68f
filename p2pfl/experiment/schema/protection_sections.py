"""Sections on privacy, and on Byzantine peers."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from msgspec import Meta

from p2pfl.experiment.schema.values import Endless, File, NotNegative, Number, Positive, Reference, Section


class PrivacySettings(Section, frozen=True):
    """Protection of a peer's update.

    Attributes
    ----------
    mode
        ``none``; ``independent``: private noise; ``pairwise``: also masks that cancel; ``secagg``: each peer receives
        only the exact sum of its neighbours' models; or a ``package.module:Class`` with any keys below as parameters.
    clip
        Bound of the norm of an update; 1 if ``epsilon`` is set and this is not.
    noise
        Standard deviation of the private noise in each number.
    mask
        Standard deviation of an edge's mask in each number (pairwise): by default the clip with ``noise``, else by
        start, rate, steps and graph.
    bits
        Fraction bits of the grid on which masks cancel.
    participation
        Probability, kept secret, with which a peer takes part in a release (FedAvg).
    mask_graph
        Who shares masks: the neighbours (``same``), or all peers (``complete``), which hides better and costs no gossip
        step.
    epsilon
        Guarantee over the whole run: noise and mask are calibrated to it, or with ``noise`` the run stops before
        exceeding it.
    delta
        Probability in the guarantee (epsilon, delta).
    colluders
        Peers that may collude with the broker.
    partners
        Mask partners that must be present before a model leaves (pairwise); default ``colluders + 1`` where masks alone
        hide it, else 1.
    departures
        When a peer disappears during a round under masks, ``unsettled`` continues with its masks in the models.
        ``go_on`` lets a majority decide whether its model, or the round, counts, and continues without it; this can
        show its update without masks, and a malicious neighbour can cause it. ``stop`` waits for it and plays the round
        again, or ends. See docs/churn.md.
    adjacency
        Hide a peer's update against none (``zero-out``) or any other (``replace``).
    budget
        File that adds up what runs on the same data spend, which ``epsilon`` bounds together; beside the data file by
        default.
    """

    mode: Reference = "none"
    clip: Endless = math.inf
    noise: NotNegative = 0.0
    mask: NotNegative | None = None
    bits: Annotated[int, Meta(ge=1, le=40)] = 20
    participation: Annotated[float, Meta(gt=0, le=1)] = 1.0
    mask_graph: Literal["same", "complete"] = "same"
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
        ``none``, ``clipped_gossip``, ``self_centred_clipping``; ``trimmed_mean``, ``median``, ``krum``, ``multi_krum``,
        which weight all models alike; or a ``package.module:Class``.
    options
        Arguments of the class: ``attackers``, received models that may be Byzantine, 1 by default; ``radius``, how far
        one model may pull the average (self_centred_clipping). With ``nearest = true``, the last four rules first
        average each model with those nearest to it.
    """

    rule: Reference = "none"
    options: dict[str, Any] = {}


class AttackSettings(Section, frozen=True):
    """Byzantine peers, to see what becomes of the others.

    Attributes
    ----------
    name
        ``alie``, ``ipm`` and ``dissensus`` know all honest models; only ``simulate`` can run them.
    peers
        Names of the peers that attack; or their share, drawn from the seed.
    scale
        Strength; by default that of its paper.
    """

    name: Literal["none", "sign_flip", "scaled", "random", "label_flip", "alie", "ipm", "dissensus"] = "none"
    peers: Annotated[float, Meta(ge=0, lt=1)] | tuple[str, ...] = 0.2
    scale: Positive | None = None
