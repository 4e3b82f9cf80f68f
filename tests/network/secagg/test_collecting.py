"""A receiver that waits for a sum: events and a time in, messages out."""

from types import SimpleNamespace

import numpy as np
import pytest

from p2pfl.core.errors import BudgetError
from p2pfl.network.secagg.sum_wait import Deadlines, SumWait

TOTAL = np.array([5])
CALL, AGREEMENTS = "participant set", "agreements"


class Sum:
    """The messages of a sum, as a test has them arrive."""

    def __init__(self):
        self.here, self.later, self.consents, self.unlocked, self.call = set(), set(), set(), set(), None
        self.agreements = None

    @property
    def called(self):
        return () if self.call is None else self.call.here

    def has_passed(self, peer):
        return peer in self.later

    def close(self):
        self.call = SimpleNamespace(here=tuple(sorted(self.here)))
        return self.call

    def total(self):
        return TOTAL


def waiting(*, senders=("bob", "eve"), lacking=lambda: None, gone=()):
    """A wait that began at time 0, in which neighbours may take 10 s, and 3 s for an answer."""
    messages = Sum()
    deadlines = Deadlines(lambda: {*senders} - {*gone}, lambda _peer, since: since + 10.0, 3.0)
    return SumWait(messages, senders, deadlines, lacking, since=0.0), messages


def test_a_sum_is_given_after_terms_consents_and_keys():
    wait, messages = waiting()
    assert wait.decide(0.0) == []
    messages.here = {"bob", "eve"}
    assert wait.decide(0.5) == [(("bob", "eve"), messages.call)]
    messages.consents = {"bob", "eve"}
    assert wait.decide(0.6) == []
    assert wait.phase == "keys"
    messages.unlocked = {"bob", "eve"}
    assert wait.decide(0.7) == []
    assert wait.over
    assert wait.total is TOTAL


def test_a_sender_that_is_late_or_already_further_is_left_out():
    wait, messages = waiting(senders=("bob", "dan", "eve"))
    messages.here, messages.later = {"bob"}, {"dan"}
    assert wait.decide(9.9) == []
    assert not wait.due(9.9)
    assert wait.due(10.0)
    assert wait.decide(10.0) == [(("bob", "dan", "eve"), messages.call)]
    assert messages.call.here == ("bob",)


def test_what_is_not_answered_is_repeated_to_those_alone_whose_answer_is_missing():
    wait, messages = waiting()
    messages.here = {"bob", "eve"}
    wait.decide(0.0)
    messages.consents = {"bob"}
    assert wait.decide(0.9) == []
    assert wait.until == 1.0
    assert wait.decide(1.0) == [(("eve",), messages.call)]
    messages.consents, messages.agreements = {"bob", "eve"}, AGREEMENTS
    wait.decide(1.5)
    assert wait.decide(2.5) == [(("bob", "eve"), AGREEMENTS)]


@pytest.mark.parametrize("here", [{"bob", "eve"}, set()], ids=["unanswered", "empty"])
def test_without_all_answers_in_time_the_sum_is_withheld(here):
    wait, messages = waiting()
    messages.here = here
    wait.decide(10.0)
    wait.decide(13.0)
    assert wait.phase == "withheld"
    assert wait.total is None


def test_a_neighbour_that_leaves_ends_the_wait_for_its_answer():
    gone = []
    wait, messages = waiting(gone=gone)
    messages.here = {"bob", "eve"}
    wait.decide(0.0)
    gone.append("eve")
    assert wait.due(0.1)
    wait.decide(0.1)
    assert wait.phase == "withheld"


def test_a_sum_whose_gap_costs_more_than_the_budget_is_withheld_after_the_participant_set():
    def refused():
        raise BudgetError("spent")

    wait, messages = waiting(lacking=refused)
    messages.here = {"bob"}
    assert wait.decide(10.0) == [(("bob", "eve"), messages.call)]
    assert wait.phase == "withheld"
