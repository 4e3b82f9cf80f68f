"""A device that is killed at each step of a change of its swarm goes on in the same run as the others."""

import asyncio

import pytest

import fleet_devices
from fleet_devices import Devices
from p2pfl.cli.running import following
from p2pfl.network.peer import change_exchange, rounds
from p2pfl.network.peer import peer as peers
from p2pfl.privacy.keys import Roster
from swarms import SMALL, timeless

NAMES = ("ada", "bob", "cyd")
CHANGES = [
    "topology.kind=complete",
    "rounds=7",
    "gossip.steps=1",
    "learning.batch=all",
    "transport.patience=5",
    "transport.gather=300",
]
LAST = 3


class KilledError(Exception):
    """The device is killed."""


STEPS = {
    "the order has arrived": (change_exchange.ChangeExchange, "_prepare", 0, False),
    "the order is stored": (change_exchange, "replace_file", 0, True),
    "its number is stored": (change_exchange, "replace_file", 1, True),
    "the last round begins": (change_exchange.ChangeExchange, "before", (0, LAST - 1), False),
    "the last round is played": (rounds.Rounds, "_after", (0, LAST - 1), False),
    "the last round is written": (rounds.Rounds, "_after", (0, LAST - 1), True),
    "the run ends": (peers, "end", 0, False),
    "the run has ended": (fleet_devices, "following", 0, False),
    "the next roster is written": (Roster, "write", 0, True),
    "the order of the next run is written": (following, "replace_file", 0, True),
    "the next experiment is written": (following, "replace_file", 1, True),
    "the next run has a directory": (Devices, "_new", 1, True),
    "the first new round begins": (change_exchange.ChangeExchange, "before", (1, 0), False),
    "the first new round is played": (rounds.Rounds, "_after", (1, 0), True),
}
"""Step to the place and name of a function, the call of it (a number, or run and round), and whether the call ends."""


def kill_at(monkeypatch, step, *, devices, of):
    """Kill a device once, at a step; return a list with the step once that has happened."""
    owner, name, which, after = STEPS[step]
    whole, seen, killed = getattr(owner, name), [], []

    def due(words):
        if fleet_devices.DEVICE.get() != of or killed:
            return False
        seen.append(step)
        now = len(seen) == which + 1 if isinstance(which, int) else (len(devices.begun[of]) - 1, words[1]) == which
        if now:
            killed.append(step)
        return now

    async def waits(*words, **named):
        now = due(words)
        if now and not after:
            raise KilledError
        result = await whole(*words, **named)
        if now:
            raise KilledError
        return result

    def calls(*words, **named):
        now = due(words)
        if now and not after:
            raise KilledError
        result = whole(*words, **named)
        if now:
            raise KilledError
        return result

    monkeypatch.setattr(owner, name, waits if asyncio.iscoroutinefunction(whole) else calls)
    return killed


@pytest.mark.sampled(fast=0, all=10)
@pytest.mark.parametrize("mode", ["none", "pairwise"])
@pytest.mark.parametrize("step", STEPS)
def test_all_end_in_the_same_run(tmp_path, monkeypatch, step, mode):
    devices = Devices(tmp_path)
    changes = [*CHANGES, f"privacy.mode={mode}", f"trust.keys={tmp_path}"]
    before, after = (devices.experiment(SMALL, NAMES, *changes, *more) for more in ((), ("rounds=16",)))

    killed = kill_at(monkeypatch, step, devices=devices, of="cyd")

    async def persist(name):
        """Start a device again whenever it is killed, as its unit does."""
        while True:
            try:
                return await devices.play(name, before)
            except KilledError:
                await asyncio.sleep(3)

    async def together():
        async with asyncio.timeout(3000), asyncio.TaskGroup() as tasks:
            playing = {name: tasks.create_task(persist(name)) for name in NAMES}
            await devices.until("cyd", round=0)
            order = devices.order(before, after, last=LAST, names=NAMES)
            await devices.publish(order)
        return order, killed, {name: task.result() for name, task in playing.items()}

    order, killed, ended = timeless(together())
    assert killed
    assert {name: (peer.done, peer.me.facts["start"]) for name, peer in ended.items()} == dict.fromkeys(
        NAMES, (16, order.start)
    )
