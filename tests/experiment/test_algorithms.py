"""Algorithms by name, and a user's own."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import msgspec
import pytest

from p2pfl.algorithms import (
    SCAFFOLD,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedNova,
    FedProx,
    FedYogi,
    Gossip,
)
from p2pfl.core.errors import ExperimentError
from p2pfl.core.traits import Traits
from p2pfl.experiment import plan, read
from p2pfl.experiment.catalogue import ALGORITHMS, traits_of
from p2pfl.experiment.parts.learner_parts import algorithm


@dataclass(frozen=True)
class Own:
    gossip: Gossip
    mu: Annotated[float, msgspec.Meta(ge=0)] = 0.5


SMALL = {"topology": {"peers": 3}, "data": {"name": "wine"}, "model": {"name": "linear"}}
PLACE = f"{__name__}:Own"


def make(name, **options):
    return plan(read(SMALL | {"learning": {"algorithm": name, "algorithm_options": options}})).algorithm


def test_an_algorithm_of_ones_own_gets_what_it_has_parameters_for():
    made = algorithm(PLACE, options={"mu": 2.0}, given={"gossip": Gossip(3), "seed": 7})
    assert made == Own(Gossip(3), 2.0)


def test_a_known_algorithm_averages_over_the_peers_of_the_experiment():
    made = make("fedavg")
    assert isinstance(made, FedAvg)
    assert made.average.peers == ("peer0", "peer1", "peer2")


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("fedagv", {}, 'is "fedagv"; set it to one of .* or to "package.module:Class"; did you mean "fedavg"'),
        ("fedavg", {"mu": 1.0}, "fedavg has no option mu; its options are: none"),
        (PLACE, {"nu": 1.0}, "has no option nu; its options are: mu"),
        (PLACE, {"mu": "much"}, 'algorithm_options.mu is "much"; set it to a number >= 0'),
        (PLACE, {"mu": -1.0}, "algorithm_options.mu is -1.0; set it to a number >= 0"),
    ],
)
def test_what_is_wrong_with_an_algorithm_is_said_in_one_sentence(name, options, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        algorithm(name, options=options, given={"gossip": Gossip(), "average": None})


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("fedprox", FedProx, {"mu": 0.1}),
        ("scaffold", SCAFFOLD, {"option": "I", "global_rate": 0.5}),
        ("fednova", FedNova, {}),
        ("fedavgm", FedAvgM, {"momentum": 0.5}),
        ("fedadam", FedAdam, {"beta2": 0.9}),
        ("fedyogi", FedYogi, {"beta1": 0.5}),
        ("fedadagrad", FedAdagrad, {"tau": 0.1}),
    ],
)
def test_an_algorithm_takes_the_options_of_its_paper(name, kind, options):
    made = make(name, **options)
    assert type(made) is kind
    assert {option: getattr(made, option) for option in options} == options


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("fedprox", {"mu": -0.1}, r"algorithm_options.mu is -0.1; set it to a number >= 0"),
        ("scaffold", {"option": "III"}, r'algorithm_options.option is "III"; set it to "I" or "II"'),
        ("fedavgm", {"momentum": 1.0}, r"algorithm_options.momentum is 1.0; set it to a number >= 0 and < 1"),
        ("fedadam", {"tau": 0.0}, r"algorithm_options.tau is 0.0; set it to a number > 0"),
        ("fedadagrad", {"beta2": 0.9}, r"fedadagrad has no option beta2; its options are: .*beta1"),
    ],
)
def test_an_option_out_of_range_is_refused(name, options, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        make(name, **options)


@pytest.mark.parametrize("name", ["scaffold", "fednova"])
@pytest.mark.parametrize("change", ["learning.optimizer=adam", "learning.options={momentum=0.9}"])
def test_what_divides_by_plain_steps_refuses_others(name, change):
    with pytest.raises(ExperimentError, match=f'does not work with {name}, .*; set it to "sgd" without momentum'):
        plan(read(SMALL, changes=[f"learning.algorithm={name}", change]))


def test_what_releases_two_rows_cannot_be_hidden():
    with pytest.raises(ExperimentError, match="does not work with scaffold, which releases a second row"):
        plan(read(SMALL, changes=["learning.algorithm=scaffold", "privacy.mode=pairwise"]))


def test_it_is_refused_to_drop_everybody():
    changes = ["learning.epochs=3", "learning.stragglers=1.0", "learning.stragglers.drop=true"]
    with pytest.raises(ExperimentError, match=r"learning.stragglers = .* leaves no peer in any round; lower the share"):
        plan(read(SMALL, changes=changes))


@pytest.mark.parametrize("name", ["gradient_tracking", "qg_dsgdm", "scaffold", "fednova"])
def test_what_divides_changes_by_the_steps_that_made_them_takes_plain_gradient_steps(name):
    for learning in {"optimizer": "adam"}, {"options": {"momentum": 0.9}}:
        with pytest.raises(ExperimentError, match=rf'does not work with {name}, .*; set it to "sgd" without momentum'):
            plan(read(SMALL | {"learning": {"algorithm": name, **learning}}))


@pytest.mark.parametrize("name", ["fine_tuning", "propagation", "multitask"])
def test_a_stopping_rule_is_refused_where_nothing_new_may_be_seen_in_a_round(name):
    with pytest.raises(ExperimentError, match=rf"learning.stop = 0.1 does not work with {name}, .*; leave it out"):
        plan(read(SMALL | {"learning": {"algorithm": name, "stop": 0.1}}))


def test_masks_that_peers_would_divide_by_different_numbers_of_steps_are_refused():
    learning = {"algorithm": "gradient_tracking", "steps": 5, "stragglers": 0.5}
    plan(read(SMALL | {"learning": learning}))
    plan(read(SMALL | {"learning": learning | {"stragglers": 0.0}, "privacy": {"mode": "pairwise"}}))
    with pytest.raises(ExperimentError, match=r"stragglers = 0.5 does not work with gradient_tracking under masks"):
        plan(read(SMALL | {"learning": learning, "privacy": {"mode": "pairwise"}}))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_built_in_class_declares_its_traits(name):
    assert ALGORITHMS.kind(name).traits == traits_of(name)


@dataclass(frozen=True)
class PerEdge(FedAvg):
    """A user's own, which declares what it keeps."""

    traits: ClassVar[Traits] = replace(
        FedAvg.traits, state_per_edge="keeps a vector for each edge", no_privacy="sends vectors as they are"
    )


@dataclass(frozen=True)
class Undeclared:
    """A user's own, which declares nothing."""

    gossip: Gossip = Gossip()  # noqa: RUF009 (it is frozen)

    async def round(self, state, learner, net, round):
        del learner, round
        mixed = (await self.gossip(net, await net.release(state.rows, since=state.public))).public
        return replace(state, rows=mixed.rows, public=mixed)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (["privacy.mode=pairwise"], r"^privacy\.mode = .*:PerEdge, which sends vectors as they are"),
    ],
)
def test_what_a_class_of_ones_own_declares_is_held_against_it(changes, why):
    own = f"learning.algorithm={__name__}:PerEdge"
    plan(read(SMALL, changes=[own]))
    with pytest.raises(ExperimentError, match=why):
        plan(read(SMALL, changes=[own, *changes]))


def test_what_a_class_of_ones_own_declares_counts_for_it():
    sums = [f"learning.algorithm={__name__}:Undeclared", "privacy.mode=secagg", "topology.kind=complete"]
    with pytest.raises(
        ExperimentError, match=r"^learning\.algorithm = .*:Undeclared\" .* the algorithm declares no traits"
    ):
        plan(read(SMALL, changes=[*sums, "topology.peers=5"]))


@pytest.mark.parametrize("codec", ["none", "float16"])
def test_choco_is_never_silently_something_else(codec):
    with pytest.raises(
        ExperimentError, match=rf'^compression\.name = "{codec}" does not work with choco, which is defined'
    ):
        plan(read(SMALL, changes=["learning.algorithm=choco", f"compression.name={codec}"]))
    order = "learning.algorithm_options={order='adapt_then_combine'}"
    assert plan(read(SMALL, changes=["learning.algorithm=dpsgd", order])).codec is None


class Once(FedAvg):
    """An algorithm that declares no more than that it makes one gossip step."""

    traits: ClassVar[Traits] = Traits(single_step=True)


def test_an_algorithm_that_declares_a_single_step_makes_one():
    table = {"rounds": 3, "topology": {"kind": "ring", "peers": 8}, "data": {"name": "wine"}}
    several = plan(read(table)).gossip.steps
    assert plan(read(table | {"learning": {"algorithm": f"{__name__}:Once"}})).gossip.steps == 1 < several


@pytest.mark.parametrize(
    ("changes", "floods"),
    [
        ([], False),
        (["privacy.mode=independent", "privacy.noise=0.1"], True),
        (["compression.name=float16"], True),
    ],
    ids=str,
)
def test_peers_that_own_their_data_flood_their_numbers_of_samples_only_where_weights_must_be_near_one(changes, floods):
    own = ["data.name=synthetic", "model.name=linear", "topology.peers=3"]
    average = plan(read(SMALL, changes=[*own, *changes])).algorithm.average
    assert (average.mean_samples is None) == floods
