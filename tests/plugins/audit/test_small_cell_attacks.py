"""An audit finds people who are alone in a cell of a user's own data, and none where the check is on."""

import csv

import numpy as np
import pytest

from p2pfl.experiment import plan, read
from p2pfl.plugins.audit.small_cell_attacks import attack_cells, count_dominated

PEERS = 3


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """Return the keys of a table of three hospitals: a rare level, times of days, and one large income."""
    folder = tmp_path_factory.mktemp("clinic")
    rng = np.random.default_rng(0)
    rows = [
        [
            "E84" if number == 7 else "C50" if number % 2 else "O80",
            f"{rng.uniform(20, 90):.2f}",
            "90000.5" if number == 11 else f"{rng.uniform(1, 9):.2f}",
            int(rng.exponential(300)) + 1,
            int(rng.random() < 0.6),
            0.5 if number == 11 else 1.5,
        ]
        for number in range(150)
    ]
    for peer in range(PEERS):
        with (folder / f"peer{peer}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["icd", "age", "income", "day", "died", "mutant"], *rows[peer::PEERS]])
    levels = ["C50", "E84", "O80"]
    return {"path": str(folder / "{peer}.csv")}, {"icd": levels, "age": "number", "income": "number"}


def found(clinic, name, options, *, target):
    path, columns = clinic
    more = {"day": "number", "died": [0, 1]} if target == "day" else {"died": [0, 1]} if target == "died" else {}
    event = {"event": "died"} if target == "day" else {}
    table = {
        "topology": {"kind": "complete", "peers": PEERS},
        "data": {"name": "table", "test": 0, "options": path | event | {"target": target, "columns": columns | more}},
        "model": {"name": name, "options": options},
        "privacy": {"mode": "pairwise"},
    }
    return {claim.name: claim for claim in attack_cells(plan(read(table)))}


@pytest.mark.parametrize(
    ("name", "options", "target"),
    [
        ("glm", {}, "age"),
        ("boosting", {}, "age"),
        ("cox", {"horizon": 2000, "coefficients_per_sample": 1.0}, "day"),
        ("kaplan_meier", {"horizon": 2000}, "day"),
    ],
)
def test_an_attack_finds_people_alone_in_a_cell_only_where_the_check_is_off(clinic, name, options, target):
    on, off = (found(clinic, name, options | more, target=target) for more in ({}, {"least": 1}))
    assert not any(claim.broken for claim in on.values())
    assert off["nobody is alone in a cell"].broken
    assert off["nobody is alone beside the samples of a peer"].broken
    assert off["nobody is alone in a cell"].measured >= (1 if target == "age" else 50)


@pytest.mark.parametrize(("name", "options", "target"), [("glm", {"merge": "rare"}, "age"), ("cox", {}, "day")])
def test_an_attack_finds_nobody_in_what_the_check_has_merged(clinic, name, options, target):
    if target == "day":
        options = {"horizon": 2000, "width": "auto", "merge": "rare"}
    on = found(clinic, name, options, target=target)
    assert [claim.measured for claim in on.values()] == [0, 0, 0, 0]


@pytest.mark.parametrize(("name", "target"), [("glm", "died"), ("cox", "day"), ("pca", "age")])
def test_an_attack_finds_the_person_alone_in_a_combination_of_columns_only_where_the_check_is_off(clinic, name, target):
    """A column of 0.5 and 1.5, which has no code that the check of cells knows, is 0.5 for one person alone."""
    path, columns = clinic
    columns = {"age": "number", "mutant": "number", "income": "number"}
    claims = []
    for least in (5, 1):
        options = {"least": least} | ({"horizon": 2000, "width": "auto"} if name == "cox" else {})
        claims.append(found((path, columns), name, options, target=target))
    on, off = (each["nobody has nearly all of a combination of columns"] for each in claims)
    assert on.measured == 0
    assert off.broken
    assert off.measured == 1


def test_an_attack_finds_people_alone_in_a_bin_of_a_node_only_where_the_check_is_off(clinic):
    options = {"min_samples_leaf": 2}
    on, off = (found(clinic, "boosting", options | {"least": least}, target="age") for least in (5, 1))
    assert on["no bin of the first tree has one person"].measured == 0
    assert off["no bin of the first tree has one person"].measured > 50


def test_an_attack_finds_the_person_with_nearly_a_whole_sum_where_its_mean_is_stated(clinic):
    on, off = (found(clinic, "description", {"least": least}, target="age") for least in (5, 1))
    assert on["nobody has nearly a whole sum"].measured == 0
    assert off["nobody has nearly a whole sum"].measured == 2  # of the rare level, too


def test_a_sum_is_dominated_where_the_rest_is_a_small_part_of_the_largest_value():
    values = np.array([[1.0, 1.0, -1.0], [2.0, 90.0, 90.0], [3.0, 4.0, 4.0]])
    assert count_dominated(values, np.array([2.0, 30.0, 30.0])) == 1
    assert count_dominated(values, np.array([2.0, np.nan, 30.0])) == 0
