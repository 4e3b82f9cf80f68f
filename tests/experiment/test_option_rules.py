"""Rules about options of algorithms end in a sentence, and every rule names a key that exists."""

import pytest

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.settings_rules import RULES
from swarms import SMALL


def planned(*options: str, others: tuple[str, ...] = ()):
    changes = ["learning.algorithm=diloco", *(f"learning.algorithm_options.{each}" for each in options), *others]
    return plan(read(SMALL, changes=changes))


@pytest.mark.parametrize("key", sorted({rule.refuses for rule in RULES}))
def test_each_rule_names_a_key_that_exists(key):
    Composition.of(read({"transport": {"gather": {}}, "simulation": {"devices": {}}})).value(key)


@pytest.mark.parametrize(
    ("options", "others", "sentence"),
    [
        (
            ["fragments=2"],
            ["privacy.mode=secagg"],
            'fragments = 2 does not work with privacy.mode = "secagg", .*it out',
        ),
        (["fragments=4"], ["rounds=3"], "fragments = 4 does not work with rounds = 3, .*at most the number of rounds"),
        (["fragments=100000"], ["rounds=100000"], "fragments = 100000 is more than the [0-9]+ parameters of the model"),
        (["overlap=start"], ["rounds=1"], 'overlap = "start" does not work with rounds = 1, .*set rounds to 2 or more'),
        (["overlap=late"], ["rounds=1"], 'overlap = "late" does not work with rounds = 1, .*set rounds to 2 or more'),
        (["keep=0.3"], [], 'keep = 0.3 is the share .* or set overlap to "late"'),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_sentence(options, others, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        planned(*options, others=tuple(others))


def test_as_many_fragments_as_rounds_are_planned():
    assert planned("fragments=3", "overlap=late", "keep=0.3", others=("rounds=3",)).algorithm.fragments == 3


PAIRS = ("topology.kind=base", "topology.peers=4", "topology.degree=1")  # two graphs that take turns


def test_fragments_that_would_never_meet_all_peers_are_refused():
    with pytest.raises(ExperimentError, match=r"fragments = 2 .*2 graphs .* gossip\.steps = 1, .*share no factor"):
        planned("fragments=2", others=(*PAIRS, "gossip.steps=1"))


@pytest.mark.parametrize(("fragments", "steps"), [(3, 1), (2, 2)])
def test_fragments_that_meet_all_peers_are_planned(fragments, steps):
    found = planned(f"fragments={fragments}", others=(*PAIRS, f"gossip.steps={steps}"))
    assert (found.topology.period, found.algorithm.fragments) == (2, fragments)
