"""Division of the peers of a run among processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.core.errors import InputError
from p2pfl.core.process import cores, processors, raise_file_limit

MAX_OWN_PROCESSES = 128
"""Peers up to which each has its own process by default; a process takes 39 MiB, a further peer of one takes 2 MiB."""

MAX_MASKED_PEERS = 128
"""Peers under masks that one machine starts, because each shares keys with all others before the first round: 64 begin
after 6 s on two cores, and 256 had not after ten minutes."""

FILES_PER_PEER = 3
"""Open files of a peer at most: its connection, another one while it reconnects, and a checkpoint."""

OTHER_FILES = 64
"""Open files of a process beside those of its peers."""


def count_processes(peers: int, workers: int | None) -> int:
    """Return the number of processes that serve some peers.

    Parameters
    ----------
    peers
        Number of peers.
    workers
        Number of processes that the user wants; ``None`` for one for each peer up to :data:`MAX_OWN_PROCESSES`, and one
        for each core above.

    Examples
    --------
    >>> count_processes(8, None), count_processes(8, 3), count_processes(2, 3)
    (8, 3, 2)
    """
    if workers is not None:
        return min(workers, peers)
    return peers if peers <= MAX_OWN_PROCESSES else processors()


def share_processes(names: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Return the peers of each of some processes.

    Examples
    --------
    >>> share_processes(["ada", "bob", "cy"], 2)
    [('ada', 'cy'), ('bob',)]
    """
    return [tuple(names[number::count]) for number in range(count)]


def count_threads(processes: int) -> int:
    """Return the number of threads of each of some processes, so that all together have the cores of this one."""
    return max(1, cores() // processes)


def count_turns(peers: int, workers: int | None) -> int:
    """Return how many times longer than alone a peer may take, because others of its core have their turns.

    With a process for each peer, as by default, the timeouts of the experiment apply as they are.

    Parameters
    ----------
    peers, workers
        As of :func:`count_processes`.

    Examples
    --------
    >>> count_turns(4, None), count_turns(4, 1)
    (1, 4)
    """
    if workers is None and peers <= MAX_OWN_PROCESSES:
        return 1
    return -(-peers // min(count_processes(peers, workers), processors()))


def stretch_timeouts(table: Mapping[str, Any], *, by: int) -> dict[str, Any]:
    """Return the table of an experiment whose timeouts for neighbours are so many times longer.

    Peers that share a core train one after another, so a neighbour takes that much longer to begin and in each round,
    and is as alive as before. One whose process ends is still noticed at once, by the broker.

    Examples
    --------
    >>> stretch_timeouts({"rounds": 3, "transport": {"patience": 30.0, "gather": 60.0, "chunk": 9}}, by=2)
    {'rounds': 3, 'transport': {'patience': 60.0, 'gather': 120.0, 'chunk': 9}}
    """
    transport = dict(table["transport"])
    transport["patience"] *= by
    gather = transport["gather"]
    quorum = isinstance(gather, dict)
    transport["gather"] = gather | {"seconds": gather["seconds"] * by} if quorum else gather * by
    return {**table, "transport": transport}


def check_masked_peers(peers: int, *, masks: bool) -> None:
    """Refuse a run with more peers under masks than one machine starts.

    Raises
    ------
    InputError
        With what to use instead.

    Examples
    --------
    >>> check_masked_peers(1000, masks=False)
    """
    if masks and peers > MAX_MASKED_PEERS:
        raise InputError(
            f"{peers} live peers under masks are too many for one machine, which starts at most {MAX_MASKED_PEERS}, "
            "because each shares keys with all others first; use p2pfl simulate, start them on several machines with "
            'p2pfl peer, or set privacy.mode = "none"'
        )


def check_open_files(peers: int, count: int) -> None:
    """Refuse a run whose processes would need more open files than the system permits.

    Raises
    ------
    InputError
        With what to change.
    """
    each = -(-peers // count)
    needed, limit = each * FILES_PER_PEER + OTHER_FILES, raise_file_limit()
    if needed > limit:
        raise InputError(
            f"{each} peers in a process need up to {needed} open files, but the system permits {limit}; use more "
            "--workers, or raise the limit (ulimit -Hn)"
        )
