"""One member of a committee that asks for promises all the time, so that no other one finishes a ballot."""

import pytest

from p2pfl.network.protocol.agreement.agreement_effects import Send, StoreRecord
from p2pfl.network.protocol.agreement.attempt_reports import complete
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.wire.verdict_messages import (
    Ballot,
    Committee,
    Place,
    Prepare,
    Promise,
    Report,
    Reports,
    draw_committee,
)

PLACE = Place(0, 0)
LATENCY = 0.1
STEP = 0.05


def next_number(known, *_):
    """The number after all that are known."""
    return known + 1


def own_number(known, committee, malicious):
    """The next number that belongs to the malicious members by turn."""
    owner, *others = committee.members
    turns = [*others, owner]
    return next(n for n in range(known + 1, known + 99) if turns[(n - 1) % len(turns)] in malicious)


class Attacked:
    """Honest members in virtual time, and malicious ones that report to all but the owner and then ask for promises."""

    def __init__(self, seats, malicious):
        names = tuple(f"peer{number}" for number in range(seats))
        self.committee: Committee = draw_committee(names, PLACE, swarm="run")
        self.malicious = self.committee.members[-malicious:] if malicious else ()
        self.honest = {name: Settlement(name, PLACE, names, self.committee) for name in names}
        for name in self.malicious:
            del self.honest[name]
        self.events, self.known, self.now = [], 0, 0.0
        for name, each in self.honest.items():
            self.carry_out(name, each.report(complete(), now=0.0))
            for attacker in self.malicious:
                if name != self.committee.owner:
                    self.send(attacker, name, Reports(PLACE, (Report(PLACE, attacker, complete()),)))

    def send(self, sender, to, message):
        self.events.append((self.now + LATENCY, sender, to, message))

    def carry_out(self, name, effects):
        for each in effects:
            if isinstance(each, StoreRecord):
                self.events.append((self.now + STEP, name, name, None))
            elif isinstance(each, Send):
                for to in each.to:
                    self.send(name, to, each.message)

    def settle(self, *, period, number, until, lies):
        """Return the time at which all honest members know the outcome."""
        asked, again = 0.0, 2.0
        while not all(each.outcome for each in self.honest.values()):
            assert self.now < until, {name: each.agreement.record for name, each in self.honest.items()}
            self.now = round(self.now + STEP, 2)
            if self.malicious and self.now >= asked + period:
                asked = self.now
                self.attack(number)
            due = [event for event in self.events if event[0] <= self.now]
            self.events = [event for event in self.events if event[0] > self.now]
            for _, sender, to, message in due:
                self.deliver(sender, to, message, lies=lies)
            for name, each in self.honest.items():
                self.carry_out(name, each.tick(now=self.now))
                if self.now >= again:
                    self.carry_out(name, each.request())
            again = 2 * again if self.now >= again else again
        return self.now

    def attack(self, number):
        ballot = number(self.known, self.committee, self.malicious)
        owner, *others = self.committee.members
        proposer = [*others, owner][(ballot - 1) % len(self.committee.members)]
        proposer = proposer if proposer in self.malicious else self.malicious[0]
        self.known = ballot
        for name in self.honest:
            self.send(proposer, name, Prepare(PLACE, Ballot(ballot, proposer)))

    def deliver(self, sender, to, message, *, lies):
        if to in self.malicious:
            if isinstance(message, Prepare):
                self.known = max(self.known, message.ballot.number)
                if lies:
                    self.send(to, sender, Promise(PLACE, to, Ballot(self.known + 60_000, to)))
            return
        each = self.honest[to]
        done = message is None
        self.carry_out(to, each.finish_write(now=self.now) if done else each.receive(sender, message, now=self.now))


@pytest.mark.parametrize(("seats", "malicious"), [(4, 1), (7, 1), (7, 2)])
@pytest.mark.parametrize("number", [next_number, own_number])
@pytest.mark.parametrize("period", [0.5, 3.0])
@pytest.mark.parametrize("lies", [False, True])
def test_members_that_ask_for_promises_all_the_time_prevent_no_decision(seats, malicious, number, period, lies):
    attacked = Attacked(seats, malicious)
    assert attacked.settle(period=period, number=number, until=60.0, lies=lies) > LATENCY


@pytest.mark.parametrize("seats", [4, 7])
def test_a_committee_that_nobody_attacks_decides_at_once(seats):
    assert Attacked(seats, 0).settle(period=1.0, number=next_number, until=1.0, lies=False) < 1.0
