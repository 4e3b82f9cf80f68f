"""The sections ``[robustness]`` and ``[attack]``."""

import pytest
import torch

from p2pfl.algorithms import GossipLearning
from p2pfl.algorithms.robust import ClippedGossip, Krum, Median, NearestMixed, SelfCentredClipping, TrimmedMean
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.experiment import plan, read
from p2pfl.simulation import simulate

SMALL = {
    "seed": 3,
    "rounds": 4,
    "topology": {"kind": "complete", "peers": 8},
    "data": {"name": "wine"},
    "model": {"name": "mlp", "hidden": [8]},
    "learning": {"device": "cpu", "weighted": False},
    "gossip": {"steps": 1},
}


def planned(*changes, **settings):
    return plan(read(SMALL, changes=changes), **settings)


def ruled(name, *changes):
    return planned(f"robustness.rule={name}", *changes)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ([], None),
        (["robustness.rule=clipped_gossip"], ClippedGossip(1)),
        (["robustness.rule=clipped_gossip", "robustness.options.attackers=0"], ClippedGossip(0)),
        (["robustness.rule=self_centred_clipping", "robustness.options.radius=0.5"], SelfCentredClipping(0.5)),
        (["robustness.rule=trimmed_mean", "robustness.options.attackers=2"], TrimmedMean(2)),
        (["robustness.rule=median"], Median(1)),
        (["robustness.rule=krum", "robustness.options.attackers=2"], Krum(2)),
        (["robustness.rule=multi_krum"], Krum(1, several=True)),
        (["robustness.rule=trimmed_mean", "robustness.options.nearest=true"], NearestMixed(TrimmedMean(1), 1)),
    ],
    ids=str,
)
def test_every_name_is_a_rule(changes, rule):
    assert planned(*changes).rule == rule


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (["privacy.mode=pairwise"], "masks cancel only in the average, so no single model can be recognised"),
        (["privacy.mode=secagg"], "peers receive sums and no single model"),
        (
            ["learning.weighted=true"],
            "learning.weighted = true, because a Byzantine peer would inflate its own weight",
        ),
        (["learning.fraction=0.5"], "learning.fraction below 1, because a Byzantine peer"),
        (["privacy.mode=independent", "privacy.participation=0.5", "privacy.noise=0.1"], "privacy.participation below"),
        (["gossip.acceleration=chebyshev"], "which expects linear mixing"),
        (["learning.consensus=true"], "learning.consensus, which takes a plain average"),
        (["learning.algorithm=gradient_tracking"], "needs trackers whose sum stays that of the gradients"),
        (["learning.algorithm=scaffold"], "needs control variates"),
        (["learning.algorithm=relay_sgd"], "sends sums of rows"),
        (["learning.algorithm=power_gossip"], "mixes differences of rows"),
        (["learning.algorithm=gossip_learning"], "weighs the rows that it hears by the ages"),
        (["learning.algorithm=sgp", "gossip.weights=push"], "divides sums by masses"),
    ],
    ids=str,
)
@pytest.mark.parametrize("wanted", ["robustness.rule=median", "attack.name=sign_flip"])
def test_what_rules_and_lies_do_not_go_with_is_refused_with_the_reason(wanted, changes, why):
    key = wanted.partition("=")[0]
    with pytest.raises(ExperimentError, match=f'^{key} = ".*" does not work with .*{why}.*; change one of the two$'):
        planned(
            wanted, *[change for change in changes if not change.startswith("learning.weighted") or "true" in change]
        )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["robustness.rule=median", "compression.name=top_k"], "under which peers send differences and no models"),
        (
            ["robustness.rule=median", "robustness.options.attackers=4"],
            "= 4 with median needs at least 9 models .* only 8;",
        ),
        (["robustness.rule=clipped_gossip", "robustness.options.attackers=4"], "at least 9 models"),
        (["robustness.rule=krum", "robustness.options.attackers=3"], "at least 9 models"),
        (["robustness.rule=median", "topology.kind=one_peer_exponential"], "at least 3 models .* only 2;"),
        (
            ["robustness.rule=median", "topology.kind=epidemic_local", "topology.peers=12", "topology.degree=3"],
            "at least 3 models .* only 1;",  # though each peer sends to three
        ),
        (
            ["robustness.rule=clipped_gossip", "robustness.options.nearest=true"],
            "clipped_gossip has no option nearest; its options are: attackers",
        ),
        (
            ["robustness.rule=self_centred_clipping"],
            "options.radius is missing, and self_centred_clipping needs it",
        ),
        (
            ["robustness.rule=median", "robustness.options.radius=1.0"],
            "median has no option radius; its options are: attackers, nearest",
        ),
        (
            ["robustness.options.attackers=2"],
            'options = .* has no effect, because robustness.rule is "none"; leave it out',
        ),
        (["attack.peers=0.5"], 'because attack.name is "none"'),
        (["attack.name=label_flip", "attack.scale=2.0"], "labels are flipped or not"),
        (["attack.name=sign_flip", 'attack.peers=["eve"]'], '"eve", which is not a peer of the experiment; correct it'),
        (["attack.name=sign_flip", "attack.peers=0.99"], "leaves 0 of 8 peers honest; lower or shorten attack.peers"),
        (["attack.name=sign_flip", "compression.name=float16"], "which encodes true models; leave one of the two out"),
        (["attack.name=label_flip", "data.name=diabetes"], "needs data with classes"),
        (["attack.name=sing_flip"], 'did you mean "sign_flip"'),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_said_in_one_sentence(changes, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        planned(*changes)


class OwnMerging(GossipLearning):
    """Of the user's own, in cycles of its own."""


@pytest.mark.parametrize("wanted", ["robustness.rule=median", "attack.name=sign_flip"])
def test_no_algorithm_in_cycles_of_its_own_goes_with_rules_or_lies(wanted):
    own = f"learning.algorithm={__name__}:OwnMerging"
    with pytest.raises(ExperimentError, match=r"does not work with .*:OwnMerging, which weighs the rows"):
        plan(read({key: value for key, value in SMALL.items() if key != "gossip"}, changes=[own, wanted]))


def stay(rows, since, *, noise, scale=0.5):
    """An attack of one's own, whose peers train half as much."""
    return since + scale * (rows - since) + 0 * noise()


def fail(rows, since, **_):
    """An attack with an error in it."""
    return rows[:, :-1] - since


def test_a_function_is_an_attack_also_of_live_peers():
    rows, since = torch.eye(8, 3), torch.ones(8, 3)
    for changes in ([], ["attack.scale=0.25"]):
        own = planned(f"attack.name={__name__}:stay", 'attack.peers=["peer1"]', *changes, only=["peer1"]).attack
        sent = own.corrupted(rows, since=since, peers=[f"peer{index}" for index in range(8)], round=0, step=0)
        expected = rows.clone()
        expected[1] = since[1] + (0.25 if changes else 0.5) * (rows[1] - since[1])
        assert torch.equal(sent, expected)


def test_an_attack_of_ones_own_that_fails_is_said_in_one_sentence():
    with pytest.raises(InputError, match=r"^attack\.name: .*:fail raised RuntimeError: .*; fix it$"):
        simulate(read(SMALL, changes=[f"attack.name={__name__}:fail"]))


@pytest.mark.parametrize("name", ["alie", "ipm", "dissensus"])
def test_live_attackers_cannot_know_what_honest_peers_will_send(name):
    assert planned(f"attack.name={name}").attack is not None
    with pytest.raises(ExperimentError, match=r"needs the models of all honest peers, .*; use p2pfl simulate"):
        planned(f"attack.name={name}", only=["peer0"])


def test_attackers_are_drawn_from_the_seed_or_named():
    drawn = planned("attack.name=sign_flip", "attack.peers=0.25").attack
    assert len(drawn.attackers) == 2
    assert drawn == planned("attack.name=sign_flip", "attack.peers=0.25", only=["peer0"]).attack
    assert planned("attack.name=sign_flip", 'attack.peers=["peer1"]').attack.attackers == {"peer1"}


def test_who_attacks_does_not_tell_and_who_defends_must():
    honest = planned().facts
    assert planned("attack.name=sign_flip").facts == honest
    assert ruled("median").facts != honest


def test_a_malicious_peer_flips_its_own_labels_and_no_others():
    flipped, honest = planned("attack.name=label_flip", 'attack.peers=["peer2"]'), planned()
    own = honest.federation.train["peer2"]
    before, after = honest.federation.dataset.targets, flipped.federation.dataset.targets
    assert torch.equal(after[own], 2 - before[own])
    others = torch.ones(len(before), dtype=torch.bool)
    others[own] = False
    assert torch.equal(after[others], before[others])


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("algorithm", ["fedavg", "dpsgd", "fedprox", "fedadam", "ditto", "partial", "qg_dsgdm"])
def test_algorithms_that_exchange_rows_learn_under_a_rule_and_an_attack(algorithm):
    changes = ["robustness.rule=trimmed_mean", "attack.name=random", 'attack.peers=["peer5"]', "attack.scale=100.0"]
    run = simulate(read(SMALL, changes=[*changes, f"learning.algorithm={algorithm}"]), baselines=False)
    assert run.summary["together"] > 0.3
    assert all(record.distance < 10 for record in run.metrics if not run.summary["per_peer"][record.peer]["attacker"])


def test_what_learning_together_gave_is_said_of_honest_peers_and_attackers_are_marked():
    run = simulate(read(SMALL, changes=["attack.name=random", 'attack.peers=["peer1", "peer4"]', "attack.scale=100.0"]))
    scores = run.summary["per_peer"]
    assert {peer for peer, score in scores.items() if score["attacker"]} == {"peer1", "peer4"}
    honest = [score for score in scores.values() if not score["attacker"]]
    assert run.summary["together"] == pytest.approx(sum(score["together"] for score in honest) / 6)
    assert run.summary["alone"] == pytest.approx(sum(score["alone"] for score in honest) / 6)


def test_a_model_on_all_data_is_not_of_flipped_labels():
    changes = ["attack.name=label_flip", 'attack.peers=["peer1", "peer4"]', "rounds=20"]
    assert simulate(read(SMALL, changes=changes)).summary["pooled"] > 0.9


@pytest.mark.slow
def test_a_rule_works_on_rows_under_private_noise_and_in_halves():
    for changes in (["privacy.mode=independent", "privacy.noise=0.001"], ["compression.name=float16"]):
        plain = simulate(read(SMALL, changes=["robustness.rule=median"]), baselines=False)
        found = simulate(read(SMALL, changes=["robustness.rule=median", *changes]), baselines=False)
        for peer, model in plain.models.items():
            for name, value in model.items():
                assert torch.allclose(found.models[peer][name], value, atol=0.05), name
