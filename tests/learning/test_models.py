"""Models by name."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from p2pfl.core.errors import ModelError
from p2pfl.learning import build


@pytest.mark.parametrize("name", ["linear", "mlp", "cnn"])
@pytest.mark.parametrize("classes", [10, None])
def test_models_fit_their_features_and_classes(name, classes):
    model = build(name, shape=(1, 8, 8), classes=classes, seed=0)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, classes or 1)


def test_the_same_seed_gives_the_same_start_and_leaves_torch_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    one, other, third = (build("mlp", shape=(4,), classes=2, seed=seed).state_dict() for seed in (5, 5, 6))
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["1.weight"], third["1.weight"])


def test_peers_that_build_their_models_at_once_start_as_alone():
    shape, seeds = (40, 40), range(16)

    def start(seed):
        return torch.cat(
            [
                each.flatten()
                for each in build("mlp", shape=shape, classes=2, seed=seed, options={"hidden": [30] * 30}).parameters()
            ]
        )

    alone = [start(seed) for seed in seeds]
    with ThreadPoolExecutor(8) as threads:
        assert all(map(torch.equal, threads.map(start, seeds), alone))


def test_a_class_of_ones_own_is_imported():
    model = build("torch.nn:Linear", shape=(4,), classes=2, seed=0, options={"in_features": 4, "out_features": 2})
    assert isinstance(model, nn.Linear)


@pytest.mark.parametrize("name", ["subprocess:run", "subprocess:Popen", "os:system", "torch.nn.init:zeros_"])
def test_what_is_not_a_class_of_models_is_refused_before_it_is_called(name, tmp_path):
    touched = tmp_path / "touched"
    options = {"args": ["touch", str(touched)]} if "subprocess" in name else {"command": f"touch {touched}"}
    with pytest.raises(ModelError, match="was not called; name a class"):
        build(name, shape=(4,), classes=2, seed=0, options=options)
    assert not touched.exists()


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("resnet", {}, "package.module:Class"),
        ("torch.nn:Nothing", {}, r"'\); correct the name after the colon"),
        ("nowhere.at.all:Model", {}, r"'\); correct the name before the colon"),
        (
            "mlp",
            {"wide": 3},
            (
                r"model 'mlp' does not accept the options {'wide': 3} \(mlp\(\) got an unexpected keyword "
                r"argument 'wide'\); fix \[model\]"
            ),
        ),
        ("cnn", {}, r"\(C, H, W\)"),
        ("builtins:dict", {}, "torch.nn.Module"),
    ],
)
def test_models_that_cannot_be_built_are_refused_in_one_sentence(name, options, sentence):
    with pytest.raises(ModelError, match=sentence):
        build(name, shape=(4,), classes=2, seed=0, options=options)
