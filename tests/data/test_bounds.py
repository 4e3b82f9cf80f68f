"""Public bounds of a shared table: nothing that a peer's samples are moves the features of another peer."""

import numpy as np
import pytest
import torch

from p2pfl.cli.planning.privacy import facts, resolve
from p2pfl.core.errors import DataError, ExperimentError
from p2pfl.data import federate
from p2pfl.experiment import plan, read
from p2pfl.results.summary import describe
from p2pfl.simulation import simulate

PEERS = [f"peer{number}" for number in range(4)]
LINES = ["age,ward,y", *(f"{20 + row},{'AB'[row % 2]},{row % 2}" for row in range(40)), ",,1", ",,0"]


def table(tmp_path, **options):
    (tmp_path / "cells.csv").write_text("\n".join(LINES))
    return {"path": str(tmp_path / "cells.csv"), "target": "y"} | options


def test_bounds_become_minus_one_and_one_and_missing_cells_their_middle(tmp_path):
    options = table(tmp_path, bounds={"age": [20, 60]})
    data = federate("csv", peers=PEERS, seed=1, options=options).dataset
    ages = data.features[:, 0].tolist()
    assert sorted(set(ages)) == pytest.approx(sorted({(age - 20) / 20 - 1 for age in range(20, 60)} | {0.0}))
    (age, ward) = data.description.columns
    assert (age.missing, ward.missing) == (40.0, "A")
    assert (data.description.mean[0], data.description.deviation[0]) == (40.0, 20.0)


def test_targets_have_bounds_too_and_keep_their_units_without(tmp_path):
    (tmp_path / "cells.csv").write_text("\n".join(["x,y", *(f"{row},{row + 0.5}" for row in range(40))]))
    options = {"path": str(tmp_path / "cells.csv"), "target": "y"}
    own = federate("csv", peers=PEERS, seed=1, options=options | {"bounds": {}}).dataset
    assert set(own.targets.tolist()) == {row + 0.5 for row in range(40)}
    assert set(own.features[:, 0].tolist()) == set(map(float, range(40)))
    bounded = federate("csv", peers=PEERS, seed=1, options=options | {"bounds": {"y": [0.5, 39.5]}}).dataset
    assert (float(bounded.targets.min()), float(bounded.targets.max())) == (-1.0, 1.0)
    assert (bounded.description.target_mean, bounded.description.target_deviation) == (20.0, 19.5)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"height": [0, 1]}, 'names "height", which is no column of numbers'),
        ({"ward": [0, 1]}, 'names "ward", which is no column of numbers'),
        ({"age": [60, 20]}, "the first must be the smaller"),
        ({"age": [20]}, "must be a table of pairs of numbers by column"),
        ([20, 60], "must be a table of pairs of numbers by column"),
    ],
)
def test_bounds_that_are_none_are_refused(tmp_path, bounds, words):
    with pytest.raises(DataError, match=words):
        federate("csv", peers=PEERS, seed=1, options=table(tmp_path, bounds=bounds))


CLAIMS = {
    "peers": {"privacy": {"mode": "pairwise", "mask": 10.0, "noise": 2.0, "clip": 1.0}},
    "samples": {"learning": {"example_noise": 1.0, "batch": 4, "device": "cpu"}},
}


def planned(place, rows, changes):
    cells = [f"{a},{b},{row % 2}" for row, (a, b) in enumerate(rows)]
    (place / "cells.csv").write_text("\n".join(["a,b,y", *cells]))
    options = {"path": str(place / "cells.csv"), "target": "y"}
    base = {"topology": {"kind": "complete", "peers": 4}, "model": {"name": "linear"}, "learning": {"device": "cpu"}}
    return plan(read(base | {"data": {"name": "csv", "options": options}} | changes))


@pytest.mark.parametrize("changes", CLAIMS.values(), ids=CLAIMS)
def test_under_a_claim_the_rows_of_one_peer_move_no_other_peers_features(tmp_path, changes):
    rows = np.random.default_rng(0).normal(size=(80, 2))
    before = planned(tmp_path, rows, changes)
    (mine, theirs) = (before.federation.train[peer] for peer in ("peer0", "peer1"))
    other = rows.copy()
    other[mine] *= 100.0
    after = planned(tmp_path, other, changes)
    assert np.array_equal(theirs, after.federation.train["peer1"])
    features = [each.federation.dataset.features for each in (before, after)]
    assert torch.equal(features[0][theirs], features[1][theirs])
    assert not torch.equal(features[0][mine], features[1][mine])
    plain = [planned(tmp_path, each, {}).federation.dataset.features for each in (rows, other)]
    assert not torch.equal(plain[0][theirs], plain[1][theirs])  # without a claim the table is standardised


@pytest.mark.parametrize("changes", CLAIMS.values(), ids=CLAIMS)
def test_under_a_claim_statistics_of_all_peers_are_refused(changes):
    with pytest.raises(ExperimentError, match=r"data\.scale = true does not work with private noise"):
        plan(read({"data": {"name": "digits", "scale": True}} | changes))


def test_a_shared_table_under_a_claim_advises_public_bounds(tmp_path):
    (tmp_path / "cells.csv").write_text("\n".join(["a,y", *(f"{row},{row % 2}" for row in range(80))]))
    options = {"path": str(tmp_path / "cells.csv"), "target": "y"}
    base = {"rounds": 1, "topology": {"peers": 4}, "model": {"name": "linear"}, **CLAIMS["peers"]}
    advice = [
        simulate(base | {"data": {"name": "csv", "options": options | more}}, baselines=False).summary["advice"]
        for more in ({}, {"bounds": {"a": [0, 80]}})
    ]
    assert "set data.options.bounds to their public bounds" in advice[0][0]
    assert advice[1] == []


GIVEN = "given the scaling of this public data set, which its training samples determine"


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(
    ("name", "changes", "given"),
    [
        ("wine", CLAIMS["peers"], True),
        ("wine", CLAIMS["samples"], True),
        ("digits", CLAIMS["peers"], False),
        ("digits", CLAIMS["samples"], False),
        ("wine", {}, False),
    ],
)
def test_a_guarantee_on_a_public_data_set_names_the_scaling_that_it_does_not_cover(name, changes, given):
    base = {"topology": {"kind": "complete", "peers": 4}, "model": {"name": "linear"}, "learning": {"device": "cpu"}}
    experiment = read(base | {"data": {"name": name}} | changes)
    assert (GIVEN in describe(plan(experiment), spent=None)["statement"]) == given
    if "privacy" in changes:
        assert (GIVEN in facts(resolve(experiment))["statement"]) == given
