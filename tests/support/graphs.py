"""Random connected graphs, for tests."""

from hypothesis import strategies as st

from p2pfl.topology import Topology


@st.composite
def connected(draw, *, least=1, most=12):
    """Every connected graph of so many peers can come: a random tree, and any further edges."""
    count = draw(st.integers(least, most))
    order = draw(st.permutations(range(count)))
    name = [f"peer{number}" for number in order]
    edges = {(name[draw(st.integers(0, number - 1))], name[number]) for number in range(1, count)}
    pairs = [(a, b) for place, a in enumerate(name) for b in name[:place]]
    more = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return Topology(tuple(name), tuple({tuple(sorted(edge)) for edge in [*edges, *more]}))
