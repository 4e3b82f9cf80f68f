"""Devices of the clients of a simulation, from ``simulation.devices`` and its trace."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from p2pfl.algorithms.devices import LONGEST, Devices, Trace, ticks
from p2pfl.core.draws import draw
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.schema import DeviceSettings, TrainingTimes
from p2pfl.learning import Learner

HEADER = ["client", "on", "off"]
"""First line of a trace."""


def training_seconds(times: TrainingTimes, peer: str, *, seed: int, beside: float = 0.0) -> float:
    """Return the seconds that a peer trains in each round, of which a typical one takes some ``beside``."""
    some = draw(seed, "world training", peer)
    slow = some.random() < times.stragglers
    usual = (times.seconds + beside) * float(some.lognormal(0.0, times.spread))
    return usual * (times.slowdown if slow else 1.0)


def devices(settings: DeviceSettings | None, peers: Sequence[str], learner: Learner, *, seed: int) -> Devices | None:
    """Return the devices of clients; ``None`` where all peers are always there.

    Raises
    ------
    ExperimentError
        The trace cannot be read.
    """
    if settings is None:
        return None
    return Devices(
        partial(_seconds, settings, peers, learner, seed),
        trace=None if settings.trace is None else read_trace(settings.trace, peers),
        invited=settings.invited,
        deadline=settings.deadline,
        timeless=settings.timeless,
    )


def _seconds(settings: DeviceSettings, peers: Sequence[str], learner: Learner, seed: int, number: int) -> float:
    """Return the seconds in which a client trains."""
    peer, beside = peers[number], 0.0
    if settings.timeless:
        return 0.0
    if settings.sample_seconds:
        beside = settings.sample_seconds * int(learner.samples([peer])[0])
    return training_seconds(settings, peer, seed=seed, beside=beside)


def read_trace(path: str | Path, peers: Sequence[str]) -> Trace:
    r"""Read the times at which clients are available.

    Parameters
    ----------
    path
        CSV file with the columns ``client``, the name of a peer or its number in ``peers``, ``on`` and ``off``. The
        trace repeats after the largest ``off``, for which a line may have ``on`` equal to it. A client without a line
        is always available. Spaces around a cell and rows without any are left out.
    peers
        Names of all peers.

    Raises
    ------
    ExperimentError
        The file cannot be read, or a line is no interval of a client.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("client,on,off\nada,0,8\n1,6,12\n")
    ...     file.flush()
    ...     read_trace(file.name, ["ada", "bob", "cleo"]).leaves(7000).tolist()[:2]
    [8000, 12000]
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            return _trace(csv.reader(file), peers, origin=str(path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ExperimentError(
            f"simulation.devices.trace: {path} cannot be read ({error}); name a CSV file with the columns client,on,off"
        ) from None


def _trace(lines: Iterable[list[str]], peers: Sequence[str], *, origin: str) -> Trace:
    names = {peer: number for number, peer in enumerate(peers)}
    clients, on, off = array("q"), array("d"), array("d")
    headed = False
    for line, row in enumerate(lines, 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if not headed and cells == HEADER:
            headed = True
            continue
        interval = _interval(cells, names) if headed else None
        if interval is None:
            wanted = f"a peer or its number below {len(peers)}, on and off" if headed else ",".join(HEADER)
            raise ExperimentError(
                f"{origin}, line {line}: expected {wanted}, with 0 <= on <= off < {LONGEST} in seconds, got "
                f'"{",".join(cells)[:60]}"; correct the line'
            )
        if cells[0] in names and (other := _number(cells[0], len(peers))) not in (None, interval[0]):
            raise ExperimentError(
                f'{origin}, line {line}: "{cells[0]}" is the name of one peer and the number of another, '
                f"{peers[other]}; give peers names that are no numbers, or no line to this one"
            )
        clients.append(interval[0])
        on.append(interval[1])
        off.append(interval[2])
    if not (ticks(off) > ticks(on)).any():
        raise ExperimentError(
            f"{origin}: no client is ever available; add lines whose off is later than on by a millisecond"
        )
    return Trace.of(clients, on, off, peers=len(peers))


def _number(cell: str, peers: int) -> int | None:
    """Return the number of a peer that a cell holds; ``None`` if it holds none."""
    return int(cell) if cell.isdecimal() and int(cell) < peers else None


def _interval(cells: Sequence[str], names: dict[str, int]) -> tuple[int, float, float] | None:
    """Return the number of a client and the ends of an interval; ``None`` for a line that is none."""
    try:
        client, on, off = cells
        number = names[client] if client in names else int(client)
        begin, end = float(on), float(off)
    except ValueError:
        return None
    right = 0 <= number < len(names) and 0 <= begin <= end < LONGEST and math.isfinite(end)
    return (number, begin, end) if right else None
