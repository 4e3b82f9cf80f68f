"""Rounds without an end: what needs their number is refused, and what runs says when it stops."""

import pytest

from p2pfl import simulate
from p2pfl.cli.running import view
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.experiment import plan, read
from p2pfl.experiment.schema import ENDLESS
from p2pfl.results import Record, Run
from p2pfl.results.notices.kinds import LearningStopped
from swarms import SMALL

ON = ["rounds=endless", "topology.kind=ring", "topology.peers=5"]
NOISE = ["privacy.mode=pairwise", "privacy.mask_graph=complete", "privacy.clip=1.0", "privacy.noise=2.0"]

NOTHING = {"scores": {}, "training_loss": None, "distance": 0.0, "bytes_out": 0, "bytes_in": 0, "received": 0}
NOTHING |= {"seconds_training": 0.0, "seconds_waiting": 0.0}


def endless(*changes):
    return read(SMALL, changes=[*ON, *changes])


def test_a_run_without_an_end_is_written_and_read_as_such():
    assert endless().rounds == "endless"
    assert endless().horizon == ENDLESS
    assert plan(endless(), live=True).facts["rounds"] == "endless"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["learning.schedule=cosine"], "with learning.schedule, whose rates are those of a number of rounds; leave"),
        (["learning.algorithm=fine_tuning"], "with fine_tuning, which needs the last; set it to a number"),
        (
            ["privacy.mode=secagg", "gossip.steps=1"],
            'with privacy.mode = "secagg", whose whole numbers grow with the rounds; set',
        ),
        (
            [NOISE[0], "gossip.steps=1", "learning.stragglers={share=0.05, drop=true}", "topology.peers=20"],
            "without a clip and noise where another number of peers counts in each round, as with stragglers that are",
        ),
        (NOISE, "with private noise and no privacy.epsilon, because each round costs privacy and nothing says when"),
        ([*NOISE[:3], "privacy.epsilon=3"], "with privacy.epsilon and no privacy.noise, which would follow from the"),
    ],
)
def test_what_needs_the_number_of_rounds_is_refused_in_one_sentence(changes, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        plan(endless(*changes), live=True)


@pytest.mark.plugin("exact")
def test_exact_totals_are_refused():
    table = {"rounds": "endless", "model": {"name": "glm"}, "data": {"name": "wine"}, "privacy": {"mode": "none"}}
    with pytest.raises(ExperimentError, match="with exact, whose totals make the model in a number of rounds; set it"):
        plan(read(table), live=True)


def test_a_simulation_of_it_is_refused_with_the_remedy():
    with pytest.raises(InputError, match=r'rounds = "endless" is for p2pfl run and p2pfl peer.*--set rounds=100'):
        simulate(endless())


def test_the_first_line_says_when_the_privacy_budget_is_spent():
    resolved = plan(endless(*NOISE, "privacy.epsilon=30", 'transport.pace={every = "2 h"}'), live=True)
    rounds = resolved.protection.affordable
    assert 0 < rounds < 1000
    said = view._rounds(resolved)
    assert said.startswith(f"at most {rounds} rounds, after which the privacy budget is spent, which takes ")
    assert view._rounds(plan(endless(), live=True)) == "rounds without an end"


def test_a_run_without_an_end_keeps_its_last_records_in_memory_and_all_in_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("p2pfl.results.run.MAX_RECENT", 10)
    with Run(endless(), folder=tmp_path / "run") as run:
        for round in range(25):
            run.record([Record(peer="peer0", round=round, **NOTHING)])
            run.log([LearningStopped(peer="peer0", reason="budget", message=str(round))])
    assert [record.round for record in run.metrics] == [*range(15, 25)]
    assert len(run.events) == 10
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 25
