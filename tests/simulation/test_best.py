"""Early stopping by the validation data of each peer, and its best model, live and simulated."""

import math

import pytest
import torch
from safetensors import safe_open

import p2pfl
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.experiment import plan, read
from p2pfl.network.transport import MemoryTransport
from p2pfl.results import Run
from p2pfl.simulation import simulate
from p2pfl.simulation.best_models import BestModels
from swarms import SMALL, live

STOPPING = ["data.validation=0.3", "learning.patience=1", "rounds=25", "learning.rate=4.0"]
"""It stops after the third round, when the losses of all peers have risen."""


def losses_of(run):
    """Return the validation losses by peer, round by round."""
    found = {}
    for record in run.metrics:
        found.setdefault(record.peer, []).append(record.scores["validation_loss"])
    return found


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    "changes",
    [
        STOPPING,
        [*STOPPING, "learning.algorithm=dpsgd", "topology.kind=ring", "learning.patience=2"],
        [*STOPPING, "learning.patience=3"],
    ],
    ids=["FedAvg", "D-PSGD", "longer"],
)
def test_a_run_stops_after_the_first_round_in_which_nobody_has_a_young_best_model(changes):
    experiment = read(SMALL, changes=changes)
    run = simulate(experiment, baselines=False)
    losses, patience = losses_of(run), experiment.learning.patience
    last = run.metrics[-1].round

    def over(round):
        """Return whether the first smallest loss of each peer is at least so old."""
        so_far = [each[: round + 1] for each in losses.values()]
        return all(round - min(range(len(each)), key=each.__getitem__) >= patience for each in so_far)

    assert 0 < last < experiment.rounds - 1
    assert [round for round in range(1, last + 1) if over(round)] == [last]
    for peer, best in run.summary["best"].items():
        assert best["loss"] == min(losses[peer])
        assert best["round"] == losses[peer].index(best["loss"])
        assert best["part"] == "validation"


@pytest.mark.slow
def test_the_best_model_is_the_one_of_its_round_in_memory_and_on_the_disk(tmp_path):
    experiment = read(SMALL, changes=STOPPING)
    run = simulate(experiment, baselines=False, folder=tmp_path / "run")
    again = Run.load(tmp_path / "run")
    assert [*again.best] == [*again.models] == [*run.models]
    for peer, best in run.summary["best"].items():
        whole = simulate(read(SMALL, changes=[*STOPPING, f"rounds={best['round'] + 1}"]), baselines=False)
        for name, value in whole.models[peer].items():
            assert torch.equal(value, run.best[peer][name])
            assert torch.equal(value, again.best[peer][name])
        with safe_open(tmp_path / "run" / best["file"], framework="pt") as file:
            about = file.metadata()
        assert (about["round"], about["part"]) == (str(best["round"]), "validation")
        assert float(about["loss"]) == best["loss"]


def test_either_condition_stops_a_run():
    both = ["data.validation=0.3", "rounds=6", "learning.patience=5"]
    still = simulate(read(SMALL, changes=[*both, "learning.stop=1000"]), baselines=False)
    assert still.metrics[-1].round == 1  # no model moves that far
    moving = simulate(read(SMALL, changes=[*both, "learning.stop=1e-9"]), baselines=False)
    assert moving.metrics[-1].round == 5
    risen = simulate(read(SMALL, changes=[*STOPPING, "learning.stop=1e-9"]), baselines=False)
    assert risen.metrics[-1].round == simulate(read(SMALL, changes=STOPPING), baselines=False).metrics[-1].round


@pytest.mark.slow
async def test_live_peers_keep_the_best_models_of_the_simulation_and_stop_in_the_same_round():
    experiment = read(SMALL, changes=STOPPING)
    ended = await live(experiment, MemoryTransport())
    run = simulate(experiment, baselines=False)
    assert {end.records[-1].round for end in ended.values()} == {run.metrics[-1].round}
    for peer, end in ended.items():
        expected = run.summary["best"][peer]
        assert (end.peer.best.best.round, end.peer.best.best.part) == (expected["round"], "validation")
        assert end.peer.best.best.loss == pytest.approx(expected["loss"])
        row = torch.cat([value.flatten() for value in run.best[peer].values()])
        kept = end.peer.plan.learner.state_dict(end.peer.best.rows[0])
        torch.testing.assert_close(torch.cat([value.flatten() for value in kept.values()]), row, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_with_its_best_models(tmp_path):
    experiment = read(SMALL, changes=[*STOPPING, "learning.patience=4", "learning.rate=2.0"])
    whole = simulate(experiment, baselines=False)
    last = whole.metrics[-1].round
    assert last > 3

    def interrupt(records):
        if records[0].round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(experiment, baselines=False, folder=tmp_path / "run", observe=interrupt)
    resumed = simulate(experiment, baselines=False, folder=tmp_path / "run", resume=True)
    assert resumed.metrics[-1].round == last
    assert resumed.summary["best"] == whole.summary["best"]
    for peer, model in whole.best.items():
        assert all(torch.equal(value, resumed.best[peer][name]) for name, value in model.items())


@pytest.mark.slow
def test_workers_keep_the_best_models_of_one_process(tmp_path):
    experiment = read(SMALL, changes=STOPPING)
    alone = simulate(experiment, baselines=False)
    together = simulate(experiment, baselines=False, workers=2, folder=tmp_path / "run")
    assert together.metrics[-1].round == alone.metrics[-1].round
    for peer, best in alone.summary["best"].items():
        assert together.summary["best"][peer]["round"] == best["round"]
        for name, value in alone.best[peer].items():
            torch.testing.assert_close(together.best[peer][name], value, rtol=0, atol=1e-12)


def test_a_validation_part_alone_keeps_the_best_model_and_stops_nothing():
    run = simulate(read(SMALL, changes=["data.validation=0.3", "learning.rate=4.0"]), baselines=False)
    assert run.metrics[-1].round == 2
    losses = losses_of(run)
    assert {peer: best["loss"] for peer, best in run.summary["best"].items()} == {
        peer: min(each) for peer, each in losses.items()
    }
    assert simulate(read(SMALL), baselines=False).best == {}


def test_every_model_is_judged_in_every_round_even_if_few_are_evaluated():
    few = ["evaluation.peers=2", "evaluation.every=2"]
    whole = simulate(read(SMALL, changes=STOPPING), baselines=False)
    run = simulate(read(SMALL, changes=[*STOPPING, *few]), baselines=False)
    assert run.summary["best"] == whole.summary["best"]
    assert run.metrics[-1].round == whole.metrics[-1].round


def test_peers_without_validation_data_hold_nobody_back_and_earlier_models_win():
    best = BestModels.of(torch.zeros(3, 2))
    best.consider(torch.ones(3, 2), torch.tensor([0.5, math.nan, 0.5]), rounds=torch.tensor([0, 0, 0]))
    best.consider(2 * torch.ones(3, 2), torch.tensor([0.5, math.nan, 0.4]), rounds=torch.tensor([1, 1, 1]))
    assert best.rounds.tolist() == [0, -1, 1]
    assert best.rows[:, 0].tolist() == [1.0, 0.0, 2.0]
    assert best.improvement(1, patience=1).flatten().tolist() == [0.0, 0.0, 1.0]
    assert best.improvement(2, patience=3).flatten().tolist() == [1.0, 0.0, 1.0]


def test_a_federation_in_python_has_early_stopping_too():
    made = plan(read(SMALL, changes=STOPPING))
    model, settings = made.learner.model, {"learning": {"patience": 1}, "gossip": {"steps": 3}}
    learner = p2pfl.TorchLearner(model, made.federation, rate=4.0, seed=3, dtype=torch.float64, device="cpu")
    run = p2pfl.simulate(p2pfl.FedAvg(), learner, made.topology, rounds=25, settings=settings, baselines=False)
    assert run.metrics[-1].round < 24
    assert [*run.best] == [*run.models]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            ["learning.patience=2"],
            "learning.patience needs samples to judge models by; set data.validation, such as 0.2",
        ),
        (
            [*STOPPING, "privacy.mode=pairwise", "privacy.noise=0.1", "privacy.clip=1.0"],
            "learning.patience = 1 does not work with private noise, whose guarantee does not cover whether",
        ),
        ([*STOPPING, "learning.example_noise=1.0"], "learning.patience = 1 does not work with private noise"),
        (
            [*STOPPING, "privacy.mode=secagg", "topology.kind=complete", "gossip.steps=1"],
            'learning.patience = 1 does not work with privacy.mode = "secagg", because peers show each other',
        ),
        (
            [*STOPPING, "learning.algorithm=gossip_learning"],
            "learning.patience = 1 does not work with gossip_learning",
        ),
        ([*STOPPING, "transport.hurry=0.5"], "with learning.patience, after which all peers stop together"),
        (["learning.early_stopping=true"], 'did you mean "learning.patience"?'),
    ],
)
def test_what_early_stopping_does_not_go_with_is_refused(changes, sentence):
    with pytest.raises((ExperimentError, InputError)) as caught:
        plan(read({key: value for key, value in SMALL.items() if key != "gossip"}, changes=changes))
    assert sentence in str(caught.value)
