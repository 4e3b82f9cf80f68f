"""Live peers on graphs that are not complete: all members of a round keep its parameters, or they play it again."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dying import VICTIM, Death
from p2pfl.core.errors import BudgetError, ExperimentError, OutdatedError, PrivacyError, UndecidedError
from p2pfl.core.neighbourhood import Public, Released
from p2pfl.experiment import plan, read
from p2pfl.learning import Fitted
from p2pfl.network.peer.masking.mask_cover import MaskCover
from p2pfl.network.peer.masking.model_protection import last
from p2pfl.network.peer.masking.round_attempts import (
    MAX_ATTEMPTS,
    AgainError,
    Attempts,
    CachedTraining,
    MaskedRelease,
)
from p2pfl.network.peer.storage.journal import Journal
from p2pfl.network.protocol.interface.effects import Concluded, Undecided
from p2pfl.network.protocol.interface.requests import ReportAttempt, Try
from p2pfl.network.protocol.ledgers.mask_slots import END, MaskSlots, Slot
from p2pfl.privacy import Masks
from p2pfl.results.notices.kinds import LearningStopped
from p2pfl.topology import exponential, metropolis, push, ring
from swarms import SMALL

SIX = ["topology.kind=circulant", "topology.degree=4", "topology.peers=6", "gossip.steps=2", "rounds=4"]
MASKS = ["privacy.mode=pairwise", "privacy.mask=10.0"]
GO_ON = [*MASKS, "privacy.departures=go_on"]
DIGITS = ["data.name=digits", "data.split=iid", "model.hidden=[16]", "learning.rate=0.5", "gossip.steps=8"]


def death(*changes, **given):
    return Death(read(SMALL, changes=[*SIX, *changes]), **given).run()


@pytest.fixture(scope="module")
def whole():
    return death(*GO_ON)


@pytest.mark.slow
def test_without_a_death_reports_and_votes_are_all_that_is_added_and_the_mean_of_a_round_differs_by_rounding(whole):
    one, plain = (death(*each, "rounds=1", "learning.weighted=false") for each in (GO_ON, ["privacy.mode=independent"]))
    masked, bare = (torch.cat([each.rows for each in found.states.values()]).mean(0) for found in (one, plain))
    assert torch.allclose(masked, bare, atol=1e-5)
    agreed = {"Reports", "Vote", "Decision"}
    assert sum(whole.sent[kind] for kind in agreed) <= 4 * (2 * 6 + 1)
    assert not whole.sent.keys() - plain.sent.keys() - agreed


EVENTS = 31
"""Events of a peer in a round of six."""


@pytest.mark.slow
def test_a_round_has_as_many_events_as_are_tried(whole):
    assert whole.events == EVENTS


@pytest.fixture(scope="module")
def plain():
    return death("gossip.steps=8", "privacy.mode=none")


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("at", range(EVENTS))
def test_survivors_of_a_death_at_any_event_agree_on_each_attempt_and_keep_no_mask(at, plain):
    """The mean of their models is that of peers without masks, up to what the dead peer's model had of earlier ones."""
    found = death(*GO_ON, "gossip.steps=8", at=at)
    assert found.dead
    assert found.states.keys() == {f"peer{number}" for number in range(6)} - {VICTIM}
    assert not [each for each in found.notices if isinstance(each, LearningStopped)]
    for outcomes in found.outcomes.values():
        assert len({tuple(each) for each in outcomes.values()}) == 1
        assert [each.committed for each in outcomes["peer0"]] in ([True], [False, True])
    mean = torch.cat([state.rows for state in found.states.values()]).mean(0)
    assert (mean - torch.cat([state.rows for state in plain.states.values()]).mean(0)).abs().max() < 1


@pytest.fixture(scope="module")
def unmasked():
    return death(*DIGITS, "rounds=5", at=0)


@pytest.mark.nightly
@pytest.mark.parametrize("at", range(0, 3 * EVENTS, 7))
def test_scores_after_a_death_are_those_without_masks(at, unmasked):
    found = death(*DIGITS, *GO_ON, "rounds=5", at=at)
    for round in range(2, 5):
        assert found.accuracy(round) > unmasked.accuracy(round) - 0.02


@pytest.mark.slow
def test_peers_that_shall_stop_end_with_the_model_from_before_the_round():
    before = death(*MASKS, "rounds=2", "privacy.departures=stop")
    found = death(*MASKS, "privacy.departures=stop", at=0)
    told = [each for each in found.notices if isinstance(each, LearningStopped)]
    assert [each.reason for each in told] == ["undecided"] * 5
    assert f"round 2 did not complete, because {VICTIM} is missing" in told[0].message
    assert all(torch.equal(found.states[name].rows, before.states[name].rows) for name in found.states)


@pytest.mark.slow
def test_peers_with_too_few_partners_left_release_nothing():
    found = death(*GO_ON, "topology.kind=ring", "privacy.partners=2", "transport.patience=5", at=0)
    told = {each.reason for each in found.notices if isinstance(each, LearningStopped)}
    assert told == {"partners", "undecided"}
    assert all(len(found.records[name]) == 2 for name in found.states)


class Answering:
    """A connection that answers at once; what is asked, submitted and stored is noted."""

    def __init__(self, *answers, abandoned=False):
        self.answers, self.log = [*answers], []
        membership = SimpleNamespace(incarnations=lambda members: f"{len(members)}".encode())
        self.session = SimpleNamespace(shared=SimpleNamespace(abandoned=abandoned), membership=membership)

    async def ask(self, event):
        self.log.append(event)
        return self.answers.pop(0)

    def submit(self, event):
        self.log.append(event)

    async def durable(self):
        self.log.append("durable")


class Masking:
    """Masks whose sum is the number of the attempt."""

    attempt = 0
    slot = None
    alone = False

    def __init__(self, peer="peer0", *, charged=()):
        self.slots, self.charged = SimpleNamespace(peer=peer), {*charged}

    def strangers(self, *_, **__):
        return frozenset()

    def covers(self, _, *, members):
        return len(members) == 5

    def decide(self, *_, members):
        self.members = members

    def sums(self, *_, size, **__):
        self.drawn = np.full((1, size), 100 * (self.attempt + 1))
        return self.drawn


class Metering:
    """A meter that notes the rounds whose cost is corrected, and may be overdrawn then."""

    claims = True

    def __init__(self, corrected, *, overdrawn):
        self.corrected, self.overdrawn = corrected, overdrawn

    def correct(self, round):
        self.corrected.append(round)

    def check(self, round):
        if self.overdrawn and self.corrected:
            raise BudgetError(f"nothing is left for round {round}")


def attempts(*answers, goes_on=True, abandoned=False, charged_before=(), overdrawn=False):
    """Return the attempts of a peer at round 2, and the rounds whose cost was corrected."""
    corrected = []
    made = Attempts(
        Answering(*answers, abandoned=abandoned),
        Masking(charged=charged_before),
        masks=lambda: None,
        meter=Metering(corrected, overdrawn=overdrawn),
        topology=ring(5),
        weights=[metropolis(ring(5))],
        stop=None,
        goes_on=goes_on,
        members=ring(5).peers,
        attempt=7,
    )
    made.begin(2)
    return made, corrected


async def paid(*answers, **given):
    """Return the attempts of a peer whose update of round 2 is charged, and the rounds whose cost was corrected."""
    made, corrected = attempts(*answers, **given)
    await made.pay(2, Charge())
    return made, corrected


class Charge:
    """Charge that notes whether all masks hid the update, and then lets another member abandon the attempt."""

    def __init__(self, abandoned=None):
        self.log, self.abandoned = [], abandoned

    def __call__(self, *, whole):
        self.log.append(whole)
        if self.abandoned is not None:
            self.abandoned.session.shared.abandoned = True


FOUR = ("peer0", "peer1", "peer2", "peer4")


async def test_a_round_that_counts_costs_nothing_more_and_the_next_one_is_among_those_that_are_left():
    made, charged = await paid(Concluded(committed=True, members=FOUR))
    await made.report(complete=True)
    assert made.connection.log == [Try(2, 7, ring(5).peers), ReportAttempt(complete=True)]
    made.begin(3)
    assert (made.members, made.attempt, made.step, charged) == (FOUR, 7, 0, [])


async def test_a_peer_that_is_to_end_ends_before_the_round_that_lacks_a_peer():
    made, charged = await paid(Concluded(committed=True, members=FOUR), goes_on=False)
    await made.report(complete=True)
    with pytest.raises(UndecidedError, match="peer3 is gone, so round 3 cannot be played"):
        made.begin(3)
    assert not charged


async def test_an_attempt_that_fails_is_charged_durably_before_the_next_one_begins():
    made, charged = await paid(Concluded(committed=False, members=FOUR))
    with pytest.raises(AgainError):
        await made.fail()
    assert charged == [2]
    assert made.connection.log[1:] == [ReportAttempt(complete=False), "durable"]
    made.begin(2)
    assert (made.members, made.attempt, made.step) == (FOUR, 8, 2**16)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Undecided(frozenset({"peer3"})), r"no majority answered about peer3 in time; .* raise transport\.patience"),
        (Concluded(committed=True, members=("peer1", "peer2", "peer3")), "peer0 was cut off in round 2"),
        (Concluded(committed=False, members=("peer0", "peer2", "peer3")), "no longer connected"),
    ],
)
@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_peer_that_cannot_go_on_ends_and_is_charged_only_where_others_may_play_again(answer, why, goes_on):
    made, charged = await paid(answer, goes_on=goes_on)
    with pytest.raises(UndecidedError, match=why if goes_on or "connected" not in why else "did not complete"):
        await made.report(complete=True)
    assert charged == ([2] if goes_on and "connected" not in why else [])


async def test_an_update_is_charged_once_however_many_attempts_fail_and_its_releases_are_known_to_be_charged():
    made, corrected = await paid(*[Concluded(committed=False, members=FOUR)] * 2)
    for _ in range(2):
        with pytest.raises(AgainError):
            await made.fail()
        made.begin(2)
    assert (corrected, made.cover.charged, made.cover.alone) == ([2], {Slot(7, 2)}, True)


async def test_a_round_that_is_played_anew_after_a_resume_is_charged_again_when_it_fails_again():
    """An attempt at the round failed and was charged before the resume; the new update has private noise of its own."""
    made, corrected = await paid(Concluded(committed=False, members=FOUR), charged_before=[Slot(4, 2)])
    with pytest.raises(AgainError):
        await made.fail()
    assert corrected == [2]


async def test_an_attempt_that_is_abandoned_while_its_update_is_charged_does_not_make_it_charged_twice():
    made, corrected = attempts(Concluded(committed=False, members=ring(5).peers))
    charge = Charge(made.connection)
    await made.pay(2, charge)
    with pytest.raises(AgainError):
        await made.hide(2)
    made.connection.session.shared.abandoned = False
    made.begin(2)
    await made.pay(2, charge)
    assert (charge.log, corrected) == ([True], [2])


@pytest.mark.parametrize("members", [FOUR, ring(5).peers])
async def test_an_update_that_first_leaves_in_a_later_attempt_is_charged_as_under_private_noise_alone(members):
    made, corrected = attempts(*[Concluded(committed=False, members=members)] * 2)
    with pytest.raises(AgainError):
        await made.fail()
    made.begin(2)
    charge = Charge()
    await made.pay(2, charge)
    with pytest.raises(AgainError):
        await made.fail()
    assert (charge.log, corrected) == ([False], [])


@pytest.mark.parametrize("alone", [True, False])
def test_a_release_whose_update_is_charged_at_the_local_floor_is_not_charged_again_after_a_restart(alone):
    masks = Masks({("peer0", "peer1"): bytes(32)}, deviation=1.0, topology=ring(2))
    slots = MaskSlots("peer0", partners=["peer1"])
    cover = MaskCover(masks, slots)
    cover.attempt, cover.alone = 1, alone
    cover.decide(2, members=frozenset({"peer0", "peer1"}))
    kept = Journal(1, b"", until=slots.until, alone=tuple(map(tuple, cover.charged)))
    assert last(kept, 2) == (set() if alone else {Slot(1, 2)})


async def test_no_attempt_follows_one_that_has_overdrawn_the_budget_and_its_cost_is_durable():
    made, corrected = await paid(Concluded(committed=False, members=FOUR), overdrawn=True)
    with pytest.raises(BudgetError, match="nothing is left for round 2"):
        await made.fail()
    assert (corrected, made.connection.log[-1], made.attempt) == ([2], "durable", 7)


async def test_a_round_that_counts_is_kept_by_a_peer_that_has_overdrawn_the_budget_before():
    answers = [Concluded(committed=each, members=ring(5).peers) for each in (False, True)]
    made, _ = await paid(*answers)
    with pytest.raises(AgainError):
        await made.fail()
    made.meter.overdrawn = True
    made.begin(2)
    await made.report(complete=True)


async def test_an_update_of_the_next_round_is_under_all_masks_again():
    made, corrected = await paid(Concluded(committed=False, members=ring(5).peers))
    with pytest.raises(AgainError):
        await made.fail()
    made.begin(3)
    charge = Charge()
    await made.pay(3, charge)
    assert (charge.log, corrected) == ([True], [2])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Concluded(False, ring(5).peers, failed="peer2"), "because peer2 has not received all models in time, or"),
        (Concluded(False, ring(5).peers), "because a peer has restarted;"),
        (Concluded(False, FOUR, failed="peer2"), "because peer3 is missing;"),
    ],
)
async def test_a_peer_that_ends_after_a_failed_attempt_names_who_is_missing_or_who_reported_it(answer, why):
    made, _ = await paid(answer, goes_on=False)
    with pytest.raises(UndecidedError, match=why):
        await made.report(complete=True)


async def test_a_peer_whose_earlier_incarnation_has_completed_the_round_ends_and_says_what_to_do():
    """A restored backup is older than what the peer has sent."""
    made, charged = await paid(Concluded(True, ring(5).peers))
    with pytest.raises(OutdatedError, match=r"counts although peer0 .* restored backup, or .* without --resume"):
        await made.fail()
    assert not charged


async def test_the_number_of_attempts_at_a_round_is_bounded():
    made, _ = attempts(*[Concluded(committed=False, members=ring(5).peers)] * MAX_ATTEMPTS)
    for _ in range(MAX_ATTEMPTS - 1):
        with pytest.raises(AgainError):
            await made.fail()
        made.begin(2)
    with pytest.raises(UndecidedError, match=f"has failed {MAX_ATTEMPTS} times"):
        await made.fail()


def test_weights_among_the_members_are_planned_ones_or_those_of_the_graph_that_is_left():
    made, _ = attempts()
    assert made.row(0) == pytest.approx({"peer0": 1 / 3, "peer1": 1 / 3, "peer4": 1 / 3})
    made.members = ("peer0", "peer1", "peer2", "peer3")
    assert made.row(0) == pytest.approx({"peer0": 2 / 3, "peer1": 1 / 3})


def test_weights_of_push_sum_among_the_members_keep_the_mean_of_their_sums():
    made, _ = attempts()
    graph = exponential(5)
    made.topology, made.weights = graph, [push(graph)]
    made.members = FOUR
    rows = {peer: replace(made, cover=Masking(peer), _rows={}).row(0) for peer in FOUR}
    for sender in FOUR:
        assert sum(row.get(sender, 0) for row in rows.values()) == pytest.approx(1)


async def test_no_model_leaves_in_an_attempt_that_another_member_has_abandoned():
    made, _ = attempts(Concluded(committed=False, members=ring(5).peers), abandoned=True)
    with pytest.raises(AgainError):
        await made.hide(2)
    assert made.connection.log[1] == ReportAttempt(complete=False)


class Releasing:
    """A neighbourhood that adds new noise and masks to each release."""

    peers = ("peer0",)

    def __init__(self, made):
        self.made, self.noise = made, 0

    async def release(self, rows, **_):
        await self.made.hide(2)
        self.noise += 1
        return Released(rows + self.noise + torch.from_numpy(self.made.cover.sums((), round=2, size=3)), grid=4)


async def test_each_attempt_releases_the_same_noisy_update_under_other_masks():
    made, _ = attempts()
    net, rows = MaskedRelease(Releasing(made), made, round=2), torch.tensor([[1, 2, 3]])
    made.attempt = made.cover.attempt = 0
    first = await net.release(rows, since=Public(rows))
    made.attempt = made.cover.attempt = 1
    second = await net.release(rows + 1, since=Public(rows))
    assert first.rows.tolist() == [[102, 103, 104]]
    assert second.rows.tolist() == [[202, 203, 204]]
    with pytest.raises(PrivacyError, match="releases two models in a round"):
        await net.release(rows, since=Public(rows))


async def test_attempts_train_the_same_parameters_once():
    trained = []

    async def fit(rows, **_):
        trained.append(rows)
        return Fitted(rows + len(trained), None, None)

    once = CachedTraining(SimpleNamespace(learner=None, fit=fit))
    rows = torch.zeros(1, 2)
    first, second = await once.fit(rows, round=0), await once.fit(rows + 5, round=0)
    once.rewind()
    assert await once.fit(rows, round=0) is first
    assert await once.fit(rows + 6, round=0) is not second
    assert len(trained) == 3


@pytest.mark.parametrize(
    ("until", "reached", "charged"),
    [
        (Slot(1, 5), 4, {Slot(1, 4)}),  # its checkpoint is from before the round of its last release
        (Slot(1, 5), 5, set()),  # that round counts
        (END, 4, set()),
        (Slot(0, 0), 0, set()),
    ],
)
def test_a_restart_charges_a_release_whose_round_may_have_been_played_again(until, reached, charged):
    assert last(Journal(1, b"", until=until), reached) == charged
    assert last(Journal(1, b"", until=until, alone=tuple(map(tuple, charged))), reached) == set()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (["topology.kind=one_peer_exponential", "topology.peers=8"], "keep the mean only with all peers"),
        (["gossip.acceleration=chebyshev"], "fitted to the graph of all peers"),
    ],
)
def test_what_does_not_work_with_departures_on_such_graphs_is_refused(changes, why):
    with pytest.raises(ExperimentError, match=r"privacy\.departures") as caught:
        plan(read(SMALL, changes=[*SIX, *GO_ON, *changes]))
    assert why in str(caught.value)


@pytest.mark.parametrize("departures", ["wait", "stop"])
def test_peers_that_play_no_round_without_one_begin_none_without_one(departures):
    with pytest.raises(
        ExperimentError, match=r"transport\.gather\.quorum = 0\.5 does not work with privacy\.departures"
    ):
        plan(read(SMALL, changes=[*SIX, *MASKS, "transport.gather.quorum=0.5", f"privacy.departures={departures}"]))


def test_a_simulated_loss_is_refused_because_a_round_counts_once_all_its_models_are_there():
    with pytest.raises(ExperimentError, match=r"simulation\.loss = 0\.1 does not work .* all its models have arrived"):
        plan(read(SMALL, changes=[*SIX, *MASKS, "simulation.loss=0.1"]))


STOPPING = ["topology.kind=ring", "gossip.steps=1", "rounds=9", "learning.stop=1000"]
"""All that are left stop before the third round, in which one peer dies."""


@pytest.mark.slow
@pytest.mark.parametrize("at", [None, 0, 4, 8, 12, 16])
def test_all_that_are_left_on_a_ring_stop_in_the_same_round_whenever_one_dies(at):
    found = death(*GO_ON, "privacy.partners=1", *STOPPING, at=at)
    assert found.dead == (at is not None and at < found.events)
    assert {len(found.records[name]) for name in found.states} == {2}
    assert not [each for each in found.notices if isinstance(each, LearningStopped)]


DIRECTED = ["topology.kind=exponential", "topology.peers=6", "gossip.steps=2", "rounds=4"]


@pytest.mark.slow
def test_a_round_on_a_directed_graph_counts_and_without_a_peer_its_members_end_with_the_round_before():
    before = death(*MASKS, *DIRECTED, "rounds=2")
    found = death(*MASKS, *DIRECTED, at=0)
    assert {each.reason for each in found.notices if isinstance(each, LearningStopped)} == {"undecided"}
    assert all(torch.equal(found.states[name].rows, before.states[name].rows) for name in found.states)


@pytest.mark.slow
def test_a_run_under_masks_begins_without_a_peer_where_the_others_are_a_quorum_and_may_go_on():
    quorum = ["transport.gather={ seconds = 2.0, quorum = 0.6 }", "topology.kind=complete", "rounds=3"]
    found = death(*GO_ON, *quorum, absent=VICTIM)
    assert {len(each) for name, each in found.records.items() if name != VICTIM} == {3}
    first, *others = (state.rows for state in found.states.values())
    assert all(torch.allclose(first, other, atol=1e-5) for other in others)
