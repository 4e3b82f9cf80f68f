"""What a summary says in words."""

import pytest
import torch

import p2pfl
from p2pfl.core.rows import Layout
from p2pfl.experiment import plan, read
from p2pfl.learning.learner import SequentialLearner
from p2pfl.results.summary import describe

TABLE = {"topology": {"peers": 4}, "data": {"name": "wine"}, "model": {"name": "linear"}}
MASKS, NOISE, READABLE = "masks hide each update", "private noise stays", "every neighbour can read them"


@pytest.mark.parametrize(
    ("privacy", "said"),
    [
        ({"mode": "pairwise"}, MASKS),
        ({"mode": "pairwise", "mask": 0.0, "noise": 0.5}, NOISE),
        ({"mode": "pairwise", "mask": 0.0, "noise": 0.5, "clip": 1.0}, NOISE),
        ({"mode": "pairwise", "mask": 0.0, "clip": 1.0}, READABLE),
        ({"mode": "independent", "noise": 0.5}, NOISE),
        ({"mode": "independent", "clip": 1.0}, READABLE),
        ({"mode": "independent", "participation": 0.5}, READABLE),
        ({}, READABLE),
    ],
)
def test_only_noise_that_is_there_is_said_to_hide_anything(privacy, said):
    found = describe(plan(read(TABLE | {"privacy": privacy})), spent=None)
    assert [words for words in (MASKS, NOISE, READABLE) if words in found["statement"]] == [said]
    assert found["mode"] == {MASKS: "pairwise", NOISE: "independent", READABLE: "none"}[said]


class PartlyScored(SequentialLearner):
    """Learner of one number, whose peer bob has nothing to evaluate it on."""

    layout = Layout(("number",), ((1,),))
    dtype = torch.float64
    gradients_missing = "there are none"

    def start(self, peers):
        return torch.zeros(len(peers), 1, dtype=torch.float64)

    def samples(self, peers):
        return torch.ones(len(peers), dtype=torch.int64)

    def train(self, row, **_):
        return row + 1, 0.0

    def evaluate(self, rows, *, peers, part="test"):
        known = {} if "bob" in peers else {"loss": rows[:, 0], "perplexity": rows[:, 0].exp()}
        return known if part == "test" else {}


async def test_a_peer_without_scores_leaves_out_the_comparison_and_ends_the_run():
    graph = p2pfl.topology.complete(3).named(["ada", "bob", "cas"])
    run = await p2pfl.live(p2pfl.FedAvg(), PartlyScored(), graph, rounds=1)
    assert run.summary["together"] == pytest.approx(2.718281828)
    assert run.summary["alone"] is None
