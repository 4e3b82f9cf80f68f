"""Files of runs of earlier releases, whose keys were elsewhere."""

import pytest

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import read
from p2pfl.experiment.file.reading import draft, read_kept, write

EARLIER = """
name = "plant"
[transport]
gather = 30.0
quorum = 0.5
version = 4
qos = 0
[simulation]
loss = 0.0
slow = 0.0
[telemetry]
unaccounted = false
"""


@pytest.mark.parametrize(
    "reading", [read, draft, lambda path: read_kept(path, whole=False)], ids=["read", "draft", "read_kept"]
)
def test_a_run_of_an_earlier_release_is_read(tmp_path, reading):
    path = tmp_path / "experiment.toml"
    path.write_text(EARLIER)
    found = reading(path)
    now = {"transport": {"gather": {"seconds": 30.0, "quorum": 0.5}, "mqtt": {"qos": 0}}}
    assert write(found) == write(read({"name": "plant", **now}))


def test_a_key_that_people_write_is_refused_with_its_place(tmp_path):
    path = tmp_path / "plant.toml"
    path.write_text(EARLIER)
    with pytest.raises(ExperimentError, match=r'unknown key "transport\.quorum"; it is transport\.gather\.quorum now'):
        read(path)


def test_a_key_with_another_name_and_an_effect_is_refused(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(EARLIER.replace("slow = 0.0", "slow = 0.3"))
    with pytest.raises(ExperimentError, match=r'"simulation\.slow"; it is simulation\.devices\.stragglers now'):
        read_kept(path, whole=False)
