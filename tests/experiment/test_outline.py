"""What a guarantee follows from, without data and without torch."""

import subprocess
import sys
from typing import ClassVar

import pytest

from p2pfl import topology as graphs
from p2pfl.algorithms import FedAvg
from p2pfl.core.errors import ExperimentError
from p2pfl.core.rows import Layout
from p2pfl.core.traits import Traits
from p2pfl.data import federate
from p2pfl.experiment import plan, read
from p2pfl.experiment.outline import SHAPES, affine, outline
from p2pfl.learning.models import build

PRIVATE = {"mode": "pairwise", "epsilon": 8.0}
SEVERAL = [
    {"topology": {"kind": "ring", "peers": 8}},
    {"model": {"name": "mlp", "hidden": [12, 7]}, "privacy": PRIVATE | {"clipping": "layer"}},
    {"data": {"name": "diabetes"}, "privacy": PRIVATE | {"mode": "independent"}},
    {"learning": {"algorithm": "dpsgd"}, "topology": {"kind": "complete", "peers": 5}},
    {"topology": {"kind": "epidemic_oracle", "peers": 8}, "privacy": PRIVATE | {"mask_graph": "complete"}},
    {"privacy": {"mode": "pairwise", "mask": 1.0, "mask_graph": "random", "colluders": 2}, "topology": {"peers": 9}},
    {"privacy": PRIVATE | {"participation": 0.5}, "gossip": {"acceleration": "chebyshev"}},
    {"privacy": {"mode": "none"}},
]


class Once(FedAvg):
    """An algorithm that declares no more than that it makes one gossip step."""

    traits: ClassVar[Traits] = Traits(single_step=True)


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("table", SEVERAL)
def test_an_outline_is_what_a_plan_says(table):
    experiment = read({"rounds": 3, "model": {"name": "linear"}, "data": {"name": "wine"}, "privacy": PRIVATE} | table)
    found, whole = outline(experiment), plan(experiment)
    assert found is not None
    assert found.protection == whole.protection
    assert found.gossip_steps == whole.gossip.steps
    assert found.topology.peers == whole.topology.peers


def test_an_algorithm_that_declares_a_single_step_makes_one():
    table = {"rounds": 3, "topology": {"kind": "ring", "peers": 8}, "data": {"name": "wine"}}
    several = plan(read(table)).gossip.steps
    assert plan(read(table | {"learning": {"algorithm": f"{__name__}:Once"}})).gossip.steps == 1 < several


def test_an_outline_of_a_graph_in_a_file_is_what_a_plan_says(tmp_path):
    graphs.save(graphs.grid(3, 3), tmp_path / "grid.json")
    experiment = read({"rounds": 2, "topology": {"file": str(tmp_path / "grid.json")}, "privacy": PRIVATE})
    found, whole = outline(experiment), plan(experiment)
    assert found is not None
    assert found.protection == whole.protection


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "wine", "diabetes"])
def test_known_data_have_the_shapes_that_are_known(name):
    dataset = federate(name, peers=["ada"], seed=0).dataset
    assert SHAPES[name] == (dataset.shape, dataset.classes or 1)


@pytest.mark.parametrize("hidden", [[], [5], [4, 3]])
def test_models_have_the_sizes_that_are_known(hidden):
    made = build("mlp", shape=(1, 2, 3), classes=7, seed=0, options={"hidden": hidden})
    layout = Layout(*zip(*((name, tuple(each.shape)) for name, each in made.named_parameters()), strict=True))
    assert affine([6, *hidden, 7]) == layout.sizes


@pytest.mark.parametrize(
    "table",
    [
        {"privacy": {"mode": "secagg"}, "topology": {"kind": "complete", "peers": 6}},
        {"privacy": {"mode": "pairwise"}},  # masks are sized to the initial parameters
        {"model": {"name": "cnn"}},
        {"model": {"frozen": ["1.*"]}},
        {"data": {"name": "synthetic"}},
        {"learning": {"example_noise": 1.0}},
        {"robustness": {"rule": "median"}},
        {"compression": {"name": "top_k"}},
        {"learning": {"algorithm": "d2"}},
        {"learning": {"algorithm": "relay_sgd"}, "privacy": {"mode": "none"}},
        {"learning": {"optimizer": "no such"}},
    ],
)
def test_there_is_no_outline_where_more_counts_than_graphs_and_noises(table):
    assert outline(read(table)) is None


def test_an_outline_refuses_what_a_plan_refuses():
    experiment = read({"topology": {"kind": "star", "peers": 6}, "privacy": PRIVATE})
    with pytest.raises(ExperimentError) as outlined:
        outline(experiment)
    with pytest.raises(ExperimentError) as planned:
        plan(experiment)
    assert str(outlined.value) == str(planned.value)


@pytest.mark.slow
def test_the_table_waits_for_neither_torch_nor_data(tmp_path):
    file = tmp_path / "ring.toml"
    file.write_text('[topology]\nkind = "ring"\npeers = 16\n[privacy]\nmode = "pairwise"\nepsilon = 8.0\n')
    code = (
        "import sys; from p2pfl.cli import main; "
        f"status = main(['privacy', {str(file)!r}, '--no-baselines']); "
        "print(status, sorted({'torch', 'sklearn', 'matplotlib', 'cryptography'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
    assert "everyone else" in done.stdout
