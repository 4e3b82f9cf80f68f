"""Who may look at a peer, for how long, how much that costs, and what an attacker of it gains."""

import msgspec
import pytest

from p2pfl.network.protocol.membership import audience as module
from p2pfl.network.protocol.membership.audience import (
    LEASE,
    MAX_OBSERVERS,
    MAX_STARTS,
    MAX_WAITING,
    PERIOD,
    RENEW,
    Audience,
    observer_swarm,
)
from p2pfl.network.protocol.membership.observer_client import RETRY, ObserverClient
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.messages import FRAME, Announcement, Look, Telemetry
from p2pfl.network.protocol.wire.wire_codec import decode, encode
from p2pfl.privacy.keys import ExchangeKey, FirstUse, Identity, Roster, SecretSource, SeededSource, SenderKey

SWARM = "clinic"
SOURCE = SeededSource(7)
ADA, OPS, EVE = (Identity.generate(SOURCE, peer=name) for name in ("ada", "ops", "eve"))
NONCE = bytes(range(16))
KEY = ExchangeKey.from_source(SOURCE, peer="ada")
SIZE = FRAME + 9 + 16
"""Bytes of all that a peer publishes for an observer."""


def announcement(status="up", *, incarnation=5, nonce=NONCE, identity=ADA, swarm=SWARM):
    return Announcement("ada", incarnation, status, key=KEY.public, nonce=nonce).sign(identity, swarm=swarm)


def peer(me="ada", incarnation=5, nonce=NONCE, **given):
    """Return the audience of ada, who lists ops."""
    usual = {
        "envelope": Envelope(me, incarnation, KEY, SenderKey(bytes(32)), "", nonce),
        "source": SOURCE,
        "observers": {"ops": OPS.public},
        "past": lambda: (),
    }
    return Audience(SWARM, **(usual | given))


def observer(name="ops", identity=OPS, *, source=None, swarm=SWARM, trust=None, announced=None):
    """Return an observer that has seen the announcement of ada."""
    trust = trust or Roster({"ada": ADA.public})
    source = source or SecretSource()
    client = ObserverClient(swarm, name=name, identity=identity, source=source, trust=trust, peers=("ada", "bob"))
    assert client.take_announcement("ada", encode(announced or announcement(swarm=swarm))) is not None
    return client


def asked(client, *, now=0.0):
    """Return the announcement of an observer that is due."""
    [(name, request)] = client.due(now)
    assert name == "ada"
    return request


def looks(client, ada, *, now=0.0, name="ops"):
    """Let an observer begin to look; return its fresh request."""
    _, fresh = client.receive("ada", ada.receive(name, asked(client, now=now), now=now), now=now)
    assert ada.receive(name, fresh, now=now) is None
    return fresh


def taken(client, ada, *, now):
    """Return the entries of the frames that an observer takes at a time."""
    bodies = [client.receive("ada", frame, now=now)[0] for _, frame in ada.frames(now)]
    return [entry for body in bodies if body is not None for _, entry in body.entries]


def seen(client, ada, *, now):
    """Return the entries of the frames that an observer takes at a time, and answers."""
    found = []
    for _, frame in ada.frames(now):
        body, request = client.receive("ada", frame, now=now)
        found += [entry for _, entry in body.entries]
        assert request is None or ada.receive("ops", request, now=now) is None
    return found


# ---------------------------------------------------------------------- who looks


def test_a_listed_observer_receives_what_happens_while_it_looks_and_what_led_there():
    ada, client = peer(past=lambda: [(-2.0, b"before")]), observer()
    ada.add(-1.0, b"nobody looks")
    assert ada.frames(0.0) == []
    looks(client, ada)
    ada.add(0.5, b"first")
    [(name, frame)] = ada.frames(1.0)
    body, answer = client.receive("ada", frame, now=1.0)
    assert (name, answer) == ("ops", None)  # to a challenge that it knows already
    assert body.entries == ((3.0, b"before"), (0.5, b"first"))
    ada.add(1.5, b"second")
    assert taken(client, ada, now=2.0) == [b"second"]


def test_nothing_is_published_while_nobody_looks():
    ada = peer()
    for second in range(100):
        ada.add(float(second), b"entry")
        assert ada.frames(float(second)) == []
    assert not ada.is_watched(100.0)


def test_an_observer_that_goes_away_is_forgotten_and_the_peer_stops():
    ada, client = peer(), observer()
    looks(client, ada)
    assert ada.is_watched(LEASE - 0.1)
    assert len(ada.frames(LEASE - 0.1)) == 1
    assert not ada.is_watched(LEASE)
    assert ada.frames(LEASE) == []
    assert ada._leases == {}


def test_an_observer_that_stays_keeps_looking():
    ada, client = peer(), observer()
    looks(client, ada)
    for second in range(1, 120):
        now = float(second)
        assert client.due(now) == []
        ada.add(now, b"%d" % second)
        assert seen(client, ada, now=now) == [b"%d" % second]


def test_an_observer_whose_frames_were_lost_for_long_looks_again():
    ada, client = peer(), observer()
    looks(client, ada)
    now = 3 * LEASE
    ada.frames(now)
    looks(client, ada, now=now)
    ada.add(now, b"again")
    assert taken(client, ada, now=now) == [b"again"]


def test_two_pages_of_one_observer_see_the_same():
    ada, pages = peer(), [observer(), observer()]
    for page in pages:
        looks(page, ada)
    ada.add(0.0, b"entry")
    frames = ada.frames(1.0)
    assert len(frames) == 2
    for page in pages:
        found = [page.receive("ada", frame, now=1.0)[0] for _, frame in frames]
        assert [body.entries[0][1] for body in found if body is not None] == [b"entry"]


# ---------------------------------------------------------------------- who does not


def test_an_observer_that_is_not_listed_receives_nothing():
    ada = peer()
    for name, identity in (("eve", EVE), ("ops", EVE), ("eve", OPS)):
        assert ada.receive(name, asked(observer(name, identity)), now=0.0) is None
    assert ada.receive("ops", asked(observer("eve", EVE)), now=0.0) is None  # on the topic of another
    assert ada.refused == {"not listed": 4}
    assert (ada.frames(1.0), ada._leases) == ([], {})


def test_an_announcement_signed_by_somebody_else_or_for_something_else_is_refused():
    own = decode(asked(observer()))
    ada = peer()
    forged = msgspec.structs.replace(own, key=ExchangeKey(bytes(31) + b"\1").public)
    signature = forged.sign(EVE, swarm=observer_swarm(SWARM)).signature
    for each in (forged, msgspec.structs.replace(forged, signature=signature), forged.sign(OPS, swarm=SWARM)):
        assert ada.receive("ops", encode(each), now=0.0) is None
    assert ada.refused == {"not signed": 3}


def test_an_observer_that_is_listed_no_more_receives_nothing_more():
    ada, client = peer(), observer()
    looks(client, ada)
    assert len(ada.frames(1.0)) == 1
    ada.observers = {}
    assert ada.frames(2.0) == []
    assert ada.receive("ops", asked(client, now=RENEW + 1.0), now=RENEW + 1.0) is None


@pytest.mark.parametrize("other", [{"incarnation": 6}, {"nonce": bytes(16)}, {"me": "bob"}], ids=str)
def test_a_request_for_another_start_of_the_peer_is_refused(other):
    ada, client = peer(), observer()
    _, request = client.receive("ada", ada.receive("ops", asked(client), now=0.0), now=0.0)
    again = peer(**other)
    answer = again.receive("ops", client._announcement, now=0.0)
    assert client.receive("ada", answer, now=0.0) == (None, None)
    assert again.receive("ops", request, now=0.0) is None
    assert again.refused == {"no request": 1}
    assert not again.is_watched(0.0)


def test_a_request_in_another_swarm_is_refused():
    ada = peer()
    assert ada.receive("ops", asked(observer(swarm="other")), now=0.0) is None
    assert ada.refused == {"not signed": 1}


def test_a_request_that_is_repeated_by_others_prolongs_nothing():
    ada, client = peer(), observer()
    first = asked(client)
    _, fresh = client.receive("ada", ada.receive("ops", first, now=0.0), now=0.0)
    ada.receive("ops", fresh, now=0.0)
    for second in range(1, 80):
        for old in (first, fresh):
            ada.receive("ops", old, now=float(second))
        ada.frames(float(second))
    assert not ada.is_watched(40.0)
    assert not ada.is_watched(80.0)


def test_requests_that_were_held_back_are_worth_nothing_once_their_challenge_is_old():
    ada, client = peer(), observer()
    looks(client, ada)
    held = []
    for second in range(1, int(LEASE)):
        answers = [client.receive("ada", frame, now=float(second))[1] for _, frame in ada.frames(float(second))]
        held += [answer for answer in answers if answer is not None]
    assert len(held) > 1
    for number, request in enumerate(held):
        ada.receive("ops", request, now=2 * LEASE + 10.0 * number)
        assert not ada.is_watched(2 * LEASE + 10.0 * number)
        assert ada.frames(2 * LEASE + 10.0 * number) == []


# ---------------------------------------------------------------------- how much


def test_a_listed_observer_cannot_make_a_peer_flood_the_broker():
    ada, client = peer(past=lambda: [(0.0, bytes(900))] * MAX_WAITING), observer()
    answers, frames = [], []
    looks(client, ada)
    fast = [observer() for _ in range(20)]
    for step in range(1000):
        now = step / 100
        for each in (client, *fast):
            for _, request in each.due(now):
                answer = ada.receive("ops", request, now=now)
                answers += [] if answer is None else [answer]
                fresh = None if answer is None else each.receive("ada", answer, now=now)[1]
                if fresh is not None:
                    ada.receive("ops", fresh, now=now)
        frames += [frame for _, frame in ada.frames(now)]
    assert len(frames) <= MAX_STARTS * (10.0 / PERIOD + 1)
    assert len(answers) <= module.BURST + 10.0 * module.RATE
    assert {len(frame) for frame in (*answers, *frames)} == {SIZE}


def test_frames_have_one_size_whatever_they_contain():
    for entries in ((), [(0.0, b"x")], [(0.0, bytes(200))] * 30):
        ada, client = peer(past=lambda entries=entries: entries), observer()
        looks(client, ada)
        assert {len(frame) for _, frame in ada.frames(1.0)} == {SIZE}


def test_what_does_not_fit_waits_and_what_waits_too_long_is_dropped_and_counted():
    ada, client = peer(), observer()
    looks(client, ada)
    for number in range(MAX_WAITING + 10):
        ada.add(0.5, b"%03d" % number + bytes(97))
    found = []
    for second in range(1, 60):
        found += seen(client, ada, now=float(second))
    assert [entry[:3] for entry in found] == [b"%03d" % number for number in range(10, MAX_WAITING + 10)]
    assert client.links["ada"].dropped == 10


def test_an_entry_that_fits_into_no_frame_is_dropped_and_stops_nothing():
    ada, client = peer(), observer()
    looks(client, ada)
    ada.add(0.5, bytes(FRAME))
    ada.add(0.5, b"next")
    assert taken(client, ada, now=1.0) == [b"next"]


def test_few_observers_look_at_once():
    identities = {
        f"o{number}": Identity.generate(SeededSource(number), peer="o") for number in range(MAX_OBSERVERS + 1)
    }
    ada = peer(observers={name: each.public for name, each in identities.items()})
    every = [(name, observer(name, identity)) for name, identity in identities.items()]
    for name, client in every[:MAX_OBSERVERS]:
        looks(client, ada, name=name)
    name, last = every[MAX_OBSERVERS]
    assert ada.receive(name, asked(last), now=0.0) is None
    assert ada.refused == {"too many observers": 1}
    ada.frames(LEASE)
    looks(last, ada, now=LEASE, name=name)


def test_requests_that_nobody_repeats_make_room_for_one_that_looks():
    ada = peer()
    replayed = [asked(observer()) for _ in range(MAX_STARTS)]
    for number, request in enumerate(replayed):
        ada.receive("ops", request, now=4.0 * number)
    looks(observer(), ada, now=20.0)
    assert ada.is_watched(20.0)


# ---------------------------------------------------------------------- what an observer believes


def test_an_observer_believes_no_frame_of_another_key_and_none_twice():
    ada, client = peer(), observer()
    looks(client, ada)
    [(_, frame)] = ada.frames(1.0)
    assert client.receive("ada", frame, now=1.0)[0] is not None
    assert client.receive("ada", frame, now=1.0) == (None, None)
    forged = frame[:9] + SenderKey(bytes(32)).seal(bytes(FRAME), stream=0, sequence=0, header=frame[:9])
    assert client.receive("ada", forged, now=1.0) == (None, None)
    flipped = frame[:-1] + bytes([frame[-1] ^ 1])
    assert client.receive("ada", flipped, now=1.0) == (None, None)
    assert client.refused == {"no frame": 3}


def test_one_observer_cannot_read_or_forge_what_another_receives():
    rex = Identity.generate(SeededSource(3), peer="rex")
    ada = peer(observers={"ops": OPS.public, "rex": rex.public})
    first, second = observer(), observer("rex", rex)
    looks(first, ada)
    looks(second, ada, name="rex")
    frames = dict(ada.frames(1.0))
    assert first.receive("ada", frames["rex"], now=1.0) == (None, None)
    assert second.receive("ada", frames["rex"], now=1.0)[0] is not None
    mine = second._envelope.seal_for("ada", Telemetry(b""))
    assert first.receive("ada", mine, now=1.0) == (None, None)


def test_an_observer_that_is_forgotten_and_comes_back_gets_no_number_twice_under_one_key():
    ada, client, numbers = peer(), observer(), []
    for now in (0.0, 2 * LEASE, 4 * LEASE):
        looks(client, ada, now=now)
        numbers += [int.from_bytes(frame[1:9], "little") for _, frame in ada.frames(now)]
        assert ada.frames(now + 1.5 * LEASE) == []
        assert ada._leases == {}
    assert len({*numbers}) == 3


def test_an_old_frame_is_not_taken_after_the_observer_has_come_back():
    ada, client = peer(), observer()
    old = ada.receive("ops", asked(client), now=0.0)
    _, fresh = client.receive("ada", old, now=0.0)
    ada.receive("ops", fresh, now=0.0)
    [(_, frame)] = ada.frames(1.0)
    assert client.receive("ada", frame, now=1.0)[0] is not None
    ada.frames(2 * LEASE)
    looks(client, ada, now=2 * LEASE)
    for each in (old, frame):
        assert client.receive("ada", each, now=2 * LEASE) == (None, None)


def test_what_an_observer_sends_or_receives_is_nothing_in_the_other_direction():
    ada, client = peer(), observer()
    first = asked(client)
    assert client.receive("ada", first, now=0.0) == (None, None)
    answer = ada.receive("ops", first, now=0.0)
    _, fresh = client.receive("ada", answer, now=0.0)
    assert client.receive("ada", fresh, now=0.0) == (None, None)
    assert ada.receive("ops", answer, now=1.0) is None
    assert ada.refused == {"no request": 1}


def test_a_neighbour_that_sends_telemetry_to_a_peer_is_refused():
    ada, client = peer(), observer()
    looks(client, ada)
    assert ada.receive("ops", client._envelope.seal_for("ada", Telemetry(b"")), now=1.0) is None
    assert ada.receive("ops", client._envelope.seal_for("ada", Look(b"")), now=2.0) is not None
    assert ada.refused == {"no request": 1}


def test_an_observer_asks_no_peer_whose_announcement_is_not_authentic():
    client = ObserverClient(
        SWARM, name="ops", identity=OPS, source=SOURCE, trust=Roster({"ada": ADA.public}), peers=("ada", "bob")
    )
    own = announcement()
    for name, payload in (
        ("ada", encode(announcement(identity=EVE))),
        ("bob", encode(own)),
        ("dan", encode(own)),
        ("ada", encode(announcement(swarm="other"))),
        ("ada", b""),
        ("ada", bytes(100)),
    ):
        assert client.take_announcement(name, payload) is None
    assert client.due(0.0) == []
    assert client.take_announcement("ada", encode(own)) is not None
    assert client.take_announcement("ada", encode(announcement(incarnation=4))) is None
    assert len(client.due(0.0)) == 1


def test_without_a_roster_the_first_identity_that_answers_is_the_one_of_the_peer():
    client = observer(trust=FirstUse())
    looks(client, peer())
    fresh = Announcement("ada", 9, "up", key=KEY.public, nonce=NONCE).sign(EVE, swarm=SWARM)
    assert client.take_announcement("ada", encode(fresh)) is None
    assert client.refused == {"another identity": 1}


def test_an_observer_asks_again_and_asks_nobody_who_has_left():
    client = observer()
    assert len(client.due(0.0)) == 1
    assert client.due(RETRY - 0.1) == []
    assert len(client.due(RETRY)) == 1
    client.take_announcement("ada", encode(announcement("left")))
    assert client.due(100.0) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"\x05", b"\x06", b"\x0e", bytes(5000), b"\x06" + bytes(8), b"\x06" + bytes(40), encode(Look(bytes(16)))],
    ids=len,
)
def test_bytes_of_a_stranger_are_refused(data):
    ada, client = peer(), observer()
    looks(client, ada)
    assert ada.receive("ops", data, now=5.0) is None
    assert client.receive("ada", data, now=5.0) == (None, None)
