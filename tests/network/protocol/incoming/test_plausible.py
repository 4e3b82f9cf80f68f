"""What a neighbour can have said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.incoming import plausible as possible
from p2pfl.network.protocol.ledgers.slots import END
from p2pfl.network.protocol.wire.messages import Account, Masked, Pulse

LAST = 20
START = (0, 0)


def account(*, until=START, runs=(), heard=START, paid=START):
    return Account(1, 1, masks={"bob": Masked(START, tuple(until), runs, tuple(heard), tuple(paid))})


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


@pytest.mark.parametrize(
    "said",
    [
        account(),
        account(until=END, heard=END, paid=END),
        account(until=(0, LAST), runs=((0, 0, LAST + 1),)),
        Account(1, 1),
    ],
    ids=["nothing yet", "all is over", "all rounds", "no masks"],
)
def test_an_account_of_rounds_of_the_run_is_possible(said):
    possible.account(said, last=LAST)


@pytest.mark.parametrize("where", [{"until": (0, LAST + 1)}, {"runs": ((0, 0, LAST + 2),)}, {"paid": (3, 2**62)}])
def test_an_account_of_rounds_after_the_last_is_not(where):
    with pytest.raises(DecodeError, match=f"is after the last round, {LAST}"):
        possible.account(account(**where), last=LAST)
