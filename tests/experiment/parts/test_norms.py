"""model.norm: what becomes of batch normalisation in an experiment."""

import pytest

from p2pfl.core.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.simulation import simulate

TABLE = {
    "rounds": 2,
    "topology": {"kind": "complete", "peers": 3},
    "data": {"name": "wine"},
    "model": {"name": "norming:Normed"},
    "learning": {"device": "cpu"},
}


def resolved(*changes):
    return plan(read(TABLE, changes=list(changes)))


def test_fedbn_keeps_batch_normalisation_local_without_another_key():
    found = resolved("learning.algorithm=fedbn")
    assert found.learner.layout.local
    assert found.shared == found.learner.layout.size - 4 * 5


@pytest.mark.parametrize("norm", ["frozen", "group"])
def test_without_local_layers_every_algorithm_works(norm):
    assert not resolved(f"model.norm={norm}").learner.layout.local


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ([], r'set model\.norm to "frozen" .* "group" .* or "local"'),
        (["model.norm=local"], "learning.algorithm.*fedavg.* would average them; set it to fedbn or fedper"),
        (["model.norm=local", "learning.algorithm=fedrep"], "would average them"),
        (["model.norm=frozen", "learning.algorithm=fedbn"], "none of whose layers stays with its peer"),
        (["model.name=mlp", "learning.algorithm=fedbn"], 'model.norm is "local", but the model has no batch'),
        (["learning.algorithm=fedbn", "learning.consensus=true"], "each peer ends with a model of its own"),
        (["learning.algorithm=fedbn", "learning.example_noise=1.0"], "learning.example_noise"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        resolved(*changes)


def test_the_saved_model_of_each_peer_has_its_own_statistics(tmp_path):
    changes = ["learning.algorithm=fedbn", "privacy.mode=pairwise"]
    run = simulate(read(TABLE, changes=changes), folder=tmp_path / "run", baselines=False)
    means = [model["norm.running_mean"] for model in run.models.values()]
    heads = [model["head.bias"] for model in run.models.values()]
    assert not means[0].equal(means[1])
    assert (heads[0] - heads[1]).abs().max() < 1e-4  # the masks are on a grid
