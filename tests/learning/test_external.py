"""A training loop of one's own."""

import pytest
import torch

from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.rows import Layout
from p2pfl.learning import ExternalLearner, Learner

PEERS = ["ada", "bob", "cyd"]


def drift(row, *, peer, round):
    row += len(peer) + ord(peer[0]) + round
    return row


def learner_of(function=drift, **options):
    return ExternalLearner(function, start=torch.arange(4.0), samples={"ada": 1, "bob": 2, "cyd": 3}, **options)


def test_rows_are_trained_one_by_one_and_idle_ones_are_left_alone():
    learner: Learner = learner_of()
    rows = learner.start(PEERS)
    fitted = learner.fit(rows, peers=PEERS, round=2, active=torch.tensor([True, False, True]))
    assert torch.equal(rows, torch.arange(4.0).repeat(3, 1))
    assert torch.equal(fitted.rows - rows, torch.tensor([[102.0], [0], [104]]).expand(3, 4))
    assert fitted.report.steps.tolist() == [1, 0, 1]
    assert learner.samples(PEERS).tolist() == [1, 2, 3]


def test_the_number_of_samples_may_be_that_of_now():
    counts = {"ada": 1, "bob": 2}
    learner = ExternalLearner(drift, start=torch.arange(4.0), samples=counts.__getitem__)
    assert learner.samples(["ada", "bob"]).tolist() == [1, 2]
    counts["ada"] = 5
    assert learner.samples(["ada", "bob"]).tolist() == [5, 2]


def test_scores_and_names_are_the_users():
    layout = Layout(("scale", "weight"), ((), (3,)))
    learner = learner_of(layout=layout, evaluate=lambda row, peer: {"sum": row.sum(), "length": len(peer)})
    scores = learner.evaluate(learner.start(PEERS), peers=PEERS)
    assert scores["sum"].tolist() == [6, 6, 6]
    assert learner.state_dict(torch.arange(4.0))["weight"].tolist() == [1, 2, 3]
    assert learner.state_dict(torch.arange(4.0))["scale"].shape == ()
    assert learner.evaluate(learner.start(PEERS), peers=PEERS, part="train") == {}


@pytest.mark.parametrize("wrong", [lambda row: row[:2], lambda row: row * float("nan")])
def test_what_is_not_a_finite_row_is_refused(wrong):
    learner = learner_of(lambda row, **_: wrong(row))
    with pytest.raises(LearningError, match="ada in round 1"):
        learner.fit(learner.start(PEERS), peers=PEERS, round=1)


def test_corrections_and_starts_that_do_not_fit_are_refused():
    learner = learner_of()
    with pytest.raises(ModelError, match="gradients"):
        learner.fit(learner.start(PEERS), peers=PEERS, round=0, correction=lambda rows, _: rows)
    with pytest.raises(
        ModelError,
        match=(
            r"start has shape \(4,\) and type torch\.float32, not 3 floats; flatten the trained tensors in the order "
            "of the layout"
        ),
    ):
        learner_of(layout=Layout(("a",), ((3,),)))
