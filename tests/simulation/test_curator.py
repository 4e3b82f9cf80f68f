import math
from dataclasses import replace

import pytest
import torch

from p2pfl import privacy
from p2pfl.algorithms import DPSGD
from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.experiment import plan, read
from p2pfl.privacy.accounting.accountant import account
from p2pfl.simulation import curator as module
from p2pfl.simulation import simulate
from p2pfl.simulation.curator import break_even, compare, curator

TABLE = {
    "rounds": 3,
    "seed": 3,
    "topology": {"kind": "ring", "peers": 6},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"dtype": "float64", "device": "cpu"},
    "privacy": {"mode": "pairwise", "epsilon": 8.0},
}


def resolved(*changes):
    return plan(read(TABLE, changes=changes))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "ditto"])
def test_without_noise_and_clipping_the_curator_averages_as_gossip_on_the_complete_graph_does(name):
    changes = [f"learning.algorithm={name}"]
    given = resolved("privacy.clip=1e6", *changes)
    plain = simulate(
        read(TABLE, changes=["privacy.mode=none", "topology.kind=complete", "gossip.steps=1", *changes]),
        baselines=False,
    )
    mean = curator(given, noise_share=0.0)["accuracy"].double().mean()
    assert float(mean) == pytest.approx(plain.summary["together"], abs=1e-12)


def test_the_noises_of_the_peers_sum_to_what_hides_any_one_of_them(monkeypatch):
    seen = []
    private = privacy.private
    monkeypatch.setattr(privacy, "private", lambda net, **how: seen.append(how["settings"]) or private(net, **how))
    given = resolved()
    curator(given)
    settings, protection = seen[0], given.protection
    change = 1 + 2.0**-20 * math.sqrt(protection.size) / 2
    assert settings.noise * math.sqrt(6) == pytest.approx(change / protection.guarantee.mu, rel=1e-12)
    assert settings.mask == 0
    assert settings.noise <= protection.settings.noise  # masks cannot do with less


def test_no_masks_do_with_less_noise_than_the_curator():
    protection = resolved("privacy.mask=1e4", "privacy.noise=0.5", "privacy.clip=1", "privacy.epsilon=500").protection
    floor = account(protection.graph, clip=1.0, noise=0.5, mask=1e9).mu
    assert floor == pytest.approx(1 / (0.5 * math.sqrt(6)), rel=1e-9)
    assert protection.guarantee.mu >= floor


def test_the_same_plan_gives_the_same_scores_again():
    given = resolved()
    assert torch.equal(curator(given)["accuracy"], curator(given)["accuracy"])


@pytest.mark.slow
def test_no_budget_is_charged_for_a_comparison(tmp_path):
    given = resolved(f"privacy.budget={tmp_path / 'spent.jsonl'}")
    compare(given)
    assert not (tmp_path / "spent.jsonl").exists()


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(
    "changes",
    [
        ["learning.algorithm=dpsgd"],
        ["simulation.absence=0.3"],
        ["learning.stop=1e-9"],
    ],
)
def test_every_algorithm_and_absent_peers_can_be_compared(changes):
    assert curator(resolved(*changes))["accuracy"].shape == (6,)


@pytest.mark.slow
def test_where_nobody_can_learn_from_noise_more_peers_or_a_larger_epsilon_would_help():
    given = resolved("privacy.epsilon=1", "rounds=10")
    found = compare(given)
    assert not found.pays
    assert not found.hopeless
    assert found.curator < found.alone < found.noiseless
    peers, epsilon = break_even(given, found)
    assert peers == math.ceil(6 / found.share)
    assert epsilon > 1
    assert curator(given, noise_share=found.share)["accuracy"].double().mean() > found.alone


@pytest.mark.slow
def test_the_epsilon_that_is_said_to_pay_lowers_the_noise_as_much():
    given = resolved("privacy.epsilon=1", "privacy.mode=independent", "rounds=10")
    found = compare(given)
    _, epsilon = break_even(given, found)
    eased = resolved(f"privacy.epsilon={epsilon}", "privacy.mode=independent", "rounds=10")
    assert eased.protection.settings.noise == pytest.approx(given.protection.settings.noise * found.share, rel=1e-6)


@pytest.mark.slow
def test_how_long_updates_are_is_told_beside_the_clip():
    given = resolved("privacy.epsilon=1")
    peers = given.topology.peers
    start = given.learner.start(peers)
    lengths = sorted((given.learner.fit(start, peers=peers, round=0).rows - start).norm(dim=1).tolist())
    assert lengths[2] <= compare(given).length <= lengths[3]


def test_a_clip_that_lets_nothing_through_is_not_blamed_on_the_noise():
    found = compare(resolved("privacy.clip=1e-6", "learning.epochs=5"))
    assert found.hopeless
    assert found.share is None
    with pytest.raises(InputError, match="share of the noise"):
        break_even(resolved(), found)


@pytest.mark.slow
def test_a_large_epsilon_pays():
    found = compare(resolved("privacy.epsilon=1000", "rounds=10"))
    assert found.pays
    assert break_even(resolved(), found)[0] == 6


def test_noise_under_which_training_breaks_down_is_no_better_than_alone(monkeypatch):
    def broken(*_, noise_share, **__):
        if noise_share > 0.1:
            raise PrivacyError("too large")
        return {"accuracy": torch.ones(6)}

    monkeypatch.setattr(module, "curator", broken)
    found = compare(resolved())
    assert found.curator is None
    assert 0.08 < found.share <= 0.1


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(
        InputError, match=r"the experiment claims no differential privacy to compare with; set privacy\.epsilon"
    ):
        curator(plan(read(TABLE, changes=["privacy.mode=none"])))
    with pytest.raises(
        InputError, match=r"the share of the noise is -1\.0, but must be at least 0; 1 is the noise of the curator"
    ):
        curator(resolved(), noise_share=-1.0)
    with pytest.raises(InputError, match="an algorithm that averages, or DPSGD"):
        curator(replace(resolved(), algorithm=object()))
    assert isinstance(module._to_averaging(DPSGD()), DPSGD)
