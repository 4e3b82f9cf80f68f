"""Values of data: closed-form games, the axioms, and peers whose labels are wrong."""

import dataclasses
import json

import msgspec
import numpy as np
import pytest
import tomli_w

from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.data import Federation
from p2pfl.experiment import plan, read
from p2pfl.plugins.study.credits import DOMAIN, credits_of, whole_credits
from p2pfl.plugins.study.semivalues import sampled_banzhaf, sampled_shapley, semivalue
from p2pfl.plugins.study.valuation import valuation
from p2pfl.privacy.keys import Identity, sign_text, signed_fields

SMALL = {
    "name": "small",
    "rounds": 3,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"rate": 0.5, "batch": "all", "dtype": "float64", "device": "cpu"},
}


def members(coalition, peers):
    return [peer for peer in range(peers) if coalition >> peer & 1]


def airport(coalition):
    """Return the cost of the longest runway that a coalition of 5 needs."""
    return max([peer + 1.0 for peer in members(coalition, 5)], default=0.0)


def glove(coalition):
    """Return the pairs of gloves of a coalition: peer 0 has a left one, peers 1 and 2 right ones."""
    return float(coalition & 1 and coalition & 6 != 0)


def test_values_of_games_are_those_of_their_closed_forms():
    costs = np.array([airport(each) for each in range(32)])
    shares = np.cumsum([1 / 5, 1 / 4, 1 / 3, 1 / 2, 1])
    assert np.allclose(semivalue(costs, peers=5, method="shapley"), shares, atol=1e-14)
    gloves = np.array([glove(each) for each in range(8)])
    assert np.allclose(semivalue(gloves, peers=3, method="shapley"), [2 / 3, 1 / 6, 1 / 6], atol=1e-15)
    assert np.allclose(semivalue(gloves, peers=3, method="banzhaf"), [3 / 4, 1 / 4, 1 / 4], atol=1e-15)
    votes = np.array([float(sum([4, 3, 2, 1][peer] for peer in members(each, 4)) >= 6) for each in range(16)])
    assert np.allclose(semivalue(votes, peers=4, method="shapley"), np.array([5, 3, 3, 1]) / 12, atol=1e-15)


@pytest.mark.parametrize("method", ["shapley", "banzhaf"])
def test_drawn_coalitions_estimate_the_values_within_their_intervals(method):
    weights = np.random.default_rng(0).random(12)

    def utility(coalitions):
        return np.array([np.sqrt(sum(weights[peer] for peer in members(each, 12))) for each in coalitions])

    exact = semivalue(utility(range(1 << 12)), peers=12, method=method)
    sample = sampled_shapley if method == "shapley" else sampled_banzhaf
    found, errors = sample(utility, peers=12, draws=400, seed=3)
    assert (np.abs(found - exact) < 4 * errors).all()
    assert errors.max() < 0.05
    fewer = sample(utility, peers=12, draws=100, seed=3)[1]
    assert np.median(fewer / errors) == pytest.approx(2, rel=0.3)  # errors fall by the root of the draws


@pytest.fixture(scope="module")
def twins():
    """Return a plan in which peers 1 and 2 have the same data, and peer 3 has none."""
    resolved = plan(read(SMALL))
    own = dict(resolved.federation.train)
    own["peer2"], own["peer3"] = own["peer1"], own["peer3"][:0]
    found = resolved.federation
    federation = Federation(found.dataset, own, found.validation, found.test)
    return dataclasses.replace(resolved, federation=federation, learner=resolved.learner.on(federation))


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_shapley_values_are_efficient_symmetric_and_zero_without_data(twins, metric):
    found = valuation(twins, metric=metric)
    values = [each.value for each in found.values]
    assert sum(values) == pytest.approx(found.everybody - found.nobody, abs=1e-12)
    assert values[1] == pytest.approx(values[2], abs=1e-12)
    assert values[3] == 0
    assert found.coalitions == 7  # without the one of no data, and once for those that differ by the empty peer


def test_a_peer_with_wrong_labels_is_worth_least():
    resolved = plan(read(SMALL, changes=["topology.peers=6"]))
    dataset = resolved.federation.dataset
    wrong = resolved.federation.train["peer4"]
    targets = dataset.targets.clone()
    targets[wrong] = (targets[wrong] + 1) % 3
    federation = dataclasses.replace(resolved.federation, dataset=dataclasses.replace(dataset, targets=targets))
    changed = dataclasses.replace(resolved, federation=federation, learner=resolved.learner.on(federation))
    for method in ("shapley", "banzhaf"):
        found = {each.peer: each.value for each in valuation(changed, method=method, metric="loss").values}
        assert min(found, key=found.__getitem__) == "peer4"


def test_values_of_a_sum_of_scores_are_the_sums_of_values():
    """The accuracy on the test data is the sum of those on two halves, each times its share."""
    resolved = plan(read(SMALL))
    test = resolved.federation.test["peer0"]
    parts = {"first": test[::2], "second": test[1::2]}
    values = {}
    for name, positions in ({"all": test} | parts).items():
        federation = dataclasses.replace(resolved.federation, test=dict.fromkeys(resolved.federation.test, positions))
        changed = dataclasses.replace(resolved, federation=federation, learner=resolved.learner.on(federation))
        values[name] = np.array([each.value for each in valuation(changed, metric="accuracy").values])
    shares = {name: len(positions) / len(test) for name, positions in parts.items()}
    whole = sum(shares[name] * values[name] for name in parts)
    assert np.allclose(values["all"], whole, atol=1e-12)
    assert not np.allclose(values["first"], values["second"], atol=1e-3)


@pytest.mark.nightly
def test_three_of_ten_peers_with_wrong_labels_have_the_least_values():
    changes = ["topology.peers=10", "data.name=digits", "data.split=iid", "rounds=10"]
    resolved = plan(read(SMALL, changes=changes))
    dataset, wrong = resolved.federation.dataset, ("peer1", "peer4", "peer8")
    targets = dataset.targets.clone()
    for name in wrong:
        own = resolved.federation.train[name]
        targets[own] = (targets[own] + 1) % 10
    federation = dataclasses.replace(resolved.federation, dataset=dataclasses.replace(dataset, targets=targets))
    changed = dataclasses.replace(resolved, federation=federation, learner=resolved.learner.on(federation))
    found = valuation(changed, metric="accuracy")
    assert found.coalitions == 1023
    order = sorted(found.values, key=lambda each: each.value)
    assert {each.peer for each in order[:3]} == {*wrong}


def test_leaving_a_peer_out_is_compared_with_everybody(twins):
    found = valuation(twins, method="loo")
    assert found.coalitions == 4  # nothing changes without the peer that has no data
    assert found.values[3].value == 0


def test_more_peers_have_intervals():
    resolved = plan(read(SMALL, changes=["topology.peers=11", "rounds=1"]))
    found = valuation(resolved, draws=6)
    assert all(each.low <= each.value <= each.high for each in found.values)
    assert sum(each.value for each in found.values) == pytest.approx(found.everybody - found.nobody, abs=1e-12)


def test_models_from_totals_have_values():
    table = {"model": {"name": "boosting", "options": {"max_bins": 8}}, "privacy": {"mode": "none"}, "learning": {}}
    found = valuation(plan(read(SMALL | table)), method="loo")
    assert found.everybody > found.nobody


def test_an_unknown_score_or_value_is_refused(twins):
    with pytest.raises(InputError, match='no score "auc"; choose from loss, accuracy'):
        valuation(twins, metric="auc")
    with pytest.raises(InputError, match='no value "core"; choose from shapley, banzhaf, loo'):
        valuation(twins, method="core")


def test_the_command_prints_and_writes_values(tmp_path, capsys):
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    sets = ["data.name=wine", "model.name=linear", "topology.kind=complete", "data.split=iid", "rounds=1"]
    changes = [part for each in sets for part in ("--set", each)]
    command = ["value", "digits", "--peers", "3", *changes]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["peer"] for each in found["values"]] == ["peer0", "peer1", "peer2"]
    assert main([*command, "--html", str(page), "--csv", str(table), "--method", "banzhaf"]) == 0
    assert "7 models" in capsys.readouterr().out
    assert "Banzhaf" in page.read_text()
    assert table.read_text().startswith("peer,samples,value,low,high")


# ---------------------------------------------------------------------- credits


def test_whole_credits_add_up_and_are_within_one_of_their_shares():
    rng = np.random.default_rng(5)
    for _ in range(200):
        values = rng.normal(0.2, 1, rng.integers(2, 9))
        values[0] = abs(values[0]) + 0.1
        total = int(rng.integers(1, 2000))
        credits = whole_credits(values.tolist(), total)
        positive = values.clip(0)
        assert sum(credits) == total
        assert (np.abs(np.array(credits) - total * positive / positive.sum()) < 1).all()
        assert all(credit == 0 for credit, value in zip(credits, values, strict=True) if value <= 0)


def test_without_a_positive_value_there_are_no_credits():
    with pytest.raises(InputError, match="no peer has a positive value"):
        whole_credits([-0.1, 0.0], 10)


def made(tmp_path, *arguments, experiment=SMALL):
    """Return the status of `p2pfl value` on an experiment."""
    file = tmp_path / "small.toml"
    file.write_bytes(tomli_w.dumps(experiment).encode())
    return main(["value", str(file), *arguments])


def test_signed_credits_are_computed_again_by_anybody_with_the_data(tmp_path, capsys):
    key, out = tmp_path / "keys" / "ada.key", tmp_path / "credits.json"
    key.parent.mkdir()
    Identity(bytes(range(32))).save(key)
    given = ["--credits", "100", "--key", str(key), "--out", str(out)]
    assert made(tmp_path, *given) == 0
    table = json.loads(out.read_text())
    assert sum(each["credits"] for each in table["credits"]) == 100
    assert made(tmp_path, "--check", str(out)) == 0
    assert "rows in common" not in capsys.readouterr().out
    other = SMALL | {"seed": 5}
    assert made(tmp_path, "--check", str(out), experiment=other) == 1
    assert (
        "is not what these data give: the experiment differs; the test data differ; the seed" in capsys.readouterr().err
    )


def test_credits_that_somebody_changed_are_refused(tmp_path, capsys):
    key, out = tmp_path / "keys" / "ada.key", tmp_path / "credits.json"
    key.parent.mkdir()
    Identity(bytes(range(32))).save(key)
    assert made(tmp_path, "--credits", "100", "--key", str(key), "--out", str(out)) == 0
    table = json.loads(out.read_text())
    table["credits"][0]["credits"] += 1
    out.write_text(json.dumps(table))
    assert made(tmp_path, "--check", str(out)) == 2
    assert "has been changed since it was signed" in capsys.readouterr().err


def test_credits_keep_their_signature_where_versions_have_other_fields(tmp_path, capsys):
    out, ada = tmp_path / "credits.json", Identity(bytes(range(32)))
    ada.save(tmp_path / "ada.key")
    assert made(tmp_path, "--credits", "100", "--key", str(tmp_path / "ada.key"), "--out", str(out)) == 0
    written = json.loads(out.read_text())
    earlier = {key: value for key, value in written.items() if key != "copies"}
    for table in (earlier, written | {"later": {"field": 0.1}}):
        out.write_text(json.dumps(table | {"signature": sign_text(ada, signed_fields(table), domain=DOMAIN)}))
        assert made(tmp_path, "--check", str(out)) == 0
    out.write_text(json.dumps(json.loads(out.read_text()) | {"later": {"field": 0.2}}))
    assert made(tmp_path, "--check", str(out)) == 2
    assert f"{out} has been changed since it was signed" in capsys.readouterr().err
    out.write_text(json.dumps({key: value for key, value in written.items() if key != "together"}))
    assert made(tmp_path, "--check", str(out)) == 2
    assert "has no credits (Object missing required field `together`)" in capsys.readouterr().err
    out.write_text(json.dumps(written)[:-1] + ', "later": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert made(tmp_path, "--check", str(out)) == 2
    assert "has no credits" in capsys.readouterr().err


def test_copies_and_peers_that_lose_by_taking_part_are_named():
    federation = plan(read(SMALL)).federation
    peers = sorted(federation.train)
    doubled = dict(federation.train) | {peers[1]: federation.train[peers[0]]}
    resolved = plan(read(SMALL))
    copied = dataclasses.replace(
        resolved, federation=Federation(federation.dataset, doubled, federation.validation, federation.test)
    )
    result = valuation(copied, alone=True)
    credits = credits_of(copied, result, total=10, draws=200)
    (copies,) = credits.copies
    assert (copies.one, copies.other, copies.rows) == (peers[0], peers[1], len(federation.train[peers[0]]))
    lower = msgspec.structs.replace(credits, together=min(each.alone for each in credits.credits) - 0.1)
    assert set(lower.losing) == set(peers)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--key", "ada.key"], "signed credits need --credits, --key and --out"),
        (["--check", "credits.json", "--credits", "5"], "--check takes everything from the file"),
        (["--check", "absent.json"], "absent.json cannot be read"),
    ],
)
def test_options_of_credits_that_do_not_go_together_are_refused(tmp_path, capsys, arguments, sentence):
    assert made(tmp_path, *arguments) == 2
    assert sentence in capsys.readouterr().err
