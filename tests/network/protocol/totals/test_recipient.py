"""Totals to one peer, through sessions: it alone holds the sum, and the others learn that it arrived, and go on."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.network.protocol.interface.effects import Convened, Totalled, Unfinished
from p2pfl.network.protocol.interface.requests import Contribute, Convene
from p2pfl.network.protocol.totals.convergecast import WINDOW, Convergecast
from p2pfl.network.protocol.totals.early import PIECES
from p2pfl.network.protocol.totals.waits import AGAIN
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.total_messages import Abort, Again, Subtotal, Total
from p2pfl.privacy.total_masks import TotalSlot
from p2pfl.topology import complete, tree_to
from sessions import arrived
from totalling import Swarm

GRAPH = complete(3)
PEERS = ADA, BOB, CLEO = GRAPH.peers


class Script:
    """Peers that take the same totals one after the other, each as soon as its own previous one has ended."""

    def __init__(self, swarm, totals):
        self.swarm, self.totals = swarm, totals
        self.done = dict.fromkeys(swarm.graph.peers, 0)
        self.results = {peer: [] for peer in swarm.graph.peers}
        self.asked = dict.fromkeys(swarm.graph.peers, -1)

    def go_on(self):
        """Let all peers go on that can; return whether one did."""
        moved = False
        for peer in self.swarm.graph.peers:
            while self._step(peer):
                moved = True
        return moved

    def _step(self, peer):
        answers, number = self.swarm.answers[peer], self.done[peer]
        if self.asked[peer] == number:
            if len(answers) <= 1 + number:
                return False
            self.results[peer].append(answers[1 + number])
            self.done[peer] += 1
            return True
        if number == len(self.totals) or not isinstance(answers[-1], Convened | Totalled):
            return False
        self.asked[peer] = number
        self.swarm.tell(peer, request(self.swarm.graph, self.totals[number], peer))
        return True


def request(graph, total, peer):
    recipient, values = total
    tree = None if recipient is None else tree_to(graph, root=recipient, among=values)
    size = len(next(iter(values.values())))
    own = values.get(peer, np.zeros(size if peer == recipient else 0, np.uint64))
    return Contribute(own.copy(), tree)


def played(swarm, totals, *, lose=lambda: False, rounds=400):
    script = Script(swarm, totals)
    for _ in range(rounds):
        moved = True
        while moved or swarm.queue:
            moved = script.go_on()
            swarm.carry(lose=lose)
        if all(done == len(totals) for done in script.done.values()):
            break
        swarm.later(AGAIN)
    return script


def words(*numbers):
    return np.array(numbers, np.uint64)


def assert_right(script):
    for number, (recipient, values) in enumerate(script.totals):
        expected = [sum(each) % 2**64 for each in zip(*(own.tolist() for own in values.values()), strict=True)]
        for peer, results in script.results.items():
            held = expected if recipient in (None, peer) else []
            assert results[number].values.tolist() == held


ONE = st.sampled_from([None, *PEERS])
NUMBERS = st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3).map(lambda row: np.array(row, np.uint64))


@st.composite
def totals(draw):
    recipient = draw(ONE)
    senders = PEERS if recipient is None else draw(st.lists(st.sampled_from(PEERS), min_size=1, unique=True))
    return recipient, {peer: draw(NUMBERS) for peer in senders}


def ready(*, patience=1000.0, piece=1024):
    swarm = Swarm(GRAPH, patience=patience)
    for session in swarm.sessions.values():
        session.totals.piece = piece
    for peer in GRAPH.peers:
        swarm.tell(peer, Convene(1))
    swarm.carry()
    swarm.sent.clear()
    return swarm


@given(st.lists(totals(), min_size=1, max_size=8), st.integers(0, 25), st.sampled_from([8, 1024]), st.data())
def test_totals_to_one_and_to_all_end_with_their_sums_at_whom_they_are_for_whatever_is_lost(run, lost, piece, data):
    swarm, left = ready(piece=piece), [lost]

    def lose():
        lost = left[0] > 0 and data.draw(st.booleans())
        left[0] -= lost
        return lost

    assert_right(played(swarm, run, lose=lose))


@given(st.lists(totals(), min_size=1, max_size=6), st.data())
def test_totals_to_one_are_the_same_if_messages_come_twice_and_late(run, data):
    swarm = ready(piece=8)
    script = Script(swarm, run)
    while any(done < len(run) for done in script.done.values()):
        if not script.go_on() and not swarm.queue:
            swarm.later(AGAIN)
        if swarm.queue:  # messages between two peers keep their order, as those of one topic do
            ways = sorted({each[:2] for each in swarm.queue})
            way = ways[data.draw(st.integers(0, len(ways) - 1))]
            first = next(each for each in swarm.queue if each[:2] == way)
            swarm.queue.remove(first)
            for _ in range(1 + data.draw(st.booleans())):
                swarm.tell(way[1], arrived(way[0], first[2]))
    assert_right(script)


def test_a_total_to_one_peer_costs_a_message_of_each_sender_and_one_of_the_recipient_to_it():
    swarm = ready()
    assert_right(played(swarm, [(BOB, {ADA: words(1), CLEO: words(2)}), (CLEO, {ADA: words(3)})]))
    expected = {(ADA, "Subtotal"): 2, (CLEO, "Subtotal"): 1, (BOB, "Total"): 2, (CLEO, "Total"): 1}
    assert swarm.sent == expected


def test_a_peer_without_a_part_goes_on_without_a_message_and_never_waits():
    swarm = ready()
    for number in range(100):
        swarm.tell(CLEO, request(GRAPH, (BOB, {ADA: words(number)}), CLEO))
    assert [answer.values.tolist() for answer in swarm.answers[CLEO][1:]] == [[]] * 100
    assert not swarm.sent
    assert not swarm.sessions[CLEO].totals.active


def test_what_reaches_the_others_is_sizes():
    swarm, seen = ready(), []
    numbers = words(2**40, 12345)

    def note():
        seen.append(swarm.queue[0] if swarm.queue else None)
        return False

    script = Script(swarm, [(BOB, {ADA: numbers, CLEO: numbers})])
    script.go_on()
    swarm.carry(lose=lambda: seen.extend(swarm.queue) or False)
    to_others = [message for _, to, message in seen if to != BOB]
    assert to_others
    assert {*to_others} == {Total(1, 0, 0, 16, 16)}  # no digest of the total either, which could be guessed


def arrays(thing, seen):
    """Return all arrays and buffers that can be reached from a thing."""
    if id(thing) in seen:
        return []
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return [thing.tobytes()]
    if isinstance(thing, bytes | bytearray | memoryview):
        return [bytes(thing)]
    if isinstance(thing, msgspec.Struct):
        return arrays(msgspec.structs.astuple(thing), seen)
    if isinstance(thing, dict):
        return [each for pair in thing.items() for item in pair for each in arrays(item, seen)]
    if isinstance(thing, str | int | float | type) or thing is None:
        return []
    inner = list(thing) if isinstance(thing, list | tuple | set | frozenset) or type(thing).__name__ == "deque" else []
    inner += [vars(thing)] if hasattr(thing, "__dict__") and not callable(thing) else []
    return [each for item in inner for each in arrays(item, seen)]


@pytest.mark.parametrize("recipient", [BOB, None])
def test_no_session_keeps_a_total_to_one_peer_or_its_own_contribution_once_it_has_arrived(recipient):
    swarm, own = ready(), {ADA: words(11**12, 5), BOB: words(0, 0), CLEO: words(13**11, 7)}
    pieces = {"total": sum(own.values()).tobytes(), ADA: own[ADA].tobytes(), CLEO: own[CLEO].tobytes()}
    held = {peer: set() for peer in PEERS}

    def look():
        for peer in PEERS:
            found = arrays(vars(swarm.sessions[peer]), set())
            held[peer] |= {name for name, piece in pieces.items() if any(piece in each for each in found)}
        return False

    script = Script(swarm, [(recipient, own)])
    script.go_on()
    look()
    swarm.carry(lose=look)
    script.go_on()
    assert_right(script)
    if recipient is None:
        look()
        assert all("total" in names for names in held.values())  # so that it would be seen
        return
    assert held == {ADA: {ADA}, BOB: {ADA}, CLEO: {CLEO}}  # the subtotal of the first that arrived
    held = {peer: set() for peer in PEERS}
    look()
    assert not any(held.values())


def test_a_confirmation_that_is_lost_is_repeated_however_far_the_recipient_has_gone():
    swarm, lost = ready(), []
    run = [(BOB, {ADA: words(1)}), *[(BOB, {CLEO: words(number)}) for number in range(5)]]

    def lose():
        confirms = isinstance(swarm_next[0], Total) and swarm_next[1] == ADA and not lost
        lost.extend([1] * confirms)
        return confirms

    script, swarm_next = Script(swarm, run), [None, None]
    moved = True
    while moved or swarm.queue:
        moved = script.go_on()
        while swarm.queue:
            sender, to, message = swarm.queue.popleft()
            swarm_next[:] = message, to
            if not lose():
                swarm.tell(to, arrived(sender, message))
    assert lost
    assert script.done == {ADA: 0, BOB: 6, CLEO: 6}
    swarm.later(AGAIN)
    swarm.carry()
    script.go_on()
    assert_right(script)


def test_the_next_contribution_of_a_sender_is_held_until_the_recipient_is_there():
    swarm = ready()
    run = [(BOB, {CLEO: words(9)}), (BOB, {ADA: words(4)})]
    for number in (0, 1):
        swarm.tell(ADA, request(GRAPH, run[number], ADA))
    swarm.carry()
    swarm.tell(BOB, request(GRAPH, run[0], BOB))
    swarm.tell(CLEO, request(GRAPH, run[0], CLEO))
    swarm.carry()
    swarm.tell(BOB, request(GRAPH, run[1], BOB))
    swarm.carry()
    assert swarm.last()[BOB].values.tolist() == [4]
    assert isinstance(swarm.last()[ADA], Totalled)
    assert swarm.now == 0  # nobody has asked again


@pytest.mark.parametrize("down", [True, False])
def test_a_sender_is_at_most_a_window_ahead_of_what_its_parent_has(down):
    size, tree = 10 * WINDOW, tree_to(GRAPH, root=BOB, among=[ADA, BOB])
    given_ = {"slot": TotalSlot(1, 0, 0), "size": size, "bits": 64, "piece": 8, "down": down}
    ada, bob = (Convergecast(tree, peer, **given_) for peer in (ADA, BOB))
    bob.contribute(np.zeros(size, np.uint64))
    up, sent = ada.contribute(np.arange(size, dtype=np.uint64)), 0
    while up:
        assert len(up) <= WINDOW
        assert WINDOW <= PIECES
        sent += len(up)
        back = [message for piece in up for message in bob.add(ADA, piece)]
        up = [message for each in back for message in ada.learn(each) if isinstance(message, Subtotal)]
    assert sent == size
    assert ada.complete
    assert bob.complete
    assert bob.total.tolist() == [*range(size)]
    assert ada.total.tolist() == (bob.total.tolist() if down else [])


def test_a_contribution_is_sent_as_it_is_and_left_alone_whatever_its_memory():
    tree, own = tree_to(GRAPH, root=BOB, among=[ADA]), np.arange(12, dtype=np.uint64).reshape(6, 2)
    kept = own.copy()
    ada = Convergecast(tree, ADA, slot=TotalSlot(1, 0, 0), size=6, bits=64, down=False)
    (piece,) = ada.contribute(own[:, 1])
    assert np.frombuffer(piece.data, "<u8").tolist() == [1, 3, 5, 7, 9, 11]
    ada.learn(Total(1, 0, 0, 48, 48))
    assert ada.complete
    assert (own == kept).all()


# ---------------------------------------------------------------------- insiders, and peers that disappear


def begun(senders=(ADA, CLEO), **given):
    """Return a swarm in which a total of two peers to a third has begun everywhere, and nothing is carried."""
    swarm = ready(**given)
    total = BOB, {peer: words(5, 6) for peer in senders}
    for peer in PEERS:
        swarm.tell(peer, request(GRAPH, total, peer))
    return swarm


@pytest.mark.parametrize(
    "false",
    [
        Total(1, 0, 0, 16, 24),
        Total(1, 0, 0, 24, 24),
        Total(1, 0, 0, 0, 16, b"", memoryview(bytes(16))),
        Total(1, 0, 0, 16, 16, b"", memoryview(bytes(8))),
    ],
)
def test_a_confirmation_that_cannot_be_is_refused_and_the_sender_waits_on(false):
    swarm = begun()
    swarm.tell(ADA, arrived(BOB, false))
    assert swarm.sessions[ADA].shared.refused[f"{BOB}: not a message"] == 1
    assert isinstance(swarm.last()[ADA], Convened)
    swarm.carry()
    assert swarm.last()[BOB].values.tolist() == [10, 12]


def test_a_confirmation_of_a_peer_that_is_not_the_recipient_ends_nothing():
    swarm = begun()
    swarm.tell(ADA, arrived(CLEO, Total(1, 0, 0, 16, 16)))
    assert isinstance(swarm.last()[ADA], Convened)
    assert swarm.sessions[ADA].totals.lacking == {BOB}


def test_a_piece_of_a_peer_that_does_not_contribute_is_refused_and_changes_nothing():
    swarm = begun(senders=(ADA,))
    false = Subtotal(1, 0, 0, 0, 16, memoryview(words(7, 7).tobytes()))
    swarm.tell(BOB, arrived(CLEO, false))
    assert swarm.sessions[BOB].shared.refused[f"{CLEO}: not a message"] == 1
    swarm.carry()
    assert swarm.last()[BOB].values.tolist() == [5, 6]


def test_a_piece_that_reaches_a_peer_without_a_part_is_refused():
    swarm = ready()
    swarm.tell(CLEO, arrived(ADA, Subtotal(1, 0, 0, 0, 8, memoryview(bytes(8)))))
    swarm.tell(CLEO, request(GRAPH, (BOB, {ADA: words(1)}), CLEO))
    assert swarm.sessions[CLEO].shared.refused[f"{ADA}: not a message"] == 1
    assert swarm.sessions[CLEO].totals._early.held == {}


def test_pieces_of_totals_to_come_are_bounded_whatever_numbers_an_insider_invents():
    swarm = ready()
    for number in range(3 * PIECES):
        swarm.tell(BOB, arrived(ADA, Subtotal(1, 0, number, 0, 2**30, memoryview(bytes(8)))))
    assert len(swarm.sessions[BOB].totals._early.held[ADA]) == 1
    for place in range(3 * PIECES):
        swarm.tell(BOB, arrived(ADA, Subtotal(1, 0, 5, 8 * place, 2**30, memoryview(bytes(8)))))
    assert len(swarm.sessions[BOB].totals._early.held[ADA]) == PIECES


def test_nobody_is_sent_a_total_to_one_peer_however_they_ask():
    swarm = begun()
    swarm.carry()
    assert swarm.last()[BOB].values.tolist() == [10, 12]
    swarm.now += AGAIN
    for asker in (ADA, CLEO):
        swarm.tell(BOB, arrived(asker, Again(1, 0, 0, 0)))
        swarm.tell(ADA, arrived(CLEO, Again(1, 0, 0, 0)))
    assert {message for _, _, message in swarm.queue} == {Total(1, 0, 0, 16, 16)}


def test_a_sender_that_asks_while_the_recipient_waits_learns_how_much_is_complete_there():
    swarm = ready()
    total = BOB, {ADA: words(1), CLEO: words(2)}
    for peer in (ADA, BOB):
        swarm.tell(peer, request(GRAPH, total, peer))
    swarm.carry()
    swarm.tell(BOB, arrived(ADA, Again(1, 0, 0, 0)))
    assert {message for _, to, message in swarm.queue if to == ADA} == {Total(1, 0, 0, 0, 8)}


@pytest.mark.parametrize("victim", [ADA, BOB])
def test_a_peer_that_dies_in_a_total_to_one_ends_the_attempt_for_all_and_nothing_counts(victim):
    swarm = begun()
    swarm.kill(victim, noticed=True)
    for peer in PEERS:
        swarm.tell(peer, request(GRAPH, (None, {each: words(1) for each in PEERS}), peer))
    swarm.carry()
    for peer, answer in swarm.last().items():
        assert isinstance(answer, Unfinished), peer
        assert answer.lost == {victim}


@pytest.mark.parametrize("restarted", PEERS)
def test_a_peer_that_restarts_between_two_totals_to_one_ends_the_attempt_whoever_takes_part_next(restarted):
    swarm = begun()
    swarm.carry()
    for peer in PEERS:
        if peer != restarted:
            swarm.tell(peer, arrived(restarted, Announcement(restarted, 2, "up"), state=True))
    other = next(peer for peer in PEERS if peer != restarted)
    swarm.tell(other, request(GRAPH, (BOB, {ADA: words(1)}), other))
    assert swarm.last()[other] == Unfinished(frozenset({restarted}))


def test_a_report_of_failure_reaches_a_peer_that_passes_over_totals():
    swarm = ready()
    swarm.tell(CLEO, request(GRAPH, (BOB, {ADA: words(1)}), CLEO))
    swarm.tell(CLEO, arrived(ADA, Abort(1, 0, [BOB])))
    swarm.tell(CLEO, request(GRAPH, (BOB, {ADA: words(1)}), CLEO))
    assert swarm.last()[CLEO] == Unfinished(frozenset({BOB}), reporter=ADA)


def test_a_total_to_one_peer_at_which_an_attempt_failed_is_adopted_from_nobody():
    swarm = begun(patience=10.0)
    swarm.tell(ADA, arrived(CLEO, Abort(1, 0, [])))
    assert isinstance(swarm.last()[ADA], Unfinished)
    swarm.tell(ADA, Convene(1))
    swarm.tell(ADA, arrived(BOB, Total(1, 0, 0, 16, 16)))
    assert swarm.sessions[ADA].totals.waits == "participants"
    assert not any(isinstance(answer, Totalled) for answer in swarm.answers[ADA])


def test_pieces_that_come_before_the_participant_set_are_held():
    swarm = Swarm(GRAPH)
    for peer in PEERS:
        swarm.tell(peer, Convene(1))
    late = []
    while swarm.queue:
        sender, to, message = swarm.queue.popleft()
        if to == CLEO:
            late.append((sender, message))
        else:
            swarm.tell(to, arrived(sender, message))
    swarm.tell(CLEO, arrived(BOB, Subtotal(1, 0, 0, 0, 8, memoryview(words(3).tobytes()))))
    for sender, message in late:
        swarm.tell(CLEO, arrived(sender, message))
    swarm.tell(CLEO, request(GRAPH, (CLEO, {BOB: words(3)}), CLEO))
    assert swarm.last()[CLEO].values.tolist() == [3]
