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
    bare
        Why its rows cannot be hidden, empty where they can.
    whole
        Why its rows cannot be compressed although they can be hidden, empty where they can.
    """

    place: str
    steps: int | None = None
    everybody: bool = False
    bare: str = ""
    whole: str = ""


ALGORITHMS = {
    "fedavg": Known(".fedavg:FedAvg"),
    "fedsgd": Known(".fedavg:FedAvg"),
    "dpsgd": Known(".dpsgd:DPSGD", steps=1, everybody=True),
    "choco": Known(".choco:Choco", steps=1, everybody=True),
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
