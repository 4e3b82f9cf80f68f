"""Scores of the mean of all models in the records of a simulation, and which model the other scores are of."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from p2pfl.experiment import plan, read
from p2pfl.network.transport import MemoryTransport
from p2pfl.results import Run
from p2pfl.results.records import columns_of
from p2pfl.simulation import evaluation_size, simulate
from swarms import SMALL, live

DPSGD = ["learning.algorithm=dpsgd", "topology.kind=ring", "gossip.steps=1", "rounds=2"]
DIRICHLET = ["data.name=digits", "model.name=linear", "data.split=dirichlet"]


def by_hand(made, run):
    """Return loss and accuracy of the mean of the last models on the test samples of all peers."""
    rows = torch.stack([torch.cat([value.flatten() for value in model.values()]) for model in run.models.values()])
    state = made.learner.state_dict(rows.double().mean(0).to(rows))
    test = torch.from_numpy(np.unique(np.concatenate([*made.federation.test.values()])))
    model = made.learner.model
    model.load_state_dict(state)
    with torch.no_grad():
        outputs = model(made.learner.features[test])
    targets = made.learner.targets[test]
    return float(F.cross_entropy(outputs, targets)), float((outputs.argmax(1) == targets).double().mean())


@pytest.mark.parametrize("changes", [DPSGD, [*DPSGD, *DIRICHLET]], ids=["wine", "digits"])
def test_the_last_records_have_the_scores_of_the_mean_of_the_models(changes):
    made = plan(read(SMALL, changes=changes))
    run = simulate(made, baselines=False)
    loss, accuracy = by_hand(made, run)
    for record in run.metrics[-len(run.models) :]:
        assert record.mean_model["loss"] == pytest.approx(loss, rel=1e-9)
        assert record.mean_model["accuracy"] == pytest.approx(accuracy)
    assert all(record.mean_model for record in run.metrics)


def test_where_all_models_are_equal_their_mean_has_their_scores():
    run = simulate(read(SMALL, changes=["topology.kind=complete", "gossip.steps=1"]), baselines=False)
    for record in run.metrics:
        assert record.mean_model == pytest.approx({name: record.scores[name] for name in record.mean_model})


def test_the_history_and_the_run_directory_have_them(tmp_path):
    run = simulate(read(SMALL, changes=DPSGD), baselines=False, folder=tmp_path / "run")
    assert Run.load(tmp_path / "run").metrics == run.metrics
    columns = columns_of(run.metrics)
    assert columns["mean_model_loss"] == [record.mean_model["loss"] for record in run.metrics]
    assert columns["mixed"] == [False] * 12


def test_the_plot_of_a_run_has_a_line_of_the_mean_of_all_models():
    pytest.importorskip("matplotlib")
    run = simulate(read(SMALL, changes=DPSGD), baselines=False)
    labelled = {line.get_label(): line for line in run.plot().axes[0].lines}
    line = labelled["mean of all models"]
    metric = run.summary["metric"]
    assert [*line.get_ydata()] == [record.mean_model[metric] for record in run.metrics if record.peer == "peer0"]


def test_few_samples_are_evaluated_where_the_budget_is_small_and_all_after_the_last_round(monkeypatch):
    made = plan(read(SMALL, changes=[*DPSGD, *DIRICHLET]))
    monkeypatch.setattr(evaluation_size, "FEWEST_SAMPLES", 10)
    monkeypatch.setattr(evaluation_size, "FREE", 0)
    monkeypatch.setattr(evaluation_size, "scope", lambda _: evaluation_size.Scope())
    seen = []
    evaluate = type(made.learner).evaluate

    def counted(self, rows, *, peers, part="test"):
        if peers == (evaluation_size.MEAN_NAME,):
            seen.append(len(self.federation.test[evaluation_size.MEAN_NAME]))
        return evaluate(self, rows, peers=peers, part=part)

    monkeypatch.setattr(type(made.learner), "evaluate", counted)
    simulate(made, baselines=False)
    sizes = [len(each) for each in made.federation.test.values()]
    union = len(np.unique(np.concatenate([*made.federation.test.values()])))
    most = max(10, int(sum(sizes) / 10))
    assert seen == [min(most, union), union]


def test_rounds_without_evaluation_have_none():
    run = simulate(read(SMALL, changes=["evaluation.every=2", "rounds=4"]), baselines=False)
    assert [bool(record.mean_model) for record in run.metrics if record.peer == "peer0"] == [False, True, False, True]


@pytest.mark.parametrize(
    "changes",
    [
        ["learning.algorithm=ditto"],
        ["learning.algorithm=fedper"],
        ["attack.name=sign_flip", "attack.peers=0.2", "learning.weighted=false"],
    ],
    ids=["ditto", "fedper", "attack"],
)
def test_a_mean_that_is_no_model_is_not_scored(changes):
    run = simulate(read(SMALL, changes=changes), baselines=False)
    assert all(record.mean_model == {} for record in run.metrics)


@pytest.mark.slow
def test_workers_have_the_mean_of_all_models():
    experiment = read(SMALL, changes=[*DPSGD, *DIRICHLET])
    alone, together = simulate(experiment, baselines=False), simulate(experiment, baselines=False, workers=2)
    for one, other in zip(alone.metrics, together.metrics, strict=True):
        assert other.mean_model == pytest.approx(one.mean_model, rel=1e-9)


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(
    ("changes", "mixed"),
    [
        ([], True),
        (["learning.algorithm=dpsgd"], False),
        (["learning.algorithm=dpsgd", 'learning.algorithm_options.order="adapt_then_combine"'], True),
        (["learning.algorithm=exact_diffusion", "topology.kind=ring", "gossip.steps=1"], True),
        (["learning.algorithm=gradient_tracking", "topology.kind=ring", "gossip.steps=1"], True),
        (["learning.algorithm=ditto"], False),
    ],
    ids=["fedavg", "dpsgd", "adapt then combine", "exact diffusion", "tracking", "ditto"],
)
async def test_records_say_whether_the_scored_model_is_mixed_live_as_simulated(changes, mixed):
    experiment = read(SMALL, changes=[*changes, "rounds=2"])
    run = simulate(experiment, baselines=False)
    assert {record.mixed for record in run.metrics} == {mixed}
    if len(changes) == 1:
        ended = await live(experiment, MemoryTransport())
        assert {record.mixed for end in ended.values() for record in end.records} == {mixed}
