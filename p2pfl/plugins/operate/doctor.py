"""Checks from the machine to the other peers, each of which names a reason why a peer does not run."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import p2pfl
from p2pfl import topology as graphs
from p2pfl.cli.experiments import add_own_code
from p2pfl.cli.folders import peer_started
from p2pfl.cli.running.following import experiment_in, last_run
from p2pfl.core.errors import InputError, P2PFLError
from p2pfl.experiment import Experiment, read
from p2pfl.experiment.file.reading import draft, plain
from p2pfl.experiment.parts.peer_graph import built, check_peers
from p2pfl.network.peer.launch.brokers import access_of
from p2pfl.network.transport import Transport, opened
from p2pfl.network.transport.address import PORTS
from p2pfl.plugins.operate.checks import identity_checks, machine, round_trip
from p2pfl.plugins.operate.checks.broker_address import check_address
from p2pfl.plugins.operate.checks.finding import Finding, Report, ok, problem
from p2pfl.plugins.operate.checks.neighbours import check_neighbours
from p2pfl.privacy.keys import Roster

if TYPE_CHECKING:
    from p2pfl.experiment import Plan


async def examine(
    source: str | None,
    *,
    peer: str | None,
    runs: Path,
    environment: Mapping[str, str],
    changes: Sequence[str] = (),
    trust_code: bool = False,
) -> list[Finding]:
    """Check everything that concerns this device, and return the findings.

    Parameters
    ----------
    source
        The experiment, as ``p2pfl peer`` takes it; ``None`` to check the machine alone.
    peer
        The peer of this device; ``None`` to check only what concerns no peer.
    runs
        Folder of the run directories.
    environment
        Environment variables, such as ``os.environ``.
    changes
        Changes of the experiment, each ``section.key=value``.
    trust_code
        Whether the code that the experiment names may run.
    """
    report, parameters = Report(), None
    report.add(machine.check_torch())
    device = (
        None
        if source is None
        else _read(report, source, changes, peer=peer, runs=runs, environment=environment, trust_code=trust_code)
    )
    if device is not None and device.peer:
        device.check_files(report)
        with suppress(InputError):  # a run of another experiment
            if (last := last_run(str(runs), device.experiment, peer=device.peer)) is not None:
                report.add(machine.check_data_file(device.experiment, peer=device.peer, since=peer_started(last)))
        parameters = device.parameters
    report.add(machine.check_memory(parameters), machine.check_disk(runs, parameters))
    if device is not None:
        for url in device.urls:
            if device.check_address(report, url) and device.peer:
                await device.check_broker(report, url)
    report.add(machine.check_clock(report.latest, now=time.time()))
    return report.findings


def _read(
    report: Report,
    source: str,
    changes: Sequence[str],
    *,
    peer: str | None,
    runs: Path,
    environment: Mapping[str, str],
    trust_code: bool,
) -> _Device | None:
    """Read the experiment of the run that the peer would resume, and its graph: they need neither data nor model."""
    try:
        add_own_code(plain(draft(source)), plain(draft(source, changes=changes)))
        experiment = read(source, changes=changes, trust_code=trust_code)
        if (file := _followed(experiment, peer=peer, runs=runs)) is not None:
            add_own_code(plain(draft(file, changes=changes)))
            experiment = read(file, changes=changes, trust_code=trust_code)
        graph = built(experiment)
        check_peers(experiment, graph.peers, () if peer is None else (peer,))
    except InputError as error:
        report.add(problem("experiment", str(error)))
        return None
    report.add(ok("experiment", f'"{experiment.name}" with {len(graph.peers)} peers'))
    return _Device(experiment, graph, environment, peer or "")


def _followed(experiment: Experiment, *, peer: str | None, runs: Path) -> Path | None:
    """Return the file of the run that a peer would resume, if it follows one of the experiment by a change."""
    with suppress(InputError):  # a run of another experiment, which a new run does not touch
        last = None if peer is None else last_run(str(runs), experiment, peer=peer)
        return None if last is None else experiment_in(last)
    return None


@dataclass(frozen=True)
class _Device:
    """An experiment on this device, with the peer of this device; an empty name stands for none."""

    experiment: Experiment
    graph: graphs.Topology | graphs.Schedule
    environment: Mapping[str, str]
    peer: str

    @property
    def urls(self) -> Sequence[str]:
        """URLs of the brokers."""
        broker = self.experiment.transport.broker
        return (broker,) if isinstance(broker, str) else broker

    def check_address(self, report: Report, url: str) -> bool:
        """Check the way to a broker; a registered transport has its own errors."""
        if url == "embedded":
            text = 'transport.broker is "embedded", which only p2pfl run can use; name a broker as docs/brokers.md says'
            return report.add(problem("broker", text))
        if "://" in url and url.partition("://")[0] not in PORTS:
            return True
        return check_address(report, url, self.experiment.transport, now=dt.datetime.now(dt.UTC))

    def check_files(self, report: Report) -> None:
        """Check what is on this device for its peer, and its data and model."""
        trust, transport = self.experiment.trust, self.experiment.transport
        finding, identity = identity_checks.check_key(trust, peer=self.peer)
        report.add(
            finding,
            identity_checks.check_roster(trust, peer=self.peer, identity=identity, peers=self.graph.peers),
            identity_checks.check_login_file(transport, peer=self.peer, environment=self.environment),
            identity_checks.check_certificate(transport, peer=self.peer, now=dt.datetime.now(dt.UTC)),
            self._resolved[1],
            None if self.plan is None else machine.check_training(self.plan, peer=self.peer),
        )

    @cached_property
    def _resolved(self) -> tuple[Plan | None, Finding]:
        """Read the data and build the model, as the peer does."""
        try:
            plan = p2pfl.plan(self.experiment, only=[self.peer])
            samples = int(plan.federation.samples((self.peer,))[0])
        except P2PFLError as error:
            return None, problem("data", str(error))
        except Exception as error:  # noqa: BLE001 (a function of the user may raise anything)
            text = f"the experiment cannot be built here ({type(error).__name__}: {error}); fix what it names"
            return None, problem("data", text)
        shape = " x ".join(map(str, plan.federation.dataset.shape))
        return plan, ok("data", f"{samples} samples of shape {shape}, a model of {plan.learner.layout.size} parameters")

    @property
    def plan(self) -> Plan | None:
        """The experiment, resolved for this peer; ``None`` if it cannot be."""
        return self._resolved[0]

    @property
    def parameters(self) -> int | None:
        """Bytes of the model's parameters."""
        return None if self.plan is None else self.plan.learner.layout.size * self.plan.learner.dtype.itemsize

    async def check_broker(self, report: Report, url: str) -> None:
        """Check what a broker lets this peer do, and who else is there."""
        settings = self.experiment.transport
        joins = partial(_transport, url, self.experiment, peer=self.peer, environment=self.environment)
        probe = round_trip.Probe(joins, settings.mqtt.version, self.experiment.name, self.peer, settings.prefix)
        try:
            reached = await round_trip.check_login(report, probe, credentials=settings.credentials)
        except P2PFLError as error:  # a file that cannot be used
            report.add(problem("login", str(error)))
            return
        if reached is None or not await round_trip.check_permissions(report, reached):
            return
        if self.experiment.telemetry.share != "none":
            report.add(await round_trip.check_telemetry(reached))
        report.add(await round_trip.check_round_trip(reached))
        report.add(await round_trip.check_largest_message(reached, chunk=settings.chunk, model=self.parameters))
        graph = self.graph if self.plan is None else self.plan.topology
        roster = None
        with suppress(InputError):  # it has a finding of its own
            roster = None if self.experiment.trust.roster is None else Roster.read(self.experiment.trust.roster)
        digest = {"roster": "" if roster is None else roster.digest}
        facts = None if self.plan is None else self.plan.facts | digest
        await check_neighbours(report, reached, graph.neighbours(self.peer), facts=facts, roster=roster)


def _transport(
    url: str, experiment: Experiment, version: int, *, peer: str, environment: Mapping[str, str]
) -> Transport:
    """Return the transport of one version of MQTT, which does not wait for a broker that is away."""
    access = replace(access_of(experiment, peer, environment=environment), version=version)
    return opened(url, access)
