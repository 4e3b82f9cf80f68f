import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covers import cover_of, leakage, linear_view
from p2pfl import topology as graphs
from p2pfl.core.draws import draw
from p2pfl.core.errors import InputError
from p2pfl.privacy.accounting.leakage import NoiseCover
from p2pfl.topology import Topology


@st.composite
def covered(draw, *, most=9):
    """Any graph, connected or not, with noise of every peer and a mask of every edge."""
    n = draw(st.integers(1, most))
    peers = tuple(f"p{row}" for row in range(n))
    pairs = [(peers[a], peers[b]) for b in range(n) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    noise = {peer: draw(st.floats(0.1, 10)) for peer in peers}
    mask = {edge: draw(st.floats(0.1, 100)) for edge in edges}
    return Topology(peers, tuple(edges)), noise, mask


def dense(graph, *, noise, mask, colluders=()):
    """The covariance of the honest peers, written from the definition."""
    kept = [peer for peer in graph.peers if peer not in colluders]
    sigma = np.diag([noise[peer] ** 2 for peer in kept])
    for a, b in graph.edges:
        if a in kept and b in kept:
            k = np.zeros(len(kept))
            k[kept.index(a)], k[kept.index(b)] = 1, -1
            sigma += mask[a, b] ** 2 * np.outer(k, k)
    return kept, sigma


def by_definition(graph, **settings):
    kept, sigma = dense(graph, **settings)
    return dict(zip(kept, np.diag(np.linalg.inv(sigma)), strict=True))


def only(leaks):
    """The leak of peers that are all alike."""
    assert np.ptp(list(leaks.values())) < 1e-12
    return next(iter(leaks.values()))


def values(graph, *, noise=1.0, mask=4.0, colluders=()):
    return list(leakage(graph, noise=noise, mask=mask, colluders=colluders).values())


def test_leaks_of_small_graphs_are_the_published_ones():
    assert only(leakage(graphs.ring(8), noise=1.0, mask=4.0)) == pytest.approx(0.1630950217, abs=6e-11)
    assert only(leakage(graphs.ring(16), noise=1.0, mask=5.0)) == pytest.approx(0.10800735808554, abs=6e-15)
    assert only(leakage(graphs.complete(6), noise=0.7, mask=2.3)) == pytest.approx(0.3659918823, abs=6e-11)
    assert values(graphs.path(7))[:4] == pytest.approx([0.2365327, 0.2006170, 0.1821663, 0.1764960], abs=6e-8)


def test_mus_of_a_ring_with_colluders_are_the_published_ones():
    peers = graphs.ring(8).peers
    for colluders, expected in [((), 0.40385), ((4,), 0.4201143), ((1,), 0.4863463), ((1, 7), 1.0)]:
        leaks = leakage(graphs.ring(8), noise=1.0, mask=4.0, colluders={peers[c] for c in colluders})
        assert math.sqrt(leaks[peers[0]]) == pytest.approx(expected, abs=6e-6 if not colluders else 6e-8)
        assert set(leaks) == set(peers) - {peers[c] for c in colluders}


@pytest.mark.slow
def test_a_long_ring_leaks_as_an_infinite_one():
    assert only(leakage(graphs.ring(400), noise=1.0, mask=5.0)) == pytest.approx(0.0995037, abs=6e-8)


def test_fresh_masks_over_the_same_noise_count_as_one_of_half_the_variance():
    assert only(leakage(graphs.ring(8), noise=1.0, mask=4.0 / math.sqrt(2))) == pytest.approx(0.1962887922, abs=6e-11)


@pytest.mark.parametrize(
    ("graph", "eigenvalues"),
    [
        (graphs.ring(11), [2 - 2 * math.cos(2 * math.pi * k / 11) for k in range(11)]),
        (graphs.complete(7), [0] + [7] * 6),
        (graphs.hypercube(4), [2 * k for k in range(5) for _ in range(math.comb(4, k))]),
        (
            graphs.torus(4, 5),
            [4 - 2 * math.cos(math.pi * a / 2) - 2 * math.cos(2 * math.pi * b / 5) for a in range(4) for b in range(5)],
        ),
    ],
)
def test_where_all_peers_are_alike_the_leak_is_the_mean_over_the_spectrum(graph, eigenvalues):
    for noise, mask in [(1.0, 0.0), (0.7, 2.3), (1.0, 1e4)]:
        expected = np.mean([1 / (noise**2 + mask**2 * value) for value in eigenvalues])
        assert only(leakage(graph, noise=noise, mask=mask)) == pytest.approx(expected, rel=1e-12)


def test_a_complete_graph_leaks_by_its_closed_form():
    n, s, m = 23, 0.3, 5.0
    expected = 1 / (n * s**2) + (1 - 1 / n) / (s**2 + n * m**2)
    assert only(leakage(graphs.complete(n), noise=s, mask=m)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("graph", "row", "expected"),
    [
        (graphs.ring(9), 0, 0.7407407),
        (graphs.complete(9), 0, 0.0987654),
        (graphs.star(9), 0, 0.0987654),
        (graphs.star(9), 1, 0.8765432),
        (graphs.path(50), 0, 16.17),
        (graphs.hypercube(4), 0, 0.2682292),
    ],
)
def test_the_excess_over_the_floor_is_the_published_pseudo_inverse(graph, row, expected):
    mask = 1e5
    excess = (values(graph, mask=mask)[row] - 1 / len(graph.peers)) * mask**2
    assert excess == pytest.approx(expected, rel=1e-5)


@given(cover=covered(), data=st.data())
def test_leaks_are_the_diagonal_of_the_inverse_for_any_graph_and_colluders(cover, data):
    graph, noise, mask = cover
    colluders = data.draw(st.sets(st.sampled_from(graph.peers), max_size=len(graph.peers) - 1))
    found = leakage(graph, noise=noise, mask=mask, colluders=colluders)
    assert found == pytest.approx(by_definition(graph, noise=noise, mask=mask, colluders=colluders), rel=1e-7)


@given(cover=covered(), s=st.floats(0.1, 10), m=st.floats(0.0, 1e3))
def test_leaks_lie_between_the_floor_of_the_component_and_local_noise(cover, s, m):
    graph, _, _ = cover
    laplacian = np.diag(np.asarray(graph.adjacency.sum(axis=1)).ravel()) - graph.adjacency.toarray()
    inverse = np.linalg.pinv(laplacian, hermitian=True)
    part = (np.abs(np.linalg.matrix_power(np.eye(len(laplacian)) + graph.adjacency.toarray(), 9)) > 0).sum(axis=1)
    for row, leak in enumerate(leakage(graph, noise=s, mask=m).values()):
        floor = 1 / (part[row] * s**2)
        assert max(floor, 1 / (s**2 + laplacian[row, row] * m**2)) <= leak * (1 + 1e-9)
        above = floor + inverse[row, row] / m**2 if m > 1e-100 else math.inf
        assert leak <= min(1 / s**2, above) * (1 + 1e-9)


@given(cover=covered(), data=st.data())
def test_more_colluders_never_leak_less_and_more_noise_never_more(cover, data):
    graph, noise, mask = cover
    before = leakage(graph, noise=noise, mask=mask)
    colluder = data.draw(st.sampled_from(graph.peers))
    for peer, leak in leakage(graph, noise=noise, mask=mask, colluders={colluder}).items():
        assert leak >= before[peer] * (1 - 1e-9)
    louder = {peer: deviation * (1 + (peer == colluder)) for peer, deviation in noise.items()}
    masked = {edge: deviation * data.draw(st.floats(1, 3)) for edge, deviation in mask.items()}
    for peer, leak in leakage(graph, noise=louder, mask=masked).items():
        assert leak <= before[peer] * (1 + 1e-9)


def test_masks_a_billion_times_the_noise_lose_no_digit():
    graph = graphs.small_world(30, degree=4, rewire=0.3, seed=1)
    for mask in (1e3, 1e6, 1e9):
        leaks = np.array(values(graph, mask=mask))
        np.testing.assert_allclose(leaks, 1 / 30, rtol=60 / mask**2 + 1e-13)


def test_without_private_noise_the_sum_of_a_component_is_seen():
    graph = Topology(("a", "b", "c", "d", "e"), (("a", "b"), ("b", "c"), ("d", "e")))
    assert values(graph, noise=0.0) == [math.inf] * 5
    some = leakage(graph, noise={"a": 0.0, "b": 2.0, "c": 0.0, "d": 0.0, "e": 0.0}, mask=3.0)
    assert some["d"] == some["e"] == math.inf
    assert some["a"] == pytest.approx(1 / 4 + 1 / 9)
    assert leakage(graph, noise={**dict.fromkeys("acde", 0.0), "b": 2.0}, mask=3.0, colluders={"b"})["a"] == math.inf


def test_directed_edges_mask_as_undirected_ones():
    one_way = Topology(("a", "b", "c"), (("a", "b"), ("b", "a"), ("b", "c")), directed=True)
    assert values(one_way) == pytest.approx(values(graphs.path(3)))
    masks = {("a", "b"): 2.0, ("b", "a"): 2.0, ("c", "b"): 5.0}
    assert leakage(one_way, noise=1.0, mask=masks)["c"] > 0


def test_an_edge_without_a_mask_covers_nothing():
    masks = {("a", "b"): 0.0, ("b", "c"): 5.0}
    found = leakage(Topology(("a", "b", "c"), tuple(masks)), noise=2.0, mask=masks)
    assert found["a"] == 0.25
    assert found["b"] == pytest.approx(
        by_definition(graphs.path(2), noise=dict.fromkeys(["peer0", "peer1"], 2.0), mask={("peer0", "peer1"): 5.0})[
            "peer0"
        ]
    )


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"noise": -1.0}, r"the noise deviation is -1\.0, but must be at least 0; 0 adds no noise"),
        ({"mask": math.inf}, r"the mask deviation is inf, but must be at least 0; 0 adds no mask"),
        ({"noise": math.nan}, "noise deviation"),
    ],
)
def test_what_does_not_fit_the_graph_is_refused(changed, what):
    with pytest.raises(InputError, match=what):
        NoiseCover.of(graphs.ring(4), **{"noise": 1.0, "mask": 1.0, **changed})


@pytest.mark.parametrize("graph", [graphs.ring(5), graphs.exponential(6), graphs.star(4), graphs.ring(1)])
def test_one_deviation_for_all_covers_as_the_same_one_for_each(graph):
    alike, each = NoiseCover.of(graph, noise=0.7, mask=3.0), cover_of(graph, noise=0.7, mask=3.0)
    assert (alike.peers, alike.own.tolist()) == (each.peers, each.own.tolist())
    assert (alike.masks != each.masks).nnz == 0
    assert NoiseCover.of(graph, noise=0.7, mask=1e-160).masks.nnz == 0  # its square underflows


@pytest.mark.parametrize(
    ("graph", "mask", "colluders", "expected"),
    [
        (graphs.ring(8), 4.0, (), 0.40385),
        (graphs.ring(8), 4.0, (4,), 0.42011),
        (graphs.ring(8), 4.0, (1,), 0.48635),
        (graphs.ring(8), 4.0, (1, 7), 1.0),
        (graphs.complete(10), 2.0, (3,), 0.36761),
    ],
)
def test_the_best_attack_on_simulated_messages_measures_what_is_accounted(graph, mask, colluders, expected):
    colluders = {graph.peers[row] for row in colluders}
    kept, sigma = dense(
        graph,
        noise=dict.fromkeys(graph.peers, 1.0),
        mask=dict.fromkeys(graph.edges, mask),
        colluders=colluders,
    )
    accounted = math.sqrt(leakage(graph, noise=1.0, mask=mask, colluders=colluders)[kept[0]])
    assert accounted == pytest.approx(expected, abs=6e-6)
    trials, stream = 40_000, draw(7, "audit")
    seen = stream.standard_normal((trials, len(graph.peers)))
    number = {peer: row for row, peer in enumerate(graph.peers)}
    for a, b in graph.edges:
        noise = mask * stream.standard_normal(trials)
        if {a, b} & colluders:
            continue  # the colluder subtracts it from the other's message
        seen[:, number[a]] += noise
        seen[:, number[b]] -= noise
    score = seen[:, [number[peer] for peer in kept]] @ np.linalg.inv(sigma)[:, 0]
    shift = np.linalg.inv(sigma)[0, 0]
    # The measured mu has a standard error of mu / sqrt(2 trials), 0.35 %.
    assert shift / score.std() == pytest.approx(accounted, rel=4 * 0.0036)


def view(graph, *, noise, mask):
    """The public view as the matrices of its messages: rows, own noise, masks."""
    number = {peer: row for row, peer in enumerate(graph.peers)}
    incidence = np.zeros((len(graph.peers), len(graph.edges)))
    for column, (a, b) in enumerate(graph.edges):
        incidence[number[a], column], incidence[number[b], column] = 1, -1
    n = len(graph.peers)
    variances = [*(noise[peer] ** 2 for peer in graph.peers), *(mask[edge] ** 2 for edge in graph.edges)]
    return np.eye(n), np.hstack([np.eye(n), incidence]), np.array(variances)


@given(cover=covered(most=7))
def test_the_linear_view_of_a_public_round_is_the_leak(cover):
    graph, noise, mask = cover
    A, B, variances = view(graph, noise=noise, mask=mask)
    found = linear_view(A, B, variances=variances, sensitivity=2.0, users=graph.peers)
    leaks = leakage(graph, noise=noise, mask=mask)
    assert found == pytest.approx({peer: 2 * math.sqrt(leak) for peer, leak in leaks.items()}, rel=1e-6)


def ring_twice(*, fresh_noise, fresh_masks):
    A, B, variances = view(
        graphs.ring(8), noise=dict.fromkeys(graphs.ring(8).peers, 1.0), mask=dict.fromkeys(graphs.ring(8).edges, 4.0)
    )
    own, masks = B[:, :8], B[:, 8:]
    empty = np.zeros((8, 8))

    def both(part, *, fresh):
        return np.block([[part, empty], [empty, part]]) if fresh else np.vstack([part, part])

    B = np.hstack([both(own, fresh=fresh_noise), both(masks, fresh=fresh_masks)])
    return A, B, [1.0] * (16 if fresh_noise else 8) + [16.0] * (16 if fresh_masks else 8), variances


def test_resending_a_row_under_the_same_noise_and_fresh_masks_halves_the_masks():
    A, B, variances, _ = ring_twice(fresh_noise=False, fresh_masks=True)
    found = linear_view(np.vstack([A, A]), B, variances=variances, sensitivity=1.0)
    assert [mu**2 for mu in found.values()] == pytest.approx([0.1962887922] * 8, abs=6e-11)


def test_fresh_noise_and_masks_compose_as_two_releases():
    A, B, variances, _ = ring_twice(fresh_noise=True, fresh_masks=True)
    users = [*range(8), *range(8)]
    found = linear_view(np.kron(np.eye(2), A), B, variances=variances, sensitivity=1.0, users=users)
    assert [mu**2 for mu in found.values()] == pytest.approx([2 * 0.1630950217] * 8, abs=6e-10)


def test_masks_that_are_used_twice_hide_nothing():
    A, B, variances, _ = ring_twice(fresh_noise=True, fresh_masks=False)
    users = [*range(8), *range(8)]
    twice = np.kron(np.eye(2), A)
    found = linear_view(twice, B, variances=variances, sensitivity=1.0, users=users)
    assert [mu**2 for mu in found.values()] == pytest.approx([2.0] * 8, abs=1e-9)
    gram = twice.T @ np.linalg.inv(B @ np.diag(variances) @ B.T) @ twice
    assert (gram[0, 0], gram[0, 8]) == pytest.approx((0.5723720, -0.4276280), abs=6e-8)


def exactly(A, B, variances):
    """The Gram matrix in rational numbers, for messages of full rank."""
    A, B = ([[Fraction(value) for value in row] for row in matrix] for matrix in (A, B))
    M, K = len(A), len(A[0])
    sigma = [
        [sum(B[i][z] * B[j][z] * Fraction(v) for z, v in enumerate(variances)) for j in range(M)] for i in range(M)
    ]
    system = [sigma[i] + A[i] for i in range(M)]
    for i in range(M):
        pivot = next(row for row in range(i, M) if system[row][i])
        system[i], system[pivot] = system[pivot], system[i]
        system[i] = [value / system[i][i] for value in system[i]]
        for row in range(M):
            if row != i and system[row][i]:
                system[row] = [a - system[row][i] * b for a, b in zip(system[row], system[i], strict=True)]
    return [[sum(A[m][k] * system[m][M + j] for m in range(M)) for j in range(K)] for k in range(K)]


@given(cover=covered(most=6), data=st.data())
def test_leaks_agree_with_rational_arithmetic_where_noises_differ_by_orders_of_magnitude(cover, data):
    graph, noise, mask = cover
    powers = st.integers(-20, 20).map(lambda power: 2.0**power)
    noise = {peer: data.draw(powers) for peer in noise}
    mask = {edge: data.draw(powers) for edge in mask}
    gram = exactly(*(part.tolist() for part in view(graph, noise=noise, mask=mask)))
    expected = np.array([float(gram[row][row]) for row in range(len(graph.peers))])
    found = np.array([*leakage(graph, noise=noise, mask=mask).values()])
    lost = max(mask.values(), default=1.0) > 2**24 * min(mask.values(), default=1.0)  # beside the strongest mask
    assert (found >= expected * (1 - 1e-6)).all()
    assert (found <= expected * (1 + (1e-3 if lost else 1e-6))).all()


def test_a_mask_that_rounding_loses_beside_another_one_overstates_the_leak():
    graph = graphs.path(4)
    mask = dict(zip(graph.edges, (2.0**17, 2.0**-9, 2.0**17), strict=True))
    gram = exactly(*(part.tolist() for part in view(graph, noise=dict.fromkeys(graph.peers, 1.0), mask=mask)))
    found = leakage(graph, noise=1.0, mask=mask)
    for row, peer in enumerate(graph.peers):
        assert -1e-9 < found[peer] / float(gram[row][row]) - 1 < 2e-6


def test_the_linear_view_agrees_with_rational_arithmetic():
    """Two rows by a neighbour that sees what gossip makes of them for three rounds, ever fainter."""
    A = [[1, 0, 0], [0, 1, 0], [0.25, 0.5, 0.25], [0, 0, 1]]
    B = [[1, 0, 0, 1, 0], [0, 1, 0, -1, 2**-10], [0, 0.5, 2**-12, 0, 0], [0, 0, 1, 0, 3]]
    variances = [1, 0.25, 4, 100, 2**-6]
    gram = exactly(A, B, variances)
    found = linear_view(A, B, variances=variances, sensitivity=1.0, users=["a", "a", "b"])
    exact = sum(abs(gram[i][j]) for i in range(2) for j in range(2))
    assert found["a"] ** 2 == pytest.approx(float(exact), rel=1e-9)
    assert found["b"] ** 2 == pytest.approx(float(gram[2][2]), rel=1e-9)


def test_after_many_gossip_rounds_one_observer_recovers_every_noisy_row():
    n = 16
    mixing = graphs.metropolis(graphs.ring(n)).matrix.toarray()
    heard = [0, 1, n - 1]

    def observed(rounds):
        powers = [np.linalg.matrix_power(mixing, t)[heard] for t in range(rounds)]
        A = np.vstack(powers)
        return linear_view(A, A, variances=1.0, sensitivity=1.0)

    assert observed(2)[2] == pytest.approx(1.0, abs=1e-6)
    assert observed(4)[4] == pytest.approx(1.0, abs=1e-6)
    assert observed(8)[6] == pytest.approx(1.0, abs=1e-6)
    assert observed(1)[6] == 0


def test_with_fresh_noise_every_round_what_reaches_a_far_observer_is_the_published_bound():
    n, rounds = 16, 10
    mixing = graphs.metropolis(graphs.ring(n)).matrix.toarray()
    powers = [np.linalg.matrix_power(mixing, t)[[0, 1, n - 1]] for t in range(rounds)]
    nothing = np.zeros_like(powers[0])
    A = np.block([[powers[t - s] if s <= t else nothing for s in range(rounds)] for t in range(rounds)])
    users = [*range(n)] * rounds
    local = dict.fromkeys(range(n), math.sqrt(rounds))
    found = linear_view(A, A, variances=1.0, sensitivity=1.0, users=users, local=local)
    assert [found[distance] ** 2 for distance in (1, 2, 3, 4)] == pytest.approx([10, 2.07, 0.54, 0.12], abs=6e-3)


def test_what_is_seen_without_noise_is_infinitely_clear_unless_local_noise_bounds_it():
    A, B = np.eye(2), np.array([[1.0], [-1.0]])
    assert linear_view(A, B, variances=9.0, sensitivity=1.0) == {0: math.inf, 1: math.inf}
    assert linear_view(A, B, variances=9.0, sensitivity=1.0, local=3.0) == {0: 3.0, 1: 3.0}
    assert linear_view([[1.0], [1e-15]], [[1.0], [0.0]], variances=1.0, sensitivity=1.0) == {0: math.inf}
    assert linear_view(np.zeros((2, 1)), B, variances=9.0, sensitivity=1.0) == {0: 0.0}


@given(faint=st.floats(1e-18, 1e-2))
def test_noise_that_is_too_faint_to_tell_from_none_is_never_reported_as_leaking_less(faint):
    found = linear_view([[1.0], [1.0]], [[1.0, 0.0], [1.0, faint]], variances=1.0, sensitivity=1.0)
    assert found[0] >= 1 - 1e-9
    shown = linear_view([[1.0], [0.0]], [[1.0, 0.0], [1.0, faint]], variances=1.0, sensitivity=1.0)
    assert shown[0] >= math.sqrt(1 + 1 / faint**2) * (1 - 1e-6) or shown[0] == math.inf


def test_noise_that_is_2_to_the_27_times_weaker_than_masks_is_not_lost():
    graph = Topology(("a", "b", "c", "d", "e"), (("a", "b"), ("a", "c"), ("b", "d"), ("b", "e")))
    noise = {"a": 2.0**-12, "b": 1.0, "c": 2.0**-13, "d": 1.0, "e": 1.0}
    mask = {("a", "b"): 2.0**-13, ("a", "c"): 2.0**14, ("b", "d"): 1.0, ("b", "e"): 2.0**14}
    gram = exactly(*(part.tolist() for part in view(graph, noise=noise, mask=mask)))
    expected = [float(gram[row][row]) for row in range(5)]
    assert [*leakage(graph, noise=noise, mask=mask).values()] == pytest.approx(expected, rel=1e-9)
