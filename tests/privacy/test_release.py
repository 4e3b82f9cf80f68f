import math
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import InputError, LearningError, PrivacyError
from p2pfl.core.neighbourhood import Public, ReceivedModels, Released
from p2pfl.privacy import release
from p2pfl.privacy.keys import SecretSource, SeededSource
from p2pfl.privacy.masks import Masks, swarm_secrets
from p2pfl.privacy.noise import NoiseSampler
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK
from p2pfl.privacy.release import private
from p2pfl.privacy.release_settings import Settings
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import Topology, complete, metropolis, ring

SOURCE = SeededSource(7)


@dataclass(frozen=True)
class Room:
    """A neighbourhood in one place: everybody hears everybody."""

    peers: tuple[str, ...]

    async def release(self, rows, *, since, masses=None):
        del since
        return Released(rows if masses is None else (rows * masses).to(rows.dtype), masses)

    async def mix(self, released):
        return Released(released.values.mean(0, keepdim=True).expand_as(released.rows), released.masses)

    async def receive(self, released):
        none = torch.zeros(0, dtype=torch.int64)
        return ReceivedModels(released.values, none, none, none.double())


def draw(count, size, seed=0, scale=1.0, dtype=torch.float32):
    return (scale * torch.randn(count, size, generator=torch.Generator().manual_seed(seed))).to(dtype)


def wrap(topology, peers=None, *, source=SOURCE, round=0, **chosen):
    chosen = Settings(**chosen)
    masks = None
    if chosen.mask:
        secrets = swarm_secrets(topology, source=SOURCE, run="test")
        masks = Masks(secrets, deviation=chosen.mask, bits=chosen.bits, topology=topology)
    return private(Room(peers or topology.peers), settings=chosen, masks=masks, source=source, round=round)


async def released(net, rows, since, masses=None):
    return await net.release(rows, since=Public(since), masses=masses)


@st.composite
def situations(draw):
    """A connected graph, rows, masses and settings."""
    peers = draw(st.lists(st.text("abzABZ019_-", min_size=1, max_size=22), min_size=2, max_size=6, unique=True))
    edges = tuple((peers[draw(st.integers(0, late - 1))], peers[late]) for late in range(1, len(peers)))
    masses = draw(
        st.none() | st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.25]), min_size=len(peers), max_size=len(peers))
    )
    return Topology(tuple(peers), edges), None if masses is None else torch.tensor(masses).double()[:, None]


@given(
    situation=situations(),
    size=st.integers(1, 40),
    chosen=st.fixed_dictionaries(
        {
            "clip": st.sampled_from([0.5, 3.0, math.inf]),
            "noise": st.sampled_from([0.0, 0.7]),
            "bits": st.integers(1, 24),
            "round": st.integers(0, 2**31),
        }
    ),
)
async def test_the_sum_of_what_is_released_is_that_of_the_unmasked_bit_for_bit(situation, size, chosen):
    topology, masses = situation
    rows, since = draw(len(topology.peers), size), draw(len(topology.peers), size, seed=1)
    grid = 2.0 ** chosen["bits"]
    masked = await released(wrap(topology, mask=10.0, **chosen), rows, since, masses)
    if chosen["noise"]:
        unmasked = (await released(wrap(topology, **chosen), rows, since, masses)).rows
    else:  # the definition, with numpy
        weight = 1.0 if masses is None else masses.numpy()
        start, difference = since.double().numpy() * weight, (rows.double() - since.double()).numpy() * weight
        length = np.sqrt(np.square(difference).sum(axis=-1, keepdims=True))
        difference = difference * np.minimum(1.0, chosen["clip"] / np.maximum(length, 1e-300))
        unmasked = torch.from_numpy((np.rint(start * grid) + np.rint(difference * grid)).astype(np.int64))
    assert masked.rows.dtype == torch.int64
    assert (masked.grid, masked.dtype) == (chosen["bits"], torch.float32)
    assert masked.masses is masses
    assert torch.equal(masked.rows.sum(0), unmasked.sum(0))
    assert size < 8 or not torch.equal(masked.rows, unmasked)  # a few masks may all be zero on a coarse grid


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("size", [7, 3000, VALUES_PER_BLOCK + 5])
@pytest.mark.parametrize(
    "chosen",
    [
        {"clip": 0.5},
        {"clip": 0.5, "noise": 1.0},
        {"clip": 2.0, "noise": 0.1, "mask": 3.0},
    ],
)
async def test_a_peer_releases_the_same_row_alone_and_in_a_stack(size, chosen):
    topology = ring(5)
    rows, since, masses = (
        draw(5, size),
        draw(5, size, seed=1),
        torch.tensor([[0.0], [0.5], [1.0], [1.5], [2.0]]).double(),
    )
    together = (await released(wrap(topology, **chosen), rows, since, masses)).rows
    for row, peer in enumerate(topology.peers):
        one = slice(row, row + 1)
        alone = (await released(wrap(topology, (peer,), **chosen), rows[one], since[one], masses[one])).rows
        assert torch.equal(alone, together[one])


async def test_neutral_settings_are_the_plain_release_bit_for_bit():
    topology = complete(3)
    rows = torch.tensor([[0.1, -0.0, math.inf], [1e-40, math.nan, 3.0], [1.0, 2.0, 3.0]])
    net = wrap(topology)
    assert (await released(net, rows, draw(3, 3))).rows is rows
    masses = torch.tensor([[0.5], [1.0], [3.0]]).double()
    weighted = await released(net, rows, draw(3, 3), masses)
    assert torch.equal(weighted.rows.nan_to_num(9.0), (rows * masses).float().nan_to_num(9.0))
    assert weighted.grid is None


async def test_masks_that_are_not_asked_for_change_nothing():
    topology = ring(3)
    masks = Masks(swarm_secrets(topology, source=SOURCE, run="test"), deviation=1.0, topology=topology)
    rows, since = draw(3, 10), draw(3, 10, seed=1)
    net = private(Room(topology.peers), settings=Settings(noise=0.5), masks=masks, source=SOURCE, round=0)
    expected = await released(wrap(topology, noise=0.5), rows, since)
    assert torch.equal((await released(net, rows, since)).rows, expected.rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
async def test_clipping_alone_shortens_the_difference_and_stays_in_floats(dtype):
    since = draw(3, 1000, seed=1, dtype=dtype)
    rows = since + draw(3, 1000, scale=0.001, dtype=dtype)
    rows[1] += 1.0
    out = await released(wrap(ring(3), clip=1.0), rows, since)
    assert out.grid is None
    assert out.rows.dtype == dtype
    assert torch.equal(out.rows[[0, 2]], rows[[0, 2]])  # short differences pass
    moved = torch.linalg.vector_norm((out.rows - since).double(), dim=-1)
    assert moved[1] == pytest.approx(1.0, rel=torch.finfo(dtype).eps * 10)


@pytest.mark.parametrize("length", [1.001, 1.01, 1.5, 1e6])
async def test_an_update_that_is_hardly_too_long_is_clipped_as_well(length):
    since = draw(3, 50, dtype=torch.float64)  # [3, P]
    update = draw(3, 50, seed=1, dtype=torch.float64)
    update *= length * 0.5 / update.norm(dim=1, keepdim=True)
    found = await released(wrap(ring(3), clip=0.5), since + update, since)
    assert (found.rows - since).norm(dim=1).max() <= 0.5 * (1 + 1e-9)


async def test_a_wide_clip_with_tiny_noise_reads_back_as_the_rows():
    rows, since = draw(4, 100), draw(4, 100, seed=1)
    out = await released(wrap(ring(4), clip=1e6, noise=1e-9, bits=24), rows, since)
    torch.testing.assert_close(out.values, rows, atol=2.0**-23, rtol=1e-6)


async def test_private_noise_has_its_deviation_and_is_new_for_each_peer_round_and_release():
    topology, size = complete(2), 100_000
    rows = torch.zeros(2, size)
    net = wrap(topology, noise=0.5)
    drawn = [
        await released(net, rows, rows),
        await released(net, rows, rows),
        await released(wrap(topology, noise=0.5, round=1), rows, rows),
    ]
    noises = torch.cat([one.values for one in drawn]).double()
    torch.testing.assert_close(torch.cov(noises), 0.25 * torch.eye(6).double(), atol=0.005, rtol=0)


async def test_a_second_release_in_a_round_has_new_masks():
    topology, rows = ring(3), torch.zeros(3, 1000)
    net = wrap(topology, mask=5.0)
    first, second = (await released(net, rows, rows)).rows, (await released(net, rows, rows)).rows
    assert not first.sum(0).any()
    assert not second.sum(0).any()
    assert abs(np.corrcoef(first[0].numpy(), second[0].numpy())[0, 1]) < 0.2


async def test_noise_is_drawn_by_the_exact_sampler_under_a_key_of_the_source():
    rows = torch.zeros(1, 50)
    out = await released(wrap(complete(1), noise=0.25), rows, rows)
    key = SOURCE.bytes(32, purpose="noise 0", peer="peer0", round=0)
    np.testing.assert_array_equal(out.rows[:1].numpy(), NoiseSampler(0.25 * 2**20).window([key], slice(0, 50)))


async def test_noise_from_the_secret_source_differs_every_time():
    rows = torch.zeros(2, 50)
    net = wrap(complete(2), noise=0.25, source=SecretSource())
    other = wrap(complete(2), noise=0.25, source=SecretSource())
    assert not torch.equal((await released(net, rows, rows)).rows, (await released(other, rows, rows)).rows)


async def test_a_peer_that_sits_out_releases_noise_and_masks_alone():
    topology, size = ring(3), 50
    masses = torch.tensor([[0.0], [1.0], [2.0]]).double()
    chosen = {"clip": 1.0, "noise": 0.3, "mask": 2.0}
    out = (await released(wrap(topology, **chosen), draw(3, size), draw(3, size, seed=1), masses)).rows
    zeros = torch.zeros(3, size)
    assert torch.equal(out[0], (await released(wrap(topology, **chosen), zeros, zeros)).rows[0])


async def test_mixing_and_hearing_are_left_to_the_wrapped_neighbourhood():
    net = wrap(complete(2), clip=1.0)
    rows = Released(draw(2, 4))
    assert net.peers == ("peer0", "peer1")
    assert torch.equal((await net.mix(rows)).rows[0], rows.rows.mean(0))
    assert (await net.receive(rows)).rows is rows.rows


@pytest.mark.parametrize("block", [64, 1 << 10])
async def test_the_size_of_a_block_changes_no_released_integer(block, monkeypatch):
    rows, since, chosen = draw(3, 5000), draw(3, 5000, seed=1), {"clip": 1e9, "mask": 2.0}
    expected = (await released(wrap(ring(3), **chosen), rows, since)).rows
    monkeypatch.setattr(release, "VALUES_PER_BLOCK", block)
    assert torch.equal((await released(wrap(ring(3), **chosen), rows, since)).rows, expected)


@pytest.mark.slow
async def test_a_large_row_needs_little_memory_beside_its_integers():
    size = 1 << 21
    rows, since, net = (
        torch.ones(1, size),
        torch.zeros(1, size),
        wrap(ring(3), ("peer0",), clip=1.0, noise=0.1, mask=1.0),
    )
    tracemalloc.start()
    await released(net, rows, since)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * 8 * size


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("chosen", [{"clip": 1.0}, {"clip": 1.0, "noise": 0.1}, {"noise": 0.1}, {"mask": 1.0}])
@pytest.mark.parametrize("masses", [None, torch.tensor([[1.0], [0.0], [1.0]]).double()])
async def test_a_row_that_is_not_finite_never_leaves(bad, chosen, masses):
    rows = torch.zeros(3, 10)
    rows[1, 4] = bad
    with pytest.raises(
        LearningError,
        match="the model of peer1 contains NaN or infinity before its release",
    ):
        await released(wrap(ring(3), **chosen), rows, torch.zeros(3, 10), masses)


@pytest.mark.parametrize("part", ["rows", "since"])
async def test_a_value_beyond_the_grid_names_its_peer(part):
    values = {"rows": torch.zeros(3, 10), "since": torch.zeros(3, 10)}
    values[part][2, 4] = 3e9
    with pytest.raises(
        PrivacyError,
        match=r"a released value of peer2 is 3e\+09, above the limit of 2\.14748e\+09",
    ):
        await released(wrap(ring(3), noise=0.1), values["rows"], values["since"])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"clip": 0.0}, "the clip is 0.0, but must be above 0; leave it out to clip nothing"),
        ({"clip": math.nan}, "the clip is nan, but must be above 0; leave it out to clip nothing"),
        ({"noise": -1.0}, "the noise deviation is -1.0, but must be at least 0; 0 adds no noise"),
        ({"mask": math.inf}, "the mask deviation is inf, but must be at least 0; 0 adds no mask"),
        ({"bits": 0}, "the grid has 0 bits, but needs 1 to 40; 20 resolve a millionth"),
    ],
)
def test_settings_out_of_range_are_refused(wrong, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        Settings(**wrong)


def test_masks_must_come_from_the_same_settings():
    topology = ring(3)
    masks = Masks(swarm_secrets(topology, source=SOURCE, run="test"), deviation=1.0, topology=topology)
    room = Room(topology.peers)
    for other, built in ((Settings(mask=2.0), masks), (Settings(mask=1.0, bits=24), masks), (Settings(mask=1.0), None)):
        with pytest.raises(InputError, match="same settings"):
            private(room, settings=other, masks=built, source=SOURCE, round=0)


async def test_secret_participation_gives_the_estimator_with_a_fixed_denominator():
    """McMahan et al. 2018: since + sum of the participants' clipped updates / (q N)."""
    topology, q, size = complete(40), 0.4, 30
    rows, since = draw(40, size, dtype=torch.float64), draw(40, size, seed=1, dtype=torch.float64)[:1].expand(40, -1)
    chosen = {"mask": 2.0, "clip": 3.0, "participation": q}
    out = await released(wrap(topology, **chosen), rows, since)
    coins = [
        int.from_bytes(SOURCE.bytes(8, purpose="participation 0", peer=peer, round=0), "little") < q * 2**64
        for peer in topology.peers
    ]
    assert 5 < sum(coins) < 35
    update = rows - since
    clipped = update * (3.0 / update.norm(dim=1, keepdim=True)).clamp(max=1)  # [N, P]
    expected = since[0] + clipped[torch.tensor(coins)].sum(0) / (q * 40)  # [P]
    average = out.values.double().mean(0) / out.masses.mean()
    torch.testing.assert_close(average, expected, rtol=0, atol=1e-5)


async def test_the_mass_of_who_sits_out_in_secret_tells_nothing():
    topology = ring(30)
    masses = torch.linspace(0.5, 1.5, 30, dtype=torch.float64).unsqueeze(1)
    rows = draw(30, 4)
    out = await released(wrap(topology, mask=1.0, participation=0.5), rows, torch.zeros(30, 4), masses)
    assert torch.equal(out.masses, 0.5 * masses)


async def test_taking_part_always_is_the_plain_release_bit_for_bit():
    topology, rows = ring(6), draw(6, 50)
    plain = await released(wrap(topology, mask=1.0, noise=0.1), rows, torch.zeros(6, 50))
    always = await released(wrap(topology, mask=1.0, noise=0.1, participation=1.0), rows, torch.zeros(6, 50))
    assert torch.equal(plain.rows, always.rows)
    assert always.masses is None


@given(
    size=st.integers(1, 40),
    clip=st.sampled_from([0.01, 1.0, 30.0, math.inf]),
    scale=st.sampled_from([1e-3, 1.0, 1e6]),
    block=st.sampled_from([1, 4, VALUES_PER_BLOCK]),
    masses=st.none() | st.just(torch.tensor([[0.5], [2.5]]).double()),
)
async def test_an_update_is_scaled_to_at_most_the_clip(size, clip, scale, block, masses):
    rows = draw(2, size, scale=scale, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "VALUES_PER_BLOCK", block)
        moved = (await released(wrap(complete(2), clip=clip), rows, torch.zeros(2, size).double(), masses)).rows
    own = rows if masses is None else rows * masses
    length = own.norm(dim=1, keepdim=True)  # [R, 1]
    expected = own if math.isinf(clip) else own * (clip / length.clamp(min=1e-300)).clamp(max=1)
    torch.testing.assert_close(moved, expected, rtol=1e-12, atol=0)
    assert bool((moved.norm(dim=1) <= clip * (1 + 1e-12)).all())


async def test_a_release_is_charged_before_anything_is_drawn():
    told = []

    class Silent:
        def bytes(self, size, *, purpose, **_):
            told.append(purpose)
            return bytes(size)

    net = private(
        Room(("ada",)),
        settings=Settings(noise=1.0, clip=1.0),
        masks=None,
        source=Silent(),
        round=0,
        charge=lambda: told.append("charge"),
    )
    await released(net, draw(1, 3), torch.zeros(1, 3))
    assert told == ["charge", "noise 0"]


async def test_every_total_is_charged_first_and_has_noise_in_all_of_its_numbers():
    graph, told, size = ring(3), [], VALUES_PER_BLOCK + 1000

    def contribution(_peer):
        told.append("asked")
        return np.zeros(size, np.int64)

    net = private(
        StackedNeighbourhood([metropolis(graph)], round=0, seed=0, graph=graph),
        settings=Settings(noise=1.0, clip=1.0),
        masks=None,
        source=SeededSource(5),
        round=0,
        charge=lambda: told.append("charged"),
    )
    totals = [await net.total(contribution, size=size, change=1000.0) for _ in range(2)]
    assert told == ["charged", *["asked"] * 3] * 2
    ends = [total[end] for total in totals for end in (slice(1000), slice(size - 1000, size))]
    assert [np.std(end) == pytest.approx(1000 * 3**0.5, rel=0.2) for end in ends] == [True] * 4
    assert np.abs(np.corrcoef(ends) - np.eye(4)).max() < 0.2
