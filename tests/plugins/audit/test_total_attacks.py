"""An audit of totals holds for what runs, and finds noise that is too small, used twice, or made for less."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn import datasets

from p2pfl.experiment import plan, read
from p2pfl.learning import ExactLearner
from p2pfl.plugins.audit import total_attacks
from p2pfl.plugins.audit.audit import Effort, audit
from p2pfl.plugins.audit.audit_page import EXPOSURE_CAPTION, audit_page
from p2pfl.plugins.audit.claims import uniform
from p2pfl.plugins.audit.total_attacks import _check_change, _masks
from p2pfl.plugins.exact import PrivateDescription, RandomBoosting
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.release import PrivateNeighbourhood

pytestmark = pytest.mark.slow

LEAST = Effort(trials=20_000)


BOUNDS = {name: [-3.0, 3.0] for name in datasets.load_wine().feature_names}
TABLE = {
    "rounds": 4,
    "topology": {"kind": "ring", "peers": 5},
    "data": {"name": "wine"},
    "model": {"name": "random_boosting", "options": {"bounds": BOUNDS, "max_depth": 3}},
    "privacy": {"mode": "pairwise", "mask_graph": "complete", "noise": 0.7, "colluders": 2},
}


def declare(monkeypatch, share):
    """Have models declare a share of what a sample changes in their totals."""
    asked = ExactLearner.asking

    def declared(self, row, *, round):
        asking = asked(self, row, round=round)
        total = yield replace(question := next(asking), change=share * question.change)
        try:
            asking.send(total)
        except StopIteration as ended:
            return ended.value

    monkeypatch.setattr(ExactLearner, "asking", declared)


@pytest.fixture(scope="module")
def resolved():
    return plan(read(TABLE))


def test_totals_with_noise_keep_their_guarantee(resolved):
    found = audit(resolved, fresh=SeededSource, effort=LEAST)
    assert found.broken == []
    assert found.promised
    names = [claim.name for claim in found.claims]
    assert "masks of totals cancel" in names
    assert sum("two totals of one round" in name for name in names) == 3
    change = next(claim for claim in found.claims if claim.name == "what a sample changes")
    assert 0.3 < change.measured <= 1.0
    games = [claim for claim in found.claims if "one total" in claim.name]
    assert all(0.8 * claim.allowed < claim.measured for claim in games)  # the attack is as good as it can be


def test_noise_of_too_few_colluders_is_found(resolved):
    protection = resolved.protection
    less = replace(protection.settings, noise=protection.settings.noise * (3 / 5) ** 0.5)
    mutant = replace(resolved, protection=replace(protection, settings=less))
    honest = [guarantee.mu for guarantee in protection.observers()]
    object.__setattr__(mutant.protection, "observers", protection.observers)
    broken = audit(mutant, fresh=SeededSource, effort=LEAST).broken
    assert honest
    assert any(said.startswith("one total, the broker and 2 peers") for said in broken)


def test_noise_that_two_totals_share_is_found(resolved, monkeypatch):
    noised = PrivateNeighbourhood._add_noise

    def repeated(self, contribution, *, size, number, change):
        del number
        return noised(self, contribution, size=size, number=0, change=change)

    monkeypatch.setattr(PrivateNeighbourhood, "_add_noise", repeated)
    broken = audit(resolved, fresh=SeededSource, effort=LEAST).broken
    assert any(said.startswith("two totals of one round") for said in broken)
    assert not any(said.startswith("totals of two rounds") for said in broken)


def test_a_change_that_is_declared_too_small_is_found(resolved, monkeypatch):
    true = RandomBoosting.change
    monkeypatch.setattr(RandomBoosting, "change", property(lambda self: true.fget(self) / 2))
    broken = audit(resolved, fresh=SeededSource, effort=LEAST).broken
    assert any(said.startswith("what a sample changes") for said in broken)


def test_what_a_sample_changes_of_a_private_description_is_found(monkeypatch):
    model = {"name": "private_description", "options": {"bounds": BOUNDS}}
    described = plan(read(TABLE | {"model": model, "rounds": 1}))
    assert 0.3 < _check_change(described, seed=0).measured <= 1.0
    true = PrivateDescription.change
    monkeypatch.setattr(PrivateDescription, "change", property(lambda self: true.fget(self) / 2))
    assert _check_change(described, seed=0).measured > 1.0


@pytest.mark.parametrize("share", [1.0, 0.2])
@pytest.mark.parametrize("name", ["private_pca", "private_kaplan_meier"])
def test_what_a_sample_changes_of_private_statistics_is_found(monkeypatch, name, share):
    if name == "private_pca":
        data, options = {"name": "wine"}, {"bounds": BOUNDS}
    else:
        data, options = {"name": "diabetes"}, {"horizon": 3.0, "width": 0.25}
    resolved = plan(read(TABLE | {"data": data, "model": {"name": name, "options": options}, "rounds": 1}))
    declare(monkeypatch, share)
    found = _check_change(resolved, seed=0).measured
    assert 0.2 < found <= 1.0 if share == 1.0 else found > 1.0


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_what_a_sample_changes_of_a_private_regression_is_found(monkeypatch, share):
    names = datasets.load_breast_cancer().feature_names
    model = {"name": "private_glm", "options": {"bounds": {name: [-4.0, 4.0] for name in names}}}
    resolved = plan(read(TABLE | {"data": {"name": "breast_cancer"}, "model": model}))
    declare(monkeypatch, share)
    found = _check_change(resolved, seed=0).measured
    assert 0.2 < found <= 1.0 if share == 1.0 else found > 1.0


def test_exact_totals_are_audited_without_a_promise():
    table = {
        "rounds": 2,
        "topology": {"kind": "ring", "peers": 4},
        "data": {"name": "wine"},
        "model": {"name": "boosting"},
        "privacy": {"mode": "pairwise"},
    }
    found = audit(plan(read(table)), fresh=SeededSource, effort=LEAST)
    assert found.broken == []
    assert not found.promised
    assert [claim.name for claim in found.claims] == [
        "masks of totals cancel",
        "masks of totals are uniform",
        "no two totals share masks",
        "masks of a total never repeat",
        "keys of totals are of one use",
        "nobody is alone in a cell",
        "nobody is alone beside the samples of a peer",
        "nobody has nearly a whole sum",
        "nobody has nearly all of a combination of columns",
        "no bin of the first tree has one person",
    ]
    assert [each.peers for each in found.exposures] == [1, 2, 3, 4]
    assert found.results()["exposures"][-1]["observer"] == "everybody"
    assert EXPOSURE_CAPTION in audit_page(found)


@pytest.mark.parametrize("claim", ["masks of totals are uniform", "one peer learns the sum alone"])
def test_rows_whose_ones_are_counted_together_are_independent(monkeypatch, claim):
    counted = {}
    monkeypatch.setattr(
        total_attacks, "uniform", lambda part, name, rows: (counted.update({name: rows}), uniform(part, name, rows))[1]
    )
    exact = {"data": {"name": "wine"}, "model": {"name": "glm"}, "privacy": {"mode": "pairwise"}}
    made = plan(read(exact | {"rounds": 1, "topology": {"kind": "complete", "peers": 4}}))
    _masks(made, fresh=SeededSource, seed=7)
    signs = np.array([2.0 * (row.astype(np.uint64) & np.uint64(1)) - 1 for row in counted[claim]])  # [M, P]
    agreement = signs @ signs.T / signs.shape[1] ** 0.5
    assert np.abs(agreement - np.diag(np.diag(agreement))).max() < 6
