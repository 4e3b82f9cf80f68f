"""Averages of LoRA adapters against dense numpy: which ways are exact, and by how much the naive one is wrong."""

import numpy as np
import pytest
import torch

from p2pfl.core.errors import ModelError
from p2pfl.core.rows import Layout
from p2pfl.plugins.language.adapters import AdapterRows, common_start, factorise, naive_error

RANK, INPUTS, OUTPUTS, PEERS = 3, 7, 5, 4
LAYOUT = Layout(("q.lora_A.w", "q.lora_B.w", "v.lora_A.w", "v.lora_B.w"), ((3, 7), (5, 3), (3, 7), (5, 3)))
SHAPES = dict(zip(LAYOUT.names, LAYOUT.shapes, strict=True))
SCALES = {"q.lora_A.w": 2.0, "v.lora_A.w": 0.5}


def random_tensors(seed, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return {name: torch.from_numpy(rng.normal(size=shape)).float() for name, shape in shapes.items()}


def dense(tensors, layer):
    """Return what the adapters of a layer add to its weights."""
    a, b = (tensors[f"{layer}.lora_{factor}.w"].double().numpy() for factor in "AB")
    return SCALES[f"{layer}.lora_A.w"] * b @ a


def test_the_error_of_averaging_factors_is_that_of_dense_matrices():
    each = [random_tensors(seed) for seed in range(PEERS)]
    rows = torch.stack([LAYOUT.join(tensors) for tensors in each])
    error, whole = 0.0, 0.0
    for layer in "qv":
        a = np.stack([tensors[f"{layer}.lora_A.w"].numpy() for tensors in each]).astype(float)
        b = np.stack([tensors[f"{layer}.lora_B.w"].numpy() for tensors in each]).astype(float)
        mean = np.mean([one @ other for one, other in zip(b, a, strict=True)], axis=0)
        error += np.linalg.norm(mean - b.mean(0) @ a.mean(0)) ** 2
        whole += np.linalg.norm(mean) ** 2
    assert naive_error(rows, LAYOUT) == pytest.approx(np.sqrt(error / whole), rel=1e-9)
    assert naive_error(rows, LAYOUT) > 0.5
    assert naive_error(rows[:1].expand(3, -1), LAYOUT) == pytest.approx(0, abs=1e-7)


def test_the_error_of_few_peers_with_large_layers_is_that_of_dense_products():
    layout = Layout(("q.lora_A", "q.lora_B"), ((2, 30), (20, 2)))
    rows = torch.from_numpy(np.random.default_rng(1).normal(size=(3, layout.size)))
    a, b = (layout.split(rows)[name].numpy() for name in layout.names)
    mean = (b @ a).mean(0)
    wanted = np.linalg.norm(mean - b.mean(0) @ a.mean(0)) / np.linalg.norm(mean)
    assert naive_error(rows, layout) == pytest.approx(wanted, rel=1e-9)


def test_with_one_factor_alike_averaging_factors_has_no_error():
    each = [random_tensors(seed) for seed in range(PEERS)]
    for factor in "AB":
        names = [name for name in LAYOUT.names if f"lora_{factor}" in name]
        alike = [tensors | {name: each[0][name] for name in names} for tensors in each]
        rows = torch.stack([LAYOUT.join(tensors) for tensors in alike])
        assert naive_error(rows, LAYOUT) < 1e-7


@pytest.mark.parametrize("way", ["freeze_a", "product"])
def test_the_mean_of_rows_is_the_mean_of_dense_updates(way):
    start = common_start({name: torch.zeros(shape) for name, shape in SHAPES.items()}, rank=None, seed=1)
    adapters = AdapterRows(start, way=way)
    each = [random_tensors(seed) for seed in range(PEERS)]
    if way == "freeze_a":  # peers train B alone
        each = [{name: start[name] if "lora_A" in name else value for name, value in own.items()} for own in each]
    before = torch.zeros(adapters.layout.size)
    mean = torch.stack([adapters.row(own, before=before, scales=SCALES) for own in each]).mean(0)
    rank = RANK if way == "freeze_a" else min(INPUTS, OUTPUTS)  # the mean of products has a higher one
    shapes = {name: (rank, 7) if "lora_A" in name else (5, rank) for name in SHAPES}
    adapters = AdapterRows(common_start(start, rank=rank, seed=1), way=way)
    found = adapters.tensors(mean, shapes=shapes, scales=SCALES)
    for layer in "qv":
        oracle = np.mean([dense(own, layer) for own in each], axis=0)
        np.testing.assert_allclose(dense(found, layer), oracle, atol=2e-6)


def test_a_product_gives_each_peer_the_nearest_matrix_of_its_rank():
    matrix = torch.from_numpy(np.random.default_rng(0).normal(size=(OUTPUTS, INPUTS)))
    u, s, v = np.linalg.svd(matrix.numpy(), full_matrices=False)
    for rank in (1, 3, 5):
        a, b = factorise(matrix, rank=rank, spare=torch.zeros(rank, INPUTS, dtype=torch.float64))
        np.testing.assert_allclose((b @ a).numpy(), u[:, :rank] * s[:rank] @ v[:rank], atol=1e-12)
        assert np.linalg.norm(matrix - b @ a) == pytest.approx(np.linalg.norm(s[rank:]), abs=1e-12)


def test_factors_do_not_depend_on_the_signs_that_a_library_chooses():
    matrix = torch.from_numpy(np.random.default_rng(0).normal(size=(OUTPUTS, INPUTS)))
    a, b = factorise(matrix, rank=2, spare=torch.zeros(2, INPUTS, dtype=torch.float64))
    again = factorise(matrix + 1e-13, rank=2, spare=torch.zeros(2, INPUTS, dtype=torch.float64))
    torch.testing.assert_close((a, b), again, atol=1e-11, rtol=0)
    assert (b.gather(0, b.abs().argmax(0, keepdim=True)) > 0).all()


def test_directions_that_a_product_lacks_can_still_train():
    spare = torch.from_numpy(np.random.default_rng(1).normal(size=(RANK, INPUTS)))
    a, b = factorise(torch.zeros(OUTPUTS, INPUTS, dtype=torch.float64), rank=RANK, spare=spare)
    assert torch.equal(a, spare)
    assert not b.any()
    one = torch.outer(torch.ones(OUTPUTS), torch.ones(INPUTS)).double()
    a, b = factorise(one, rank=RANK, spare=spare)
    torch.testing.assert_close(b @ a, one)
    assert a.norm(dim=1).min() > 0.1
    torch.testing.assert_close(a[1:] @ a[0], torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)


def test_what_a_peer_of_lower_rank_does_not_train_stays_as_it_came():
    start = common_start({name: torch.zeros(shape) for name, shape in SHAPES.items()}, rank=4, seed=1)
    adapters = AdapterRows(start, way="freeze_a")
    came = adapters.row(
        random_tensors(1, {"q.lora_B.w": (5, 4), "v.lora_B.w": (5, 4)}), before=torch.zeros(40), scales={}
    )
    own = adapters.tensors(came, shapes=SHAPES, scales=SCALES)
    assert {name: tuple(value.shape) for name, value in own.items()} == SHAPES
    own["q.lora_B.w"] = own["q.lora_B.w"] + 1
    gone = adapters.layout.split(adapters.row(own, before=came, scales=SCALES))["q.lora_B.w"]
    difference = gone - adapters.layout.split(came)["q.lora_B.w"]
    torch.testing.assert_close(difference, torch.ones(5, 4) * (torch.arange(4) < 3))


def test_peers_of_other_ranks_start_from_the_same_adapters():
    low, high = ({"lora_A": torch.randn(rank, 6), "lora_B": torch.zeros(5, rank)} for rank in (1, 3))
    one, other = common_start(low, rank=4, seed=1), common_start(high, rank=4, seed=1)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["lora_A"], common_start(high, rank=4, seed=2)["lora_A"])


def test_trained_adapters_keep_their_values():
    trained = {"lora_A": torch.randn(2, 6), "lora_B": torch.randn(5, 2)}
    start = common_start(trained, rank=3, seed=1)
    torch.testing.assert_close(start["lora_B"] @ start["lora_A"], trained["lora_B"] @ trained["lora_A"])


def test_factors_train_in_turn():
    start = {name: torch.zeros(shape) for name, shape in SHAPES.items()} | {"head": torch.zeros(2)}
    moving = [AdapterRows(start, way="alternate").moving(round) for round in range(2)]
    assert moving[0] == {"q.lora_B.w", "v.lora_B.w", "head"}
    assert moving[1] == {"q.lora_A.w", "v.lora_A.w", "head"}


def test_a_model_without_adapters_has_no_products():
    with pytest.raises(ModelError, match=r'adapters = "product" is for LoRA'):
        AdapterRows({"weight": torch.zeros(2, 2)}, way="product")


@pytest.mark.parametrize("way", ["freeze_a", "alternate", "product"])
@pytest.mark.parametrize(
    "other",
    [
        {"e.lora_embedding_A": torch.zeros(2, 9), "e.lora_embedding_B": torch.zeros(4, 2)},
        {"q.lora_magnitude_vector": torch.ones(5)},
        {"c.lora_A.w": torch.zeros(2, 3, 3, 3), "c.lora_B.w": torch.zeros(4, 2, 1, 1)},
    ],
    ids=["embedding", "dora", "convolution"],
)
def test_factors_that_are_no_pair_of_matrices_are_named(way, other):
    start = common_start({**random_tensors(1), **other}, rank=None, seed=3)
    with pytest.raises(ModelError, match=f'"{way}" is for pairs of matrices .* also trains {next(iter(other))}; set'):
        AdapterRows(start, way=way)
    assert AdapterRows(start).layout.names == tuple(start)
