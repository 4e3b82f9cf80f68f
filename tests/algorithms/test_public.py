"""What an algorithm takes to be public follows from what was released, and from nothing else.

The clip of a release bounds how far it is from ``since``, so that ``since`` must depend on the data of a peer only by
what that peer released before. Here the neighbourhood releases rows of its own in place of those that it is given: then
two runs whose training differs must take the same rows to be public, to the last bit.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from stacks import SEED, stack

from p2pfl.algorithms import State, start
from p2pfl.core.draws import draw
from p2pfl.core.errors import ExperimentError
from p2pfl.core.neighbourhood import Released, derived, run_without_loop
from p2pfl.experiment import plan, read
from p2pfl.experiment.catalogue import ALGORITHMS, traits_of
from p2pfl.learning import Fitted, Report
from p2pfl.simulation import Faults

SMALL = {
    "seed": SEED,
    "rounds": 4,
    "topology": {"kind": "ring", "peers": 7},
    "data": {"name": "wine", "split": "dirichlet", "split_options": {"alpha": 1.0}},
    "model": {"name": "mlp", "hidden": [4]},
    "learning": {"dtype": "float64", "device": "cpu"},
}
SETTINGS = {
    "one gossip step": ["gossip.steps=1"],
    "few peers": ["gossip.steps=1", "learning.fraction=0.3"],
    "stragglers left out": [
        "gossip.steps=1",
        "learning.stragglers=0.7",
        "learning.stragglers.drop=true",
        "learning.epochs=2",
    ],
    "Chebyshev": ["gossip.steps=3", "gossip.acceleration=chebyshev"],
    "Chebyshev, few peers": ["gossip.steps=3", "gossip.acceleration=chebyshev", "learning.fraction=0.3"],
    "top 20 %": ["gossip.steps=1", "compression.name=top_k", "compression.options.share=0.2"],
}
NEEDED = {
    "relay_sgd": ["topology.kind=path"],
    "sgp": ["topology.kind=exponential"],
    "d2": ["topology.kind=complete"],
    "choco": ["compression.name=quantise"],
    "fedbn": ["model.name=norming:Normed"],
}


@dataclass(frozen=True)
class Own:
    """A user's own algorithm, which keeps what it trained beside what is public."""

    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        rows = fitted.rows + state.extra.get("shift", torch.zeros_like(fitted.rows))
        mixed = (await net.mix(await net.release(rows, since=state.public))).public
        return State(mixed.rows, mixed, extra={"shift": mixed.rows - fitted.rows})


@dataclass(frozen=True)
class Leaking:
    """A user's own algorithm that takes what it trained to be public."""

    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        mixed = (await net.mix(await net.release(fitted.rows, since=state.public))).public
        return State(mixed.rows, derived(lambda rows: torch.lerp(rows, fitted.rows, 1e-6), mixed))


class Training:
    """Training whose result depends on a secret, and on nothing that is known of the data."""

    def __init__(self, learner, secret):
        self._learner, self._secret = learner, secret
        self.learner = SimpleNamespace(samples=learner.samples, rate=learner.rate, evaluate=self._evaluate)

    async def fit(self, rows, *, peers, round, memory=None, active=None, correction=None):
        del memory, correction  # whatever they say, the secret alone decides
        steps = torch.full((len(peers),), 2) if active is None else 2 * active.to(torch.int64)
        return Fitted(
            rows + self._noise(rows, "fit", round), None, Report(self._noise(rows, "loss", round)[:, 0], steps)
        )

    async def gradient(self, rows, *, peers, round, step=0, whole=False, active=None):
        del peers, whole, active
        return self._noise(rows, f"gradient {step}", round)

    def _evaluate(self, rows, *, peers, part="test"):
        """Return losses that are the same for both secrets: which model a peer chose is told by its masses (IFCA)."""
        del peers, part
        return {"loss": rows.abs().sum(-1)}

    def _noise(self, rows, purpose, round):
        drawn = draw(SEED, f"{self._secret} {purpose}", round=round).standard_normal(tuple(rows.shape))
        return torch.from_numpy(drawn).to(rows)


class Deaf:
    """A neighbourhood that loses rows, and whose releases have nothing to do with what is released."""

    def __init__(self, net, *, round, since):
        self._net, self._round, self._since = net, round, since
        self.peers = net.peers

    async def release(self, rows, *, since, masses=None):
        self._since.append(since.rows)
        drawn = draw(SEED, f"release {len(self._since)}", round=self._round).standard_normal(tuple(rows.shape))
        return Released(torch.from_numpy(drawn).to(rows), masses)

    async def mix(self, released):
        return await self._net.mix(released)

    async def receive(self, released):
        return await self._net.receive(released)


def public(experiment, *, secret):
    """Return what is public after each round, and what each release starts from."""
    made = plan(experiment)
    states, since = [start(made.learner, made.topology.peers)], []
    learner = Training(made.learner, secret)
    for round in range(experiment.rounds):
        net = stack(made.topology, faults=Faults(loss=0.3), round=round, weigh=lambda _: made.weights[0])
        net = Deaf(net, round=round, since=since)
        states.append(run_without_loop(made.played.round(states[-1], learner, net, round)))
    return [state.public.rows for state in states], since


def asked(name, changes):
    """Return an experiment, or ``None`` where the algorithm and the settings do not go together."""
    if traits_of(name).single_step or name == "gossip_learning":
        changes = [change for change in changes if not change.startswith("gossip.steps")]
    try:
        experiment = read(SMALL, changes=[f"learning.algorithm={name}", *NEEDED.get(name, []), *changes])
        plan(experiment)
    except ExperimentError:
        return None
    return experiment


@pytest.mark.slow
@pytest.mark.sampled(fast=1, all=12)
@pytest.mark.parametrize("name", [*(each for each in ALGORITHMS if not traits_of(each).additive), f"{__name__}:Own"])
def test_what_is_public_depends_on_what_was_trained_only_by_what_was_released(name):
    experiments = {setting: asked(name, changes) for setting, changes in SETTINGS.items()}
    assert experiments["one gossip step"] is not None
    for setting, experiment in experiments.items():
        if experiment is None:
            continue
        (one, since), (other, others) = (public(experiment, secret=secret) for secret in ("a", "b"))
        assert len(since) == len(others), setting
        assert all(torch.equal(*pair) for pair in zip(one + since, other + others, strict=True)), setting


def test_an_algorithm_that_takes_what_it_trained_to_be_public_is_found_out():
    experiment = asked(f"{__name__}:Leaking", SETTINGS["one gossip step"])
    (one, _), (other, _) = (public(experiment, secret=secret) for secret in ("a", "b"))
    assert not torch.equal(one[1], other[1])
