"""The algorithms by name, and what an experiment needs to know of each; reading one does not need torch."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from p2pfl.errors import ExperimentError


@dataclass(frozen=True)
class Known:
    """What is known of an algorithm by its name.

    Attributes
    ----------
    place
        ``module:Class``, the module below ``p2pfl.algorithms``; or a user's own ``package.module:Class``.
    steps
        Local steps a round where the experiment names none; ``None`` for epochs.
    everybody
        Whether all peers take part in each round and count alike.
    plain
        Whether its formula takes local steps to be those of plain gradient descent.
    bare
        Why its rows cannot be hidden, empty where they can.
    whole
        Why its rows cannot be compressed although they can be hidden, empty where they can.
    personal
        Whether each peer has a model of its own in the end.
    """

    place: str
    steps: int | None = None
    everybody: bool = False
    plain: bool = False
    bare: str = ""
    whole: str = ""
    personal: bool = False


ALGORITHMS = {
    "fedavg": Known(".fedavg:FedAvg"),
    "fedsgd": Known(".fedavg:FedAvg"),
    "dpsgd": Known(".dpsgd:DPSGD", steps=1, everybody=True),
    "fedprox": Known(".fedprox:FedProx"),
    "scaffold": Known(".scaffold:SCAFFOLD", plain=True, bare="releases a second row a round, its control variate"),
    "fednova": Known(".fednova:FedNova", plain=True),
    "fedavgm": Known(".fedopt:FedAvgM"),
    "fedadam": Known(".fedopt:FedAdam"),
    "fedyogi": Known(".fedopt:FedYogi"),
    "fedadagrad": Known(".fedopt:FedAdagrad"),
    "fine_tuning": Known(".fine_tuning:FineTuning", personal=True),
    "ditto": Known(".ditto:Ditto", personal=True),
    "pfedme": Known(".pfedme:PFedMe", personal=True),
    "per_fedavg": Known(".per_fedavg:PerFedAvg", personal=True),
    "fedper": Known(".fedper:FedPer", personal=True),
    "fedrep": Known(".fedrep:FedRep", personal=True),
    "multitask": Known(
        ".multitask:MultiTask", everybody=True, bare="compares the rows that it hears one by one", personal=True
    ),
    "propagation": Known(
        ".propagation:Propagation", everybody=True, bare="keeps models apart, so that masks stay", personal=True
    ),
    "ifca": Known(".ifca:IFCA", bare="releases a row for each of its models", personal=True),
    "gradient_tracking": Known(".tracking:GradientTracking", steps=1, everybody=True),
    "d2": Known(".diffusion:D2", steps=1, everybody=True),
    "exact_diffusion": Known(".diffusion:ExactDiffusion", steps=1, everybody=True),
    "qg_dsgdm": Known(".quasi_global:QGDSGDm", steps=1, everybody=True),
    "sgp": Known(".push:SGP", steps=1, everybody=True, bare="divides by masses that the graph alone makes unequal"),
    "robust_sgp": Known(
        ".running_sums:RobustSGP", steps=1, everybody=True, bare="sends running totals, in which masks do not cancel"
    ),
    "relay_sgd": Known(
        ".relay:RelaySGD", steps=1, everybody=True, bare="sums rows of different rounds, whose masks do not cancel"
    ),
    "choco": Known(".choco:Choco", steps=1, everybody=True),
    "gossip_learning": Known(
        ".gossip_learning:GossipLearning",
        everybody=True,
        whole="merges rows of different cycles, which have no common past",
    ),
    "power_gossip": Known(
        ".power_gossip:PowerGossip",
        steps=1,
        everybody=True,
        bare="sends products of rows, in which masks do not cancel",
    ),
    "partial": Known(".partial:PartialSharing", whole="shares another part of the row each round"),
}


def known(name: str) -> Known:
    """What is known of an algorithm.

    Raises
    ------
    ExperimentError
        There is none of that name.

    Examples
    --------
    >>> known("dpsgd").steps
    1
    """
    if ":" in name:
        return Known(name)
    if name not in ALGORITHMS:
        near = difflib.get_close_matches(name, ALGORITHMS, n=1)
        hint = f': did you mean "{near[0]}"?' if near else ""
        listed = ", ".join(ALGORITHMS)
        raise ExperimentError(
            f'learning.algorithm: expected "package.module:Class" or one of {listed}, got "{name}"{hint}'
        )
    return ALGORITHMS[name]
