"""Devices that sleep most of the day, in virtual time."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace

import pytest

from p2pfl.core.errors import ExperimentError, RunError
from p2pfl.experiment import plan, read
from p2pfl.experiment.timetable import DAY, Position, Timetable, parse_hours
from p2pfl.network.peer.launch.incarnations import Incarnations
from p2pfl.network.peer.pauses import AsleepError, Pauses
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.results.notices.kinds import NeighboursMissing
from swarms import SMALL
from virtual_fleet import Fleet, run

MIDNIGHT = datetime(2026, 11, 27, tzinfo=UTC)
COMPLETE = ["topology.kind=complete", "topology.peers=4", "gossip.steps=1", "transport.patience=20"]
PACE = 'transport.pace={every = "10 min"}'
MASKS = ["privacy.mode=pairwise", "privacy.mask=3.0", "privacy.partners=1", "privacy.departures=go_on"]

pytestmark = pytest.mark.slow


class Sleepers(Fleet):
    """Peers each of which has its own hours or bytes."""

    def __init__(self, changes, folder, *, own, begin=MIDNIGHT):
        super().__init__([*COMPLETE, *changes], folder, begin=begin, again=True)
        self.common, self.own = self.experiment, own

    def _peer(self, name, former, incarnation, **given):
        pace = {"every": self.common.transport.pace.every, **self.own.get(name, {})}
        text = ", ".join(f'{key} = "{value}"' for key, value in pace.items())
        self.experiment = read(self.common, changes=[f"transport.pace={{{text}}}"])
        return super()._peer(name, former, incarnation, **given)


async def slept(changes, folder, *, own, begin=MIDNIGHT):
    """Run until those that never sleep have played all rounds."""
    fleet = Sleepers([PACE, *changes], folder, own=own, begin=begin)
    fleet.start()
    await asyncio.gather(*(fleet.tasks[name] for name in fleet.names if name not in own))
    await fleet.kill(*own)
    return fleet


@pytest.mark.parametrize("masks", [[], MASKS], ids=["plain", "masks"])
def test_the_others_go_on_while_one_sleeps_and_it_takes_part_when_it_wakes(tmp_path, masks):
    own = {"peer1": {"awake": "00:00-01:00, 04:00-05:00"}}
    fleet = run(slept, ["rounds=30", *masks], tmp_path, own=own)
    for name in ("peer0", "peer2", "peer3"):
        seconds = fleet.seconds(name)
        assert len(seconds) == 30
        assert max(later - earlier for earlier, later in pairwise(seconds)) < 660  # nobody waits beyond the pace
    mine = [each / 3600 for each in fleet.seconds("peer1")]
    assert all(each < 1.02 or 4 <= each < 5.02 for each in mine)
    assert sum(each > 3 for each in mine) >= 4
    together = {record.round for record in fleet.records["peer0"] if record.received == 3}
    assert {1, 2, 3} <= together
    assert max(together) > 24


def test_a_device_sleeps_once_its_bytes_of_the_day_are_spent_and_comes_back_the_next_day(tmp_path):
    own = {"peer1": {"bytes": "150 kB"}}
    fleet = run(slept, ["rounds=30", "topology.peers=3"], tmp_path, own=own, begin=MIDNIGHT + timedelta(hours=20))
    hours = [each / 3600 for each in fleet.seconds("peer1")]
    evening = [each for each in hours if each < 4]
    assert 3 < len(evening) < 20
    assert 4 <= hours[len(evening)] < 4.3  # after midnight
    last = fleet.records["peer1"][len(evening) - 1]
    assert last.bytes_out + last.bytes_in < 150_000
    assert all(later - earlier < 660 for earlier, later in pairwise(fleet.seconds("peer0")))


def test_a_device_that_sleeps_before_it_reports_has_the_models_of_the_others_when_it_meets_them(tmp_path):
    hours = ", ".join(f"{hour:02d}:00-{hour + 2:02d}:30" for hour in range(0, 24, 4))
    changes = ["rounds=48", "topology.peers=3", "model.name=linear", 'transport.pace={every = "1 h"}']
    apart = run(slept, changes, tmp_path, own={"peer1": {"awake": hours}}).apart()
    assert len(apart) > 16 + 6  # a partner holds sixteen flows until it has a report of them
    assert max(apart.values()) <= 1e-9, apart


class Relay(Sleepers):
    """Fifty devices that are awake for 72 minutes a day, one after another, so that two or three always are."""

    def __init__(self, changes, folder):
        digits = ["data.name=digits", "data.split=iid", "model.name=linear", "learning.dtype=float32"]
        more = ["topology.peers=50", "rounds=endless", "learning.rate=0.05", "transport.gather=20"]
        begins = {f"peer{number:02d}": number * 1440 // 50 for number in range(50)}
        own = {name: {"awake": f"{_clock(minute)}-{_clock(minute + 72)}"} for name, minute in begins.items()}
        super().__init__([PACE, *digits, *more, *changes], folder, own=own)


def _clock(minute):
    return f"{minute % 1440 // 60:02d}:{minute % 60:02d}"


async def month(changes, folder):
    """Return the mean loss after each ten days, and the largest number of rounds that a device has played."""
    fleet, losses = Relay(changes, folder), []
    fleet.start()
    for _ in range(3):
        await asyncio.sleep(10 * DAY)
        assert not any(task.done() for task in fleet.tasks.values())
        losses.append(sum(records[-1].scores["loss"] for records in fleet.records.values()) / 50)
    await fleet.kill()
    return losses, max(len(records) for records in fleet.records.values())


@pytest.mark.nightly
@pytest.mark.parametrize("weighted", ["true", "false"])
def test_fifty_devices_that_are_awake_for_a_twentieth_of_a_month_learn(tmp_path, weighted):
    losses, rounds = run(month, [f"learning.weighted={weighted}"], tmp_path)
    assert rounds <= 30 * 8  # every ten minutes, in 72 minutes a day
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.25  # 0.21 if all are always awake


@pytest.mark.fast
def test_a_device_takes_part_while_the_next_round_fits_into_its_bytes_of_the_day():
    table = Timetable(bytes=1000, awake=parse_hours("06:00-08:00, 22:00-23:00", key="awake"))
    seven, spent = 7 * 3600.0, Position(began=0.0, days={0: 50}, rounds=(100, 200, 150))
    assert table.wakes(seven, position=spent, total=850) == seven
    assert table.wakes(seven, position=spent, total=851) == DAY + 6 * 3600
    assert table.wakes(9 * 3600.0, position=spent, total=0) == 22 * 3600
    assert spent.at(900, now=DAY).spent(950, now=DAY) == 50


@pytest.mark.fast
def test_a_clock_that_jumps_to_another_day_and_back_loses_no_bytes_of_today():
    position = Position().at(100, now=5 * DAY)
    for day in (0, 5, 9, 5):
        position = position.at(400, now=day * DAY)
    assert position.spent(500, now=5 * DAY) == 400


class Metered:
    """Clock and bytes of a device whose connection is quiet."""

    def __init__(self, bytes, *, now, every=0.0):
        self.at, self.bytes_in, self.bytes_out = now, 0, 0
        self.session = SimpleNamespace(pauses=False, has_begun=lambda _: False)
        self.session.shared = SimpleNamespace(running=False)
        self.table, self.played, self.position = Timetable(every=every, bytes=bytes), {}, None

    def clock(self):
        return self.at

    def submit(self, request):
        pass

    async def until(self, _, *, by):
        self.at = by

    async def day(self, sizes):
        """Play rounds of some sizes, until it sleeps; then the next day begins."""
        pauses = Pauses(self.table, now=self.clock, connection=self, position=self.position)
        try:
            for round, size in enumerate(sizes):
                await pauses.before(round)
                day = int(self.at // DAY)
                self.bytes_in += size
                self.played[day] = self.played.get(day, 0) + size
        except AsleepError as asleep:
            self.at = asleep.wakes
        self.position = pauses.position


@pytest.mark.fast
def test_the_first_round_after_midnight_counts_among_the_bytes_of_its_day():
    device = Metered(50, now=22 * 3600.0, every=3600.0)

    async def days():
        for _ in range(5):
            await device.day([20] * 100)

    asyncio.run(days())
    assert len(device.played) > 3
    assert set(device.played.values()) == {40}


@pytest.mark.fast
@pytest.mark.parametrize("flood", [30, 49, 51, 500])
def test_a_flood_costs_a_device_one_day_and_neither_ends_it_nor_lowers_its_later_days(flood):
    device = Metered(50, now=3600.0)

    async def days():
        await device.day([1, 1, flood, *[1] * 100])
        for _ in range(6):
            await device.day([1] * 100)

    asyncio.run(days())
    assert [device.played.get(day, 0) for day in (5, 6)] == [50, 50]
    assert all(device.played[day] > 0 for day in range(7))


def test_a_device_that_waits_for_neighbours_without_a_limit_sleeps_at_the_end_of_its_hours(tmp_path):
    async def alone():
        own = {"peer1": {"awake": "00:00-00:30, 04:00-05:00"}}
        fleet = Sleepers([PACE, "transport.gather={seconds = inf}", "topology.peers=2"], tmp_path, own=own)
        fleet.start("peer1")
        await asyncio.sleep(3600)
        phase = fleet.now["peer1"].phase
        await fleet.kill("peer1")
        return phase

    assert run(alone) == "asleep"


@pytest.mark.fast
def test_a_device_whose_neighbours_run_another_wire_format_reports_it_once_and_goes_on(tmp_path):
    async def alone():
        fleet = Sleepers([PACE, "topology.peers=2"], tmp_path, own={"peer1": {"awake": "00:00-00:30, 04:00-05:00"}})
        async with fleet.transport.join("older") as older:
            payload = bytes([1]) + encode(Announcement("peer0", 1, "up"))[1:]
            await older.publish("p2pfl/v1/test/peer/peer0/state", payload, retain=True)
            fleet.start("peer1")
            await asyncio.sleep(1200)
            phase = fleet.now["peer1"].phase
            await fleet.kill("peer1")
        return phase, [each for each in fleet.notices if isinstance(each, NeighboursMissing)]

    phase, (notice,) = run(alone)  # although it has gathered again and again
    assert (phase, notice.peer, notice.absent) == ("gathering", "peer1", ("peer0",))
    assert '"peer0" uses version 1 of the wire format' in str(notice)


def test_a_device_that_no_round_admits_sleeps_at_the_end_of_its_hours_and_joins_later(tmp_path):
    async def joins():
        hours = {"hours": "00:00-00:10, 04:00-06:00"}
        own = dict.fromkeys(("peer0", "peer2", "peer3"), hours) | {
            "peer1": hours | {"awake": "00:00-01:00, 04:00-06:00"}
        }
        fleet = Sleepers([PACE, "rounds=12", *MASKS], tmp_path, own=own)
        fleet.start()
        await asyncio.sleep(300)
        await fleet.kill("peer1")
        fleet.start("peer1", resume=True)
        await asyncio.sleep(5400)
        phase = fleet.now["peer1"].phase
        await asyncio.gather(*(fleet.tasks[name] for name in fleet.names if name != "peer1"))
        await fleet.kill("peer1")
        return phase, fleet

    phase, fleet = run(joins)
    assert phase == "asleep"
    assert max(record.received for record in fleet.records["peer0"] if record.round > 3) == 3
    assert all(record.received >= 2 for record in fleet.records["peer0"])


@pytest.mark.fast
def test_a_clock_that_is_set_back_lengthens_no_sleep():
    async def slept():
        loop, back = asyncio.get_running_loop(), 10 * DAY
        peer = SimpleNamespace(phase="", clock=lambda: loop.time() + (back if loop.time() < 100 else 0.0))
        incarnations = Incarnations(None, None, None, None, peer)
        await incarnations._sleep(back + 3600.0)
        return loop.time()

    assert run(slept) <= 3600 + 180


def test_a_budget_below_one_round_ends_the_device_with_the_remedy(tmp_path):
    async def ended():
        pace = 'transport.pace={every = "8 h"}'
        fleet = Sleepers([pace, "rounds=endless", "topology.peers=2"], tmp_path, own={"peer1": {"bytes": "2 kB"}})
        fleet.start()
        try:
            await fleet.tasks["peer1"]
        finally:
            await fleet.kill()

    with pytest.raises(
        RunError,
        match=r"each of the last rounds took [\d,]+ bytes or more, and transport.pace.bytes permits 2,000 a day",
    ):
        run(ended)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            MASKS[:3],
            'with privacy.departures = "wait", under which all wait for a peer that leaves; leave them out, or',
        ),
        (
            [*MASKS, 'transport.pace={awake = "01:00-02:00", every = "40 min"}'],
            'with privacy.mode = "pairwise" and hours shorter than twice "every", because',
        ),
        (["learning.stop=0.1"], "with learning.stop, on which all peers decide together; leave one of them out"),
        (["learning.consensus=true"], "with learning.consensus, on which all peers decide together"),
        (["privacy.mode=secagg"], 'with privacy.mode = "secagg", whose sums need the same senders in all rounds'),
    ],
)
def test_where_all_have_to_be_there_a_device_may_not_sleep(changes, sentence):
    asleep = read(SMALL, changes=[*COMPLETE, 'transport.pace={awake = "01:00-02:00"}', *changes])
    with pytest.raises(ExperimentError, match=sentence):
        plan(asleep, only=["peer1"])
