"""Runs put together in Python, from the file alone, and live: the same parts, the same results."""

import asyncio
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import p2pfl
from p2pfl.cli import main
from p2pfl.errors import BrokerError, InputError
from p2pfl.experiment import plan, read
from p2pfl.learning import Adjustable, Federated, Learner, Pools
from p2pfl.transport import MemoryTransport, opened, register
from p2pfl.transport.schemes import SCHEMES

PEERS, FEATURES, CLASSES = 4, 5, 3
RING = p2pfl.topology.ring(PEERS)


def sample(*, peer, peers, seed):
    """Return a peer's own data; no two peers have the same."""
    del seed
    random = np.random.default_rng(peers.index(peer))
    y = random.integers(0, CLASSES, 40)
    y[:CLASSES] = range(CLASSES)
    x = random.normal(size=(40, FEATURES)) + np.eye(FEATURES)[y] * 2
    return x.astype("float32"), y


DATA = {peer: sample(peer=peer, peers=RING.peers, seed=0) for peer in RING.peers}


class Linear(torch.nn.Linear):
    """Starts at the same values wherever it is made."""

    def __init__(self):
        super().__init__(FEATURES, CLASSES)
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.zeros_(self.bias)


def learner(**how):
    return p2pfl.TorchLearner(Linear(), DATA, rate=0.5, device="cpu", **how)


TABLE = {
    "name": "run",
    "rounds": 4,
    "seed": 7,
    "topology": {"kind": "ring", "peers": PEERS},
    "data": {"name": f"{__name__}:sample", "options": {"classes": CLASSES}},
    "model": {"name": f"{__name__}:Linear"},
    "learning": {"rate": 0.5, "device": "cpu"},
}


def equal(one, other):
    for peer, tensors in one.items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, other[peer][name]), (peer, name)


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(
    ("algorithm", "parts", "changes"),
    [
        (p2pfl.FedAvg(epochs=5), {}, ["learning.epochs=5"]),
        (
            p2pfl.FedAvg(p2pfl.Averaging(weighted=False, fraction=0.5)),
            {},
            ["learning.weighted=false", "learning.fraction=0.5"],
        ),
        (p2pfl.FedSGD(), {}, ["learning.algorithm=fedsgd"]),
        (p2pfl.DPSGD(), {}, ["learning.algorithm=dpsgd"]),
        (p2pfl.DPSGD(p2pfl.Gossip(2)), {}, ["learning.algorithm=dpsgd", "gossip.steps=2"]),
        (
            p2pfl.FedProx(mu=0.3, steps=3),
            {},
            ["learning.algorithm=fedprox", "learning.algorithm_options={mu=0.3}", "learning.steps=3"],
        ),
        (p2pfl.PartialSharing(share=0.5), {}, ["learning.algorithm=partial", "learning.algorithm_options={share=0.5}"]),
        (p2pfl.PowerGossip(), {}, ["learning.algorithm=power_gossip"]),
        (
            p2pfl.Choco(),
            {"codec": p2pfl.Quantise(4)},
            ["learning.algorithm=choco", "compression.name=quantise", "compression.bits=4"],
        ),
        (p2pfl.FedAvg(), {"codec": p2pfl.Half("bfloat16")}, ["compression.name=bfloat16"]),
        (p2pfl.FedAvg(), {"privacy": p2pfl.Pairwise()}, ["privacy.mode=pairwise"]),
        (
            p2pfl.FedAvg(),
            {"privacy": p2pfl.Independent(noise=0.01, clip=1.0)},
            ["privacy.mode=independent", "privacy.noise=0.01", "privacy.clip=1"],
        ),
        (
            p2pfl.FedAvg(p2pfl.Averaging(weighted=False)),
            {"rule": p2pfl.Median(1)},
            ["learning.weighted=false", "robustness.rule=median"],
        ),
        (
            p2pfl.FedAvg(),
            {"settings": {"gossip": {"acceleration": "chebyshev"}, "simulation": {"loss": 0.1}}},
            ["gossip.acceleration=chebyshev", "simulation.loss=0.1"],
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict | list) else "",
)
def test_python_and_the_file_end_in_the_same_parameters(algorithm, parts, changes):
    here = p2pfl.simulate(algorithm, learner(), RING, rounds=4, seed=7, **parts)
    there = p2pfl.simulate(read(TABLE, changes=changes))
    equal(here.models, there.models)
    for key in ("alone", "together", "pooled", "bytes_sent"):
        assert here.summary[key] == there.summary[key], key
    assert here.summary["privacy"]["statement"] == there.summary["privacy"]["statement"]


@pytest.mark.slow
def test_the_first_snippet_of_the_docs_runs():
    graph = p2pfl.topology.ring(8)
    data = {peer: sample(peer=peer, peers=graph.peers, seed=0) for peer in graph.peers}
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.ReLU(), torch.nn.Linear(8, CLASSES))
    learner = p2pfl.TorchLearner(model, data, rate=0.5)
    run = p2pfl.simulate(p2pfl.FedAvg(epochs=5), learner, graph, rounds=40, seed=7)
    assert run.summary["together"] > 0.8
    assert run.metrics[-1].round == 39


async def swarm(algorithm, topology, make, *, transport, parts):
    """Return the last state of each peer, all in one process."""

    async def one(name):
        async with p2pfl.Peer(name, algorithm, make(name), topology, transport=transport, parts=parts) as peer:
            return await peer.run()

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = {name: tasks.create_task(one(name)) for name in topology.peers}
    return {name: task.result() for name, task in running.items()}


def alone(name):
    """Return the learner of one peer, which has nobody else's data."""
    federation = p2pfl.data.gather({name: DATA[name]}, seed=7, classes=CLASSES)
    model = Linear()
    return p2pfl.TorchLearner(model, federation, rate=0.5, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "parts", "within"),
    [
        (p2pfl.FedAvg(epochs=5), {}, 1e-6),
        (p2pfl.DPSGD(), {}, 1e-6),
        (p2pfl.FedAvg(), {"privacy": p2pfl.Pairwise(), "settings": {"gossip": {"steps": 40}}}, 1e-5),
        (p2pfl.Choco(), {"codec": p2pfl.Quantise(8)}, 1e-5),
    ],
    ids=["FedAvg", "D-PSGD", "masks", "CHOCO"],
)
async def test_live_peers_of_the_second_snippet_end_where_a_simulation_ends(algorithm, parts, within):
    parts = {"rounds": 3, "seed": 7, **parts}
    run = p2pfl.simulate(algorithm, learner(), RING, baselines=False, **parts)
    ended = await swarm(algorithm, RING, alone, transport=MemoryTransport(), parts=parts)
    for name, state in ended.items():
        row = torch.cat([run.models[name]["weight"].flatten(), run.models[name]["bias"]])
        torch.testing.assert_close(state.rows[0], row, rtol=0, atol=within)


@pytest.mark.slow
async def test_peers_may_have_any_names_and_a_url_for_a_transport():
    graph = p2pfl.topology.Topology(("ada", "bob"), (("ada", "bob"),))
    data = dict(zip(graph.peers, DATA.values(), strict=False))

    def own(name):
        model = Linear()
        return p2pfl.TorchLearner(model, {name: data[name]}, rate=0.5)

    ended = await swarm(p2pfl.FedAvg(), graph, own, transport="memory://pair", parts={"rounds": 2})
    assert torch.allclose(ended["ada"].rows, ended["bob"].rows, atol=1e-3)


# Loops of other frameworks


@dataclass
class Sklearn:
    """A user's own learner in scikit-learn: one row is the coefficients and intercepts of an SGDClassifier."""

    federation: p2pfl.data.Federation
    epochs: int = 1
    models: dict = field(default_factory=dict)

    def model(self, row, peer):
        from sklearn.linear_model import SGDClassifier  # noqa: PLC0415 (an extra)

        _, y = self.part(peer, "train")
        found = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, random_state=3, shuffle=False)
        found.partial_fit(np.zeros((1, FEATURES)), y[:1], classes=np.arange(CLASSES))
        numbers = row.double().numpy().reshape(CLASSES, FEATURES + 1)
        found.coef_, found.intercept_ = numbers[:, :-1].copy(), numbers[:, -1].copy()
        return found

    def part(self, peer, part):
        where, data = getattr(self.federation, part)[peer], self.federation.dataset
        return data.features[where].double().numpy(), data.targets[where].numpy()

    def train(self, row, *, peer, round):
        del round
        found, (x, y) = self.model(row, peer), self.part(peer, "train")
        for _ in range(self.epochs):
            found.partial_fit(x, y)
        return torch.from_numpy(np.column_stack([found.coef_, found.intercept_])).flatten().to(row.dtype)

    def score(self, row, peer):
        return {"accuracy": self.model(row, peer).score(*self.part(peer, "test"))}


def sklearn_learner(federation, epochs=1):
    """Return the learner that ``learning.learner`` names."""
    pytest.importorskip("sklearn")
    loop = Sklearn(federation, epochs)
    sizes = {peer: len(federation.train[peer]) for peer in federation.peers}
    start = torch.zeros(CLASSES * (FEATURES + 1), dtype=torch.float64)
    return p2pfl.ExternalLearner(loop.train, start=start, samples=sizes, evaluate=loop.score)


class Trainer:
    """A training loop like that of Hugging Face: it has the model, the data and the arguments, and ``train()``."""

    def __init__(self, *, model, args, train_dataset):
        self.model, self.args, self.data = model, args, train_dataset

    def train(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args["learning_rate"])
        for _ in range(self.args["num_train_epochs"]):
            for batch in torch.utils.data.DataLoader(self.data, batch_size=8, shuffle=False):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1]).backward()
                optimizer.step()


def trainer_learner(federation, model, rate, epochs, weight="none"):
    """Return the learner that ``learning.learner`` names; ``weight`` is an option of its own."""
    del weight
    layout = p2pfl.TorchLearner(model, federation, rate=rate).layout
    data = federation.dataset

    def loaded(row):
        torch.nn.utils.vector_to_parameters(row.clone(), model.parameters())
        return model

    def train(row, *, peer, round):
        del round
        own = federation.train[peer]
        args = {"learning_rate": rate, "num_train_epochs": epochs}
        dataset = torch.utils.data.TensorDataset(data.features[own], data.targets[own])
        Trainer(model=loaded(row), args=args, train_dataset=dataset).train()
        return torch.nn.utils.parameters_to_vector(model.parameters()).detach()

    def score(row, peer):
        held = federation.test[peer]
        right = loaded(row)(data.features[held]).argmax(1) == data.targets[held]
        return {"accuracy": float(right.double().mean())}

    sizes = {peer: len(federation.train[peer]) for peer in federation.peers}
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    return p2pfl.ExternalLearner(train, start=start, samples=sizes, evaluate=score, layout=layout)


def gathered(**only):
    return p2pfl.data.gather(only or DATA, seed=7, classes=CLASSES)


def made(kind, federation):
    model = Linear()
    return sklearn_learner(federation, 2) if kind == "sklearn" else trainer_learner(federation, model, 0.01, 2)


OWN = {
    "sklearn": {"learner": f"{__name__}:sklearn_learner", "epochs": 2},
    "trainer": {"learner": f"{__name__}:trainer_learner", "epochs": 2, "rate": 0.01},
}
KINDS = pytest.mark.parametrize("kind", OWN)


def own_table(kind):
    table = TABLE | {"learning": OWN[kind]}
    return table if kind == "trainer" else {key: value for key, value in table.items() if key != "model"}


@pytest.mark.slow
@KINDS
def test_a_loop_of_another_framework_learns_in_a_simulation_from_python_and_from_the_file_alike(kind):
    here = p2pfl.simulate(p2pfl.FedAvg(), made(kind, gathered()), RING, rounds=4, seed=7)
    there = p2pfl.simulate(read(own_table(kind)))
    equal(here.models, there.models)
    assert here.summary["together"] > 0.7
    assert here.summary["together"] == there.summary["together"]
    assert here.summary["pooled"] is None


@pytest.mark.slow
@KINDS
async def test_a_loop_of_another_framework_learns_in_live_peers_as_in_a_simulation(kind):
    run = p2pfl.simulate(p2pfl.FedAvg(), made(kind, gathered()), RING, rounds=3, seed=7, baselines=False)
    parts = {"rounds": 3, "seed": 7}

    def own(name):
        return made(kind, gathered(**{name: DATA[name]}))

    ended = await swarm(p2pfl.FedAvg(), RING, own, transport=MemoryTransport(), parts=parts)
    for name, state in ended.items():
        row = torch.cat([tensor.flatten() for tensor in run.models[name].values()])
        torch.testing.assert_close(state.rows[0], row, rtol=0, atol=1e-5)


CLINIC = """
import numpy as np
import torch
from safetensors.torch import load_file

import p2pfl

def data(*, peer, peers, seed):
    random = np.random.default_rng(peers.index(peer))
    y = np.arange(30) % 2
    return (random.normal(size=(30, 3)) + 3 * y[:, None]).astype("float32"), y

def trainer(federation, rate):
    from sklearn.linear_model import SGDClassifier

    def loaded(row):
        model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=0)
        model.partial_fit(np.zeros((1, 3)), [0], classes=[0, 1])
        model.coef_, model.intercept_ = row[:3].numpy()[None].astype(float), row[3:].numpy().astype(float)
        return model

    def part(peer, which):
        where = which[peer]
        return federation.dataset.features[where].double().numpy(), federation.dataset.targets[where].numpy()

    def train(row, *, peer, round):
        model = loaded(row)
        model.partial_fit(*part(peer, federation.train))
        return torch.from_numpy(np.append(model.coef_, model.intercept_)).float()

    def score(row, peer):
        return {"accuracy": loaded(row).score(*part(peer, federation.test))}

    sizes = {peer: len(federation.train[peer]) for peer in federation.peers}
    return p2pfl.ExternalLearner(train, start=torch.zeros(4), samples=sizes, evaluate=score)
"""
LESSON = """
name = "clinic"
rounds = 3
topology = { kind = "ring", peers = 3 }
data = { name = "clinic_loop:data", options = { classes = 2 } }
learning = { learner = "clinic_loop:trainer", rate = 0.1 }
"""


@pytest.mark.slow
def test_a_learner_of_ones_own_runs_from_the_file_alone(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    (tmp_path / "clinic_loop.py").write_text(CLINIC)
    (tmp_path / "lesson.toml").write_text(LESSON)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    for command in ("simulate", "run"):
        assert main([command, "lesson.toml", "--runs", command]) == 0, capsys.readouterr().err
    for name in p2pfl.topology.ring(3).peers:
        [one], [other] = (
            list(Path(tmp_path / each).glob(f"*/peers/{name}.safetensors")) for each in ("run", "simulate")
        )
        torch.testing.assert_close(load_file(one)["row"], load_file(other)["row"], rtol=0, atol=1e-5)


# What does not go together


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            (p2pfl.FedProx(), "sklearn"),
            r'"fedprox" does not work .* no gradients, because the algorithm corrects every',
        ),
        ((p2pfl.FedAvg(epochs=2), "sklearn"), r"ExternalLearner trains as much as its own loop says"),
        ((p2pfl.Choco(), None), r'compression.name = "none" does not work with choco'),
        ((p2pfl.SGP(), None, {"privacy": p2pfl.Pairwise()}), r'privacy.mode = "pairwise" does not work with sgp'),
        ((p2pfl.FedAvg(), "sklearn", {"privacy": p2pfl.Pairwise()}), r"privacy.mask is not set"),
        ((p2pfl.RelaySGD(), None), r"relay_sgd needs a tree"),
        ((p2pfl.FedAvg(), None, {"settings": {"gosip": {}}}), r'unknown key "gosip"'),
        (
            (p2pfl.FedAvg(), None, {"settings": {"data": {"test": 0.3}}}),
            r"data.test has no effect, because",
        ),
        ((p2pfl.FedAvg(), None, {"settings": {"model": {"name": "mlp"}}}), r"model.name has no effect"),
        (
            (p2pfl.FedAvg(), None, {"settings": {"learning": {"weighted": False}}}),
            r"learning.weighted has no effect, because the algorithm has its own",
        ),
    ],
    ids=str,
)
def test_parts_that_do_not_go_together_are_refused_as_in_the_file(parts, sentence):
    algorithm, kind, *more = parts
    own = learner() if kind is None else made(kind, gathered())
    with pytest.raises(InputError, match=sentence):
        p2pfl.compose(algorithm, own, RING, **(more[0] if more else {}))


def test_a_class_of_a_function_works_and_its_traits_count():
    @dataclass(frozen=True)
    class Local(p2pfl.FedAvg):
        traits = replace(p2pfl.FedAvg.traits, no_compression="keeps edges of its own")

    run = p2pfl.simulate(Local(), learner(), RING, rounds=1, seed=7, baselines=False)
    equal(run.models, p2pfl.simulate(p2pfl.FedAvg(), learner(), RING, rounds=1, seed=7, baselines=False).models)
    with pytest.raises(InputError, match="which keeps edges of its own"):
        p2pfl.compose(Local(), learner(), RING, codec=p2pfl.Quantise())


def test_learners_say_by_protocols_what_they_can_do():
    ours, own = learner(), made("trainer", gathered())
    for protocol in (Adjustable, Pools, Federated):
        assert isinstance(ours, protocol)
        assert not isinstance(own, protocol)
    assert {Learner}  # what both are, to a type checker


def test_options_of_a_learner_of_ones_own_are_checked():
    table = own_table("trainer")
    changed = table | {"learning": table["learning"] | {"learner_options": {"wait": 3}}}
    with pytest.raises(InputError, match="has no parameter wait; it has federation, model, rate, epochs, weight"):
        plan(read(changed))


@pytest.mark.slow
async def test_a_transport_is_registered_by_one_line():
    shared = MemoryTransport()
    register("pigeon", lambda url, access: shared)  # noqa: ARG005
    try:
        assert opened("pigeon://roof") is shared
        ended = await swarm(p2pfl.FedAvg(), RING, alone, transport="pigeon://roof", parts={"rounds": 1, "seed": 7})
        assert len(ended) == PEERS
    finally:
        del SCHEMES["pigeon"]
    with pytest.raises(BrokerError, match=r"no transport is registered for pigeon://"):
        opened("pigeon://roof")
