"""Number of objects and modules of p2pfl that one model's message enters on its way out and in, without privacy."""

import sys
from pathlib import Path
from statistics import median

import pytest

import p2pfl
from p2pfl.experiment import read
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.protocol.interface.effects import Publish
from p2pfl.network.protocol.interface.events import Received
from p2pfl.network.protocol.wire.envelope import CONTROL, SEALED
from p2pfl.network.protocol.wire.messages import Chunk
from p2pfl.network.transport import MemoryTransport
from swarms import SMALL, live, timeless

PACKAGE = Path(p2pfl.__file__).parent
OUTSIDE = str(PACKAGE / "network" / "transport"), str(PACKAGE / "network" / "virtual")
"""The channel, at which the path ends, and the clock of the test."""

COMPREHENSIONS = "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"
"""Frames that belong to the function around them."""

STEPS = "send", "carry", "arrive"
"""Steps of a message: until the session has decided to send it, from there until the channel has its payload, and from
its arrival until the session has kept it or answered the peer."""

BOUND = 20
"""Objects and modules that a message enters on its way out, and on its way in."""

THREE = ["topology.kind=complete", "topology.peers=3", "rounds=4", "gossip.steps=1"]


def step_of(frame):
    """The step of a message of peer0 that begins in a frame."""
    code, given = frame.f_code, frame.f_locals
    if code not in {LiveNeighbourhood._publish.__code__, Connection.publish.__code__, Connection.handle.__code__}:
        return None
    if given["self"].session.shared.me.peer != "peer0":
        return None
    if code is LiveNeighbourhood._publish.__code__:
        return "send"
    if code is Connection.publish.__code__:
        return "carry" if isinstance(given["effect"], Publish) and isinstance(given["effect"].message, Chunk) else None
    event = given["event"]
    return "arrive" if isinstance(event, Received) and is_chunk(event.data) else None


def is_chunk(data):
    return data[:1] == bytes([SEALED]) and data[1:5] != CONTROL.to_bytes(4, "little")


class Walks:
    """Profile hook that notes whose functions are entered while a function that begins a step runs."""

    def __init__(self):
        self.steps = {step: [] for step in STEPS}
        self._frames = {}  # by frame that begins a step: what was entered in it, also after it has waited
        self._within = None
        self._kept = []  # so that no two objects have one address

    def __call__(self, frame, event, _):
        if event == "return" and frame is self._within:
            self._within = None
        if event != "call" or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        if self._within is None:
            self._begin(frame)
        if self._within is None or frame.f_code.co_name in COMPREHENSIONS:
            return
        if not frame.f_code.co_filename.startswith(OUTSIDE):
            self._frames[self._within].add(self._owner(frame))

    def _begin(self, frame):
        if frame in self._frames:
            self._within = frame
        elif (step := step_of(frame)) is not None:
            self._within = frame
            self.steps[step].append(self._frames.setdefault(frame, set()))

    def _owner(self, frame):
        owner = frame.f_locals.get("self", frame.f_locals.get("cls"))
        if owner is None:
            return frame.f_globals["__name__"], 0
        self._kept.append(owner)
        return type(owner).__qualname__, id(owner)


@pytest.fixture(scope="module")
def walks():
    """Objects and modules that the messages of one peer enter, by step."""
    hook = Walks()

    async def main():
        sys.setprofile(hook)
        try:
            await live(read(SMALL, changes=THREE), MemoryTransport())
        finally:
            sys.setprofile(None)

    timeless(main())
    return hook.steps


def check_few(walks):
    sizes = [len(walk) for walk in walks]
    assert len(sizes) >= 4
    assert median(sizes) <= BOUND, f"{sizes}: {sorted(name for name, _ in max(walks, key=len))}"


def test_a_message_that_leaves_enters_few_objects_and_modules(walks):
    check_few([sent | carried for sent, carried in zip(walks["send"], walks["carry"], strict=True)])


def test_a_message_that_arrives_enters_few_objects_and_modules(walks):
    check_few(walks["arrive"])
