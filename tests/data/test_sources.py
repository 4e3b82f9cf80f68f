import gzip
import hashlib
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn import datasets
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from p2pfl.core.errors import DataError
from p2pfl.data import federate
from p2pfl.data.bundled import read_bundled
from p2pfl.data.pictures import DEBIAN, mnist, read_idx
from p2pfl.data.sources import moments, scale_columns

PEERS = ("ada", "bob")
UNSCALED = {"diabetes": {"scaled": False}}  # else its columns are scaled by all samples


@given(
    values=arrays.arrays(np.float64, (8, 3), elements=st.floats(-1e3, 1e3).map(lambda x: round(x, 2))),
    holes=st.sets(st.tuples(st.integers(1, 7), st.integers(0, 2))),
)
def test_standardising_equals_the_imputer_and_scaler_of_scikit_learn(values, holes):
    for hole in holes:
        values[hole] = np.nan
    train = np.arange(5)
    oracle = make_pipeline(SimpleImputer(), StandardScaler()).fit(values[train])
    assert scale_columns(values, *moments(values, train)) == pytest.approx(oracle.transform(values), rel=1e-6, abs=1e-6)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("name", ["breast_cancer", "wine", "diabetes"])
def test_tables_are_standardised_by_their_training_part(name):
    swarm = federate(name, peers=PEERS, seed=7)
    features, targets = getattr(datasets, f"load_{name}")(return_X_y=True, **UNSCALED.get(name, {}))
    train = np.sort(np.concatenate(list(swarm.train.values())))
    oracle = StandardScaler().fit(features[train]).transform(features)
    assert swarm.dataset.features.numpy() == pytest.approx(oracle, abs=1e-5)
    if name == "diabetes":
        column = targets[:, None]
        targets = StandardScaler().fit(column[train]).transform(column).ravel()
    assert swarm.dataset.targets.numpy() == pytest.approx(targets, abs=1e-5)


def test_digits_are_pictures_between_zero_and_one():
    data = federate("digits", peers=PEERS, seed=7).dataset
    assert (len(data), data.shape, data.classes) == (1797, (1, 8, 8), 10)
    assert (data.features.min(), data.features.max()) == (0, 1)
    assert data.features.dtype == torch.float32
    assert torch.equal(data.features.flatten(1) * 16, torch.tensor(datasets.load_digits().data).float())


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes", "digits", "wine"])
def test_a_bundled_table_is_what_scikit_learn_loads(name):
    ours, theirs = read_bundled(name), getattr(datasets, f"load_{name}")(**UNSCALED.get(name, {}))
    assert np.array_equal(ours.data, theirs.data)
    assert np.array_equal(ours.target, theirs.target)
    assert ours.target.dtype == theirs.target.dtype
    assert ours.feature_names == tuple(theirs.feature_names)
    assert ours.target_names == tuple(map(str, theirs.get("target_names", ())))


@pytest.mark.parametrize(
    ("files", "problem"),
    [({}, "No such file"), ({"wine_data.csv": "2,13,a,b\n1,2\n"}, "its first line does not fit")],
    ids=["absent", "of another shape"],
)
def test_a_bundled_table_that_cannot_be_read_is_one_sentence(files, problem, tmp_path, monkeypatch):
    folder = tmp_path / "sklearn" / "datasets" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "sklearn" / "__init__.py").touch()
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sklearn")
    with pytest.raises(DataError, match=problem):
        read_bundled.__wrapped__("wine")


def test_without_scikit_learn_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    read_bundled.cache_clear()
    with pytest.raises(DataError, match="pip install scikit-learn"):
        federate("wine", peers=PEERS, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mean", "deviation"), [("mnist", 0.1307, 0.3081), ("fashion_mnist", 0.2860, 0.3530)])
def test_pictures_have_their_published_sizes_and_moments(name, mean, deviation, request):
    folder = request.getfixturevalue("data_dir") if name == "mnist" else None
    if name == "fashion_mnist" and not DEBIAN.is_dir():
        pytest.skip("dataset-fashion-mnist is not installed")
    swarm = federate(name, peers=PEERS, seed=7, data_dir=folder)
    data = swarm.dataset
    assert (len(data), data.shape, data.classes) == (70_000, (1, 28, 28), 10)
    assert swarm.samples(PEERS).tolist() == [30_000, 30_000]
    assert np.array_equal(swarm.test["ada"], np.arange(60_000, 70_000))
    assert data.features[:60_000].mean().item() == pytest.approx(mean, abs=1e-4)
    assert data.features[:60_000].std().item() == pytest.approx(deviation, abs=1e-4)


@pytest.mark.slow
def test_mnist_is_the_published_one_byte_for_byte(data_dir):
    source = mnist(data_dir / "mnist")
    everything = np.arange(70_000)
    features, _ = source.encode(everything, everything)
    pixels = (features * 255).round().astype(np.uint8)
    header = bytes.fromhex("00000803 0000ea60 0000001c 0000001c")
    published = "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    assert hashlib.sha256(header + pixels[:60_000].tobytes()).hexdigest() == published
    assert source.targets[:5].tolist() == [5, 0, 4, 1, 9]


@pytest.mark.slow
def test_mnist_by_two_shards_has_two_digits_a_peer(data_dir):
    peers = [f"peer{k:02d}" for k in range(100)]
    swarm = federate("mnist", peers=peers, seed=7, split="shards", data_dir=data_dir, only=peers[:5])
    assert swarm.samples(peers[:5]).tolist() == [600] * 5
    assert len(swarm.dataset) == 3000 + 10_000
    assert all(len(swarm.dataset.targets[part].unique()) <= 4 for part in swarm.train.values())


@pytest.fixture
def small(tmp_path):
    """Twenty and ten pictures of one colour each, in the format of MNIST."""
    for part, count in (("train", 20), ("t10k", 10)):
        labels = np.arange(count, dtype=np.uint8) % 10
        pixels = np.repeat(labels * 20, 784)
        pictures = idx(b"\x00\x00\x08\x03", (count, 28, 28), pixels)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(pictures)
        packed = gzip.compress(idx(b"\x00\x00\x08\x01", (count,), labels))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(packed)
    return tmp_path


def idx(magic, shape, values):
    return magic + b"".join(length.to_bytes(4, "big") for length in shape) + values.astype(np.uint8).tobytes()


def test_files_are_read_packed_or_not_from_the_folder_or_below(small, tmp_path):
    here = federate("mnist", peers=PEERS, seed=7, data_dir=small)
    assert len(here.dataset) == 30
    assert here.dataset.features[3].unique().item() == pytest.approx(60 / 255)
    below = tmp_path / "mnist"
    below.mkdir()
    for file in list(small.glob("*ubyte*")):
        file.rename(below / file.name)
    assert torch.equal(
        federate("mnist", peers=PEERS, seed=7, data_dir=tmp_path).dataset.features, here.dataset.features
    )


@pytest.mark.slow
def test_digits_are_not_taken_for_clothes(data_dir):
    with pytest.raises(
        DataError,
        match=r'holds the labels of "mnist" in place of "fashion_mnist"; move it to .*mnist$',
    ):
        federate("fashion_mnist", peers=PEERS, seed=7, data_dir=data_dir / "mnist")


def test_a_missing_folder_says_where_it_looked(tmp_path):
    with pytest.raises(
        DataError,
        match=(
            r'train-images-idx3-ubyte\.gz of "mnist" is not in any folder, as none is given; set P2PFL_DATA to the '
            "folder that holds the four idx files"
        ),
    ):
        federate("mnist", peers=PEERS, seed=7)
    with pytest.raises(DataError, match=rf"is not in {tmp_path}/mnist, {tmp_path}; set P2PFL_DATA"):
        federate("mnist", peers=PEERS, seed=7, data_dir=tmp_path)


def test_a_missing_file_is_named(small):
    (small / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(
        DataError,
        match=r"neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte\.gz is in .*; copy all four idx files there",
    ):
        federate("mnist", peers=PEERS, seed=7, data_dir=small)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00\x08",
        b"\x00\x00\x08\x00",
        b"\x00\x00\x08\x01",
        b"\x00\x00\x0d\x01" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x00",
        b"\x00\x00\x08\x01" + b"\x00\x00\x00\x05" + b"1234",
        b"\x00\x00\x08\x01" + b"\x00\x00\x00\x03" + b"1234",
        b"\x00\x00\x08\xff" + b"\xff" * 40,
    ],
)
def test_a_malformed_idx_file_is_refused(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match="is not an idx file of unsigned bytes"):
        read_idx(tmp_path / "file")


def test_a_damaged_gzip_file_is_refused(tmp_path):
    packed = gzip.compress(idx(b"\x00\x00\x08\x01", (4,), np.arange(4)))
    for damaged in (b"not gzip", packed[:-9], packed[:12] + b"\xff\xff" + packed[14:]):
        (tmp_path / "file.gz").write_bytes(damaged)
        with pytest.raises(
            DataError,
            match=r" is not a readable idx file \(.+\); copy it again",
        ):
            read_idx(tmp_path / "file.gz")


def test_pictures_and_labels_must_be_as_many(small):
    labels = gzip.compress(idx(b"\x00\x00\x08\x01", (3,), np.arange(3)))
    (small / "train-labels-idx1-ubyte.gz").write_bytes(labels)
    with pytest.raises(
        DataError,
        match=(
            r"hold pictures of shape \(20, 28, 28\) and labels of shape \(3,\), not 28 x 28 pictures and as many "
            "labels from 0 to 9; copy them again"
        ),
    ):
        federate("mnist", peers=PEERS, seed=7, data_dir=small)
