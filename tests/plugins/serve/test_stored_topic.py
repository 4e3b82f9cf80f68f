"""Two peers learn from rows of a topic that ``p2pfl serve --store`` adds to the table of one, and both are killed."""

import asyncio
import contextlib
import json
import sqlite3
from contextlib import closing

import pytest
import tomli_w

from p2pfl.network.transport.broker import Program, mosquitto, run_program
from p2pfl.network.transport.mqtt import MqttTransport
from waiting import wait_until


@pytest.fixture
def url():
    if mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    found = mosquitto()
    program = Program(
        found.kind, found.command, lambda *place: found.configuration(*place) + "\nmax_queued_messages 0\n"
    )
    with run_program(program, host="127.0.0.1", port=0) as broker:
        yield broker.url


def row(number):
    celsius = number * 617 % 1000 / 20
    return {"number": number, "celsius": celsius, "state": "well" if celsius < 30 else "ill"}


def numbers(path):
    with closing(sqlite3.connect(path)) as database, contextlib.suppress(sqlite3.OperationalError):  # none yet
        return [number for (number,) in database.execute("SELECT number FROM rows")]
    return []


def readings(place):
    """Return the numbers of rows that peer0 has found when it read its table again, in all of its runs."""
    entries = [
        json.loads(line)
        for path in sorted(place.glob("**/events.jsonl"))
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]
    return [entry["rows"] for entry in entries if entry.get("peer") == "peer0" and entry.get("new")]


@pytest.mark.slow
async def test_rows_of_a_topic_become_data_of_a_peer_each_once_though_all_of_it_is_killed(place, fork, url):
    columns = {"celsius": "number", "state": ["well", "ill"]}
    experiment = {
        "name": "plant",
        "rounds": "endless",
        "topology": {"kind": "complete", "peers": 2},
        "data": {
            "name": "table",
            "refresh": 1,
            "options": {"path": str(place / "{peer}.sqlite"), "target": "state", "columns": columns},
        },
        "model": {"name": "linear"},
        "learning": {"device": "cpu"},
        "transport": {"patience": 20.0, "gather": 60.0},
    }
    (place / "plant.toml").write_text(tomli_w.dumps(experiment))
    (place / "runs").mkdir()
    with closing(sqlite3.connect(place / "peer1.sqlite")) as database, database:
        database.execute("CREATE TABLE rows (celsius, state)")
        database.executemany("INSERT INTO rows VALUES (:celsius, :state)", [row(number) for number in range(50)])
    storing = ("serve", "runs", "--port", "0", "--broker", url, "--store", "peer0.sqlite=plant/hall")
    served = fork(*storing)
    served.until("stores the rows of plant/hall in peer0.sqlite")
    sent, room, reported = 0, 50, asyncio.Event()  # room: rows that may wait

    async with MqttTransport(url).join("sensor") as sensor, asyncio.TaskGroup() as tasks:

        async def publish():
            nonlocal sent
            while not reported.is_set():
                await sensor.publish("plant/hall", json.dumps(row(sent)).encode())
                sent += 1
                await wait_until(
                    lambda: reported.is_set() or sent - len(numbers(place / "peer0.sqlite")) < room,  # noqa: B023
                    "few rows wait",
                    every=0.01,
                )

        tasks.create_task(publish())
        await wait_until(lambda: len(numbers(place / "peer0.sqlite")) > 50, "rows to begin with", every=0.05)
        peers = [
            fork("peer", "plant.toml", "--name", name, "--broker", url, "--no-baselines") for name in ("peer0", "peer1")
        ]
        await wait_until(lambda: readings(place), "the peer finds new rows", every=0.1)
        for _ in range(2):
            await asyncio.to_thread(served.kill)
            before, room = sent, 150
            await wait_until(lambda: sent > before + 20, "rows come meanwhile", every=0.02)  # noqa: B023
            served, room = fork(*storing), 50
            await asyncio.to_thread(served.until, "stores the rows of")
        await asyncio.to_thread(peers[0].kill)
        seen, before = len(readings(place)), sent
        peers[0] = fork("peer", "plant.toml", "--name", "peer0", "--broker", url, "--no-baselines", "--resume")
        await wait_until(
            lambda: len(readings(place)) > seen and readings(place)[-1] > before, "it finds all rows", every=0.1
        )
        reported.set()
    await wait_until(lambda: len(numbers(place / "peer0.sqlite")) >= sent, "the last rows", every=0.05)
    assert numbers(place / "peer0.sqlite") == [*range(sent)]
    for peer in peers:
        peer.ctrl_c()
