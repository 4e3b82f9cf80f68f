"""Checks from the machine to the other peers, each of which names a reason why a peer does not run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import p2pfl
from p2pfl import topology as graphs
from p2pfl.core.errors import InputError, P2PFLError
from p2pfl.experiment import Experiment, read
from p2pfl.experiment.parts.peer_graph import built, check_peers
from p2pfl.network.protocol.wire.bounds import HEAD
from p2pfl.network.transport import Access, Transport, opened
from p2pfl.network.transport.address import PORTS
from p2pfl.network.transport.login import login
from p2pfl.plugins.operate.checks import broker_address, identity_checks, machine, round_trip, speed
from p2pfl.plugins.operate.checks.finding import Finding, ok, problem
from p2pfl.plugins.operate.checks.others import Others, others
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
    """
    found = [machine.builds()]
    here: _Here | None = None
    if source is not None:
        try:
            here = _read(source, changes, peer=peer, environment=environment)
        except InputError as error:
            found.append(problem("experiment", str(error)))
    if here is not None:
        found.append(ok("experiment", f'"{here.experiment.name}" with {len(here.peers)} peers'))
    bound = None if here is None or peer is None else _Bound(**vars(here), peer=peer)
    found += [] if bound is None else bound.owned()
    parameters = None if bound is None else bound.parameters
    found += [machine.memory(parameters), *machine.disk(runs, parameters)]
    latest: dict[str, float] = {}
    if here is not None:
        for way in here.ways():
            found += way.findings
            latest |= way.latest
            if way.open and bound is not None:
                seen = await bound.through(way.url)
                found += seen.findings
                latest |= seen.latest
    return [*found, machine.clock(latest=latest)]


def _read(source: str, changes: Sequence[str], *, peer: str | None, environment: Mapping[str, str]) -> _Here:
    """Read the experiment and its graph, which need neither data nor model."""
    experiment = read(source, changes=changes)
    graph = built(experiment)
    check_peers(experiment, graph.peers, () if peer is None else (peer,))
    return _Here(experiment, graph, environment)


@dataclass(frozen=True)
class _Here:
    """An experiment on this device, without a peer."""

    experiment: Experiment
    graph: graphs.Topology | graphs.Schedule
    environment: Mapping[str, str]

    @property
    def peers(self) -> tuple[str, ...]:
        """All peers of the experiment."""
        return self.graph.peers

    def ways(self) -> Iterator[broker_address.Way]:
        """Check the way to each broker."""
        settings = self.experiment.transport
        for url in (settings.broker,) if isinstance(settings.broker, str) else settings.broker:
            if url == "embedded":
                text = 'transport.broker is "embedded", which only p2pfl run can use; name a broker'
                yield broker_address.Way(url, [problem("broker", f"{text}, as docs/brokers.md says")])
            elif "://" not in url or url.partition("://")[0] in PORTS:
                yield broker_address.way(url, settings, now=dt.datetime.now(dt.UTC))
            else:
                yield broker_address.Way(url, [], open=True)  # a registered transport has its own errors


@dataclass(frozen=True)
class _Bound(_Here):
    """An experiment on this device, with the peer of this device."""

    peer: str

    def owned(self) -> list[Finding]:
        """Check what is on this device for its peer, and its data and model."""
        trust, transport = self.experiment.trust, self.experiment.transport
        found, identity = identity_checks.key(trust, peer=self.peer)
        checked = [
            found,
            identity_checks.roster(trust, peer=self.peer, identity=identity, peers=self.peers),
            identity_checks.shown(transport, peer=self.peer, environment=self.environment),
            identity_checks.certificate(transport, peer=self.peer, now=dt.datetime.now(dt.UTC)),
            self._resolved[1],
            self._trained(),
        ]
        return [each for each in checked if each is not None]

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

    def _trained(self) -> Finding | None:
        """Time a training step; ``None`` if the experiment cannot be resolved."""
        plan, needs = self.plan, self._needs
        if plan is None or needs is None:
            return None
        try:
            return speed.training(plan, peer=self.peer, needs=needs)
        except P2PFLError as error:
            return problem("training", str(error))

    @property
    def _needs(self) -> speed.Needs | None:
        """Work and traffic of a round on this device; ``None`` if the experiment cannot be resolved."""
        return None if self.plan is None else speed.Needs.of(self.plan, peer=self.peer)

    @property
    def parameters(self) -> int | None:
        """Bytes of the model's parameters."""
        return None if self.plan is None else self.plan.learner.layout.size * self.plan.learner.dtype.itemsize

    async def through(self, url: str) -> Others:
        """Check what a broker lets this peer do, and who else is there."""
        seen, settings = Others(), self.experiment.transport
        joins = partial(_transport, url, self.experiment, peer=self.peer, environment=self.environment)
        try:
            found, probe = await round_trip.login(
                round_trip.Probe(joins, settings.version, self.experiment.name, self.peer)
            )
        except P2PFLError as error:  # a file that cannot be used
            found = problem("login", str(error))
        seen.findings.append(found)
        if found.status != "problem":
            seen.findings += await round_trip.permissions(probe)
        if any(each.status == "problem" for each in seen.findings):
            return seen
        if self.experiment.telemetry.share != "none":
            seen.findings.append(await round_trip.telemetry(probe))
        seen.findings.append(await round_trip.trip(probe))
        seen.findings.append(await round_trip.largest(probe, chunk=settings.chunk, model=self.parameters))
        roster = self._roster()
        if all(each.status != "problem" for each in seen.findings):
            seen.findings.append(await speed.publishing(probe, qos=settings.qos, needs=self._needs))
        around = await others(probe, self._neighbours, facts=self._facts(roster), roster=roster)
        return Others([*seen.findings, *around.findings], around.latest)

    @property
    def _neighbours(self) -> frozenset[str]:
        """Peers that exchange models with this one."""
        return frozenset((self.graph if self.plan is None else self.plan.topology).neighbours(self.peer))

    def _roster(self) -> Roster | None:
        """Return the roster, ``None`` if there is none that can be read; that has a finding of its own."""
        path = self.experiment.trust.roster
        try:
            return None if path is None else Roster.read(path)
        except InputError:
            return None

    def _facts(self, roster: Roster | None) -> Mapping[str, str] | None:
        """Return on what this peer agrees with others, as it announces it."""
        if self.plan is None:
            return None
        return self.plan.facts | {"roster": "" if roster is None else roster.digest}


def _transport(
    url: str, experiment: Experiment, version: int, *, peer: str, environment: Mapping[str, str]
) -> Transport:
    """Return how a peer reaches a broker by one version of MQTT, without waiting for a broker that is away."""
    settings = experiment.transport
    paths = {name: getattr(settings, name) for name in ("ca", "certificate", "key")}
    shown = login(
        None if settings.credentials is None else Path(settings.credentials), peer=peer, environment=environment
    )
    access = Access(
        user=shown.user,
        password=shown.password,
        version=version,
        qos=settings.qos,
        limit=settings.chunk + HEAD,
        **{name: None if text is None else Path(text) for name, text in paths.items()},
    )
    return opened(url, access)
