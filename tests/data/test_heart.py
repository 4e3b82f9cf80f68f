import numpy as np
import pytest

from p2pfl.core.errors import DataError
from p2pfl.data import federate
from p2pfl.data.tables.heart import HOSPITALS

PEERS = tuple(HOSPITALS)


def heart(data_dir, **given):
    return federate("fed_heart", peers=given.pop("peers", PEERS), seed=7, data_dir=data_dir, **given)


def test_hospitals_hold_as_many_patients_as_published(data_dir):
    swarm = heart(data_dir)
    assert (len(swarm.dataset), swarm.dataset.shape, swarm.dataset.classes) == (740, (13,), 2)
    sizes = {peer: (len(swarm.train[peer]), len(swarm.test[peer])) for peer in PEERS}
    assert sizes == {"cleveland": (199, 104), "hungarian": (172, 89), "switzerland": (30, 16), "va": (85, 45)}


def test_peers_of_any_name_are_hospitals_in_order_whatever_the_seed(data_dir):
    named, others = heart(data_dir), federate("fed_heart", peers=["d", "a", "b", "c"], seed=8, data_dir=data_dir)
    assert named.dataset.features.equal(others.dataset.features)
    assert np.array_equal(named.test["va"], others.test["d"])


def test_features_are_scaled_by_the_own_training_part_and_what_is_constant_is_centred(data_dir):
    swarm = heart(data_dir)
    for peer in PEERS:
        train = swarm.dataset.features[swarm.train[peer]].double()
        assert train.mean(0).numpy() == pytest.approx(np.zeros(13), abs=1e-5)
        deviations = train.std(0).numpy()
        assert deviations[deviations > 0] == pytest.approx(1, abs=1e-5)
    assert (swarm.dataset.features[swarm.train["switzerland"], 3] == 0).all()  # cholesterol


def test_pooled_scaling_standardises_all_training_parts_together(data_dir):
    swarm = heart(data_dir, options={"scaling": "pooled"})
    train = swarm.dataset.features[np.concatenate(list(swarm.train.values()))].double()
    assert train.mean(0).numpy() == pytest.approx(np.zeros(13), abs=1e-5)
    assert train.std(0).numpy() == pytest.approx(np.ones(13), abs=1e-5)


def test_a_hospital_needs_its_own_file_alone(data_dir, tmp_path):
    name = "processed.switzerland.data"
    (tmp_path / name).write_bytes((data_dir / "heart" / name).read_bytes())
    alone = heart(tmp_path, only=["switzerland"])
    whole = heart(data_dir)
    for part in ("train", "test"):
        one, other = getattr(alone, part)["switzerland"], getattr(whole, part)["switzerland"]
        assert alone.dataset.features[one].equal(whole.dataset.features[other])
    with pytest.raises(
        DataError, match=rf"processed.cleveland.data .* is not in {tmp_path}/heart, {tmp_path}; set P2PFL_DATA"
    ):
        heart(tmp_path)


def test_files_are_known_by_their_content_with_or_without_a_header(data_dir, tmp_path):
    name = "processed.va.data"
    text = (data_dir / "heart" / name).read_text()
    (tmp_path / name).write_text(text.partition("\n")[2])
    assert heart(tmp_path, only=["va"]).dataset.features.equal(heart(data_dir, only=["va"]).dataset.features)
    (tmp_path / name).write_text(text.replace("63,1,4", "64,1,4", 1))
    with pytest.raises(DataError, match=r"differs from the published processed\.va\.data; copy it again"):
        heart(tmp_path, only=["va"])


def test_own_mistakes_are_said(data_dir):
    with pytest.raises(DataError, match=r"fed_heart has 4 hospitals, but there are 2 peers; set topology.peers = 4"):
        heart(data_dir, peers=("ada", "bob"))
    with pytest.raises(DataError, match=r'the option "scaling" is "?\'?none.*; use "own" or "pooled"'):
        heart(data_dir, options={"scaling": "none"})
    with pytest.raises(DataError, match=r"is not in any folder, as none is given; set P2PFL_DATA"):
        heart(None)
