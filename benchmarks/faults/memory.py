"""Whether memory stays flat: many peers for long, in real time and in virtual time."""

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from benchmarks.faults.mortal import Mortal
from benchmarks.faults.nursery import Nursery
from benchmarks.faults.page import Shown
from p2pfl.experiment import Experiment, read
from p2pfl.network.virtual.forecast import forecast, network
from p2pfl.results import Record
from p2pfl.topology import ring

WARM = 0.2
"""Share of a run that is not counted: caches fill, pages shared with the fork server are touched for the first time."""

BLOCKS = 8
"""Of the samples of one process; their means scatter as if they were independent."""


def experiment(options: argparse.Namespace, *, rounds: int, url: str = "embedded") -> Experiment:
    """Digits on a ring."""
    return read(
        {
            "name": "faults",
            "rounds": rounds,
            "topology": {"kind": "ring", "peers": options.peers},
            "data": {"name": "digits"},
            "learning": {"device": "cpu"},
            "gossip": {"steps": 2},
            "privacy": {"mode": "pairwise"},
            "transport": {"broker": url, "gather": 300.0, "patience": 120.0},
        }
    )


def endurance(options: argparse.Namespace, folder: Path) -> Shown:
    """Many peers for minutes in real time: the slope of the memory of each."""
    broker = Mortal()
    url = broker.start()
    names = ring(options.peers).peers
    rounds = math.ceil(60 * options.minutes / options.takes)  # it takes no less than that
    samples: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    with Nursery(
        experiment(options, rounds=rounds, url=url),
        folder / "run",
        urls=dict.fromkeys(names, url),
        takes=dict.fromkeys(names, options.takes),
    ) as nursery:
        while nursery.began is None:
            nursery.listen(0.1)
        pids = {name: process.pid for name, process in nursery.processes.items()} | {"broker": broker.broker.pid}
        while nursery.listen(options.every) and nursery.round() < rounds - 1:
            for name, pid in pids.items():
                with suppress(OSError):  # it has just ended
                    samples[name].append((time.perf_counter() / 60, *held(pid)))
        seconds = nursery.end(within=600.0)
    broker.stop(in_order=True)
    columns = {name: np.array(each)[int(WARM * len(each)) :].T for name, each in samples.items()}  # [3, T]
    rss, private = ([sloped(columns[name][0], columns[name][row])[0] for name in names] for row in (1, 2))
    of_broker, spread = sloped(columns["broker"][0], columns["broker"][1])
    return Shown(
        options.command,
        f"{len(names)} peers, pairwise masks, for {seconds / 60:.1f} minutes",
        f"{len(names)} peers, {rounds} rounds, {seconds:.0f} s",
        f"all {len(nursery.done)} ended, {nursery.missed} models missed; RSS of a peer "
        f"{np.mean([columns[name][1].mean() for name in names]) / 1024:.0f} MB, slope {_mean(rss)} KB/min "
        f"(of its private pages {_mean(private)}), steepest slope {max(rss):.2g}; mosquitto "
        f"{columns['broker'][1].mean() / 1024:.1f} MB, {of_broker:.2g} ± {spread:.1g}",
    )


def virtual(options: argparse.Namespace, folder: Path) -> Shown:
    """Many peers for an hour in virtual time: the slope of the one process that holds them."""
    over = network(options.network)
    samples: list[tuple[float, float, float]] = []
    passed = 0.0

    def observe(records: list[Record]) -> None:
        nonlocal passed
        passed += max(record.seconds_training + record.seconds_waiting for record in records)
        samples.append((passed / 3600, *held(None)))

    begun = time.perf_counter()
    wanted = experiment(options, rounds=options.rounds)
    run = forecast(wanted, over, folder=folder / "run", observe=observe, baselines=False)
    seconds = time.perf_counter() - begun
    kept = np.array(samples)[int(WARM * len(samples)) :].T  # [3, T]
    slope, spread = sloped(kept[0], kept[1])
    missed = sum(len(record.missed) for record in run.metrics)
    return Shown(
        options.command,
        f"{options.peers} peers, pairwise masks, for {run.summary['wall_s'] / 3600:.2f} virtual hours over "
        f"`{options.network}`",
        f"{options.peers} peers, {options.rounds} rounds, {seconds:.0f} s",
        f"all ended, {missed} models missed; RSS of the one process {kept[1].mean() / 1024:.0f} MB, slope "
        f"{slope / 1024:.2f} ± {spread / 1024:.2f} MB a virtual hour, of which {len(run.metrics):,} records, which it "
        f"keeps, are {_records(run.metrics) / 1024**2:.1f} MB",
    )


def held(pid: int | None) -> tuple[float, float]:
    """RSS and private memory of a process (of this one by default), in KB."""
    lines = Path(f"/proc/{pid or 'self'}/smaps_rollup").read_text("ascii").splitlines()
    found = {line.split()[0]: float(line.split()[1]) for line in lines[1:]}
    return found["Rss:"], found["Private_Clean:"] + found["Private_Dirty:"]


def sloped(times: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The slope of a line through the means of blocks, and its standard error.

    Examples
    --------
    >>> slope, error = sloped(range(80), [3.0 + 2.0 * time for time in range(80)])
    >>> round(slope, 6), round(error, 6)
    (2.0, 0.0)
    """
    x, y = (np.array([block.mean() for block in np.array_split(np.asarray(each), BLOCKS)]) for each in (times, values))
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    rest = y - y.mean() - slope * x
    return slope, math.sqrt(float(rest @ rest) / (BLOCKS - 2) / float(x @ x))


def _mean(slopes: Sequence[float]) -> str:
    """The mean over processes, and its standard error."""
    return f"{np.mean(slopes):.2f} ± {np.std(slopes, ddof=1) / math.sqrt(len(slopes)):.2f}"


def _records(records: Sequence[Record]) -> float:
    """Bytes that records take, about."""

    def parts(record: Record) -> Iterator[object]:
        yield record
        for name in record.__struct_fields__:
            value = getattr(record, name)
            yield value
            if isinstance(value, dict):
                yield from value.values()

    some = records[:: max(1, len(records) // 100)]
    return len(records) * sum(each.__sizeof__() for record in some for each in parts(record)) / len(some)
