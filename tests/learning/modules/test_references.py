"""Models of torchvision and timm by name: weights come from a file or the library's cache, never from a network."""

import enum
import hashlib
import importlib
import sys
import types
from unittest import mock

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from p2pfl.core.errors import ModelError
from p2pfl.experiment import plan, read
from p2pfl.learning import TorchLearner, build
from p2pfl.learning.modules import references
from p2pfl.learning.modules.norms import FrozenNorm
from p2pfl.simulation import simulate


class Small(nn.Module):
    """Stands for a network of torchvision: a body with batch normalisation and a head."""

    def __init__(self, num_classes=10, width=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3)
        self.bn1 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.fc(torch.relu(self.bn1(self.conv1(x))).mean((2, 3)))


@pytest.fixture
def library(monkeypatch, tmp_path):
    """A torchvision with one model, whose weights are in a cache of their own."""
    module = types.ModuleType("torchvision")
    path = tmp_path / "checkpoints" / "small.pth"
    path.parent.mkdir()
    torch.manual_seed(5)
    trained = Small()
    torch.save(trained.state_dict(), path)
    sign = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    named = path.with_name(f"small-{sign}.pth")
    path.rename(named)

    weights = enum.Enum("Weights", {"V1": 1})
    weights.V1.url = f"https://host/models/{named.name}"

    def get_model(_name, **options):
        assert options.pop("weights") is None, "nothing may be downloaded"
        return Small(**options)

    module.models = types.SimpleNamespace(
        list_models=lambda: ["small"], get_model=get_model, get_model_weights=lambda _: weights
    )
    monkeypatch.setitem(sys.modules, "torchvision", module)
    monkeypatch.setattr(references.torch.hub, "get_dir", lambda: str(tmp_path))
    return types.SimpleNamespace(file=named, trained=trained.state_dict())


def built(outputs=3, name="torchvision:small", pretrained=None, **options):
    return build(name, shape=(1, 8, 8), classes=outputs, seed=7, options=options, pretrained=pretrained)


@pytest.mark.usefixtures("library")
def test_a_new_model_starts_alike_on_all_peers_and_has_as_many_outputs_as_classes():
    a, b = built(), built()
    assert a.fc.out_features == 3
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_weights_of_the_cache_fill_the_body_and_not_a_head_of_other_classes(library):
    model = built(weights="V1")
    assert torch.equal(model.conv1.weight, library.trained["conv1.weight"])
    assert torch.equal(model.fc.weight, built().fc.weight)
    assert torch.equal(built(outputs=10, weights="V1").fc.weight, library.trained["fc.weight"])


def test_weights_of_a_file_take_the_place_of_those_of_the_cache(library, tmp_path):
    other = {name: value + 1 for name, value in library.trained.items()}
    save_file(other, tmp_path / "mine.safetensors")
    model = built(pretrained=tmp_path / "mine.safetensors", weights="V1")
    assert torch.equal(model.conv1.weight, other["conv1.weight"])


def test_what_is_not_there_is_named_with_how_to_get_it(library, tmp_path):
    for options, sentence in (
        ({"weights": "V9"}, "model.options.weights is 'V9', but torchvision:small has V1; choose one"),
        ({"name": "torchvision:large"}, 'torchvision has no model "large"'),
        ({"pretrained": tmp_path / "none.pth"}, "none.pth is no file of weights"),
    ):
        with pytest.raises(ModelError, match=sentence):
            built(**options)
    library.file.write_bytes(b"0" * 100)
    with pytest.raises(ModelError, match="is damaged, as its name says another hash"):
        built(weights="V1")
    library.file.unlink()
    with pytest.raises(ModelError, match=r"are not on this machine .*; download them by .*, or set model\.pretrained"):
        built(weights="V1")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w: {k: v for k, v in w.items() if k != "conv1.bias"}, "have no conv1.bias"),
        (lambda w: {**w, "other": torch.zeros(1)}, "have the unknown other"),
        (lambda w: {**w, "conv1.weight": torch.zeros(5, 1, 3, 3)}, "have other shapes for conv1.weight"),
    ],
)
def test_weights_of_another_model_are_refused(library, tmp_path, change, sentence):
    torch.save(change(library.trained), tmp_path / "other.pth")
    with pytest.raises(ModelError, match=sentence):
        built(pretrained=tmp_path / "other.pth")


def test_a_file_of_objects_runs_no_code(library, tmp_path):
    del library
    torch.save({"model": Small()}, tmp_path / "objects.pth")
    with pytest.raises(ModelError, match=r"objects\.pth is no file of weights"):
        built(pretrained=tmp_path / "objects.pth")


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:small"])
def test_a_file_that_the_library_would_unpickle_is_refused(name):
    with pytest.raises(ModelError, match=r"model\.options\.checkpoint_path may run code of its file"):
        built(name=name, checkpoint_path="evil.pth")


def test_a_library_that_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModelError, match=r"model.name needs timm, .*p2pfl-mqtt\[vision\]"):
        built(name="timm:resnet18")


TABLE = {
    "rounds": 2,
    "topology": {"kind": "complete", "peers": 3},
    "model": {"name": "torchvision:small", "frozen": ["conv1", "bn1"], "options": {"weights": "V1"}},
    "learning": {"device": "cpu"},
    "privacy": {"mode": "pairwise"},
}


def test_a_frozen_backbone_neither_travels_nor_is_it_saved(library, tmp_path):
    experiment = read(TABLE)
    resolved = plan(experiment)
    assert resolved.shared == 4 * 10 + 10
    assert isinstance(resolved.learner.model.bn1, FrozenNorm)
    run = simulate(resolved, folder=tmp_path / "run", baselines=False)
    for model in run.models.values():
        assert sorted(model) == ["fc.bias", "fc.weight"]
    whole = resolved.learner.state_dict(resolved.learner.start(["peer0"])[0])
    assert torch.equal(whole["conv1.weight"], library.trained["conv1.weight"])
    written = (tmp_path / "run" / "model.json").read_text("utf-8")
    assert resolved.learner.divided.base in written


@pytest.mark.usefixtures("library")
def test_peers_with_other_frozen_weights_refuse_each_other(library):
    ours = plan(read(TABLE)).facts
    assert plan(read(TABLE)).facts == ours
    moved = {name: value + 1 for name, value in library.trained.items() if not name.startswith("fc")}
    learner = plan(read(TABLE)).learner
    other = TorchLearner(Small(), learner.federation, seed=0, pretrained=moved, frozen=["conv1", "bn1"], device="cpu")
    assert other.divided.base != learner.divided.base


def loaded(library):
    """Return a library of vision models; skip where it is not installed, or was built for another torch."""
    try:
        return importlib.import_module(library)
    except (ImportError, RuntimeError) as error:  # torch refuses operators of another build
        pytest.skip(f"{library} does not load ({error}); docs/notes/internals.md says how to run this test")


@pytest.mark.parametrize("error", [ModuleNotFoundError("No module"), RuntimeError("operator nms does not exist")])
def test_tests_of_a_library_that_does_not_load_are_skipped_with_the_reason(monkeypatch, error):
    monkeypatch.setattr(importlib, "import_module", mock.Mock(side_effect=error))
    with pytest.raises(pytest.skip.Exception, match=f"torchvision does not load .{error}.; docs/notes/internals"):
        loaded("torchvision")


def test_a_network_of_torchvision_learns():
    loaded("torchvision")
    model = build("torchvision:mobilenet_v3_small", shape=(3, 32, 32), classes=2, seed=1)
    data = {peer: (torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 0, 1])) for peer in ("ada", "bob")}
    learner = TorchLearner(model, data, seed=1, norm="frozen", frozen=["features.?.*"], steps=1, device="cpu")
    rows = learner.fit(learner.start(["ada", "bob"]), peers=["ada", "bob"], round=0).rows
    assert rows.isfinite().all()


@pytest.mark.parametrize("norm", ["frozen", "group", "local"])
def test_layers_of_timm_keep_their_activation(norm):
    timm = loaded("timm")
    torch.manual_seed(1)
    reference = timm.create_model("mobilenetv3_small_050", num_classes=2).eval()
    x = torch.randn(2, 3, 32, 32)
    learner = TorchLearner(
        reference, {"ada": (x.repeat(2, 1, 1, 1), torch.tensor([0, 1, 0, 1]))}, norm=norm, steps=1, device="cpu"
    )
    learner.model.load_state_dict(learner.state_dict(learner.start(["ada"])[0]))
    if norm != "group":
        torch.testing.assert_close(learner.model.eval()(x), reference(x), atol=1e-5, rtol=1e-4)
    assert learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows.isfinite().all()


def test_weights_of_timm_that_are_not_in_the_cache_are_not_downloaded(monkeypatch, tmp_path):
    loaded("timm")
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_: None)
    with pytest.raises(ModelError, match=r"the weights of timm:resnet18 are not in the cache of the Hugging Face hub"):
        build("timm:resnet18", shape=(3, 32, 32), classes=2, seed=1, options={"weights": True})
    timm = sys.modules["timm"]
    torch.manual_seed(2)
    trained = timm.create_model("resnet18").state_dict()
    save_file(trained, tmp_path / "model.safetensors")
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_: str(tmp_path / "model.safetensors"))
    model = build("timm:resnet18", shape=(3, 32, 32), classes=2, seed=1, options={"weights": True})
    assert torch.equal(model.conv1.weight, trained["conv1.weight"])
