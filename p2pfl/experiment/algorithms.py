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
    own
        Whether it takes gradient steps of its own, however the optimiser is set.
    once
        Whether it makes one exchange a round, however gossip is set.
    quiet
        Whether there are rounds in which nobody lets others see anything new.
    steady
        Why all must make as many steps where masks are on, empty where they need not.
    bare
        Why its rows cannot be hidden, empty where they can.
    whole
        Why its rows cannot be compressed, empty where they can.
    personal
        Whether each peer has a model of its own in the end.
    """

    place: str
    steps: int | None = None
    everybody: bool = False
    plain: bool = False
    own: bool = False
    once: bool = False
    quiet: bool = False
    steady: str = ""
    bare: str = ""
    whole: str = ""
    personal: bool = False


VARIATE, SEVERAL = "releases a second row a round, its control variate", "releases a row for each of its models"

ALGORITHMS = {
    "fedavg": Known(".fedavg:FedAvg"),
    "fedsgd": Known(".fedavg:FedAvg"),
    "dpsgd": Known(".dpsgd:DPSGD", steps=1, everybody=True),
    "fedprox": Known(".fedprox:FedProx"),
    "scaffold": Known(".scaffold:SCAFFOLD", plain=True, bare=VARIATE, whole=VARIATE),
    "fednova": Known(".fednova:FedNova", plain=True),
    "fedavgm": Known(".fedopt:FedAvgM"),
    "fedadam": Known(".fedopt:FedAdam"),
    "fedyogi": Known(".fedopt:FedYogi"),
    "fedadagrad": Known(".fedopt:FedAdagrad"),
    "fine_tuning": Known(".fine_tuning:FineTuning", quiet=True, personal=True),
    "ditto": Known(".ditto:Ditto", personal=True),
    "pfedme": Known(".pfedme:PFedMe", own=True, personal=True),
    "per_fedavg": Known(".per_fedavg:PerFedAvg", own=True, personal=True),
    "fedper": Known(".fedper:FedPer", personal=True),
    "fedrep": Known(".fedrep:FedRep", own=True, personal=True),
    "multitask": Known(
        ".multitask:MultiTask",
        everybody=True,
        once=True,
        quiet=True,
        bare="compares the rows that it hears one by one",
        whole="compares the rows that it hears one by one",
        personal=True,
    ),
    "propagation": Known(
        ".propagation:Propagation",
        everybody=True,
        once=True,
        quiet=True,
        bare="keeps models apart, so that masks stay",
        whole="keeps models apart, so that differences stay as large as rows",
        personal=True,
    ),
    "ifca": Known(".ifca:IFCA", bare=SEVERAL, whole=SEVERAL, personal=True),
    "gradient_tracking": Known(
        ".tracking:GradientTracking",
        steps=1,
        everybody=True,
        plain=True,
        steady="divides masks by the steps that a peer made",
        whole="sends trackers and rows in turn, which have no past in common",
    ),
    "d2": Known(".diffusion:D2", steps=1, everybody=True),
    "exact_diffusion": Known(".diffusion:ExactDiffusion", steps=1, everybody=True),
    "qg_dsgdm": Known(".quasi_global:QGDSGDm", steps=1, everybody=True, plain=True),
    "sgp": Known(".push:SGP", steps=1, everybody=True, bare="divides by masses that the graph alone makes unequal"),
    "robust_sgp": Known(
        ".running_sums:RobustSGP",
        steps=1,
        everybody=True,
        once=True,
        bare="sends running totals, in which masks do not cancel",
        whole="sends running totals, of which only the difference from the last is of use",
    ),
    "relay_sgd": Known(
        ".relay:RelaySGD",
        steps=1,
        everybody=True,
        once=True,
        bare="sums rows of different rounds, whose masks do not cancel",
        whole="takes back from what it hears what it had told, to the last digit",
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
        whole="sends products of rows, which are few already",
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
