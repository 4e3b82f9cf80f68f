"""``p2pfl deploy --apply``: change a running swarm."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.core.errors import InputError, RunError, foremost
from p2pfl.core.files import replace as replace_file
from p2pfl.experiment import Experiment
from p2pfl.experiment.changed_run import followers, settings_of
from p2pfl.experiment.file.reading import check, plain
from p2pfl.experiment.swarm_change import SwarmChange, run_digest
from p2pfl.network.peer.launch.brokers import brokers, connect
from p2pfl.network.protocol.wire.message_codec import OPERATOR, answer_topic, change_topic, root_of
from p2pfl.network.transport import Channel, Transport
from p2pfl.plugins.operate.bundles.bundle_files import AUTHORITY
from p2pfl.plugins.operate.bundles.fleet import Fleet
from p2pfl.plugins.operate.operate_commands import DeployOptions
from p2pfl.plugins.operate.swarm_operator import SwarmView, check_after, last_round, without_models
from p2pfl.privacy.keys import Identity, Roster

LOOK_SECONDS = 5.0
"""Seconds in which the broker sends what peers have announced."""

ANSWER_SECONDS = 30.0
"""Seconds in which peers answer."""

PACE_SECONDS = 5.0
"""Seconds over which the pace of the swarm is measured."""


def apply(fleet: Fleet, options: DeployOptions, *, now: dt.datetime) -> int:
    """Change the running swarm, or print what would change; return the exit status."""
    if not options.broker:
        raise InputError("--broker is missing; name the address at which the running peers reach the broker")
    signer, path = fleet.signer(now=now), fleet.home / "roster.toml"
    if not path.exists():
        raise InputError(f"{path} does not exist; collect the requests of the devices first, with --collect")
    roster, names = Roster.read(path), followers(fleet.experiment)
    if missing := [name for name in names if name not in roster.peers]:
        raise InputError(f"there is no request of {', '.join(missing)} in {path} yet; collect it first, with --collect")
    roster = Roster(
        {name: roster.peers[name] for name in names},
        {name: keys for name, keys in roster.former.items() if name in names},
        roster.revoked,
        operator=signer.operator.public,
    )
    keys = fleet.out / AUTHORITY
    trusted = next((each for peer in fleet.peers if (each := fleet.home / peer / "broker.pem").exists()), None)
    ours = {"broker": options.broker, "certificate": str(keys / "certificate.pem")}
    ours |= {"key": str(keys / f"{OPERATOR}.key")} | ({} if trusted is None else {"ca": str(trusted)})
    table = plain(fleet.experiment)
    reached = check(table | {"transport": table["transport"] | ours})
    transport = connect(reached, urls=brokers(reached), peer=OPERATOR)
    operation = Operation(
        fleet.experiment,
        roster,
        view=SwarmView(fleet.experiment.name, signer.rosters),
        operator=signer.operator,
        folder=keys / "changes",
        say=lambda line: print(line, file=sys.stderr),
        edited=fleet.edited(),
    )
    try:
        result = asyncio.run(operation.run(transport, after=options.after, dry_run=options.dry_run))
    finally:
        if operation.ordered:  # an order is final, also where a peer has not answered to it yet
            signer.distribute(roster)
    if options.json:
        print(json.dumps(result))
    return 0


class Operation:
    """One change of a running swarm, from the first look to the last answer.

    Parameters
    ----------
    experiment, roster
        Experiment and roster of the next run.
    view
        What is known of the swarm.
    operator
        Key pair that signs.
    folder
        Folder of the changes that were signed, whose numbers grow.
    say
        Called with each line for the operator.
    edited
        Keys that differ from those of the devices, and that no change takes.

    Attributes
    ----------
    ordered
        True once peers may have the order.
    """

    def __init__(
        self,
        experiment: Experiment,
        roster: Roster,
        *,
        view: SwarmView,
        operator: Identity,
        folder: Path,
        say: Callable[[str], None],
        edited: Sequence[str] = (),
    ) -> None:
        self.experiment, self.roster, self.view = experiment, roster, view
        self._operator, self._folder, self._say = operator, folder, say
        self._edited, self._changed = edited, asyncio.Event()
        self.ordered = False

    async def run(self, transport: Transport, *, after: int | None, dry_run: bool) -> dict[str, Any]:
        """Return what was changed, or what would change.

        Parameters
        ----------
        transport
            Transport to the broker.
        after
            Number of rounds after which the run ends; ``None`` to choose one.
        dry_run
            True to change nothing.

        Raises
        ------
        InputError
            The swarm cannot be changed.
        RunError
            A peer does not agree, or did not answer.
        """
        swarm = self.view.swarm
        try:
            async with (
                transport.join(f"{swarm}-{OPERATOR}-{secrets.token_hex(4)}") as channel,
                asyncio.TaskGroup() as tasks,
            ):
                await channel.subscribe(f"{root_of(swarm)}/+/state", answer_topic(swarm))
                reading = tasks.create_task(self._read(channel))
                try:
                    return await self._change(channel, after=after, dry_run=dry_run)
                finally:
                    reading.cancel()
        except BaseExceptionGroup as group:
            raise foremost(group) from None

    async def _change(self, channel: Channel, *, after: int | None, dry_run: bool) -> dict[str, Any]:
        known = {name for roster in self.view.rosters for name in roster.peers}
        names = known & {*followers(self.experiment)}
        await self._until(lambda: names <= {*self.view.present}, seconds=LOOK_SECONDS)
        differences = self.view.differences(self.experiment, self.roster, edited=self._edited)
        for line in differences.lines():
            self._say(line)
        moved = differences.added or differences.removed or "topology" in differences.keys
        if moved and (files := self.experiment.topology.files):
            raise InputError(
                f"{files[0]} is a file on each device, which no change replaces; set topology.kind to a kind of graph, "
                "and topology.peers to the names of its peers"
            )
        expected = self.view.expected(self.experiment, self.roster)
        nothing = not (moved or differences.replaced or differences.keys or self.experiment.learning.without)
        if alone := without_models(self.experiment, expected):
            raise InputError(
                f"no model reaches {', '.join(alone)} in the first round, because those around are new as well; add "
                "these devices in two changes, or choose another topology"
            )
        result: dict[str, Any] = msgspec.to_builtins(differences) | {"peers": expected}
        if nothing:
            return result | {"number": None, "after": None}
        if absent := sorted({*expected} - self.view.taking_part):
            raise RunError(f"{', '.join(absent)} is not there to agree; wait for it, or take it out of the experiment")
        if dry_run:
            return result | {"number": None, "after": None}
        rounds = self.view.horizon
        change = await self._propose(channel, expected)
        begun, ahead = self.view.rounds(expected), self.view.ahead(expected)
        if ahead:
            who = ", ".join(f"{name} states round {round}" for name, round in ahead.items())
            why = f"{who}, and most peers are in round {begun} at most"
            if after is None:
                await self._withdraw(channel)
                raise RunError(f"{why}; name the last round with --after, or revoke whoever is wrong")
            self._say(f"{why}, so this counts for nothing")
        if after is None:
            await asyncio.sleep(PACE_SECONDS)
            change = await self._propose(channel, expected)
            after = last_round(begun, self.view.rounds(expected), seconds=PACE_SECONDS)
        after = min(after, rounds)
        check_after(after, self.view.rounds(expected), rounds=rounds)
        order = msgspec.structs.replace(change, last=after, signature="").signed(self._operator)
        self.ordered = True
        await self._publish(channel, order, expected)
        self._say(f"change {order.number}: all peers end the run after round {after}, and go on with the next one")
        return result | {"number": order.number, "after": after}

    async def _propose(self, channel: Channel, expected: list[str]) -> SwarmChange:
        """Publish a proposal with a new number, and wait until all peers agree."""
        change = SwarmChange(
            swarm=self.view.swarm,
            number=self._next_number(),
            run=run_digest(self.view.facts),
            settings=settings_of(self.experiment),
            roster=self.roster.text,
        ).signed(self._operator)
        try:
            await self._publish(channel, change, expected)
        except RunError:
            await self._withdraw(channel)
            raise
        return change

    async def _withdraw(self, channel: Channel) -> None:
        """Take back a proposal, which ends nothing, so that nobody needs it."""
        await channel.publish(change_topic(self.view.swarm), b"", retain=True)

    async def _publish(self, channel: Channel, change: SwarmChange, expected: list[str]) -> None:
        """Publish a change, and wait until all peers hold it."""
        kind = "proposal" if change.last is None else "order"
        replace_file(self._folder / f"{self.view.swarm}-{change.number}-{kind}.json", change.encode())
        await channel.publish(change_topic(self.view.swarm), change.encode(), retain=True)
        await self._until(lambda: not self.view.lacking(change, expected), seconds=ANSWER_SECONDS)
        if refused := self.view.refused(change, expected):
            raise RunError("; ".join(f"{name} does not agree: {why}" for name, why in refused.items()))
        if lacking := self.view.lacking(change, expected):
            again = "call again once it is there" if kind == "proposal" else "it gets the order from its neighbours"
            raise RunError(f"{', '.join(lacking)} has not answered to the {kind} {change.number}; {again}")

    def _next_number(self) -> int:
        """Return a number above those of all changes of the swarm that were signed."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            begin = f"{self.view.swarm}-"
            names = [path.name.removeprefix(begin) for path in self._folder.glob(f"{begin}*.json")]
            return 1 + max((int(name.partition("-")[0]) for name in names), default=0)
        except (OSError, ValueError) as error:
            raise InputError(f"{self._folder} cannot be used ({error}); restore it from a backup") from None

    async def _read(self, channel: Channel) -> None:
        """Take what peers announce and answer."""
        root = f"{root_of(self.view.swarm)}/"
        async for message in channel:
            peer, _, path = message.topic.removeprefix(root).partition("/")
            if path == "state":
                self.view.take_announcement(peer, message.data)
            elif path == "pub/change":
                self.view.take_answer(peer, message.data)
            self._changed.set()

    async def _until(self, condition: Callable[[], bool], *, seconds: float) -> None:
        """Wait until a condition holds, or for some seconds."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
