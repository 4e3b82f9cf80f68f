from hypothesis import given
from hypothesis import strategies as st

from p2pfl.network.protocol.incoming.rate_limit import Allowance


@given(st.lists(st.tuples(st.sampled_from("ae"), st.floats(0, 1)), max_size=200))
def test_nobody_says_more_than_a_burst_and_the_rate_since(said):
    allowance, now, heard = Allowance(rate=5.0, burst=3.0), 0.0, {"a": 0, "e": 0}
    for sender, pause in said:
        now += pause
        heard[sender] += allowance.take(sender, now=now)
        assert heard[sender] <= 3 + 5 * now + 1e-9


def test_a_flood_of_one_leaves_the_others_theirs():
    allowance = Allowance(rate=1.0, burst=10.0)
    assert sum(allowance.take("eve", now=0.0) for _ in range(10_000)) == 10
    assert all(allowance.take("ada", now=0.0) for _ in range(10))


def test_all_strangers_share_one_allowance():
    allowance = Allowance(rate=1.0, burst=10.0)
    assert sum(allowance.take("stranger", now=0.0) for _ in range(100)) == 10
