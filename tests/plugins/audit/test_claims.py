import builds
import pytest

from p2pfl.plugins.audit.release_claims import check_cancellation, check_clipping, check_keys, check_release
from p2pfl.privacy import Settings
from p2pfl.privacy.keys import SecretSource
from p2pfl.topology import exponential, ring, star

SETTINGS = Settings(clip=0.5, noise=0.3, mask=2.0)


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("graph", [ring(5), star(4), exponential(8)])
@pytest.mark.parametrize(
    "settings",
    [SETTINGS, Settings(clip=2.0), Settings(mask=1.0, bits=30), Settings(clip=0.5, noise=0.3)],
)
def test_every_claim_of_the_build_as_it_is_holds(graph, settings):
    found = check_release(builds.target(settings, graph), keys=500)
    assert not any(claim.broken for claim in found)
    assert {claim.name for claim in found} == (
        ({"masks cancel"} if settings.mask else set())
        | ({"updates are clipped"} if settings.clip < 10 else set())
        | ({"keys of runs differ", "keys of a run differ"} if settings.hidden else set())
    )


def test_nothing_is_claimed_where_nothing_is_hidden():
    assert check_release(builds.target(Settings(), ring(4))) == []


def test_a_clipped_update_reaches_as_far_as_the_clip():
    found = check_clipping(builds.target(SETTINGS, ring(5)))
    assert found.measured == pytest.approx(0.5, abs=1e-4)


def test_masks_of_an_odd_ring_that_both_ends_add_do_not_cancel(monkeypatch):
    builds.wrong_sign(monkeypatch)
    assert check_cancellation(builds.target(SETTINGS, ring(5))).measured > 1.0


@pytest.mark.slow
def test_the_systems_secrets_do_not_repeat():
    assert not any(claim.broken for claim in check_keys(lambda _: SecretSource(), peers=("ada", "bob")))


@pytest.mark.parametrize("broken", [0, 1])
def test_a_source_that_repeats_itself_between_or_within_runs_is_noticed(broken):
    class Forgetful:
        def __init__(self, number):
            self.number = number

        def bytes(self, size, *, purpose, peer, round=0):
            number = self.number if broken else 0
            return builds.fresh(number).bytes(size, purpose=purpose, peer=peer, round=round * (not broken))

    assert [claim.broken for claim in check_keys(Forgetful, peers=("ada",), count=100)] == [not broken, bool(broken)]
