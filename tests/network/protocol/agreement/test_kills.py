"""One peer is killed at every event of a round, and the others settle it: all of them in the same way."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from p2pfl.network.protocol.agreement.agreement_effects import Send
from p2pfl.network.protocol.agreement.settlement import Settlement, Write
from p2pfl.network.protocol.wire.verdict_messages import DROPPED, Committee, Release, Vote
from p2pfl.topology import complete, ring

VICTIM = "peer0"


@dataclass
class Swarm:
    """Peers that settle one round over a network that keeps the order of messages and loses none."""

    graph: object
    dies: int = -1
    lost: bool = False
    events: int = 0
    prompt: int = 0
    now: float = 0.0
    dead: set = field(default_factory=set)
    queue: deque = field(default_factory=deque)  # of calls
    peers: dict = field(default_factory=dict)
    copies: dict = field(default_factory=dict)  # by peer, the releases that it holds, with their owners' votes

    def __post_init__(self):
        names = self.graph.peers
        releases = {name: Release(name, 1, 0, 0) for name in names}
        around = {name: {name, *self.graph.neighbours(name)} for name in names}
        committees = {releases[name]: Committee(tuple(sorted(around[name])), owner=name) for name in names}
        for name in names:
            mine = {release: group for release, group in committees.items() if name in group.members}
            partners = around[name] - {name}
            mixed = [releases[each] for each in partners]
            self.peers[name] = Settlement(name)
            for release, group in mine.items():
                self.peers[name].admit(release, group, mixed=release in mixed)
            self.copies[name] = {}
        for name in names:
            self.queue.append((name, "releases", releases[name], b"copy"))

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
            if what == "holds":
                self.copies[name][given[0].subject] = given[0]
            if what == "copy":
                self.copy(name, *given)
            else:
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
        return given[0] if what == "receives" else given[0].member if what == "holds" else None

    def carry(self, name, effects):
        for effect in effects:
            match effect:
                case Write(release, record):
                    self.queue.append((name, "finish_write", release))
                    own = record.voted
                    if own is not None and own.member == release.peer == name and own.value != DROPPED:
                        self.copies[name][release] = own
                case Send(to, message, prompt):
                    self.prompt += prompt
                    first = isinstance(message, Vote) and message.member == message.subject.peer == name
                    self.queue.append((to, "holds", message) if first else (to, "receives", name, message))

    def copy(self, holder, release, to):
        """Answer a request for a copy."""
        if release in self.copies[holder]:
            self.queue.append((to, "holds", self.copies[holder][release]))

    def settle(self):
        """Let the living doubt the dead, and wait as long as it takes."""
        for name in self.living:
            for victim in sorted(self.dead):
                self.queue.append((name, "doubts", victim))
        for _ in range(50):
            self.run()
            self.now += 1.0
            self.queue.extend((name, "tick") for name in self.living)
            wanted = [(name, each) for name in self.living for each in self.peers[name].missing]
            self.queue.extend((to, "copy", each.release, name) for name, each in wanted for to in each.holders)
        return self

    @property
    def living(self):
        return [name for name in self.peers if name not in self.dead]


@pytest.mark.parametrize("graph", [complete(3), complete(4), ring(5)], ids=["3", "4", "ring"])
def test_a_round_in_which_nobody_dies_needs_no_message_of_its_own(graph):
    swarm = Swarm(graph).run()
    for peer in swarm.peers.values():
        assert {peer.verdict(release) for release in peer.admitted} == {b"copy"}
    assert swarm.prompt == 0


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("graph", [complete(3), complete(4), ring(5)], ids=["3", "4", "ring"])
@pytest.mark.parametrize("lost", [False, True])
def test_wherever_a_peer_is_killed_the_others_settle_the_round_alike(graph, lost):
    everything = Swarm(graph).run().events
    found = set()
    for dies in range(everything):
        swarm = Swarm(graph, dies=dies, lost=lost).run().settle()
        release = Release(VICTIM, 1, 0, 0)
        verdicts = set()
        for name in swarm.living:
            peer = swarm.peers[name]
            known = {each: peer.verdict(each) for each in peer.admitted}
            assert None not in known.values(), f"{name} is not settled after a kill at event {dies}"
            if release in known:
                verdicts.add(known[release])
                assert known.pop(release) == DROPPED or release in swarm.copies[name]
            assert {*known.values()} == {b"copy"}
        assert len(verdicts) == 1, f"{verdicts} after a kill at event {dies}"
        found |= verdicts
    assert found == {b"copy", DROPPED}
