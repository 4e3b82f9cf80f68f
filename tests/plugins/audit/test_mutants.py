"""Builds that are broken on purpose, each of which the whole audit must notice; and the build as it is."""

from dataclasses import replace
from pathlib import Path

import builds
import pytest
from mutants import HEADINGS, MUTANTS, PARTS, SAMPLED

from p2pfl.experiment import plan, read
from p2pfl.plugins.audit.audit import Effort, audit
from p2pfl.plugins.audit.audit_page import audit_page, verdict

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
UNSEEN = {"noise from keys of 48 bits", "masks from keys of 16 bits"}
"""Mutants for which no single part of the audit has to notice them."""

LITTLE = Effort(trials=8000, canaries=200, rounds=1, shadows=2, samples=1, keys=2000, live=0)

PRIVATE = {"mode": "pairwise", "clip": 1.0, "noise": 1.0, "mask": 4.0}
HIDDEN = {"mode": "pairwise", "mask": 4.0}
NOISY = {"mode": "independent", "clip": 1.0, "noise": 1.0}
REPLACED = {**PRIVATE, "adjacency": "replace"}


def planned(privacy, **changes):
    table = {"topology": {"kind": "ring", "peers": 8}, "data": {"name": "wine"}, "model": {"name": "linear"}}
    return plan(read({**table, "learning": {"device": "cpu"}, "privacy": privacy, **changes}))


def attacked(privacy, *, effort=LITTLE, fresh=builds.fresh):
    return audit(planned(privacy), fresh=fresh, effort=effort)


@pytest.mark.nightly  # tests below look at two of them
@pytest.mark.parametrize("privacy", [PRIVATE, HIDDEN, NOISY, REPLACED, {"mode": "pairwise", "noise": 1.0}, {}])
def test_the_build_as_it_is_breaks_no_claim(privacy):
    found = attacked(privacy)
    assert found.broken == []
    assert found.promised == ("clip" in privacy)


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("privacy", [PRIVATE, NOISY])
def test_private_noise_that_is_not_added_is_noticed(privacy, monkeypatch):
    builds.missing_noise(monkeypatch)
    found = attacked(privacy)
    assert any("optimal player of broker sees more" in sentence for sentence in found.broken)
    assert any("canaries" in sentence for sentence in found.broken)


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("privacy", [PRIVATE, HIDDEN, NOISY])
def test_a_clean_own_row_that_is_mixed_is_noticed(privacy, monkeypatch):
    builds.clean_own_row(monkeypatch)
    assert any("learned player of broker sees more" in sentence for sentence in attacked(privacy).broken)


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("privacy", [PRIVATE, NOISY, HIDDEN])
def test_secrets_behind_seeds_of_32_bits_are_noticed(privacy, monkeypatch):
    builds.narrow_seed(monkeypatch)
    effort = Effort(trials=2000, canaries=20, rounds=1, shadows=2, samples=1, live=0)
    found = attacked(privacy, effort=effort, fresh=None)
    assert any(sentence.startswith("keys of") for sentence in found.broken)


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize(
    ("build", "privacy"),
    [
        (builds.shared_noise, PRIVATE),
        (builds.half_of_the_noise, HIDDEN),
        (builds.reused_key, PRIVATE),
        (builds.shared_noise, NOISY),
        (builds.noise_again, PRIVATE),
        (builds.noise_again, NOISY),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_players_of_several_releases_notice_what_these_share(build, privacy, monkeypatch):
    build(monkeypatch)
    assert any("than the accountant allows" in sentence for sentence in attacked(privacy).broken)


@pytest.mark.nightly
def test_secret_participation_as_it_is_breaks_no_claim():
    found = attacked({**PRIVATE, "participation": 0.5})
    assert found.broken == []
    assert {"sitting out does not show", "as many sit out as are accounted"} <= {claim.name for claim in found.claims}


def test_the_results_are_numbers_that_json_knows():
    found = attacked({})
    assert found.results()["promises"][0]["mu"] is None
    assert found.results()["broken"] == []
    assert {each["observer"] for each in found.results()["inversions"]} >= {"nothing hidden", "broker"}


def broken(part):
    return [claim.name for claim in PARTS[part]() if claim.broken]


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("part", PARTS)
def test_the_build_as_it_is_breaks_no_claim_of_any_part(part):
    assert broken(part) == []


ARITHMETIC = ("exact totals", "accounting", "keys of sums")
"""Parts that take a few tenths of a second at most, as little in them is up to chance."""

NOTICED = [mutant for mutant in MUTANTS if mutant.part and mutant.part not in ARITHMETIC]
CHEAP = [mutant for mutant in MUTANTS if mutant.part in ARITHMETIC]


@pytest.mark.sampled(fast=0, all=4)
@pytest.mark.parametrize("mutant", NOTICED, ids=lambda mutant: mutant.name)
def test_a_mutant_is_noticed_by_its_part_of_the_audit(mutant, monkeypatch):
    mutant.build(monkeypatch)
    assert any(name.startswith(mutant.said) for name in broken(mutant.part))


@pytest.mark.sampled(fast=3)
@pytest.mark.parametrize("mutant", CHEAP, ids=lambda mutant: mutant.name)
def test_arithmetic_notices_a_mutant_at_once(mutant, monkeypatch):
    mutant.build(monkeypatch)
    assert any(name.startswith(mutant.said) for name in broken(mutant.part))


@pytest.mark.fast
@pytest.mark.parametrize("part", ARITHMETIC)
def test_arithmetic_breaks_no_claim_of_the_build_as_it_is(part):
    assert broken(part) == []


@pytest.mark.fast
def test_every_mutant_has_a_claim_or_a_test_that_must_notice_it():
    assert all(mutant.said if mutant.part else mutant.tests for mutant in MUTANTS if mutant.name not in UNSEEN)
    files = {Path(ROOT, file) for mutant in MUTANTS for file in mutant.tests}
    assert [str(file) for file in files if not file.exists()] == []
    assert {*HEADINGS} <= {*range(len(MUTANTS))}


@pytest.mark.fast
def test_every_mutant_changes_code_that_there_is():
    for mutant in MUTANTS:
        with pytest.MonkeyPatch.context() as patch:
            mutant.build(patch)


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("table", [SAMPLED, SAMPLED | {"privacy": NOISY}])
def test_training_that_hides_samples_is_not_certified_unseen(table):
    found = audit(plan(read(table)), effort=LITTLE)
    assert found.broken == []
    assert "training on samples" in {claim.part for claim in found.claims}
    assert "Nothing is claimed" not in verdict(found)


def test_an_experiment_whose_peers_are_given_sums_is_attacked_as_well():
    table = {"topology": {"kind": "complete", "peers": 5}, "data": {"name": "wine"}, "model": {"name": "linear"}}
    resolved = plan(read({**table, "learning": {"device": "cpu"}, "privacy": {"mode": "secagg"}}))
    found = audit(resolved, effort=replace(LITTLE, live=3))
    assert found.broken == []
    assert found.games == ()
    assert {claim.part for claim in found.claims} == {"live sums"}
    assert "the attacks on single models are left out" in audit_page(found)
