"""The tutorial for a fleet over months: its commands run, and its devices live through nights of virtual time."""

import asyncio
import json
import re
import runpy
import shlex
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from p2pfl.experiment import read
from p2pfl.plugins.serve.newest_model import NewestModel
from p2pfl.results.notices.kinds import DataRead
from virtual_fleet import Fleet, run

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[3] / "docs" / "tutorials" / "fleet-over-months.md").read_text("utf-8")
HOUR, NIGHTS = 3600, 3


def block(name):
    """Return the file with this name in its first line."""
    [text] = re.findall(rf"^```\w+\n# {re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


def command(*words):
    """Return the arguments of the one command of the page with these words."""
    [line] = [line for line in PAGE.splitlines() if line.startswith("p2pfl ") and all(word in line for word in words)]
    return shlex.split(line)[1:]


@pytest.fixture
def grow(place):
    """Write the files of the page, and return what appends a month of readings."""
    for name in ("make.py", "plant.toml", "hall.csv.toml"):
        (place / name).write_text(block(name), "utf-8")
    grow = runpy.run_path("make.py")["grow"]
    grow(1)
    return grow


@pytest.mark.usefixtures("grow")
def test_the_commands_of_the_tutorial_plan_simulate_and_go_on(p2pfl, place):
    for words, said in (
        (command("explain"), "rounds without an end of 1"),
        (command("privacy"), re.search(r"of which epsilon 8 allows \d+", PAGE)[0]),
        (command("simulate"), "as predicted"),
    ):
        done = p2pfl(*words)
        assert done.status == 0, (words, done.err)
        assert said in done.out + done.err
    [first] = place.glob("runs/*")
    assert p2pfl(*(str(first) if "*" in word else word for word in command("next"))).status == 0
    [second] = {*place.glob("runs/*")} - {first}
    predicted, following = (json.loads((each / "summary.json").read_text()) for each in (first, second))
    assert predicted["wall_s"] > 5 * 1200
    assert following["together"] > 0.8

    [request] = re.findall(r"--json '(.*?)'", PAGE)
    newest = NewestModel(place / "runs", name="roof", now=lambda: datetime.now(UTC), notify=pytest.fail)
    asyncio.run(newest.look())
    assert newest.take().answer(request.encode())["predictions"] == json.loads(
        re.search(r'"predictions": (\[.*?\])', PAGE)[1]
    )


def without_numbers(text):
    return re.sub(r"\d+(\.\d+)?", "#", text)


class Plant(Fleet):
    """The devices of the page, of which one sleeps, beside tables that grow by day."""

    def __init__(self, folder, *, grow):
        super().__init__([], folder, begin=datetime(2030, 1, 1, 0, 50, tzinfo=UTC), again=True)
        self.experiment = read("plant.toml", changes=[f"rounds={12 * NIGHTS}", "transport.checkpoint=12"])
        self.names = self.experiment.topology.peers
        self.records = {name: [] for name in self.names}
        self.whole = self.experiment
        loop = asyncio.get_running_loop()
        for month in range(2, NIGHTS + 1):
            loop.call_later((24 * (month - 2) + 12) * HOUR, grow, month)

    def _peer(self, name, former, incarnation, **given):
        own = re.search(r"# in the file of roof\n.*?(pace = .*?)\n", PAGE, re.DOTALL)[1]
        changes = [f"transport.{own.replace(' = {', '={', 1)}"] if name == "roof" else []
        self.experiment = read(self.whole, changes=changes)
        return super()._peer(name, former, incarnation, **given)


async def lived(folder, *, grow):
    """Let the devices live, until those that never sleep have played all rounds."""
    plant = Plant(folder, grow=grow)
    plant.start()
    await asyncio.gather(*(plant.tasks[name] for name in plant.names if name != "roof"))
    await plant.kill("roof")
    return plant


def test_the_devices_of_the_tutorial_learn_by_night_from_tables_that_grow(grow, tmp_path):
    plant = run(lived, tmp_path, grow=grow)
    nights = [[each for each in plant.seconds("hall") if each // (24 * HOUR) == night] for night in range(NIGHTS)]
    assert [len(night) for night in nights] == [12] * NIGHTS
    assert all(later - earlier < 1260 for night in nights for earlier, later in pairwise(night))  # nobody waits
    hours = [(each / HOUR + 5 / 6) % 24 for each in plant.seconds("roof")]
    assert all(1 <= each < 2.6 for each in hours)
    assert len(hours) > 3 * NIGHTS
    assert max(record.round for record in plant.records["roof"]) > 12 * (NIGHTS - 1)
    readings = [each for each in plant.notices if isinstance(each, DataRead)]
    assert {(each.peer, each.rows) for each in readings} >= {
        *((peer, 300 * month) for peer in ("oven", "roof", "yard") for month in (2, 3)),
        *(("hall", rows) for rows in (600, 700)),
    }
    drift = {each.peer: (each.feature, each.drift) for each in readings if each.round > 24 and each.new}
    assert drift["roof"][0] == "temperature"
    assert drift["roof"][1] > 0.25 > max(value for peer, (_, value) in drift.items() if peer != "roof")
    shown = re.search(r"^has .* has changed .*$", PAGE, re.MULTILINE)[0]
    assert without_numbers(shown) in {without_numbers(str(each)) for each in readings if each.peer == "roof"}
    assert all(records[-1].scores["accuracy"] > 0.8 for records in plant.records.values())
