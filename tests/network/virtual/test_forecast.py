"""How long a run is said to take."""

import json
from datetime import UTC, datetime

import pytest
import torch
from safetensors.torch import load_file

from p2pfl.cli import main
from p2pfl.core.errors import ExperimentError, ModelError
from p2pfl.experiment import read
from p2pfl.experiment.schema import TrainingTimes
from p2pfl.network.virtual.forecast import Network, One, forecast, list_shipped, network
from p2pfl.network.virtual.virtual_network import Conditions
from p2pfl.simulation import simulate
from sourcing import shared_source
from swarms import SMALL


def test_rounds_take_what_training_and_the_slower_of_two_lines_take():
    """The slow peer has the other's first row when it has trained, and waits for an answer to its own first one."""
    changes = ["topology.kind=path", "topology.peers=2", "rounds=5", "gossip.steps=3", "learning.weighted=false"]
    experiment = read(SMALL, changes=changes)
    latency, seconds = 0.1, 2.0
    over = Network(
        link=Conditions(latency=latency),
        training=TrainingTimes(seconds=seconds),
        peers={"peer1": One(seconds=3 * seconds)},
    )
    run = forecast(experiment, over, baselines=False)
    a_round = 3 * seconds + 4 * latency
    settling = run.summary["wall_s"] - 5 * a_round
    assert 0 <= settling < 2.0  # what partners owe each other is said, and goodbye
    slow, fast = [[r for r in run.metrics if r.peer == name and r.round == 3] for name in ("peer1", "peer0")]
    assert slow[0].seconds_training == pytest.approx(3 * seconds)
    assert fast[0].seconds_training == pytest.approx(seconds)
    assert fast[0].seconds_waiting == pytest.approx(2 * seconds + 4 * latency)
    assert run.summary["predicted"] is True


@pytest.mark.slow
def test_training_while_models_travel_takes_the_time_of_the_training_alone():
    """Each link takes 2 s for a model, up and down in turn, and training 3 s; without overlap a round has both."""
    changes = ["topology.kind=complete", "topology.peers=2", "rounds=6", "learning.algorithm=diloco", "gossip.steps=1"]
    changes += ["model.hidden=[512]"]
    experiment = read(SMALL, changes=changes)
    size = 8 * sum(each.numel() for each in simulate(experiment, baselines=False).models["peer0"].values())
    over = Network(link=Conditions(up=size / 1.0, down=size / 1.0), training=TrainingTimes(seconds=3.0))
    shares = {}
    for overlap in ("none", "start", "late"):
        own = read(SMALL, changes=[*changes, f"learning.algorithm_options.overlap={overlap}"])
        run = forecast(own, over, baselines=False)
        shares[overlap] = run.summary["computing"]
        waited = [record.seconds_waiting for record in run.metrics if 0 < record.round < 5]
        assert max(waited) < 0.1 if overlap != "none" else min(waited) > 1.9
        same = simulate(own, baselines=False)
        assert all(
            torch.allclose(value, same.models[peer][name], atol=1e-10)
            for peer in run.models
            for name, value in run.models[peer].items()
        )
    assert 0.55 < shares["none"] < 0.61
    assert shares["start"] > 0.99
    assert shares["late"] > 0.99


@pytest.mark.slow
def test_half_the_bandwidth_takes_twice_as_long():
    changes = ["topology.kind=ring", "topology.peers=3", "rounds=2", "model.hidden=[512]"]
    experiment = read(SMALL, changes=changes)
    took = [
        forecast(experiment, Network(link=Conditions(up=rate, down=1e9)), baselines=False).summary["wall_s"]
        for rate in (1e5, 5e4)
    ]
    assert took[1] / took[0] == pytest.approx(2.0, rel=0.1)


@pytest.mark.slow
def test_peers_that_their_budget_ends_say_so_as_the_simulation_does():
    changes = ["rounds=9", "privacy.mode=pairwise", "privacy.clip=1", "privacy.epsilon=8", "privacy.noise=0.8"]
    experiment = read(SMALL, changes=changes)
    run, same = (each(experiment) for each in (lambda e: forecast(e, network("wan"), baselines=False), simulate))
    assert run.summary["stopped"] == same.summary["stopped"]
    assert (run.summary["stopped"]["done"], run.summary["stopped"]["rounds"]) == (run.summary["rounds"], 9)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [[], ["privacy.mode=pairwise"]], ids=str)
def test_peers_over_a_network_learn_what_the_simulation_learns(changes):
    experiment = read(SMALL, changes=changes)
    over = network("wan")
    run = forecast(experiment, over, baselines=False)
    same = simulate(experiment, baselines=False)
    assert run.summary["missed"] == 0
    for name, model in same.models.items():
        for key, value in model.items():
            atol = 1e-10 if experiment.privacy.mode == "none" else 2**-20  # a step of the grid
            assert torch.allclose(run.models[name][key], value, rtol=0, atol=atol)


AGREED = {
    "scaled features": ["data.scale=true"],
    "scaled features, masks": ["data.scale=true", "privacy.mode=pairwise"],
    "one model": ["learning.consensus=true"],
    "both": ["data.scale=true", "learning.consensus=true"],
}


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("changes", AGREED.values(), ids=AGREED)
def test_peers_over_a_network_agree_on_what_the_simulation_agrees_on(changes, tmp_path):
    experiment = read(SMALL, changes=changes)
    run = forecast(experiment, network("wan"), folder=tmp_path / "forecast")
    same = simulate(experiment, folder=tmp_path / "simulated").summary
    slack = 1e-6 if experiment.privacy.mode == "none" else 1e-4  # masks on a grid move the model
    for key in ("together", "alone", "pooled", "common"):
        assert run.summary[key] == (None if same[key] is None else pytest.approx(same[key], abs=slack))
    for name, scores in same["per_peer"].items():
        found = dict(run.summary["per_peer"][name])
        ends, expected = found.pop("interval"), scores.pop("interval")
        assert found == pytest.approx(scores, abs=slack)
        assert (ends["low"], ends["high"]) == pytest.approx((expected["low"], expected["high"]), abs=slack)
    for key, told in (same["statistics"] or {}).items():
        assert run.summary["statistics"][key] == pytest.approx(told, abs=1e-6)
    kept, theirs = (load_file(tmp_path / each / "peers" / "peer0.safetensors") for each in ("forecast", "simulated"))
    assert kept.keys() == theirs.keys()
    assert (run.summary["common"] is not None) == experiment.learning.consensus
    assert (run.summary["statistics"] is not None) == experiment.data.scale


@pytest.mark.slow
def test_training_on_scaled_features_takes_its_time():
    experiment = read(SMALL, changes=["data.scale=true", "rounds=1"])
    run = forecast(experiment, Network(training=TrainingTimes(seconds=100.0)), baselines=False)
    assert [record.seconds_training for record in run.metrics] == pytest.approx([100.0] * len(run.metrics))


@pytest.mark.nightly
def test_what_hides_samples_over_a_network_is_what_hides_them_in_the_simulation():
    changes = ["learning.example_noise=1.0", "learning.batch=8", "rounds=2"]
    experiment = read(SMALL, changes=changes)
    source = shared_source()
    run, same = forecast(experiment, network("wan"), source=source), simulate(experiment, source=source)
    assert run.summary["privacy"] == same.summary["privacy"]
    assert run.summary["pooled"] == pytest.approx(same.summary["pooled"])
    for each in ("together", "alone"):
        assert run.summary[each] == pytest.approx(same.summary[each])


class Picky:
    """An algorithm that likes no model."""

    async def round(self, state, learner, net, round):
        del state, learner, net
        raise ModelError(f"expected another model, got this one in round {round}: change it")


@pytest.mark.slow
def test_a_peer_that_cannot_go_on_says_in_one_sentence_why_and_with_the_status_of_the_simulation(tmp_path, capsys):
    options = ["--trust-code", "--set", f"learning.algorithm={__name__}:Picky", "--runs", str(tmp_path)]
    for over in ([], ["--network", "wan"]):
        assert main(["simulate", "digits", *over, *options]) == ModelError.status
        assert capsys.readouterr().err.endswith("expected another model, got this one in round 0: change it\n")


@pytest.mark.slow
def test_a_forecast_is_the_same_each_time():
    experiment = read(SMALL, changes=["rounds=2"])
    began = datetime(2026, 1, 1, tzinfo=UTC)
    one, two = (forecast(experiment, network("cellular"), baselines=False, began=began) for _ in range(2))
    assert one.metrics == two.metrics
    assert one.summary == two.summary


@pytest.mark.parametrize("name", list_shipped())
def test_a_shipped_network_is_one(name):
    assert network(name).training.seconds > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[link]\nlatncy = 1", 'unknown key "link.latncy"; did you mean "link.latency"?'),
        ("[links]\nlatency = 1", 'unknown key "links"; did you mean "link"?'),
        ("[link]\nlatency = -1.0", "link.latency is -1.0; set it to a finite number >= 0"),
        ("[link]\nlatency = '25 ms'", 'link.latency is "25 ms"; set it to a finite number >= 0'),
        ("[link]\nloss = 1", "link.loss is 1; set it to a number >= 0 and < 1"),
        ("link = 3", "link is 3; set it to a section with keys of its own"),
        ("[peers.ada.link]\nup = 0", "peers.ada.link.up is 0; set it to a number > 0"),
        ("[peers.ada]\nlnk = 0", 'unknown key "peers.ada.lnk"; did you mean "peers.ada.link"?'),
        (
            "[peers]\nada = 3",
            'peers is {"ada": 3}; set it to a table in which each value is a section with keys of its',
        ),
        ("[link", "the file is not TOML ("),
    ],
)
def test_a_wrong_network_file_is_told_in_one_sentence(tmp_path, text, said):
    path = tmp_path / "wan.toml"
    path.write_text(text)
    with pytest.raises(ExperimentError) as caught:
        network(path)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert "\n" not in str(caught.value)


def test_a_network_that_is_nowhere_names_those_that_are():
    with pytest.raises(ExperimentError, match="cellular, wan"):
        network("wlan")


@pytest.mark.slow
def test_the_command_predicts(tmp_path, capsys):
    options = [
        "--set",
        "rounds=1",
        "--set",
        "topology.kind=complete",
        "--peers",
        "4",
        "--no-baselines",
        "--json",
        "--runs",
        str(tmp_path),
    ]
    assert main(["simulate", "digits", "--network", "wan", *options]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["predicted"]
    assert summary["wall_s"] > 1.0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            ["attack.name=alie", "learning.weighted=false"],
            "needs the models of all honest peers, .*; use p2pfl simulate",
        ),
        (
            ["simulation.loss=0.1"],
            r"simulation\.loss is 0\.1, but a network already defines losses and slow peers; leave it out",
        ),
        (
            ["topology.kind=complete", "simulation.devices={ seconds = 1.0 }"],
            r"simulation\.devices is a table, but a network already defines losses and slow peers; leave it out",
        ),
    ],
    ids=str,
)
def test_what_live_peers_cannot_do_is_not_foretold(changes, why):
    with pytest.raises(ExperimentError, match=why):
        forecast(read(SMALL, changes=changes), Network())
