"""A receiver that waits for a sum: events and a time in, messages out."""

from types import SimpleNamespace

import numpy as np
import pytest

from p2pfl.core.errors import BudgetError
from p2pfl.network.secagg.sum_wait import Deadlines, SumWait

TOTAL = np.array([5])


class Sum:
    """The messages of a sum, as a test has them arrive."""

    def __init__(self):
        self.here, self.later, self.ended, self.call, self.lacking = set(), set(), set(), None, {}

    @property
    def called(self):
        return () if self.call is None else self.call.here

    def has_passed(self, peer):
        return peer in self.later

    def close(self):
        self.call = SimpleNamespace(here=tuple(sorted(self.here)))
        self.lacking = dict.fromkeys(self.call.here, 0)
        return self.call

    def give_up(self):
        self.call = SimpleNamespace(here=())
        return self.call

    def missing_pieces(self, peer):
        return peer, self.lacking[peer]

    def total(self):
        return TOTAL


def waiting(*, senders=("bob", "eve"), lacking=lambda: None, gone=()):
    """A wait that began at time 0, in which neighbours may take 10 s."""
    messages = Sum()
    deadlines = Deadlines(lambda: {*senders} - {*gone}, lambda _peer, since: since + 10.0)
    return SumWait(messages, senders, deadlines, lacking, since=0.0), messages


def test_a_sum_is_given_once_all_are_ready_and_all_terms_have_arrived():
    wait, messages = waiting()
    assert wait.decide(0.0) == []
    messages.here = {"bob", "eve"}
    assert wait.decide(0.5) == [(("bob", "eve"), messages.call)]
    messages.lacking = {"eve": 8}
    assert wait.decide(0.6) == []
    assert wait.phase == "terms"
    messages.lacking = {}
    assert wait.decide(0.7) == []
    assert wait.over
    assert wait.total is TOTAL


def test_a_sender_that_is_late_or_already_further_is_left_out():
    wait, messages = waiting(senders=("bob", "dan", "eve"))
    messages.here, messages.later = {"bob"}, {"dan"}
    for now in (0.0, 0.9, 1.0, 5.5, 9.9):
        assert wait.decide(now) == []
        assert now < wait.until <= now + 1.0  # it never decides again at once
    assert not wait.due(9.9)
    assert wait.due(10.0)
    assert wait.decide(10.0) == [(("bob", "dan", "eve"), messages.call)]
    assert messages.call.here == ("bob",)


def test_what_is_missing_is_requested_again_from_those_alone_whose_term_is_incomplete():
    wait, messages = waiting(senders=("bob", "dan", "eve"))
    messages.here = {"bob", "dan", "eve"}
    wait.decide(0.0)
    messages.lacking = {"dan": 16, "eve": 0}
    assert wait.decide(0.9) == []
    assert wait.until == 1.0
    assert wait.decide(1.0) == [(("dan",), ("dan", 16)), (("eve",), messages.call)]


@pytest.mark.parametrize("here", [{"bob", "eve"}, set()], ids=["incomplete", "empty"])
def test_without_all_terms_in_time_the_sum_is_withheld(here):
    wait, messages = waiting()
    messages.here = here
    said = [*wait.decide(10.0), *wait.decide(20.0)]
    assert wait.phase == "withheld"
    assert wait.total is None
    assert said[-1] == (("bob", "eve"), SimpleNamespace(here=()))


@pytest.mark.parametrize("how", ["gone", "ended", "later"])
def test_a_participant_that_leaves_or_restarts_or_goes_on_ends_the_wait_for_its_term(how):
    gone = []
    wait, messages = waiting(gone=gone)
    messages.here = {"bob", "eve"}
    wait.decide(0.0)
    assert not wait.due(0.1)
    gone.extend(["eve"] if how == "gone" else [])
    messages.ended |= {"eve"} if how == "ended" else set()
    messages.later |= {"eve"} if how == "later" else set()
    assert wait.due(0.1)
    wait.decide(0.1)
    assert wait.phase == "withheld"


def test_a_sum_whose_gap_costs_more_than_the_budget_is_given_up_before_anybody_is_called():
    def refused():
        raise BudgetError("spent")

    wait, messages = waiting(lacking=refused)
    messages.here = {"bob"}
    assert wait.decide(10.0) == [(("bob", "eve"), messages.call)]
    assert messages.call.here == ()
    assert wait.phase == "withheld"
