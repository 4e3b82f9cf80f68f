"""Files of runs of earlier releases, whose keys were elsewhere."""

from pathlib import Path

import pytest

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import read
from p2pfl.experiment.approval import experiment_digest
from p2pfl.experiment.file.reading import draft, read_kept, write
from p2pfl.experiment.schema import Experiment

EARLIER = Path(__file__).with_name("data").joinpath("before_moves.toml").read_text()
"""What a run wrote with the code of commit 2701d4f6."""

DIGEST = "6573661c92dcd09a1038c061d078d1fd3fae588654b714d3289cf2c36195a95f"
"""The digest of this experiment, which that code computed."""

DIGEST_OF_DEFAULTS = "f551f0b874be4a276a10cad0323f2b3c5b5f60ec3ebc9bab2d74c2d5658e12d4"
"""The digest of ``Experiment(name="ward")``, which that code computed."""

NOW = {"name": "plant", "transport": {"gather": {"seconds": 30, "quorum": 0.5}, "mqtt": {"version": 5, "qos": 0}}}
READING = pytest.mark.parametrize(
    "reading", [read, draft, lambda path: read_kept(path, whole=True)], ids=["read", "draft", "read_kept"]
)


def kept(folder, text=EARLIER):
    path = folder / "experiment.toml"
    path.write_text(text)
    return path


@READING
def test_a_run_of_an_earlier_release_is_read(tmp_path, reading):
    assert write(reading(kept(tmp_path))) == write(read(NOW))


@READING
def test_a_run_of_an_earlier_release_has_the_digest_that_its_peers_signed(tmp_path, reading):
    assert experiment_digest(reading(kept(tmp_path))) == DIGEST


def test_keys_that_have_moved_do_not_change_a_digest():
    assert experiment_digest(read(NOW)) == DIGEST
    assert experiment_digest(Experiment(name="ward")) == DIGEST_OF_DEFAULTS


@pytest.mark.parametrize(
    "change",
    ["transport.gather.quorum=0.6", "transport.gather=31.0", "transport.mqtt.version=4", "transport.mqtt.qos=1"],
)
def test_a_digest_covers_keys_that_have_moved(change):
    assert experiment_digest(read(NOW, changes=[change])) != DIGEST


def test_a_key_that_people_write_is_refused_with_its_place(tmp_path):
    path = tmp_path / "plant.toml"
    path.write_text(EARLIER)
    with pytest.raises(ExperimentError, match=r'unknown key "transport\.version"; it is transport\.mqtt\.version now'):
        read(path)


@READING
def test_a_file_of_a_users_own_is_refused_whatever_its_name(tmp_path, reading):
    path = kept(tmp_path, "[transport]\nquorum = 0.5\n")
    with pytest.raises(ExperimentError, match=r'unknown key "transport\.quorum"; it is transport\.gather\.quorum now'):
        reading(path)


@pytest.mark.parametrize("quorum", ["0.5", "1.0"])
def test_a_former_key_does_not_override_the_new_one(tmp_path, quorum):
    both = EARLIER.replace("gather = 30.0", "gather = {seconds = 30.0, quorum = 0.8}")
    path = kept(tmp_path, both.replace("quorum = 0.5\n", f"quorum = {quorum}\n"))
    with pytest.raises(ExperimentError, match=r'unknown key "transport\.quorum"; it is transport\.gather\.quorum now'):
        read(path)


def test_a_key_with_another_name_and_an_effect_is_refused(tmp_path):
    path = kept(tmp_path, EARLIER.replace("slow = 0.0", "slow = 0.3"))
    with pytest.raises(ExperimentError, match=r'"simulation\.slow"; it is simulation\.devices\.stragglers now'):
        read_kept(path, whole=False)
