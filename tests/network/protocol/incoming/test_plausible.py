"""What a neighbour can have said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.incoming import plausible as possible
from p2pfl.network.protocol.wire.messages import Pulse

LAST = 20


@given(st.integers(0, LAST), st.none() | st.integers(0, LAST), st.integers(0, 9), st.integers(0, 9))
def test_a_heartbeat_of_a_round_of_the_run_is_possible(round, first, tail, more):
    possible.heartbeat(Pulse(1, 0, tail, tail + more, round, 0, first=first), last=LAST)


@pytest.mark.parametrize(
    "pulse",
    [Pulse(1, 0, 1, 0), Pulse(1, 0, 0, 0, LAST + 1), Pulse(1, 0, 0, 0, 0, 0, first=LAST + 1)],
    ids=["stream", "round", "first"],
)
def test_a_heartbeat_that_no_peer_sends_is_not(pulse):
    with pytest.raises(DecodeError):
        possible.heartbeat(pulse, last=LAST)
