"""Event files hold what the records hold, in the format of TensorBoard."""

import struct
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.results import tensorboard
from p2pfl.results.run import Run
from p2pfl.simulation import simulate
from swarms import SMALL

CRC = [0]
for _byte in range(1, 256):
    _rest = _byte
    for _ in range(8):
        _rest = (_rest >> 1) ^ (0x82F63B78 if _rest & 1 else 0)
    CRC.append(_rest)


def masked(data):
    """The masked CRC-32C of a TFRecord, bit by bit as Castagnoli defines it."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest = CRC[(rest ^ byte) & 0xFF] ^ (rest >> 8)
    rest ^= 0xFFFFFFFF
    return ((rest >> 15 | rest << 17) + 0xA282EAD8) & 0xFFFFFFFF


def scalars(folder):
    """All scalars of the one event file in a directory, as (tag, step, wall time, value)."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    [file] = folder.glob("events.out.tfevents.*")
    data, found = file.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12]) == (masked(data[:8]),)
        event = event_pb2.Event.FromString(data[12 : 12 + size])
        assert struct.unpack("<I", data[12 + size : 16 + size]) == (masked(data[12 : 12 + size]),)
        found += [(value.tag, event.step, event.wall_time, value.simple_value) for value in event.summary.value]
        data = data[16 + size :]
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return simulate(read(SMALL), folder=tmp_path_factory.mktemp("events") / "run", baselines=False)


@pytest.mark.slow
def test_the_curves_are_means_over_the_peers(run, tmp_path):
    pytest.importorskip("tensorboardX")
    made = tensorboard.write({"run": run}, tmp_path)
    assert made == [tmp_path / "run"]
    assert made[0].stat().st_mode & 0o777 == 0o700
    means = [value for tag, _, _, value in scalars(tmp_path / "run") if tag == "scores/loss"]
    first = [record.scores["loss"] for record in run.metrics if record.round == 0]
    assert means[0] == pytest.approx(sum(first) / len(first))
    assert len(means) == 3
    sent = [value for tag, _, _, value in scalars(tmp_path / "run") if tag == "cost/bytes_sent"]
    assert sent[-1] == run.summary["bytes_sent"]
    tags = {tag for tag, *_ in scalars(tmp_path / "run")}
    assert tags == {
        "scores/loss",
        "scores/accuracy",
        "training/training_loss",
        "training/distance",
        "training/update",
    } | {"cost/bytes_sent"}


def test_time_runs_from_the_start_of_the_run(run, tmp_path):
    pytest.importorskip("tensorboardX")
    slow = Run(run.experiment)
    slow.metrics = [msgspec.structs.replace(each, seconds_training=2.0, seconds_waiting=0.5) for each in run.metrics]
    slow.provenance = {"began": "2026-11-22T13:07:00+00:00"}
    tensorboard.write({"slow": slow}, tmp_path)
    times = [when for tag, _, when, _ in scalars(tmp_path / "slow") if tag == "scores/loss"]
    assert [when - 1795352820.0 for when in times] == [2.5, 5.0, 7.5]


def test_live_records_have_their_own_times(run, tmp_path):
    pytest.importorskip("tensorboardX")
    began = datetime(2026, 11, 22, 13, 7, tzinfo=UTC)
    live = Run(run.experiment)
    live.metrics = [
        msgspec.structs.replace(each, time=began + timedelta(seconds=10 * each.round + int(each.peer == "peer1")))
        for each in run.metrics
    ]
    tensorboard.write({"live": live}, tmp_path)
    times = [when for tag, _, when, _ in scalars(tmp_path / "live") if tag == "scores/loss"]
    assert [when - 1795352820.0 for when in times] == [1.0, 11.0, 21.0]


def test_names_stay_inside_the_directory_and_nothing_is_added_to_event_files(run, tmp_path):
    pytest.importorskip("tensorboardX")
    [made] = tensorboard.write({"../../rate 0.1": run}, tmp_path / "events")
    assert made.resolve().is_relative_to(tmp_path / "events")
    with pytest.raises(
        InputError, match="has event files already, to which TensorBoard would add; choose another place"
    ):
        tensorboard.write({"../../rate 0.1": run}, tmp_path / "events")
    with pytest.raises(InputError, match="cannot be written"):
        tensorboard.write({"run": run}, made / next(made.iterdir()).name)


def test_a_run_without_records_has_no_event_files(run, tmp_path):
    pytest.importorskip("tensorboardX")
    with pytest.raises(InputError, match="has no records; let it run longer"):
        tensorboard.write({"run": Run(run.experiment)}, tmp_path)


def test_without_the_package_the_error_names_the_extra(run, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(InputError, match=r'run `pip install "p2pfl-mqtt\[tensorboard\]"`, or use --csv'):
        tensorboard.write({"run": run}, tmp_path)
