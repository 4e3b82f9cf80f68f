"""A folder as the broker: synchronised between machines, slowly, with losses, copies and torn files."""

import asyncio
import os
import random
import shutil
import stat
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import torch

from p2pfl.core.errors import BrokerError, TransportError
from p2pfl.experiment import read
from p2pfl.network.transport import Will
from p2pfl.network.transport.folder import FolderTransport
from p2pfl.network.transport.folder_files import FileName, encode_level, pack
from p2pfl.network.transport.memory import MemoryTransport
from p2pfl.network.transport.schemes import Access, opened
from p2pfl.privacy.keys import SeededSource
from swarms import SMALL, live, timeless
from waiting import DEADLINE

DELAY = 60.0
"""Seconds within which the folders of two machines are the same."""


class Machines:
    """Folders of several machines, between which a program copies what is new, each file after a time of its own.

    Each file is copied by itself. ``tears`` and ``doubles`` are shares of files that first appear in part, and beside
    which a copy of a conflict appears; ``loses`` names files that never arrive.
    """

    def __init__(self, folder, names, *, seed=0, delay=DELAY, tears=0.0, doubles=0.0, loses=lambda _path: False):
        self.roots = {name: folder / name for name in names}
        for root in self.roots.values():
            root.mkdir()
        self._random, self._delay = random.Random(seed), delay
        self._tears, self._doubles, self._loses = tears, doubles, loses
        self._due = {}  # by target: when it arrives, with its content
        self._home = {}  # by name: the folder of the machine that writes it
        self._copied = {}  # by target: what both files were when they had the same content

    def transport(self, name):
        return FolderTransport(self.roots[name], delay=self._delay)

    @asynccontextmanager
    async def synchronised(self, *, every=1.0):
        async def forever():
            while True:
                self.synchronise(asyncio.get_running_loop().time())
                await asyncio.sleep(every)

        task = asyncio.create_task(forever())
        try:
            yield
        finally:
            task.cancel()

    def synchronise(self, now):
        for root in self.roots.values():
            for path in sorted(root.rglob("*")):
                if path.is_file() and not path.name.startswith(".") and "conflict" not in path.name:
                    self._home.setdefault(path.relative_to(root), root)
        for name, home in self._home.items():
            for root in self.roots.values():
                if root != home:
                    self._copy(name, home, root, now)
        for target, (due, content) in sorted(self._due.items()):
            if due <= now:
                del self._due[target]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)

    def _copy(self, name, home, root, now):
        source, target = home / name, root / name
        if not source.exists():
            target.unlink(missing_ok=True)
            return
        if target in self._due or self._loses(name):
            return
        files = [(each.stat().st_mtime_ns, each.stat().st_ino) for each in (source, target) if each.exists()]
        if self._copied.get(target) == files:
            return
        content = source.read_bytes()
        if target.exists() and target.read_bytes() == content:
            self._copied[target] = files
            return
        self._due[target] = now + self._random.uniform(0, 0.8 * self._delay), content
        target.parent.mkdir(parents=True, exist_ok=True)
        if self._random.random() < self._tears and not target.exists():
            target.write_bytes(content[: self._random.randrange(len(content))])
        if self._random.random() < self._doubles:
            shutil.copy(source, target.with_stem(f"{target.stem} (conflicted copy)"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_messages_keep_their_order_however_a_folder_is_synchronised(tmp_path, seed):
    machines = Machines(tmp_path, ["ada", "bob"], seed=seed, tears=0.3, doubles=0.3)
    sent = [b"%d" % number for number in range(40)]

    async def talk():
        async with (
            machines.synchronised(),
            machines.transport("ada").join("ada") as ada,
            machines.transport("bob").join("bob") as bob,
        ):
            await bob.subscribe("ward/+")
            for data in sent:
                await ada.publish("ward/news", data)
                await asyncio.sleep(random.Random(seed).uniform(0, 5))
            async with asyncio.timeout(600):
                return [(await anext(bob)).data for _ in sent]

    assert timeless(talk()) == sent


def test_a_file_that_never_arrives_holds_up_the_next_ones_for_twice_the_delay(tmp_path):
    machines = Machines(tmp_path, ["ada", "bob"], loses=lambda path: ",2,0" in path.name)

    async def talk():
        now = asyncio.get_running_loop().time
        async with (
            machines.synchronised(),
            machines.transport("ada").join("ada") as ada,
            machines.transport("bob").join("bob") as bob,
        ):
            await bob.subscribe("news")
            for data in (b"one", b"two", b"three"):
                await ada.publish("news", data)
            begun = now()
            received = [(await anext(bob)).data for _ in range(2)]
            return received, now() - begun

    received, seconds = timeless(talk())
    assert received == [b"one", b"three"]
    assert 2 * DELAY <= seconds <= 3 * DELAY + 10


def test_a_torn_file_is_given_up_and_its_successors_arrive(tmp_path):
    async def talk():
        async with FolderTransport(tmp_path).join("ada") as ada, FolderTransport(tmp_path).join("bob") as bob:
            await bob.subscribe("news")
            session = next((tmp_path / ".clients").glob("ada,*.b")).stem.split(",")[1]
            (tmp_path / "news").mkdir()
            (tmp_path / "news" / f"ada,{session},1,0.m").write_bytes(b"p2f1 and what follows is missing")
            (tmp_path / "news" / f"ada,{session},2,0.m").write_bytes(b"")
            (tmp_path / "news" / "ada,1,x,0.m").write_bytes(b"no name of ours")
            ada._numbers["news"] = 2
            await ada.publish("news", b"whole")
            async with asyncio.timeout(DEADLINE):
                return (await anext(bob)).data

    assert timeless(talk()) == b"whole"


def test_the_will_of_a_channel_that_stops_is_published_once_and_after_a_late_beat_it_joins_again(tmp_path):
    will = Will("ward/ada", b"dead")

    async def talk():
        transport = FolderTransport(tmp_path)
        async with AsyncExitStack() as stack:
            bob, cyd = [await stack.enter_async_context(transport.join(name)) for name in ("bob", "cyd")]
            for channel in (bob, cyd):
                await channel.subscribe("ward/+")
            ada = await stack.enter_async_context(transport.join("ada", will=will))
            await ada.publish("ward/ada", b"here", retain=True)
            assert [(await anext(channel)).data for channel in (bob, cyd)] == [b"here"] * 2
            ada._task.cancel()  # as SIGSTOP does: no beat is written any more
            assert [(await anext(channel)).data for channel in (bob, cyd)] == [b"dead"] * 2
            assert len([*(tmp_path / "ward" / "ada").glob("*,w,*")]) == 1
            ada._task = asyncio.create_task(ada._run())  # SIGCONT
            with pytest.raises(TransportError, match="no sign of it reached another peer for 15 seconds; join again"):
                await anext(ada)
            async with transport.join("ada", will=will) as again:
                await again.publish("ward/ada", b"back", retain=True)
                async with transport.join("dan") as dan:
                    await dan.subscribe("ward/ada")
                    return (await anext(bob)).data, (await anext(dan)).data

    assert timeless(talk()) == (b"back", b"back")


@pytest.mark.slow
def test_beats_that_arrive_late_by_the_delay_make_nobody_lost(tmp_path):
    machines = Machines(tmp_path, ["ada", "bob"])

    async def talk():
        async with machines.synchronised(), machines.transport("bob").join("bob") as bob:
            await bob.subscribe("#")
            async with machines.transport("ada").join("ada", will=Will("ward/ada", b"dead")) as ada:
                await asyncio.sleep(600)
                await ada.publish("ward/ada", b"here", retain=True)
                return (await anext(bob)).data

    assert timeless(talk()) == b"here"


def test_messages_are_removed_in_time_and_what_is_retained_stays(tmp_path):
    async def talk():
        transport = FolderTransport(tmp_path)
        async with transport.join("ada") as ada:
            await ada.publish("state", b"old", retain=True)
            await ada.publish("state", b"new", retain=True)
            await ada.publish("gone", b"x", retain=True)
            await ada.publish("gone", b"", retain=True)
            for number in range(20):
                await ada.publish(f"news/{number}", b"x")
            await asyncio.sleep(transport.kept + 10)
        return sorted(path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.m"))

    assert timeless(talk()) == ["state"]


def test_what_ended_runs_left_is_removed_after_somebody_joins(tmp_path):
    async def run(start):
        transport = FolderTransport(tmp_path)
        async with transport.join(f"ada-{start}", will=Will("state", b"dead")) as ada:
            await ada.subscribe("state")
            await ada.publish("news", b"x")
            await ada.publish("state", b"here %d" % start, retain=True)
            if start == 0:
                (tmp_path / "news" / ".0123.draft").touch()
            await asyncio.sleep(transport.kept + 3 * transport.beat)
            ada.abort()

    for start in range(3):
        timeless(run(start))
    assert len([*tmp_path.rglob("*.m")]) == 1
    assert [path.name[:5] for path in tmp_path.rglob("*.b")] == ["ada-2"]
    assert not [*tmp_path.rglob("*.draft")]


def test_a_message_is_not_removed_because_the_clock_of_its_machine_is_wrong(tmp_path):
    async def talk():
        transport = FolderTransport(tmp_path, delay=60)
        async with transport.join("bob") as bob, transport.join("ada") as ada:
            await bob.subscribe("news")
            await ada.publish("news", b"x")
            for path in tmp_path.rglob("*.m"):
                os.utime(path, (0, 0))
            async with transport.join("cyd"):
                return (await anext(bob)).data

    assert timeless(talk()) == b"x"


def test_the_will_of_an_earlier_start_does_not_displace_a_later_announcement(tmp_path):
    will = Will("ward/ada", b"dead")

    async def talk():
        transport = FolderTransport(tmp_path)
        async with transport.join("bob") as bob:
            await bob.subscribe("ward/+")
            async with transport.join("ada-1", will=will) as before:
                await before.publish("ward/ada", b"one", retain=True)
                before.abort()
            async with transport.join("ada-2", will=will) as after:
                await after.publish("ward/ada", b"two", retain=True)
                await asyncio.sleep(10 * transport.lost)
                async with transport.join("cyd") as cyd:
                    await cyd.subscribe("ward/+")
                    return [(await anext(bob)).data for _ in range(2)], (await anext(cyd)).data

    assert timeless(talk()) == ([b"one", b"two"], b"two")


def test_a_retained_message_that_is_torn_at_first_is_delivered_once_it_is_whole(tmp_path):
    async def talk():
        transport = FolderTransport(tmp_path, delay=1)
        async with transport.join("ada") as ada, transport.join("bob") as bob:
            await ada.publish("state", b"here", retain=True)
            (path,) = (tmp_path / "state").glob("*.m")
            content = path.read_bytes()
            path.write_bytes(content[:20])
            await bob.subscribe("state")
            path.write_bytes(content)
            async with asyncio.timeout(60):
                return (await anext(bob)).data

    assert timeless(talk()) == b"here"


def bob_beats(channel, count):
    """Wait until a channel has written so many beats; each comes after a look at those of others."""
    while channel._beats < count and not channel.lost:
        os.sched_yield()


HOSTILE = {
    "a link to a file": lambda path: path.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "an empty file": lambda path: path.touch(),
}


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("plant", HOSTILE.values(), ids=HOSTILE)
async def test_what_others_put_into_the_folder_stops_nobody(tmp_path, plant):
    transport = FolderTransport(tmp_path, beat=0.05)
    async with transport.join("ada") as ada, transport.join("bob") as bob:
        await bob.subscribe("#")
        (tmp_path / "news").mkdir()
        for name in ("eve,00000001-6f2c,1,0", "eve,00000001-6f2c,w,9", f"{'e' * 210},00000001-6f2c,1,0"):
            plant(tmp_path / "news" / f"{name}.m")
        plant(tmp_path / "news" / f"{'%FF' * 30},00000001-6f2c,1,0.m")
        plant(tmp_path / ".clients" / "eve,00000001-6f2c.b")
        (tmp_path / ".clients" / "eve,00000002-6f2c.b").write_bytes(pack(b"1\n1\n" + b"e" * 300 + b"\nx"))
        async with asyncio.timeout(DEADLINE):
            for number in range(8):  # a second, in which beats are read and files that are not whole are given up
                await ada.publish(f"news/{number}", b"x")
                assert (await anext(bob)).topic == f"news/{number}"
                await asyncio.get_running_loop().run_in_executor(None, bob_beats, bob, number + 2)
            await ada.publish("news", b"after")
            assert (await anext(bob)).data == b"after"


async def test_nothing_is_written_through_a_link(tmp_path):
    inside, outside = tmp_path / "ward", tmp_path / "home"
    for folder in (inside, outside):
        folder.mkdir()
    (inside / "news").symlink_to(outside)
    async with FolderTransport(inside).join("ada") as ada:
        with pytest.raises(TransportError, match="the folder cannot be used any more"):
            await ada.publish("news", b"x")
    assert not [*outside.iterdir()]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file://relative/ward", "is not a folder"),
        ("file:///", "is not a folder"),
        ("file:///ward?delay=soon", "is not a folder"),
        ("file:///ward?wait=3", "is not a folder"),
        ("file:///ward?delay=", "is not a folder"),
        ("file:///ward?delay=1&delay=60", "is not a folder"),
        ("file:///ward#2", "is not a folder"),
    ],
)
def test_a_wrong_url_is_refused_in_one_sentence(url, message):
    with pytest.raises(BrokerError, match=message):
        opened(url, Access())


async def test_a_folder_that_is_missing_is_named_and_not_created(tmp_path):
    with pytest.raises(BrokerError, match=r"ward cannot be used \(there is no such folder\); create or mount it"):
        async with FolderTransport(tmp_path / "ward").join("ada"):
            pass
    assert not [*tmp_path.iterdir()]


async def test_a_folder_that_disappears_ends_the_channel(tmp_path):
    folder = tmp_path / "ward"
    folder.mkdir()
    async with FolderTransport(folder, beat=0.05).join("ada") as ada:
        shutil.rmtree(folder)
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(TransportError, match="the folder cannot be used any more"):
                await anext(ada)


def test_names_of_files_have_no_way_out_of_the_folder_and_do_not_depend_on_case():
    for level in ("..", ".", "", "a/b", "Ada", "ada", "\\", "ä", "%", "con."):
        name = encode_level(level)
        assert name
        assert not set(name) & set("/\\.,")
    assert encode_level("Ada").lower() != encode_level("ada").lower()
    assert FileName.parse("../x,00000001-6f2c,1,0.m") is None


def test_files_have_the_mode_that_the_site_sets(tmp_path):
    async def publish():
        async with FolderTransport(tmp_path).join("ada") as ada:
            await ada.publish("news", b"x")

    before = os.umask(0o007)
    try:
        timeless(publish())
    finally:
        os.umask(before)
    (path,) = tmp_path.rglob("*.m")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


EXPERIMENT = SMALL | {"topology": {"kind": "ring", "peers": 4}, "privacy": {"mode": "pairwise"}}


def ends(experiment, transport):
    return timeless(live(read(experiment), transport, source=SeededSource(11)))


@pytest.mark.slow
def test_peers_over_a_folder_end_where_peers_over_a_broker_end(tmp_path):
    by_file, by_broker = (ends(EXPERIMENT, each) for each in (FolderTransport(tmp_path), MemoryTransport()))
    for name, ended in by_broker.items():
        assert torch.equal(by_file[name].state.rows, ended.state.rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delay", "faults"),
    [
        pytest.param(4.0, {"tears": 0.2, "doubles": 0.2}, id="four seconds, torn and doubled"),
        pytest.param(60.0, {}, marks=pytest.mark.nightly, id="a minute"),
    ],
)
def test_rounds_settle_between_machines_whose_folders_are_synchronised_late(tmp_path, monkeypatch, delay, faults):
    monkeypatch.setattr("swarms.DEADLINE", 24 * 3600.0)
    patient = EXPERIMENT | {"rounds": 1, "transport": {"patience": 20 * delay, "gather": 20 * delay}}
    machines = Machines(tmp_path, ["left", "right"], delay=delay, **faults)

    async def run():
        async with machines.synchronised(every=delay / 10):
            halves = [("left", ["peer0", "peer1"]), ("right", ["peer2", "peer3"])]
            ended = await asyncio.gather(
                *(
                    live(read(patient), machines.transport(name), names=names, source=SeededSource(11))
                    for name, names in halves
                )
            )
            return ended[0] | ended[1]

    apart = timeless(run())
    together = timeless(live(read(patient), MemoryTransport(), source=SeededSource(11)))
    assert apart.keys() == together.keys()
    for name, ended in together.items():
        assert torch.equal(apart[name].state.rows, ended.state.rows)
