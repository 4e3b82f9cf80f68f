"""Whoever subtracts two runs through any pair of doors is stopped by the ledger at the owner of the person."""

import shutil

import numpy as np
import pytest
import tomli_w

import p2pfl as package
from p2pfl.experiment.accounts import beside_file
from p2pfl.results.spending.account_file import AccountFile

PEERS = ("east", "north", "south", "west")
COLUMNS = {"age": "integer", "weight": "number", "smoke": ["no", "yes"], "month": "integer", "low": ["0", "1"]}
MODELS = {"glm": {}, "cox": {"horizon": 9.0}, "boosting": {}, "forest": {"n_estimators": 3}}
SIX = tuple(f"north{row}" for row in range(6))
TABLES = {peer: f"{peer}.csv" for peer in PEERS}
CALLS = {
    "p2pfl.glm": lambda: package.glm("low ~ age + smoke", TABLES, columns=COLUMNS),
    "p2pfl.cox": lambda: package.cox("month ~ age", TABLES, event="low", columns=COLUMNS, options={"horizon": 9}),
    "p2pfl.describe": lambda: package.describe(TABLES, target="low", columns=COLUMNS),
    "p2pfl.survival": lambda: package.survival(
        TABLES, time="month", event="low", columns=COLUMNS, options={"horizon": 9}
    ),
}
HELD_OUT = ("--set", "data.test=0.2")
COMMANDS = {
    "describe": ("describe", "glm.toml"),
    "survival": ("survival", "cox.toml", "--horizon", 9),
    "components": ("components", "glm.toml"),
    "glm": ("simulate", "glm.toml", "--no-baselines"),
    "cox": ("simulate", "cox.toml", "--no-baselines"),
    "boosting": ("simulate", "boosting.toml", "--no-baselines"),
    "forest": ("simulate", "forest.toml", "--no-baselines"),
    "run": ("run", "glm.toml", "--no-baselines"),
    "forget": ("forget", "old", "--rows", "gone-{peer}.txt", "--keep"),
}
SCORED = {
    "glm with a test part": (*COMMANDS["glm"], *HELD_OUT),
    "forest with a test part": (*COMMANDS["forest"], *HELD_OUT),
    "run with a test part": (*COMMANDS["run"], *HELD_OUT),
    "value": ("value", "glm.toml", *HELD_OUT),
    "sweep": ("sweep", "glm.toml", "--seeds", 1, "--jobs", 1, "--over", "model.options.ridge=1", *HELD_OUT),
}
DOORS = [*COMMANDS, *CALLS]
"""Doors that count all rows."""


def write_tables(folder, *, erased=(), corrected=None, withdrawn=()):
    """Write the tables of four hospitals, with people erased or one corrected, and lists of who has withdrawn."""
    for number, peer in enumerate(PEERS):
        rng = np.random.default_rng(number)
        lines = ["id,age,weight,smoke,month,low"]
        for row in range(60):
            low, smoke = rng.integers(0, 2), rng.choice(["no", "yes"])
            age = rng.integers(20, 50) + (f"{peer}{row}" == corrected)
            line = f"{peer}{row},{age},{rng.integers(40, 110)},{smoke},{rng.integers(1, 7)},{low}"
            lines += [line] if f"{peer}{row}" not in erased else []
        (folder / f"{peer}.csv").write_text("\n".join(lines) + "\n")
        (folder / f"gone-{peer}.txt").write_text("\n".join(withdrawn if peer == "north" else []))


def write_experiments(folder):
    """Write an experiment of each model."""
    for model, options in MODELS.items():
        named = {"target": "month", "event": "low"} if model == "cox" else {"target": "low"}
        table = {
            "name": "ward",
            "rounds": 3,
            "topology": {"kind": "complete", "peers": PEERS},
            "data": {"name": "table", "test": 0},
            "model": {"name": model, "options": options},
            "privacy": {"mode": "pairwise"},
        }
        table["data"]["options"] = {"path": "{peer}.csv", "key": "id", "columns": COLUMNS} | named
        (folder / f"{model}.toml").write_text(tomli_w.dumps(table))


@pytest.fixture(scope="module")
def old_run(tmp_path_factory):
    """Return the directory of a run on copies of the tables, which no ledger of theirs lists."""
    folder = tmp_path_factory.mktemp("copies")
    write_tables(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_experiments(folder)
        package.simulate("glm.toml", folder=folder / "old", baselines=False)
    kept = folder / "old" / "experiment.toml"
    kept.write_text(kept.read_text().replace(f"{folder}/", ""))  # the tables of wherever it is played again
    return folder / "old"


@pytest.fixture
def ward(place, old_run):
    """The tables of four hospitals, and experiments on them."""
    write_tables(place)
    shutil.copytree(old_run, place / "old")
    write_experiments(place)
    return place


def listed(folder, peer="north"):
    return len(AccountFile(beside_file(folder / f"{peer}.csv")).read())


def use(p2pfl, door):
    """Use the data through a door, and return why it is closed; nothing if it is open."""
    if door in CALLS:
        try:
            CALLS[door]()
        except package.errors.InputError as error:
            return str(error)
        return None
    said = p2pfl(*(COMMANDS | SCORED)[door])
    return None if said.status == 0 else said.err


def check_closed(reason, door, *, because):
    """Check the reason why a door is closed."""
    assert reason is not None, door
    assert "north.csv.budget.jsonl: this run and run " in reason, (door, reason)
    assert because in reason, (door, reason)


@pytest.mark.sampled(fast=0, all=3)
@pytest.mark.parametrize("first", DOORS)
def test_a_person_who_was_erased_follows_from_no_pair_of_doors(p2pfl, ward, first):
    six = SIX if first == "forget" else ()
    write_tables(ward, withdrawn=six)
    assert use(p2pfl, first) is None
    assert (before := listed(ward)) >= 1
    for door in DOORS:
        gone = (*six, "north7")
        write_tables(ward, **({"withdrawn": gone} if door == "forget" else {"erased": gone}))
        check_closed(use(p2pfl, door), door, because="differ in one person")
    assert listed(ward) == before


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("first", SCORED)
def test_a_person_who_was_corrected_follows_from_no_pair_of_doors_with_a_test_part(p2pfl, ward, first):
    assert use(p2pfl, first) is None
    assert (before := listed(ward)) >= 1
    write_tables(ward, corrected="north7")
    for door in SCORED:
        check_closed(use(p2pfl, door), door, because="differ in ")
    assert listed(ward) == before
