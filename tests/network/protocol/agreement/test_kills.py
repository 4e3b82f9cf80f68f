"""One peer is killed at every event of an attempt, and the others come to the same outcome."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from p2pfl.network.protocol.agreement.agreement_effects import Send, StoreRecord
from p2pfl.network.protocol.agreement.attempt_reports import AttemptOutcome, complete
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.wire.verdict_messages import Decision, Place, Reports, Vote, draw_committee

PLACE = Place(0, 0)


@dataclass
class Swarm:
    """Members that report an attempt over a network that keeps the order of messages and loses none."""

    size: int
    dies: int = -1
    lost: bool = False
    victim: str = ""
    events: int = 0
    now: float = 0.0
    dead: set = field(default_factory=set)
    queue: deque = field(default_factory=deque)  # of calls
    peers: dict = field(default_factory=dict)
    sent: list = field(default_factory=list)

    def __post_init__(self):
        self.names = tuple(f"peer{number}" for number in range(self.size))
        self.committee = draw_committee(self.names, PLACE, swarm="kills")
        for name in self.names:
            self.peers[name] = Settlement(name, PLACE, self.names, self.committee)
            self.queue.append((name, "report", complete()))

    def run(self):
        """Carry out what the peers decide, until nothing is left to do."""
        while self.queue:
            if self.events == self.dies:
                self.kill()
                if not self.queue:
                    break
            name, what, *given = self.queue.popleft()
            if name in self.dead:
                continue
            self.events += 1
            self.carry(name, getattr(self.peers[name], what)(*given, now=self.now))
        return self

    def kill(self):
        """End the victim; if messages are lost, then those of its last that are still on their way."""
        self.dead.add(self.victim)
        if self.lost:
            self.queue = deque(each for each in self.queue if each[1] != "receive" or each[2] != self.victim)

    def carry(self, name, effects):
        for effect in effects:
            match effect:
                case StoreRecord():
                    self.queue.append((name, "finish_write"))
                case Send(to, message):
                    self.sent.append(type(message))
                    self.queue.extend((each, "receive", name, message) for each in to)

    def settle(self):
        """Let the living notice the dead, and wait as long as it takes; those without an outcome ask for it."""
        for _ in range(60):
            self.now += 1.0
            for name in self.living:
                self.carry(name, self.peers[name].doubt(gone=self.dead, slow=(), now=self.now))
                self.carry(name, self.peers[name].tick(now=self.now))
                if self.peers[name].decision is None:
                    self.carry(name, self.peers[name].request())
            self.run()
        return self

    @property
    def living(self):
        return [name for name in self.names if name not in self.dead]


@pytest.mark.parametrize("size", [3, 4, 5, 9])
def test_an_attempt_in_which_nobody_dies_is_settled_in_the_first_ballot(size):
    swarm = Swarm(size).run()
    assert {peer.outcome for peer in swarm.peers.values()} == {AttemptOutcome(True, swarm.names)}
    assert {*swarm.sent} == {Reports, Vote, Decision}


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(("size", "place"), [(3, 0), (3, 1), (4, 0), (4, 1), (5, 0), (5, 1), (9, 0), (9, 1), (9, 7)])
@pytest.mark.parametrize("lost", [False, True])
def test_wherever_a_member_is_killed_the_others_come_to_the_same_outcome(size, place, lost):
    """The owner of the committee, another member of it, and a peer outside of it."""
    whole, found = Swarm(size), set()
    rest = [name for name in whole.names if name not in whole.committee.members]
    victim = [*whole.committee.members, *rest][place]
    for dies in range(whole.run().events):
        swarm = Swarm(size, dies=dies, lost=lost, victim=victim).run().settle()
        outcomes = {swarm.peers[name].outcome for name in swarm.living}
        assert len(outcomes) == 1, f"{outcomes} after a kill at event {dies}"
        assert None not in outcomes, f"nothing is decided after a kill at event {dies}"
        found |= outcomes
    left = tuple(name for name in whole.names if name != victim)
    assert found == {AttemptOutcome(True, whole.names), AttemptOutcome(False, left)}
