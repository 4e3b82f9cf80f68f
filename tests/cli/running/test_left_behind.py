"""Devices that were away for a change of their swarm, or are new in it: they follow by themselves, in virtual time."""

import asyncio

import pytest
import torch
from safetensors.torch import load_file

from fleet_devices import Devices, roster_of
from p2pfl.network.protocol.wire.message_codec import change_topic
from swarms import SMALL, timeless

NAMES = ("ada", "bob", "cyd", "dan")
CHANGES = [
    "topology.kind=complete",
    "rounds=24",
    "gossip.steps=1",
    "learning.batch=all",
    "transport.patience=5",
    "transport.gather={seconds=120, quorum=0.5}",
]
LAST = 6


def of_kind(notices, kind):
    return [notice for notice in notices if type(notice).__name__ == kind]


MASKED = ("privacy.mode=pairwise", "privacy.departures=go_on")


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("learning.weighted=false",), MASKED])
def test_a_device_that_was_away_for_the_order_and_the_switch_takes_part_again_by_itself(tmp_path, more):
    devices = Devices(tmp_path)
    before = devices.experiment(SMALL, NAMES, *CHANGES, *more)
    after = devices.experiment(SMALL, NAMES, *CHANGES, *more, "learning.rate=0.01")

    async def together():
        async with asyncio.TaskGroup() as tasks:
            playing = {name: tasks.create_task(devices.play(name, before)) for name in NAMES}
            await devices.until("dan", round=3)
            playing["dan"].cancel()
            order = devices.order(before, after, last=LAST, names=NAMES)
            await devices.publish(order)
            for name in NAMES[:3]:
                await devices.until(name, round=2, run=1)
            async with devices.transport.join("broker") as channel:  # which loses what it retained
                await channel.publish(change_topic("test"), b"", retain=True)
            playing["dan"] = tasks.create_task(devices.play("dan", before))
        return order, {name: task.result() for name, task in playing.items()}

    order, ended = timeless(together())
    assert {name: peer.done for name, peer in ended.items()} == dict.fromkeys(NAMES, 24)
    assert {peer.me.facts["start"] for peer in ended.values()} == {order.start}
    [late] = of_kind(devices.notices, "JoinsLate")
    assert late.peer == "dan"
    assert 2 <= late.round < 20
    rows = torch.cat([peer.ended.state.rows for peer in ended.values()])
    assert float((rows - rows.mean(dim=0)).abs().max()) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("removed", "retained"),
    [(("cyd", "eve"), True), (("cyd",), False)],
    ids=["all, by the order at the broker", "one of two, by the order in the operator's folder"],
)
def test_a_device_whose_neighbours_were_taken_out_while_it_was_away_follows(tmp_path, retained, removed):
    devices, names = Devices(tmp_path), ("ada", "bob", "cyd", "dan", "eve")
    changes = ["topology.kind=ring", *CHANGES[1:], "rounds=34", "transport.gather={seconds=15, quorum=0.5}"]
    rest = tuple(name for name in names if name not in removed)
    before, after = devices.experiment(SMALL, names, *changes), devices.experiment(SMALL, rest, *changes)

    async def together():
        async with asyncio.TaskGroup() as tasks:
            playing = {name: tasks.create_task(devices.play(name, before)) for name in names}
            await devices.until("dan", round=3)
            playing["dan"].cancel()
            order = devices.order(before, after, last=LAST, names=names, roster=rest)
            await devices.publish(order)
            for name in ("ada", "bob"):
                await devices.until(name, round=2, run=1)
            if not retained:
                async with devices.transport.join("broker") as channel:
                    await channel.publish(change_topic("test"), b"", retain=True)
                (devices.runs("dan")[0] / "peers" / "dan.change").write_bytes(order.encode())
            playing["dan"] = tasks.create_task(devices.play("dan", before))
        return {name: playing[name].result() for name in rest}, order

    ended, order = timeless(together())
    assert {name: peer.done for name, peer in ended.items()} == dict.fromkeys(rest, 34)
    assert {peer.me.facts["start"] for peer in ended.values()} == {order.start}


@pytest.mark.slow
def test_the_others_wait_for_a_device_that_comes_back_after_the_switch(tmp_path):
    devices = Devices(tmp_path)
    before = devices.experiment(SMALL, NAMES, *CHANGES[:-1], "transport.gather=900")
    after = devices.experiment(SMALL, NAMES, *CHANGES[:-1], "transport.gather=900", "rounds=9")

    async def together():
        async with asyncio.TaskGroup() as tasks:
            playing = {name: tasks.create_task(devices.play(name, before)) for name in NAMES}
            await devices.until("dan", round=1)
            order = devices.order(before, after, last=LAST, names=NAMES)
            await devices.publish(order)
            await devices.until("dan", round=LAST - 1)
            playing["dan"].cancel()
            for name in NAMES[:3]:
                await devices.until(name, round=0, run=1)
            await asyncio.sleep(60)
            playing["dan"] = tasks.create_task(devices.play("dan", before))
        return order, {name: task.result() for name, task in playing.items()}

    order, ended = timeless(together())
    assert {name: peer.done for name, peer in ended.items()} == dict.fromkeys(NAMES, 9)
    assert {peer.me.facts["start"] for peer in ended.values()} == {order.start}
    [late] = of_kind(devices.notices, "JoinsLate")
    assert (late.peer, late.round) == ("dan", 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [["learning.weighted=false"], ["learning.algorithm=gradient_tracking"], ["gossip.weights=push"]]
)
def test_a_new_device_without_a_model_takes_that_of_its_neighbours(tmp_path, more):
    devices = Devices(tmp_path)
    changes = [*CHANGES[:-1], "transport.gather=900", *more]
    before = devices.experiment(SMALL, NAMES, *changes)
    after = devices.experiment(SMALL, (*NAMES, "eve"), *changes, "rounds=4", "learning.rate=1e-9")

    async def together():
        async with asyncio.TaskGroup() as tasks:
            playing = {name: tasks.create_task(devices.play(name, before)) for name in NAMES}
            await devices.until("dan", round=1)
            order = devices.order(before, after, last=LAST, names=NAMES, roster=(*NAMES, "eve"))
            await devices.publish(order)
            playing["eve"] = tasks.create_task(devices.play("eve", after))
        return order, {name: task.result() for name, task in playing.items()}

    order, ended = timeless(together())
    assert {name: peer.done for name, peer in ended.items()} == dict.fromkeys((*NAMES, "eve"), 4)
    assert {peer.me.facts["start"] for peer in ended.values()} == {order.start}
    former = [load_file(devices.runs(name)[0] / "peers" / f"{name}.safetensors") for name in NAMES]
    for name in ended:
        for key, tensor in load_file(devices.runs(name)[1] / "peers" / f"{name}.safetensors").items():
            mean = torch.stack([each[key] for each in former]).mean(dim=0)
            assert float((tensor - mean).abs().max()) < 1e-5
    verification = pytest.importorskip("p2pfl.plugins.evidence.verification")
    folders = [devices.runs(name)[1] for name in ended]
    checked = verification.verify(verification.find_chains(folders), roster=roster_of(ended))
    assert not checked.findings
    assert "change of the swarm" in checked.checked
    file = devices.runs("eve")[0] / "next" / "order.json"
    file.write_bytes(file.read_bytes().replace(f'"last":{LAST}'.encode(), f'"last":{LAST + 1}'.encode()))
    [finding] = verification.verify(verification.find_chains(folders), roster=roster_of(ended)).findings
    assert str(finding) == "eve: the order of the operator is not that by which the run began"


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("learning.weighted=false",), MASKED], ids=["weighted", "unweighted", "masked"])
@pytest.mark.parametrize(
    ("kind", "stay", "new"),
    [("complete", ("ada",), ("dan", "eve")), ("ring", ("ada", "bob"), ("dan", "eve"))],
    ids=["most neighbours of each are new", "two are neighbours on a ring"],
)
def test_new_devices_join_whose_neighbours_are_new_as_well(tmp_path, kind, stay, new, more):
    devices, names = Devices(tmp_path), (*stay, *new)
    changes = [*CHANGES[:-1], f"topology.kind={kind}", "transport.gather=300", *more]
    before = devices.experiment(SMALL, NAMES[:3], *changes)
    after = devices.experiment(SMALL, names, *changes, "rounds=40", "learning.rate=1e-9")

    async def together():
        async with asyncio.TaskGroup() as tasks:
            playing = {name: tasks.create_task(devices.play(name, before)) for name in NAMES[:3]}
            await devices.until("ada", round=1)
            order = devices.order(before, after, last=LAST, names=NAMES[:3], roster=names)
            await devices.publish(order)
            playing |= {name: tasks.create_task(devices.play(name, after)) for name in new}
        return order, {name: playing[name].result() for name in names}

    order, ended = timeless(together())
    assert {name: peer.done for name, peer in ended.items()} == dict.fromkeys(names, 40)
    assert {peer.me.facts["start"] for peer in ended.values()} == {order.start}
    former = [load_file(devices.runs(name)[0] / "peers" / f"{name}.safetensors") for name in stay]
    for name in names:  # after many rounds almost without training all have the average of the models that were there
        for key, tensor in load_file(devices.runs(name)[1] / "peers" / f"{name}.safetensors").items():
            mean = torch.stack([each[key] for each in former]).mean(dim=0)
            assert float((tensor - mean).abs().max()) < 1e-4


@pytest.mark.slow
def test_a_new_device_that_starts_before_the_others_have_gone_on_obeys_no_earlier_change(tmp_path):
    devices, rest, last = Devices(tmp_path), NAMES[:2], (*NAMES[:2], "eve")
    changes = [*CHANGES[:-1], "transport.gather=300"]
    first, second = devices.experiment(SMALL, NAMES[:3], *changes), devices.experiment(SMALL, rest, *changes)
    third = devices.experiment(SMALL, last, *changes, "rounds=4")

    async def together():
        async with asyncio.TaskGroup() as tasks:
            playing = {name: tasks.create_task(devices.play(name, first)) for name in NAMES[:3]}
            await devices.until("ada", round=1)
            await devices.publish(devices.order(first, second, last=LAST, names=NAMES[:3], roster=rest))
            await devices.until("ada", round=1, run=1)
            order = devices.order(second, third, last=20, names=rest, roster=last, number=2)
            await devices.publish(order)
            playing["eve"] = tasks.create_task(devices.play("eve", third))
        return order, {name: playing[name].result() for name in last}

    order, ended = timeless(together())
    assert {name: peer and peer.done for name, peer in ended.items()} == dict.fromkeys(last, 4)
    assert {peer.me.facts["start"] for peer in ended.values()} == {order.start}
