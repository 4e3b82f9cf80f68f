"""The schema of the files of a run is current, documented, and what runs write conforms to it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from json_schema import faults
from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.network.peer.launch.swarm import run
from p2pfl.network.virtual.forecast import forecast, network
from p2pfl.results import Run
from p2pfl.results.json_schema import SCHEMA_FILES, attributes, classes, json_schema
from p2pfl.results.notices.kinds import SCHEMA, KeyTrusted, LossRose, kinds
from p2pfl.simulation import simulate
from swarms import SMALL

PAGE = Path(__file__).parents[2] / "docs" / "schema.json"
DEFS = json_schema()["$defs"]
NOW = datetime(2026, 11, 22, 13, 7, tzinfo=UTC)


def objects(folder):
    """Yield the name of a file and an object in it, for all files of a run."""
    for file in SCHEMA_FILES.keys() - {"sweep.json"}:
        text = (folder / file).read_text("utf-8")
        for part in text.splitlines() if file.endswith(".jsonl") else [text]:
            yield file, json.loads(part)


def wrong(folder):
    return [
        (file, faults(found, DEFS[file], DEFS)) for file, found in objects(folder) if faults(found, DEFS[file], DEFS)
    ]


def test_the_committed_schema_is_what_the_command_prints(capsys):
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == PAGE.read_text("utf-8")


@pytest.mark.parametrize(
    "kind", classes([kind for each in SCHEMA_FILES.values() for kind in each]), ids=lambda kind: kind.__name__
)
def test_each_field_is_described(kind):
    assert {field.encode_name for field in msgspec.inspect.type_info(kind).fields} == attributes(kind).keys()


def test_what_a_simulation_writes_conforms(tmp_path):
    changes = ["data.scale=true", "learning.consensus=true", "privacy.mode=pairwise", "learning.weighted=false"]
    simulate(read(SMALL, changes=changes), folder=tmp_path / "run", began=NOW)
    assert wrong(tmp_path / "run") == []
    assert {file for file, _ in objects(tmp_path / "run")} == {"summary.json", "provenance.json", "metrics.jsonl"}


@pytest.mark.slow
def test_what_a_simulation_with_a_guarantee_writes_conforms(tmp_path):
    changes = ["privacy.mode=pairwise", "privacy.clip=1", "privacy.noise=0.8", "privacy.epsilon=8", "rounds=9"]
    found = simulate(read(SMALL, changes=changes), folder=tmp_path / "run", began=NOW, baselines=False).summary
    assert wrong(tmp_path / "run") == []
    assert found["stopped"] is not None


@pytest.mark.slow
def test_what_live_peers_write_conforms_and_the_events_tell_their_course(tmp_path):
    changes = ["topology.kind=path", "topology.peers=2", "rounds=2", "transport.broker=embedded"]
    run(read(SMALL, changes=changes), folder=tmp_path / "run")
    assert wrong(tmp_path / "run") == []
    events = [found for file, found in objects(tmp_path / "run") if file == "events.jsonl"]
    for peer in ("peer0", "peer1"):
        own = [each for each in events if each["peer"] == peer]
        assert [each["phase"] for each in own if each["kind"] == "phase_began"][-1] in {"leaving", "done"}
        assert own[-1]["kind"] == "peer_finished"
        assert {*own[-1]["scores"]} == {"accuracy", "loss"}
        times = [datetime.fromisoformat(each["time"]) for each in own]
        assert times == sorted(times)
    assert [each.peer for each in Run.load(tmp_path / "run").events] == [each["peer"] for each in events]


@pytest.mark.slow
def test_what_a_forecast_writes_conforms_and_its_events_have_virtual_times(tmp_path):
    found = forecast(read(SMALL), network("wan"), folder=tmp_path / "run", began=NOW, baselines=False)
    assert wrong(tmp_path / "run") == []
    assert found.summary["predicted"]
    seconds = [(event.time - NOW).total_seconds() for event in found.events]
    assert any(isinstance(event, KeyTrusted) for event in found.events)
    assert all(0 < each <= found.summary["total_s"] for each in seconds)


def example(kind):
    """A notice of each class, with values of the types of its fields."""
    values = {str: "x", int: 3, float: 0.5, bool: True, tuple[str, ...]: ("bob",), dict[str, int]: {"bob": 1}}
    values |= {dict[str, float]: {"loss": float("nan")}, tuple[int, ...]: (0, 2), tuple[float, ...]: (1.0, 0.5)}
    given = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            literal = [each for each in get_args(field.type) if isinstance(each, str)]
            given[field.name] = literal[-1] if literal else values.get(field.type)
    return kind(**given)


@pytest.mark.parametrize("kind", kinds().values(), ids=kinds())
def test_every_kind_of_event_conforms_and_is_read_again(kind, tmp_path):
    started = Run(read(SMALL), folder=tmp_path / "run")
    notice = msgspec.structs.replace(example(kind), time=NOW)
    started.log([notice])
    [line] = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert faults(json.loads(line), DEFS["events.jsonl"], DEFS) == []
    [found] = Run.load(tmp_path / "run").events
    assert type(found) is kind
    assert repr(found) == repr(notice)  # NaN is not equal to itself


def test_a_validator_finds_what_is_wrong():
    good = json.loads(msgspec.json.encode(LossRose(peer="ada", round=3, now={"loss": 1.0})))
    event = DEFS["events.jsonl"]
    assert faults(good, event, DEFS) == []
    assert faults(good | {"round": "three"}, event, DEFS)
    assert faults(good | {"kind": "gain_rose"}, event, DEFS)
    assert faults(good | {"sentence": "ALARM"}, event, DEFS)
    assert faults({key: value for key, value in good.items() if key != "round"}, event, DEFS)


@pytest.mark.parametrize("file", ["summary.json", "provenance.json", "metrics.jsonl", "events.jsonl"])
def test_a_file_of_another_schema_is_refused_with_both_versions(file, tmp_path):
    folder = tmp_path / "run"
    Run(read(SMALL), folder=folder)
    (folder / file).write_text(json.dumps({"schema": SCHEMA + 1}) + "\n")
    with pytest.raises(
        InputError, match=rf"schema is version {SCHEMA + 1}, and this release of p2pfl reads version {SCHEMA};"
    ):
        Run.load(folder)
