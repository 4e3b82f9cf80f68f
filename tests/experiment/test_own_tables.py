"""An experiment on tables that peers own."""

import pytest
import tomli_w

import hospitals
from p2pfl.core.errors import DataError, ExperimentError
from p2pfl.experiment import plan, read, write
from p2pfl.experiment.accounts import accounts, beside
from p2pfl.simulation import simulate


def test_a_simulation_learns_from_the_tables_of_all_peers(tmp_path):
    hospitals.write(tmp_path)
    run = simulate(read(hospitals.experiment(tmp_path)))
    assert run.summary["together"] > 0.8
    assert run.summary["alone"] > 0.6
    assert run.summary["pooled"] > 0.8


def test_a_missing_level_is_named_and_trains_once_all_peers_declare_it(tmp_path):
    hospitals.write(tmp_path)
    columns = hospitals.COLUMNS | {"ward": ["east", "north", "west"]}
    table = hospitals.experiment(tmp_path, rounds=1)
    table["data"]["options"]["columns"] = columns
    with pytest.raises(DataError, match=r'peer\d\.csv, line \d+: ".*" in column "ward" is (missing|none of the)'):
        plan(read(table))
    table["data"]["options"]["columns"] = columns | {
        "ward": {"levels": ["east", "north", "south", "west"], "missing": "east"}
    }
    assert plan(read(table)).federation.dataset.shape == (8,)


def test_a_peer_needs_its_own_table_alone(tmp_path):
    hospitals.write(tmp_path)
    wanted = read(hospitals.experiment(tmp_path))
    (tmp_path / "peer0.csv").unlink()
    alone = plan(wanted, only=["peer1"])
    assert alone.federation.peers == ("peer1",)
    assert alone.federation.dataset.classes == 2


def test_peers_agree_on_columns_without_naming_them_and_not_on_paths(tmp_path):
    hospitals.write(tmp_path)
    table = hospitals.experiment(tmp_path)
    facts = plan(read(table), only=["peer0"]).facts
    elsewhere = plan(read(table, changes=[f"data.options.path={tmp_path}/peer1.csv"]), only=["peer1"]).facts
    assert facts == elsewhere
    assert not {"outcome", "ward", "elsewhere", "age"} & {*str(facts).replace("'", " ").split()}
    options = table["data"]["options"]
    for columns in (hospitals.COLUMNS | {"age": "number"}, hospitals.COLUMNS | {"sex": ["m", "f"]}):
        other = plan(read(table | {"data": table["data"] | {"options": options | {"columns": columns}}})).facts
        assert other["data.options"] != facts["data.options"]
        assert {**other, "data.options": ""} == {**facts, "data.options": ""}


def test_the_declaration_survives_the_resolved_file_and_has_no_order(tmp_path):
    hospitals.write(tmp_path)
    columns = dict(reversed(hospitals.COLUMNS.items()))
    table = hospitals.experiment(tmp_path)
    table["data"]["options"]["columns"] = columns
    (tmp_path / "again.toml").write_text(write(read(table)))
    assert plan(read(tmp_path / "again.toml")).facts == plan(read(hospitals.experiment(tmp_path))).facts


def test_a_relative_path_with_peer_is_found_beside_the_experiment_file(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    for path in ("{peer}.csv", "own/{peer}/table.csv"):
        table = hospitals.experiment(tmp_path / "there")
        table["data"]["options"]["path"] = path
        for peer in hospitals.PEERS:
            (tmp_path / "there" / path.replace("{peer}", peer)).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "there" / path.replace("{peer}", peer)).touch()
        (tmp_path / "there" / "wards.toml").write_text(tomli_w.dumps(table))
        monkeypatch.chdir(tmp_path / "here")
        found = read(tmp_path / "there" / "wards.toml").data.options["path"]
        assert found == str((tmp_path / "there").resolve() / path)


@pytest.mark.parametrize(
    ("path", "account"),
    [("own/{peer}.csv", "own/peer1.csv"), ("own/{peer}/table.csv", "own/peer1/table.csv"), ("a.csv", "a.csv")],
)
def test_the_account_of_owned_tables_lies_beside_them(tmp_path, path, account):
    table = hospitals.experiment(tmp_path)
    table["data"]["options"]["path"] = str(tmp_path / path)
    found = accounts(read(table), ["peer1"])["peer1"]
    assert found.path == tmp_path / f"{account}.budget.jsonl"
    assert beside(read(table)) == tmp_path / f"{path}.budget.jsonl"


def test_a_split_of_owned_tables_has_no_effect_and_is_refused(tmp_path):
    table = hospitals.experiment(tmp_path)
    table["data"]["split"] = "dirichlet"
    with pytest.raises(
        ExperimentError, match=r'data\.split = "dirichlet" has no effect, because table gives each peer'
    ):
        read(table)
