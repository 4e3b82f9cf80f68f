"""Source of the secrets of a simulation."""

from __future__ import annotations

from p2pfl.experiment import Plan
from p2pfl.privacy.keys import KEY_BYTES, KeyedSource, SecretSource, SeededSource, Source
from p2pfl.simulation.sharding import Shard


def source_of(resolved: Plan, shard: Shard, given: Source | None) -> Source:
    """Return the source from which all processes of a simulation draw keys, private noise and secret participation.

    A guarantee needs draws that nobody can repeat, so where one rests on them they come from the operating system. The
    process that leads draws one key and hands it to the others, which have to draw the same.

    Parameters
    ----------
    resolved
        Plan of the simulation.
    shard
        Peers of this process.
    given
        Source that the caller chose; ``None`` for the default.
    """
    if given is None and not resolved.claims:
        return SeededSource(resolved.experiment.seed)
    if given is not None and not isinstance(given, SecretSource):
        return given
    secrets = SecretSource()
    if shard.workers == 1:
        return secrets
    key = shard.handed(lambda: secrets.bytes(KEY_BYTES, purpose="simulation", peer=""))
    return KeyedSource(key, secret=True)
