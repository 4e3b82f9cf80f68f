"""Runs put together in Python, from the file alone, and live: the same parts, the same results."""

import asyncio
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

import p2pfl
from composed import CLASSES, DATA, FEATURES, PEERS, RING, TABLE, Linear, alone, equal, gathered, learner, sample, swarm
from own_loops import made
from p2pfl.algorithms.robust import Krum, NearestMixed
from p2pfl.core.errors import BrokerError, InputError
from p2pfl.experiment import read
from p2pfl.experiment.parts.option_tables import parameters_of
from p2pfl.network.transport import MemoryTransport, opened, register
from p2pfl.network.transport.schemes import SCHEMES
from p2pfl.privacy.keys import SeededSource


@pytest.mark.slow
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
            ["learning.algorithm=choco", "compression.name=quantise", "compression.options.bits=4"],
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
    source = SeededSource(7)  # the same private noise twice
    here = p2pfl.simulate(algorithm, learner(), RING, rounds=4, seed=7, source=source, **parts)
    there = p2pfl.simulate(read(TABLE, changes=changes), source=source)
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
        (
            (p2pfl.FedAvg(), None, {"settings": {"learning": {"example_noise": 2.0, "max_norm": 1.0}}}),
            r"learning.example_noise has no effect, because the learner has its own",
        ),
        (
            (p2pfl.FedAvg(), "sklearn", {"settings": {"learning": {"example_noise": 2.0}}}),
            r"learning.example_noise = 2 does not work with a learner of your own, .*; leave it out and set privacy",
        ),
        *(
            (
                (p2pfl.FedAvg(), kind, {"settings": {"learning": {"consensus": False, key: value}}}),
                rf"learning.{key} has no effect, because the learner has its own; leave it out and give it to the lea",
            )
            for kind, key, value in [(None, "rate", 0.5), ("sklearn", "batch", 8), ("sklearn", "dtype", "float64")]
        ),
    ],
    ids=str,
)
def test_parts_that_do_not_go_together_are_refused_as_in_the_file(parts, sentence):
    algorithm, kind, *more = parts
    own = learner() if kind is None else made(kind, gathered())
    with pytest.raises(InputError, match=sentence):
        p2pfl.compose(algorithm, own, RING, **(more[0] if more else {}))


@pytest.mark.parametrize(
    ("first", "more", "idle"),
    [
        ("digits", {"rounds": 3}, "rounds is part"),
        ({"rounds": 2}, {"seed": 0, "privacy": p2pfl.Pairwise()}, "seed, privacy are parts"),
        ({"rounds": 2}, {"learner": p2pfl.ExternalLearner, "topology": RING}, "learner, topology are parts"),
        ("plan", {"rounds": 3, "peers": 5}, "rounds, peers are parts"),
        ("plan", {"settings": {"gossip": {"steps": 3}}}, "settings is part"),
        (p2pfl.FedAvg(), {"peers": 5, "topology": RING}, "peers is part"),
    ],
)
def test_arguments_that_would_have_no_effect_are_refused(first, more, idle):
    first = p2pfl.compose(p2pfl.FedAvg(), learner(), RING) if first == "plan" else first
    for run in (p2pfl.simulate, lambda *given, **how: asyncio.run(p2pfl.live(*given, **how))):
        with pytest.raises(InputError, match=f"^{idle} of what runs already; set the key"):
            run(first, **more)


@pytest.mark.parametrize("more", [{"folders": 1}, {"live": True}])
def test_arguments_that_do_not_exist_are_refused(more):
    with pytest.raises(TypeError, match="is no argument of a run"):
        p2pfl.simulate(p2pfl.FedAvg(), learner(), RING, **more)


def test_a_class_of_a_function_works_and_its_traits_count():
    @dataclass(frozen=True)
    class Local(p2pfl.FedAvg):
        traits = replace(p2pfl.FedAvg.traits, no_compression="keeps edges of its own")

    run = p2pfl.simulate(Local(), learner(), RING, rounds=1, seed=7, baselines=False)
    equal(run.models, p2pfl.simulate(p2pfl.FedAvg(), learner(), RING, rounds=1, seed=7, baselines=False).models)
    with pytest.raises(InputError, match="which keeps edges of its own"):
        p2pfl.compose(Local(), learner(), RING, codec=p2pfl.Quantise())


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


@dataclass(frozen=True)
class Halves:
    """A codec of one's own with a parameter that no codec of p2pfl has."""

    coarse: int = 1
    table: torch.Tensor | None = None
    number: ClassVar[int] = 99


class Bare:
    """A codec that is no dataclass."""

    def __init__(self, coarse=1):
        self.coarse = coarse


def test_a_part_of_ones_own_keeps_its_parameters_or_is_refused():
    assert parameters_of(Halves(coarse=3)) == {"coarse": 3}
    with pytest.raises(InputError, match=r"Halves.table is a Tensor, which an experiment file cannot hold"):
        parameters_of(Halves(table=torch.zeros(2)))
    with pytest.raises(InputError, match="Bare has parameters and is no dataclass"):
        parameters_of(Bare())


def test_a_rule_of_mixed_rows_is_written_as_a_file_would():
    made = p2pfl.compose(
        p2pfl.DPSGD(),
        learner(),
        p2pfl.topology.complete(PEERS),
        rule=NearestMixed(Krum(1, several=True), 1),
    )
    wanted = made.experiment.robustness
    assert (wanted.rule, wanted.options) == ("multi_krum", {"attackers": 1, "nearest": True})
