"""Predictions of saved models for pictures and tokens, from raw samples."""

import csv

import numpy as np
import pytest
import torch

import owning
from p2pfl.cli import main
from p2pfl.core.errors import InputError, LearningError
from p2pfl.experiment import plan, read
from p2pfl.learning.models import build
from p2pfl.results.models import ArrayPredictor, Predictor
from p2pfl.simulation import simulate

PLAIN = {
    "rounds": 1,
    "topology": {"kind": "complete", "peers": 2},
    "learning": {"device": "cpu"},
    "gossip": {"steps": 1},
    "privacy": {"mode": "none"},
}
PICTURES = PLAIN | {"data": {"name": "digits"}, "model": {"name": "cnn", "hidden": [4, 4]}}
WORDS = PLAIN | {"data": {"name": "owning:words", "options": {"classes": 2}}, "model": {"name": "owning:Words"}}


def saved(folder, table):
    """The file of one peer's model after a round, and its tensors."""
    run = simulate(read(table), folder=folder / "run", baselines=False)
    return folder / "run" / "peers" / "peer0.safetensors", run.models["peer0"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("pictures"), PICTURES)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("words"), WORDS)


@pytest.fixture
def pixels():
    """Five pictures with numbers from 0 to 16."""
    return np.random.default_rng(3).integers(0, 17, (5, *plan(read(PICTURES)).federation.dataset.shape))


def test_raw_pictures_are_scaled_as_in_the_training(pictures, pixels):
    file, tensors = pictures
    found = ArrayPredictor.load(file).predict(pixels)
    model = build("cnn", shape=pixels.shape[1:], classes=10, seed=0, options={"hidden": [4, 4]})
    model.load_state_dict(tensors)
    wanted = model.eval()(torch.from_numpy(pixels / 16.0).float()).double().softmax(1)
    assert np.allclose(found.values, wanted.detach().numpy(), atol=1e-6)
    assert len(found.labels) == 5


def test_an_array_with_an_account_needs_to_be_asked_for(pictures, pixels, tmp_path):
    predictor, file = ArrayPredictor.load(pictures[0]), tmp_path / "pictures.npy"
    np.save(file, pixels)
    (tmp_path / "pictures.npy.budget.jsonl").write_text("")
    with pytest.raises(InputError, match=r"pictures\.npy\.budget\.jsonl counts what is spent"):
        predictor.predict(file)
    assert len(predictor.predict(file, unaccounted=True).labels) == 5


def test_the_command_writes_a_line_for_each_picture(pictures, pixels, tmp_path):
    np.save(tmp_path / "pictures.npy", pixels)
    out = tmp_path / "out.csv"
    assert main(["predict", str(pictures[0]), str(tmp_path / "pictures.npy"), "--out", str(out)]) == 0
    lines = [*csv.DictReader(out.read_text().splitlines())]
    assert [line["prediction"] for line in lines] == ArrayPredictor.load(pictures[0]).predict(pixels).labels


def test_tokens_stay_whole_numbers(words):
    file, tensors = words
    tokens = np.arange(15).reshape(3, 5)
    found = ArrayPredictor.load(file, model="owning:Words").predict(tokens)
    model = owning.Words()
    model.load_state_dict(tensors)
    assert np.allclose(found.values, model(torch.from_numpy(tokens)).double().softmax(1).detach().numpy(), atol=1e-6)
    with pytest.raises(InputError, match=r"takes whole numbers of shape \(n, 5\)"):
        ArrayPredictor.load(file, model="owning:Words").predict(tokens / 2)


def test_samples_that_do_not_fit_are_refused(pictures, pixels, tmp_path):
    predictor = ArrayPredictor.load(pictures[0])
    for wrong in (pixels[:, :, :3], pixels[:0], pixels.astype(str)):
        with pytest.raises(InputError, match="takes numbers of shape"):
            predictor.predict(wrong)
    objects, text = tmp_path / "objects.npy", tmp_path / "text.npy"
    np.save(objects, np.array([{}], dtype=object), allow_pickle=True)
    text.write_text("no array")
    for path in (objects, text):
        with pytest.raises(InputError, match="is not an array of numbers"):
            predictor.predict(path)
    with pytest.raises(InputError, match="cannot be read"):
        predictor.predict(tmp_path / "missing.npy")


def test_a_model_with_several_outputs_for_a_sample_is_not_predicted(pictures, pixels):
    class Everywhere(torch.nn.Module):
        def forward(self, x):
            return x[:, None].expand(-1, 10, *x.shape[1:])

    saved = ArrayPredictor.load(pictures[0]).saved
    predictor = ArrayPredictor(type(saved)(saved.path, saved.about, Everywhere(), ()))
    with pytest.raises(LearningError, match="for a sample, and predict writes one"):
        predictor.predict(pixels)


def test_a_model_of_tables_takes_no_array(trained):
    with pytest.raises(InputError, match="takes the rows of a table"):
        ArrayPredictor.load(trained[0] / "run" / "peers" / "peer0.safetensors")


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("change", ["model.norm=group", "model.norm=frozen", "learning.algorithm=fedbn"])
def test_a_model_with_batch_normalisation_is_loaded_as_it_was_trained(change, tmp_path):
    normed = PLAIN | {"data": {"name": "wine"}, "model": {"name": "norming:Normed"}}
    run = simulate(read(normed, changes=[change]), folder=tmp_path / "run", baselines=False)
    predictor = Predictor.load(tmp_path / "run" / "peers" / "peer0.safetensors", model="norming:Normed")
    found = predictor.saved.module.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in run.models["peer0"].items())
    assert isinstance(predictor.saved.module.norm, torch.nn.GroupNorm) == (change == "model.norm=group")
    assert predictor.module(torch.zeros(2, 13, dtype=torch.float64)).isfinite().all()
