"""Federations whose training samples are loaded where their clients train."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from p2pfl.algorithms import SCAFFOLD, Averaging, Ditto, FedAvg
from p2pfl.core.errors import DataError, P2PFLError
from p2pfl.data import Dataset, Federation, LazyFederation, store_clients
from p2pfl.learning import TorchLearner
from p2pfl.simulation import simulate
from p2pfl.topology import complete, ring

CLIENTS = 9
SIZES = [3, 8, 5, 1, 6, 4, 7, 2, 9]


def client(number):
    """Return the samples of a client, which follow from its number."""
    random = np.random.default_rng(number)
    x = random.normal(size=(SIZES[number], 3)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64)


def held_out():
    x = np.random.default_rng(99).normal(size=(20, 3)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64)


def eager(peers):
    """Return the same federation with all samples in memory."""
    parts = [*map(client, range(CLIENTS)), held_out()]
    x, y = (torch.from_numpy(np.concatenate(each)) for each in zip(*parts, strict=True))
    ends = np.cumsum([0, *SIZES])
    train = {peer: np.arange(ends[number], ends[number + 1]) for number, peer in enumerate(peers)}
    test = dict.fromkeys(peers, np.arange(ends[-1], len(y)))
    return Federation(Dataset(x, y, classes=2), train, dict.fromkeys(peers, np.zeros(0, np.int64)), test)


def lazy(peers, load=client, **options):
    return LazyFederation.over(peers, load, sizes=SIZES, classes=2, **{"test": held_out()} | options)


def run(federation, algorithm=None, graph=None, **options):
    torch.manual_seed(4)  # of the parameters at the start
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    learner = TorchLearner(model, federation, batch=2, rate=0.3, device="cpu")
    algorithm = algorithm or FedAvg(average=Averaging(fraction=0.3))
    return simulate(algorithm, learner, graph or complete(CLIENTS), rounds=3, seed=2, baselines=False, **options)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    ("algorithm", "graph"),
    [
        (None, None),
        (FedAvg(), None),
        (FedAvg(average=Averaging(fraction=0.4)), ring(CLIENTS)),
        (SCAFFOLD(average=Averaging(fraction=0.4)), None),
        (Ditto(average=Averaging(fraction=0.4)), None),
    ],
)
def test_clients_that_are_loaded_while_they_train_learn_as_in_memory(algorithm, graph):
    peers = complete(CLIENTS).peers
    few, every = (run(made(peers), algorithm, graph) for made in (lazy, eager))
    for peer, model in every.models.items():
        for name, values in model.items():
            assert torch.equal(few.models[peer][name], values)
    assert few.summary["together"] == every.summary["together"]
    assert [each.scores for each in few.metrics] == [each.scores for each in every.metrics]
    assert [each.training_loss for each in few.metrics] == [each.training_loss for each in every.metrics]


def test_only_clients_that_train_are_loaded():
    loaded = []

    def load(number):
        loaded.append(number)
        return client(number)

    few = run(lazy(complete(CLIENTS).peers, load))
    trained = [record.peer for record in few.metrics if record.training_loss is not None]
    assert sorted(loaded) == sorted(int(peer.removeprefix("peer")) for peer in trained)
    assert 0 < len(loaded) < 3 * CLIENTS


def test_clients_are_read_from_files(tmp_path):
    peers = complete(CLIENTS).peers
    store_clients(tmp_path, map(client, range(CLIENTS)), test=held_out())
    stored = LazyFederation.stored(tmp_path, peers, classes=2)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.npy" for name in ("features", "targets", "offsets", "test_features", "test_targets")
    }
    assert stored.samples(peers).tolist() == SIZES
    few, every = run(stored), run(eager(peers))
    assert all(torch.equal(few.models[peer][name], each) for peer in peers for name, each in every.models[peer].items())


def test_numbers_follow_the_names_as_they_are_given():
    names = [f"c{number}" for number in range(CLIENTS)][::-1]
    federation = lazy(names)
    assert federation.peers == tuple(sorted(names))
    assert federation.samples(["c8"]).tolist() == [SIZES[0]]
    assert torch.equal(federation.gathered(["c8"]).dataset.features, torch.from_numpy(client(0)[0]))
    few = federation.of("c1", "c8")
    assert few.peers == ("c1", "c8")
    assert few.samples(["c1", "c8"]).tolist() == [SIZES[7], SIZES[0]]


def test_positions_of_clients_are_outside_of_the_data_set():
    federation = lazy(complete(CLIENTS).peers)
    positions = np.concatenate([federation.train[peer] for peer in federation.peers])
    assert positions.tolist() == [*range(20, 20 + sum(SIZES))]
    with pytest.raises(IndexError):
        federation.dataset.features[torch.from_numpy(federation.train["peer0"])]


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda number: tuple(part[:1] for part in client(number)), "has 1 samples, and its size is stated as"),
        (lambda number: (client(number)[0][:, :2], client(number)[1]), "and those of the test part"),
        (lambda number: (client(number)[0] * np.nan, client(number)[1]), "NaN or infinity"),
        (lambda number: (client(number)[0], client(number)[1] + 7), "not from 0 to 1"),
    ],
)
def test_clients_with_other_samples_are_refused(load, message):
    with pytest.raises(DataError, match=message):
        run(lazy(complete(CLIENTS).peers, load))


def test_sizes_and_names_that_do_not_match_are_refused():
    with pytest.raises(DataError, match="2 names of clients and 9 sizes"):
        lazy(["ada", "bob"])
    with pytest.raises(DataError, match="the same name"):
        lazy(["ada"] * CLIENTS)


def test_files_that_are_missing_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"store_clients"):
        LazyFederation.stored(tmp_path, ["ada"])


def test_comparisons_with_learning_alone_are_refused():
    learner = TorchLearner(torch.nn.Linear(3, 2), lazy(complete(CLIENTS).peers), device="cpu")
    with pytest.raises(P2PFLError, match="baselines"):
        simulate(FedAvg(), learner, complete(CLIENTS), rounds=1, seed=2)


MEASURED = """
    import numpy as np, torch
    from p2pfl.core.process import peak_memory, resident_memory
    from p2pfl.algorithms import Averaging, FedAvg
    from p2pfl.data import LazyFederation
    from p2pfl.learning import TorchLearner
    from p2pfl.simulation import simulate
    from p2pfl.topology import complete

    CLIENTS, FEATURES = 342_477, 10_000
    graph = complete(CLIENTS)
    sizes = 1 + np.random.default_rng(0).geometric(1 / 400, CLIENTS)  # 136 million samples: 5.5 TB as numbers

    def load(number):
        random = np.random.default_rng(number)
        x = np.zeros((sizes[number], FEATURES), np.float32)
        x[np.arange(len(x))[:, None], random.integers(0, FEATURES, (len(x), 20))] = 1
        return x, random.integers(0, 5, len(x))

    federation = LazyFederation.over(graph.peers, load, sizes=sizes, classes=5)
    learner = TorchLearner(torch.nn.Linear(FEATURES, 5), federation, batch=100, steps=1, device="cpu")
    run = simulate(FedAvg(average=Averaging(fraction=10 / CLIENTS)), learner, graph, rounds=2, seed=1, baselines=False)
    print(len(run.metrics), peak_memory() / 2**30)
"""


@pytest.mark.slow
def test_clients_of_the_sizes_of_stackoverflow_need_less_than_two_gib():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(MEASURED)], capture_output=True, text=True, check=True)
    records, memory = done.stdout.split()
    assert int(records) == 20
    assert float(memory) < 2
