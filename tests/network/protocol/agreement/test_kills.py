"""One peer is killed at every event of an attempt, and the others come to the same verdicts on all reports."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from p2pfl.network.protocol.agreement.agreement_effects import Send
from p2pfl.network.protocol.agreement.attempt_reports import complete, report
from p2pfl.network.protocol.agreement.settlement import Settlement, Write
from p2pfl.network.protocol.wire.verdict_messages import DROPPED, Committee

VICTIM = "peer0"


@dataclass
class Swarm:
    """Members that report an attempt over a network that keeps the order of messages and loses none."""

    size: int
    dies: int = -1
    lost: bool = False
    events: int = 0
    prompt: int = 0
    now: float = 0.0
    dead: set = field(default_factory=set)
    queue: deque = field(default_factory=deque)  # of calls
    peers: dict = field(default_factory=dict)

    def __post_init__(self):
        names = tuple(f"peer{number}" for number in range(self.size))
        reports = {name: report(name, 0, 0) for name in names}
        for name in names:
            self.peers[name] = Settlement(name)
            for each in names:
                self.peers[name].admit(reports[each], Committee(names, owner=each))
            self.queue.append((name, "releases", reports[name], complete()))

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
        self.dead.add(VICTIM)
        if self.lost:
            self.queue = deque(each for each in self.queue if self.sender(*each[1:]) != VICTIM)

    @staticmethod
    def sender(what, *given):
        """Return who sent what a call stands for; nobody if it is no message."""
        return given[0] if what == "receives" else None

    def carry(self, name, effects):
        for effect in effects:
            match effect:
                case Write(release):
                    self.queue.append((name, "finish_write", release))
                case Send(to, message, prompt):
                    self.prompt += prompt
                    self.queue.append((to, "receives", name, message))

    def settle(self):
        """Let the living doubt the dead, and wait as long as it takes."""
        for name in self.living:
            for victim in sorted(self.dead):
                self.queue.append((name, "doubts", victim))
        for _ in range(50):
            self.run()
            self.now += 1.0
            self.queue.extend((name, "tick") for name in self.living)
        return self

    @property
    def living(self):
        return [name for name in self.peers if name not in self.dead]


@pytest.mark.parametrize("size", [3, 4, 5])
def test_an_attempt_in_which_nobody_dies_needs_no_prompt_message(size):
    swarm = Swarm(size).run()
    for peer in swarm.peers.values():
        assert {peer.verdict(release) for release in peer.admitted} == {complete()}
    assert swarm.prompt == 0


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("size", [3, 4, 5])
@pytest.mark.parametrize("lost", [False, True])
def test_wherever_a_member_is_killed_the_others_come_to_the_same_verdicts(size, lost):
    found = set()
    for dies in range(Swarm(size).run().events):
        swarm = Swarm(size, dies=dies, lost=lost).run().settle()
        verdicts = set()
        for name in swarm.living:
            peer = swarm.peers[name]
            known = {each.peer: peer.verdict(each) for each in peer.admitted}
            assert None not in known.values(), f"{name} is not settled after a kill at event {dies}"
            verdicts.add(known.pop(VICTIM))
            assert {*known.values()} == {complete()}
        assert len(verdicts) == 1, f"{verdicts} after a kill at event {dies}"
        found |= verdicts
    assert found == {complete(), DROPPED}
