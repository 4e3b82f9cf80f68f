import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from p2pfl.core.errors import DataError
from p2pfl.data import federate
from p2pfl.data.tables.common_table import csv

PATIENTS = """\
hospital, age, smoker, weight, ill
basel, 30, yes, 70, no
va, 50, no, ?, yes
basel, 40, , 80, no
va, 60, no, 90, yes
budapest, 20, yes, 60, no
"""
EVERYTHING = np.arange(5)


@pytest.fixture
def table(tmp_path):
    def write(text):
        (tmp_path / "table.csv").write_text(text, encoding="utf-8")
        return str(tmp_path / "table.csv")

    return write


def test_numbers_are_standardised_text_is_one_hot_and_holes_are_filled(table):
    source = csv(None, path=table(PATIENTS), target="ill", drop=["hospital"])
    features, _ = source.encode(np.arange(4), EVERYTHING)
    age = (np.array([30, 50, 40, 60, 20]) - 45) / np.std([30, 50, 40, 60])
    weight = (np.array([70, 80, 80, 90, 60]) - 80) / np.std([70, 80, 80, 90])
    no = [0, 1, 1, 1, 0]  # the hole becomes "no", the most frequent of the first four
    assert features == pytest.approx(np.column_stack([age, no, 1 - np.array(no), weight]))
    assert (source.targets.tolist(), source.classes) == ([0, 1, 0, 1, 0], 2)


def test_a_dropped_column_still_splits(table):
    peers = ["basel", "budapest", "va"]
    options = {"path": table(PATIENTS + PATIENTS.split("\n", 1)[1] * 4), "target": "ill", "drop": ["hospital"]}
    swarm = federate("csv", peers=peers, seed=7, split="column", column="hospital", options=options)
    assert swarm.dataset.shape == (4,)
    for peer in peers:
        assert set(swarm.dataset.columns["hospital"][swarm.train[peer]]) == {peer}


def test_without_a_header_columns_are_numbered(table):
    source = csv(None, path=table("1,2.5,0\n2,3.5,1\n4,0.5,1\n"), target=2, drop=[0], header=False)
    assert list(source.columns) == ["0", "1", "2"]
    features, _ = source.encode(np.arange(3), np.arange(3))
    assert features.shape == (3, 1)


@pytest.mark.parametrize(
    ("targets", "classes", "expected"),
    [
        ("bca", 3, [1, 2, 0]),
        (["3", "7", "3"], 2, [0, 1, 0]),
        (["3.5", "7", "3"], None, [3.5, 7.0, 3.0]),
        ([str(k) for k in range(20)], 20, list(range(20))),
        ([str(k) for k in range(21)], None, list(range(21))),
    ],
)
def test_text_and_few_whole_numbers_are_classes(table, targets, classes, expected):
    source = csv(None, path=table("x,y\n" + "".join(f"1,{target}\n" for target in targets)), target="y")
    assert (source.classes, source.targets.tolist()) == (classes, expected)


def test_a_relative_path_is_found_in_the_data_folder(table, tmp_path):
    table(PATIENTS)
    assert csv(tmp_path, path="table.csv", target="ill").classes == 2


def test_heart_disease_stays_with_its_hospital(data_dir, tmp_path):
    hospitals = ("cleveland", "hungarian", "switzerland", "va")
    rows = []
    for hospital in hospitals:
        header, *body = (data_dir / "heart" / f"processed.{hospital}.data").read_text().splitlines()
        rows += [f"{row},{hospital}" for row in body if row]
    (tmp_path / "heart.csv").write_text("\n".join([header + ",hospital", *rows]))
    options = {"path": "heart.csv", "target": "num", "drop": ["hospital"]}
    arguments = {"seed": 7, "split": "column", "column": "hospital", "data_dir": tmp_path, "options": options}
    swarm = federate("csv", peers=hospitals, **arguments)
    assert (len(swarm.dataset), swarm.dataset.shape, swarm.dataset.classes) == (920, (13,), 5)
    sizes = [(swarm.dataset.columns["hospital"] == hospital).sum() for hospital in hospitals]
    assert sizes == [303, 294, 123, 200]
    for hospital in hospitals:
        assert set(swarm.dataset.columns["hospital"][swarm.train[hospital]]) == {hospital}
    assert int(np.isnan(swarm.dataset.columns["ca"]).sum()) == 611
    alone = federate("csv", peers=hospitals, only=["va"], **arguments)
    assert torch.equal(alone.dataset.features[alone.train["va"]], swarm.dataset.features[swarm.train["va"]])


@pytest.mark.slow
def test_adult_has_its_published_counts_and_scales_like_scikit_learn(data_dir):
    options = {"path": "adult/adult.data", "target": "income"}
    swarm = federate("csv", peers=["ada"], seed=7, data_dir=data_dir, options=options)
    data, train = swarm.dataset, swarm.train["ada"]
    assert torch.bincount(data.targets).tolist() == [22_654, 7_508]
    raw = data.columns["age"][:, None]
    assert data.features[:, 0].numpy() == pytest.approx(
        StandardScaler().fit(raw[train]).transform(raw).ravel(), abs=1e-5
    )
    levels = [len(np.unique(values)) for values in data.columns.values() if values.dtype.kind == "U"]
    assert data.shape == (sum(levels) - 2 + 6,)  # text but the target, and six columns of numbers


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        (PATIENTS, {"target": "il"}, r'has no column "il"; did you mean "ill"\?'),
        (PATIENTS, {"target": "ill", "drop": ["agee"]}, r'has no column "agee"; did you mean "age"\?'),
        (PATIENTS, {"target": "weight"}, 'the target "weight" is missing in 1 rows of'),
        (
            PATIENTS,
            {"target": "ill", "drop": "age"},
            ("the option \"drop\" must be a list of columns, but it is 'age'; change it"),
        ),
        (PATIENTS, {"target": 1.5}, 'the option "target" must be the name of a column, but it is 1.5; change it'),
        (
            PATIENTS,
            {"target": "ill", "header": "no"},
            ("the option \"header\" must be true or false, but it is 'no'; change it"),
        ),
        ("a,b\n1,2\n3\n", {"target": "b"}, r"table\.csv, line 3: 1 cells instead of 2; fix that row"),
        ("a,a\n1,2\n", {"target": "a"}, 'has two columns named "a"; rename one'),
        ("a,b\n", {"target": "a"}, r"/table\.csv has no rows of data; check the file and the option `header`"),
        ("", {"target": "a"}, r"/table\.csv has no rows of data; check the file and the option `header`"),
        ("b\n1\n2\n", {"target": "b"}, "has no feature besides the target; drop fewer columns"),
        ("a,b\n1,0\ninf,1\n", {"target": "b"}, "contains infinity; fix these cells"),
        (
            "a,b\n?,0\n,1\n",
            {"target": "b"},
            "has 0 different texts, not 1 to 1000; list it under `drop`",
        ),
    ],
)
def test_a_wrong_table_is_one_sentence_with_a_remedy(table, text, options, sentence):
    with pytest.raises(DataError, match=sentence):
        csv(None, path=table(text), **options)


def test_text_with_too_many_levels_is_named(table):
    text = "name,y\n" + "".join(f"n{k},{k % 2}\n" for k in range(1001))
    with pytest.raises(
        DataError, match=r'column "name" of .* has 1001 different texts, not 1 to 1000; list it under `drop`'
    ):
        csv(None, path=table(text), target="y")


def test_a_column_that_is_empty_in_training_is_named(table):
    source = csv(None, path=table("a,b,y\n?,1,0\n?,2,1\n5,3,1\n"), target="y")
    with pytest.raises(DataError, match=r'column "a" has no values in the training part; list it under `drop`'):
        source.encode(np.arange(2), np.arange(3))


def test_a_file_that_is_missing_or_not_text_is_named(tmp_path):
    with pytest.raises(DataError, match=rf"no table at none.csv or {tmp_path}/none.csv; correct `path`"):
        csv(tmp_path, path="none.csv", target="y")
    (tmp_path / "latin.csv").write_bytes("a,y\né,1\n".encode("latin-1"))
    with pytest.raises(
        DataError,
        match=(
            r" is no text in utf-8 \('utf-8' codec can't decode byte 0xe9 in position 4: invalid continuation byte\); "
            r'name its encoding in latin\.csv\.toml beside it, such as encoding = "latin-1"'
        ),
    ):
        csv(tmp_path, path="latin.csv", target="y")
