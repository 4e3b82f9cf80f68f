"""Tables that peers own: one reader, one declaration, and an error that names what does not fit."""

import csv

import numpy as np
import pytest
import torch

from p2pfl.core.errors import DataError
from p2pfl.data import Table, federate, gather
from p2pfl.data.tables import propose, read

COLUMNS = {
    "age": "integer",
    "weight": {"type": "number", "missing": 70.5},
    "sex": ["f", "m"],
    "smoker": {"levels": ["no", "yes", "other"], "missing": "no", "unknown": "other"},
    "ill": [0, 1],
}
PATIENTS = """\
id,sex,age,weight,smoker,ill
17,m,31,81.25,yes,1
18, f ,44,NA,,0
19,f,52,64,sometimes,1
"""
FEATURES = [  # age, sex f and m, smoker no, yes and other, weight
    [31, 0, 1, 0, 1, 0, 81.25],
    [44, 1, 0, 1, 0, 0, 70.5],
    [52, 1, 0, 0, 0, 1, 64],
]


@pytest.fixture
def patients(tmp_path):
    def write(text=PATIENTS, name="peer0.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def frames(path):
    """The same table as a Parquet file and as data frames."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame = pandas.read_csv(path, skipinitialspace=True)
    frame["sex"] = frame["sex"].str.strip()
    frame["age"] = frame["age"].astype("Int64")
    parquet = path.with_suffix(".parquet")
    frame.assign(sex=frame["sex"].astype("category")).to_parquet(parquet)
    return [frame, polars.from_pandas(frame), parquet, str(parquet)]


def test_a_declared_table_becomes_numbers_and_one_feature_for_each_level(patients):
    features, targets = Table(COLUMNS, target="ill").read(patients())
    assert features.tolist() == FEATURES
    assert targets.tolist() == [1, 0, 1]


def test_declared_means_and_deviations_scale_the_numbers(patients):
    columns = COLUMNS | {"age": {"type": "integer", "mean": 50, "deviation": 10}, "sex": {"levels": ["f", "m"]}}
    table = Table(columns, target="ill")
    features, _ = table.read(patients())
    assert features[:, 0].tolist() == [-1.9, -0.6, 0.2]
    assert features[:, 1:].tolist() == [row[1:] for row in FEATURES]
    assert (table.description.mean[:2].tolist(), table.description.deviation[:2].tolist()) == ([50, 0], [10, 1])


def test_parquet_files_and_data_frames_give_what_the_csv_file_gives(patients):
    table = Table(COLUMNS, target="ill")
    for source in frames(patients()):
        features, targets = table.read(source)
        assert features.tolist() == FEATURES
        assert targets.tolist() == [1, 0, 1]


def test_whole_numbers_that_pandas_made_floats_stay_levels_and_integers():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"stage": [1, None, 2], "age": [30, 41, None], "ill": [0, 1, 1]})
    assert frame["stage"].dtype == float
    columns = {
        "stage": {"levels": [1, 2], "missing": 2},
        "age": {"type": "integer", "missing": 40},
        "ill": ["0", "1"],
    }
    features, _ = Table(columns, target="ill").read(frame)
    assert features.tolist() == [[30, 1, 0], [41, 0, 1], [40, 0, 1]]


def test_a_whole_number_with_a_decimal_point_is_its_level_in_a_csv_file_too(tmp_path):
    (tmp_path / "p.csv").write_text("stage,grade,ill\n1.0,01,0.0\n2.,1,1\n01,02,1.0\n")
    columns = {"stage": {"levels": [1, 2], "unknown": 2}, "grade": ["01", "02", "1"], "ill": [0, 1]}
    features, targets = Table(columns, target="ill").read(tmp_path / "p.csv")
    assert features[:, :3].argmax(1).tolist() == [0, 2, 1]
    assert features[:, 3:].argmax(1).tolist() == [0, 1, 1]
    assert targets.tolist() == [0, 1, 1]
    assert propose(read(tmp_path / "p.csv"), target="ill")[0]["ill"] == ["0", "1"]


def test_neither_the_declaration_nor_the_file_orders_the_features(patients):
    turned = "\n".join(",".join(reversed(line.split(","))) for line in PATIENTS.splitlines())
    features, targets = Table(dict(reversed(COLUMNS.items())), target="ill").read(patients(turned))
    assert (features.tolist(), targets.tolist()) == (FEATURES, [1, 0, 1])


def test_a_target_that_is_a_number_gives_a_regression(patients):
    table = Table({"age": "integer", "weight": "number"}, target="weight")
    assert table.classes is None
    features, targets = table.read(patients(PATIENTS.replace("NA", "70")))
    assert (features.ravel().tolist(), targets.tolist()) == ([31, 44, 52], [81.25, 70, 64])


@pytest.mark.parametrize(
    ("before", "after", "columns", "sentence"),
    [
        (
            "id,sex",
            "id,gender",
            {},
            r'peer0\.csv has no column "sex"; choose from age, gender, id, ill, smoker, weight',
        ),
        ("17,m", "17,x", {}, r'peer0\.csv, line 2: "x" in column "sex" is none of the levels "f", "m"; correct the'),
        ("52,64", "52,64kg", {}, r'line 4: "64kg" in column "weight" is no finite number; correct the cell'),
        ("52,64", "52,inf", {}, r'line 4: "inf" in column "weight" is no finite number; correct the cell'),
        ("44,", "44.5,", {}, r'line 3: "44\.5" in column "age" is no whole number of at most 16,777,216; correct'),
        ("44,", "16777217,", {}, r'line 3: "16777217" in column "age" is no whole number of at most 16,777,216'),
        ("44,", ",", {}, r'line 3: "" in column "age" is missing; fill the cell, or have all peers declare'),
        (",0\n", ",?\n", {}, r'line 3: "\?" in column "ill" is missing; fill the cell, or remove the row$'),
        (
            ",0\n",
            ",2\n",
            {},
            r'line 3: "2" in column "ill" is none of the levels "0", "1"; correct the cell, or remove the row$',
        ),
        ("f", "d", {}, r'line 3: "d" in column "sex" is none of the levels "f", "m" \(and in 1 more rows\); correct'),
        ("yes,1\n", "yes\n", {}, r"line 2: 5 cells instead of 6; fix that row"),
        ("x", "x", {"weight": "number"}, r'line 3: "NA" in column "weight" is missing; fill the cell, or have all'),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(patients, before, after, columns, sentence):
    path = patients(PATIENTS.replace(before, after))
    with pytest.raises(DataError, match=sentence):
        Table(COLUMNS | columns, target="ill").read(path)


def test_a_data_frame_names_rows_by_their_number():
    frame = pytest.importorskip("pandas").DataFrame({"sex": ["f", "x"], "ill": [0, 1]})
    with pytest.raises(DataError, match=r'^the data frame, row 2: "x" in column "sex" is none of the levels'):
        Table({"sex": ["f", "m"], "ill": [0, 1]}, target="ill").read(frame)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"age": "numeric"}, 'column "age" has the type \'numeric\'; write "number", "integer", "date" or a list'),
        ({"age": 5}, 'column "age" is 5; write "number", "integer" or a list of levels'),
        ({"age": {"type": "number", "mising": 5}}, 'column "age" has the unknown key "mising"; did you mean "missing"'),
        ({"age": {"missing": 5}}, 'column "age" needs either `type` or `levels`; declare one of them'),
        (
            {"age": {"type": "number", "missing": "mice"}},
            "'mice', but no multiple imputation, and no statistic, fills cells here; write a number, or .drop. to use",
        ),
        ({"age": {"type": "integer", "missing": 1.5}}, "replaces missing whole numbers by 1.5; write a whole number"),
        ({"age": {"type": "number", "unknown": 1}}, "is a number and has the rule `unknown`; leave it out"),
        ({"sex": []}, r'column "sex" has the levels \[\]; write a list of texts or whole numbers'),
        ({"sex": ["f", 1.5]}, 'column "sex" has the level 1.5; write texts or whole numbers'),
        ({"sex": ["f", "NA"]}, 'column "sex" has the level "NA", which stands for a missing cell; rename the level'),
        ({"sex": ["f", "f "]}, 'column "sex" has the level "f" twice; leave one out'),
        ({"sex": {"levels": ["f", "m"], "missing": "w"}}, 'names the level "w" in `missing`; choose from f, m'),
        ({"ill": {"levels": [0, 1], "missing": 0}}, 'the target "ill" has the key `missing`, which is for features;'),
        ({"age": {"type": "number", "deviation": 0}}, "has the deviation 0; write a number, above 0 for a deviation"),
        ({"age": {"type": "number", "mean": "60"}}, "has the mean '60'; write a number, above 0 for a deviation"),
        ({"sex": {"levels": ["f", "m"], "mean": 1}}, 'column "sex" has levels and a mean; leave it out'),
        (
            {"sex": ["f", "m\nn"]},
            r"""the level 'm\\nn' contains a line break or another control""",
        ),
        ({"a\x1b[2Jge": "number"}, r"""the column 'a\\x1b\[2Jge' contains a line break or another control"""),
        ({"ill": ["yes"]}, 'the target "ill" has the one level "yes"; declare at least two'),
    ],
)
def test_a_declaration_that_contradicts_itself_is_one_sentence(columns, sentence):
    with pytest.raises(DataError, match=sentence):
        Table(COLUMNS | columns, target="ill")


@pytest.mark.parametrize(
    ("columns", "target", "sentence"),
    [
        (COLUMNS, "il", 'the target "il" is not declared in the columns; did you mean "ill"?'),
        ({"ill": [0, 1]}, "ill", "the columns declare no feature besides the target; declare at least one"),
        (["age"], "ill", "must declare columns by their names, but it is"),
        (COLUMNS, 3, 'the option "target" must be the name of a column, but it is 3; change it'),
    ],
)
def test_a_table_without_a_target_or_features_is_refused(columns, target, sentence):
    with pytest.raises(DataError, match=sentence.replace("?", r"\?")):
        Table(columns, target=target)


def test_what_is_no_table_is_refused(tmp_path):
    table = Table(COLUMNS, target="ill")
    with pytest.raises(DataError, match="a path or a data frame of pandas, polars or pyarrow, not dict; give one"):
        table.read({"age": [1]})
    (tmp_path / "p.parquet").write_text("no Parquet")
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=r"p\.parquet is not a Parquet file \(.*\); check it"):
        table.read(tmp_path / "p.parquet")


def test_without_pyarrow_a_parquet_file_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(
        DataError, match=r'needs pyarrow, which is not installed; run `pip install "p2pfl-mqtt\[table\]"`'
    ):
        read(tmp_path / "p.parquet")


def test_a_proposal_is_a_declaration_that_its_own_table_fits(patients):
    columns, remarks = propose(read(patients()), target="ill")
    assert columns == {
        "id": "integer",
        "sex": ["f", "m"],
        "age": "integer",
        "weight": "number",
        "smoker": ["sometimes", "yes"],
        "ill": ["0", "1"],
    }
    assert [remark.split(";")[0] for remark in remarks] == [
        '"weight" is missing in 1 of 3 rows',
        '"smoker" is missing in 1 of 3 rows',
    ]
    del columns["weight"], columns["smoker"]
    assert Table(columns, target="ill").read(patients())[0].shape == (3, 4)


def test_a_proposal_names_no_level_of_few_rows(patients):
    rows = ["m,east,0"] * 20 + ["f,west,0"] * 20 + ["f,rare-disease-of-ada,1", *["m,north,1"] * 4]
    text = "sex,ward,ill\n" + "\n".join(rows) + "\n"
    columns, remarks = propose(read(patients(text)), target="ill")
    assert columns == {
        "sex": ["f", "m"],
        "ward": {"levels": ["east", "other", "west"], "unknown": "other"},
        "ill": ["0", "1"],
    }
    assert not [each for each in remarks if "ada" in each or "north" in each]
    assert [each.partition(",")[0] for each in remarks] == ['"ward" has 2 levels of fewer than 5 rows']
    features, targets = Table(columns, target="ill").read(patients(text))
    assert features[:, 2:5].sum(axis=0).tolist() == [20, 5, 20]  # after those of sex
    assert targets.sum() == 5


def test_a_proposal_says_that_a_class_of_few_rows_is_shown_to_all_owners(patients):
    text = "age,ill\n" + "".join(f"{row},{int(row == 3)}\n" for row in range(60))
    columns, remarks = propose(read(patients(text)), target="ill")
    assert columns["ill"] == ["0", "1"]
    [remark] = remarks
    assert remark.startswith('"ill" has a level of fewer than 5 rows, which may be that of one person')


def test_a_proposal_leaves_out_names_and_empty_columns(patients):
    lines = "".join(f"name{row},,{row / 2}\n" for row in range(60))
    columns, remarks = propose(read(patients("name,empty,y\n" + lines)), target="y")
    assert columns == {"y": "number"}
    assert remarks == [
        '"name" looks like an identifier and is left out; name it as `key` if it identifies persons',
        '"empty" has no values and is left out; declare it if others have some',
    ]
    few = "".join(f"name{row % 7},{row / 2}\n" for row in range(12))
    assert propose(read(patients("name,y\n" + few)), target="y")[0] == {"y": "number"}
    with pytest.raises(DataError, match='the target "empty" is missing in 60 rows of'):
        propose(read(patients("name,empty,y\n" + lines)), target="empty")


def test_a_data_frame_that_does_not_fit_names_its_peer():
    pandas = pytest.importorskip("pandas")
    frames = {peer: pandas.DataFrame({"sex": ["f", level] * 9, "ill": [0, 1] * 9}) for peer, level in ("am", "bx")}
    table = Table({"sex": ["f", "m"], "ill": [0, 1]}, target="ill")
    with pytest.raises(DataError, match=r'^table of peer "b": the data frame, row 2: "x" in column "sex" is none of'):
        gather(frames, seed=7, table=table)
    federation = gather({"a": frames["a"]}, seed=7, table=table)
    assert (federation.dataset.description.target, federation.dataset.classes) == ("ill", 2)


def owned(tmp_path, rows=40):
    rng = np.random.default_rng(3)
    for peer in ("ada", "bob"):
        with (tmp_path / f"{peer}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["age", "sex", "ill"])
            writer.writerows(
                [int(age), sex, int(age > 60)]
                for age, sex in zip(rng.normal(60, 10, rows), rng.choice(["f", "m"], rows), strict=True)
            )
    columns = {"age": "integer", "sex": ["f", "m"], "ill": [0, 1]}
    return {"path": str(tmp_path / "{peer}.csv"), "target": "ill", "columns": columns}


def test_each_peer_reads_its_own_file_and_no_other(tmp_path):
    options = owned(tmp_path)
    swarm = federate("table", peers=["ada", "bob"], seed=7, options=options)
    assert (swarm.dataset.shape, swarm.dataset.classes, len(swarm.dataset)) == ((3,), 2, 80)
    (tmp_path / "ada.csv").unlink()
    bob = federate("table", peers=["ada", "bob"], seed=7, options=options, only=["bob"])
    assert torch.equal(bob.dataset.features[bob.train["bob"]], swarm.dataset.features[swarm.train["bob"]])
    assert torch.equal(bob.dataset.targets[bob.test["bob"]], swarm.dataset.targets[swarm.test["bob"]])
    with pytest.raises(DataError, match=r'no table of "ada" at .*ada\.csv; correct `path`'):
        federate("table", peers=["ada", "bob"], seed=7, options=options)


def test_one_file_for_two_peers_is_refused(tmp_path):
    options = owned(tmp_path) | {"path": str(tmp_path / "ada.csv")}
    with pytest.raises(DataError, match=r'peers "ada" and "bob" would both own .*; write \{peer\} in `path`'):
        federate("table", peers=["ada", "bob"], seed=7, options=options)
    assert len(federate("table", peers=["ada", "bob"], seed=7, options=options, only=["ada"]).dataset) == 40


def test_a_peer_that_shows_one_class_alone_has_the_declared_number_of_classes(tmp_path):
    options = owned(tmp_path)
    text = (tmp_path / "bob.csv").read_text().replace(",1\n", ",0\n")
    (tmp_path / "bob.csv").write_text(text)
    assert federate("table", peers=["ada", "bob"], seed=7, options=options, only=["bob"]).dataset.classes == 2


# ---------------------------------------------------------------------- withdrawals


WITHDRAWING = {"path": "{peer}.csv", "target": "ill", "columns": {"age": "number", "ill": ["no", "yes"]}, "key": "id"}


@pytest.fixture
def withdrawn(tmp_path):
    """Return a function that loads the table of ada without some people."""
    lines = [f"{number},{20 + number},{'yes' if number % 3 else 'no'}" for number in range(30)]
    (tmp_path / "ada.csv").write_text("\n".join(["id,age,ill", *lines]))

    def load(text, **options):
        (tmp_path / "gone-ada.txt").write_text(text)
        given = WITHDRAWING | {"without": "gone-{peer}.txt"} | options
        return federate("table", peers=["ada"], seed=0, data_dir=tmp_path, options=given)

    load.folder = tmp_path
    return load


def test_a_run_without_people_is_that_of_the_table_without_their_rows(withdrawn):
    loaded = withdrawn("# on Monday\n4\n\n17\n")
    text = (withdrawn.folder / "ada.csv").read_text().splitlines()
    (withdrawn.folder / "ada.csv").write_text("\n".join(line for line in text if line[:2] not in ("4,", "17")))
    never = federate("table", peers=["ada"], seed=0, data_dir=withdrawn.folder, options=WITHDRAWING)
    assert torch.equal(loaded.dataset.features, never.dataset.features)
    assert torch.equal(loaded.dataset.targets, never.dataset.targets)
    assert len(loaded.dataset.targets) == 28
    for part in ("train", "test"):
        assert getattr(loaded, part)["ada"].tolist() == getattr(never, part)["ada"].tolist()


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("99\n4", {}, '1 of 2 withdrawn identifiers are in no row of the column "id"'),
        ("4", {"key": None}, 'set the option "key" to its column'),
        ("\n".join(map(str, range(30))), {}, "has withdrawn, so there is nothing to learn from"),
        ("4", {"without": "nobody-{peer}.txt"}, 'no file of withdrawals of "ada" at nobody-ada.txt'),
    ],
)
def test_withdrawals_that_would_not_be_followed_are_refused(withdrawn, text, options, sentence):
    with pytest.raises(DataError, match=sentence):
        withdrawn(text, **options)
