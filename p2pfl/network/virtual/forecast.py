"""Forecast of duration and learning over a network: the live peers of an experiment in virtual time."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from p2pfl.core.errors import ExperimentError
from p2pfl.core.process import keep_freed_memory, one_thread
from p2pfl.experiment import Experiment, plan
from p2pfl.experiment.composing import check_end
from p2pfl.experiment.file.reading import convert_section
from p2pfl.experiment.parts.device_parts import training_seconds
from p2pfl.experiment.parts.robustness_parts import attack
from p2pfl.experiment.schema import NotNegative, Section, SimulationSettings, TrainingTimes
from p2pfl.network.peer.launch.ended import Ended
from p2pfl.network.peer.launch.event_log import EventLog
from p2pfl.network.protocol.wire.bounds import HEAD
from p2pfl.network.virtual.clock import WHO, VirtualLoop
from p2pfl.network.virtual.timed_learner import Timed
from p2pfl.network.virtual.virtual_network import Conditions, WorldTransport
from p2pfl.privacy.keys import SecretSource, SeededSource, Source
from p2pfl.results import Record, Run

SHIPPED = Path(__file__).with_name("networks")
"""Folder of the networks that the package ships."""


class One(Section, frozen=True):
    """Peer that differs: its whole link, and its seconds per round."""

    link: Conditions | None = None
    seconds: NotNegative | None = None


class Network(Section, frozen=True):
    """Network file.

    Attributes
    ----------
    link, training
        Link and training of all peers.
    peers
        Peers that differ, by name.
    """

    link: Conditions = Conditions()
    training: TrainingTimes = TrainingTimes()
    peers: dict[str, One] = msgspec.field(default_factory=dict)

    def conditions(self, peer: str) -> Conditions:
        """Return the conditions of a peer's connection."""
        one = self.peers.get(peer, One())
        return self.link if one.link is None else one.link

    def takes(self, peer: str, *, seed: int) -> float:
        """Return the seconds that a peer trains in each round."""
        seconds = self.peers.get(peer, One()).seconds
        return training_seconds(self.training, peer, seed=seed) if seconds is None else seconds


def network(source: str | Path) -> Network:
    """Read a network file, or a shipped network by name.

    Raises
    ------
    ExperimentError
        The file does not exist or is not a network file.

    Examples
    --------
    >>> network("wan").link.latency
    0.025
    """
    path = SHIPPED / f"{source}.toml" if str(source) in list_shipped() else Path(source)
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ExperimentError(
            f"network {source} cannot be read ({error.strerror}); name a network file or one of "
            f"{', '.join(list_shipped())}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path}: the file is not TOML ({error}); fix it") from None
    peers = table.get("peers")
    for name, one in peers.items() if isinstance(peers, dict) else ():
        if isinstance(one, dict):
            convert_section(one, One, origin=str(path), within=f"peers.{name}.")
    return convert_section(table, Network, origin=str(path))


def list_shipped() -> list[str]:
    """Return the names of the networks that the package ships."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


@one_thread()
def forecast(
    experiment: Experiment,
    over: Network,
    *,
    folder: Path | None = None,
    observe: Callable[[list[Record]], None] | None = None,
    baselines: bool = True,
    began: datetime | None = None,
    unaccounted: bool = False,
    source: Source | None = None,
) -> Run:
    """Run the live peers of an experiment over a simulated network.

    Threads of torch and freed memory are as in :func:`p2pfl.simulation.simulate`.

    Parameters
    ----------
    experiment
        Experiment to run.
    over
        Network between the peers.
    folder, observe, baselines, began, unaccounted, source
        Arguments as in :func:`p2pfl.simulation.simulate`.

    Returns
    -------
    Run
        Run in which the seconds of records and of ``start_s``, ``wall_s``, ``total_s`` and ``training_s`` are virtual,
        that is predicted; ``predicted`` is true.

    Raises
    ------
    P2PFLError
        A peer cannot continue, such as one whose neighbours do not arrive in time.
    """
    keep_freed_memory()
    began = began or datetime.now(UTC)
    resolved = plan(check_end(experiment), live=True, unaccounted=unaccounted)
    source = source or (SecretSource() if resolved.claims else SeededSource(experiment.seed))
    resolved = resolved.drawing(source)
    names = resolved.topology.peers
    if unknown := sorted(set(over.peers) - set(names)):
        raise ExperimentError(
            f'the network: "{unknown[0]}" is not a peer of "{experiment.name}"; rename it, for instance to "{names[0]}"'
        )
    attack(experiment, names, live=True)  # refuses what live peers refuse
    usual = msgspec.structs.asdict(SimulationSettings())
    for key, value in msgspec.structs.asdict(experiment.simulation).items():
        if value != usual[key]:
            given = f"{value:g}" if isinstance(value, float) else "a table"
            raise ExperimentError(
                f"simulation.{key} is {given}, but a network already defines losses and slow peers; leave it out"
            )
    loop = VirtualLoop()
    run = Run(experiment, folder=folder, began=began)
    log = EventLog(run, now=lambda: began + timedelta(seconds=loop.now))
    ended = Ended(run, log, len(names), observe)
    takes = {name: over.takes(name, seed=experiment.seed) for name in names}
    learner = Timed(resolved.learner, takes=lambda peer, _: takes[peer], spend=loop.spent)
    conditions = {name: over.conditions(name) for name in names}
    transport = WorldTransport(loop, conditions, seed=experiment.seed, limit=experiment.transport.chunk + HEAD)
    plans = dict.fromkeys(names, replace(resolved, learner=learner))
    with run, asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(ended.run_peers(plans, transport=transport, source=source, begin=WHO.set))
        done = ended.keep()
    summary = ended.summary(resolved, done, began=began, total=loop.now, baselines=baselines)
    run.finish(msgspec.structs.replace(summary, predicted=True))
    return run
