import base64
import hashlib
import itertools
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import InputError, PeerError, StorageError
from p2pfl.privacy.keys import FirstUse, Identity, Roster, SeededSource, Trust, rotation

NAMES = ("ada", "bob", "eve")
ADA, BOB, EVE = (Identity.generate(SeededSource(7), peer=peer) for peer in NAMES)
NEXT, LAST = (Identity.generate(SeededSource(seed), peer="ada") for seed in (8, 9))
ROSTER = Roster({"ada": ADA.public, "bob": BOB.public})

names = st.from_regex(r"[A-Za-z0-9_-]{1,22}", fullmatch=True)
reasons = st.text(min_size=1, max_size=40).filter(str.isprintable)


def text(public):
    return "ed25519:" + base64.b64encode(public).decode()


@st.composite
def rosters(draw):
    """Rosters of any size; the number of a key is its seed."""
    keys = (Identity.generate(SeededSource(seed), peer="x").public for seed in range(1000))
    peers = {name: next(keys) for name in draw(st.lists(names, max_size=4, unique=True))}
    former = {name: tuple(next(keys) for _ in range(draw(st.integers(1, 2)))) for name in peers if draw(st.booleans())}
    known = [*peers.values(), *(key for each in former.values() for key in each), next(keys)]
    revoked = draw(st.dictionaries(st.sampled_from(known), reasons, max_size=3))
    return Roster(peers, former, revoked)


def refusal(trust, peer, public):
    """The one sentence with which a key is refused."""
    with pytest.raises(PeerError) as caught:
        trust.check(peer, public)
    sentence = str(caught.value)
    assert not sentence.startswith("expected")
    assert "; " in sentence
    assert "\n" not in sentence
    return sentence


def test_a_roster_admits_each_peer_with_its_own_key():
    trust: Trust = ROSTER
    trust.check("ada", ADA.public)
    trust.check("bob", BOB.public)


def test_an_unknown_peer_is_refused_with_its_fingerprint():
    assert f'does not contain "eve", who presents the key {EVE.fingerprint}; add' in refusal(ROSTER, "eve", EVE.public)
    assert "'\\x1b[31m\\ne\\xe9'" in refusal(ROSTER, "\x1b[31m\neé", EVE.public)


def test_another_key_is_refused_with_both_fingerprints():
    sentence = refusal(ROSTER, "ada", BOB.public)
    assert f'"ada" presents the key {BOB.fingerprint} instead of {ADA.fingerprint}; ask' in sentence


def test_a_revoked_key_is_refused_with_the_reason_whoever_bears_it():
    roster = ROSTER.revoke(ADA.public, reason="lost laptop, 2030-01-01")
    for peer in ("ada", "bob", "eve"):
        sentence = refusal(roster, peer, ADA.public)
        assert f'"{peer}" presents the key {ADA.fingerprint}, revoked for "lost laptop, 2030-01-01"; give' in sentence
    roster.check("bob", BOB.public)
    ROSTER.check("ada", ADA.public)


@given(peer=st.text(max_size=30), public=st.binary(max_size=40))
def test_hostile_names_and_keys_are_refused_in_one_printable_sentence(peer, public):
    for trust in (ROSTER, FirstUse()):
        if trust is ROSTER or len(public) != 32 or not re.fullmatch("[A-Za-z0-9_-]{1,22}", peer):
            assert not any(unicodedata.category(c).startswith("C") for c in refusal(trust, peer, public))


@given(roster=rosters())
def test_a_roster_survives_its_file(roster, tmp_path_factory):
    path = tmp_path_factory.mktemp("roster") / "roster.toml"
    roster.write(path)
    assert Roster.read(path) == roster
    assert Roster.read(path).digest == roster.digest
    assert [*path.parent.iterdir()] == [path]


def test_a_roster_reads_as_people_write_it(tmp_path):
    path = tmp_path / "roster.toml"
    path.write_text(
        f'[peers]\nada = "{text(NEXT.public)}" # since spring\n[former]\nada = ["{text(ADA.public)}"]\n'
        f'[revoked]\n"{text(EVE.public)}" = "lost laptop, 2030-01-01"\n'
    )
    roster = Roster.read(path)
    assert roster == Roster({"ada": NEXT.public}, {"ada": (ADA.public,)}, {EVE.public: "lost laptop, 2030-01-01"})


def test_a_roster_cannot_be_changed():
    peers = {"ada": ADA.public}
    roster = Roster(peers)
    peers["ada"] = EVE.public
    roster.check("ada", ADA.public)
    with pytest.raises(TypeError):
        roster.peers["ada"] = EVE.public


KEY = text(ADA.public)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            f'[peers]\n"a b" = "{KEY}"',
            '\' is not a valid name; rename the peer with 1 to 22 letters, digits, "_" or "-"',
        ),
        (f'[peers]\n"" = "{KEY}"', '\' is not a valid name; rename the peer with 1 to 22 letters, digits, "_" or "-"'),
        (
            f'[peers]\n"ada\\n" = "{KEY}"',
            '\' is not a valid name; rename the peer with 1 to 22 letters, digits, "_" or "-"',
        ),
        (
            f'[peers]\n{"a" * 23} = "{KEY}"',
            '\' is not a valid name; rename the peer with 1 to 22 letters, digits, "_" or "-"',
        ),
        (
            f'[peers]\nada = "{KEY.removeprefix("ed25519:")}"',
            'is not a key of the form "ed25519:" and base64; copy it again',
        ),
        (f'[peers]\nada = "x25519:{KEY}"', 'is not a key of the form "ed25519:" and base64; copy it again'),
        (f'[peers]\nada = "{KEY[:-1]}"', 'is not a key of the form "ed25519:" and base64; copy it again'),
        (f'[peers]\nada = "{KEY[:20]}!{KEY[20:]}"', 'is not a key of the form "ed25519:" and base64; copy it again'),
        ('[peers]\nada = "ed25519:é"', 'is not a key of the form "ed25519:" and base64; copy it again'),
        (f'[peers]\nada = "ed25519:{"A" * 42}B="', "is not a key of the form"),  # a second text of 32 zeros
        ("[peers]\nada = 7", 'is not a key of the form "ed25519:" and base64; copy it again'),
        (
            f'[peers]\nada = "{text(bytes(range(31)))}"',
            (
                "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e with 31 bytes is not a public key of "
                "32 bytes, or is weak; copy the key of the peer's"
            ),
        ),
        (
            f'[peers]\nada = "{text(bytes(range(33)))}"',
            (
                "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f with 33 bytes is not a public key of "
                "32 bytes, or is weak; copy the key of the peer's"
            ),
        ),
        (
            f'[peers]\nada = "{text(bytes(32))}"',
            (
                "0000000000000000000000000000000000000000000000000000000000000000 with 32 bytes is not a public key of "
                "32 bytes, or is weak; copy the key of the peer's"
            ),
        ),
        (
            f'[peers]\nada = "{KEY}"\nbob = "{KEY}"',
            ('8b34 17d2 06e0 e8a9 81e0 faca 585c 9bb2 is the key of both "ada" and "bob"; give each peer its own key'),
        ),
        (
            f'[peers]\nada = "{KEY}"\n[former]\nada = ["{KEY}"]',
            '8b34 17d2 06e0 e8a9 81e0 faca 585c 9bb2 is the key of both "ada" and "ada"; give each peer its own key',
        ),
        (f'[former]\nada = ["{KEY}"]', 'ada" has former keys but no present one; give it a present key'),
        (f'[former]\nada = "{KEY}"', 'the former keys of "ada" are'),
        (f'[revoked]\n"{KEY}" = ""', "not one line of text; state a reason"),
        (f'[revoked]\n"{KEY}" = "two\\nlines"', "not one line of text; state a reason"),
        (f'[revoked]\n"{KEY}" = 3', "not one line of text; state a reason"),
        ('[revoked]\nada = "lost"', 'is not a key of the form "ed25519:" and base64; copy it again'),
        ("[peer]", 'peer" is not a section of a roster'),
        (f'ada = "{KEY}"', 'ada" is not a section of a roster .peers, former, revoked.; keys of peers are'),
        ("peers = 7", 'peers" is not a section of a roster'),
        (f'[peers]\nada = "{KEY}"\nada = "{text(BOB.public)}"', "the roster is not TOML "),
        ("[peers", "the roster is not TOML "),
    ],
)
def test_a_file_that_is_no_roster_is_refused_in_a_sentence_with_its_path(tmp_path, content, sentence):
    path = tmp_path / "roster.toml"
    path.write_text(content, "utf-8")
    with pytest.raises(InputError, match=sentence) as caught:
        Roster.read(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_missing_roster_and_one_that_is_not_text_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"the roster cannot be read \(No such file or directory\); check the path"):
        Roster.read(tmp_path / "roster.toml")
    (tmp_path / "roster.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"the roster is not TOML \("):
        Roster.read(tmp_path / "roster.toml")


def test_a_roster_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "roster.toml"
    ROSTER.write(path)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match=r"No space left on device.*its old contents are unchanged"):
        ROSTER.revoke(ADA.public, reason="lost").write(path)
    assert Roster.read(path) == ROSTER
    assert [*tmp_path.iterdir()] == [path]


def test_the_digest_is_over_sorted_present_and_revoked_keys():
    roster = Roster({"bob": BOB.public, "ada": ADA.public}).revoke(EVE.public, reason="lost")
    lines = [
        "p2pfl/v1/roster",
        f"peer ada {ADA.public.hex()}",
        f"peer bob {BOB.public.hex()}",
        f"revoked {EVE.public.hex()}",
    ]
    assert roster.digest == hashlib.sha256("\n".join(lines).encode()).hexdigest()


@given(roster=rosters())
def test_the_digest_changes_with_what_is_decided_and_with_nothing_else(roster):
    assert Roster(roster.peers, {}, dict.fromkeys(roster.revoked, "otherwise")).digest == roster.digest
    new = Identity.generate(SeededSource(-1), peer="x").public
    assert roster.revoke(new, reason="lost").digest != roster.digest
    for peer in roster.peers:
        assert Roster({**roster.peers, peer: new}, {}, roster.revoked).digest != roster.digest
        fewer = {name: key for name, key in roster.peers.items() if name != peer}
        assert Roster(fewer, {}, roster.revoked).digest != roster.digest


@given(length=st.integers(1, 6))
def test_rotations_chain_and_each_leaves_the_last_key_alone_valid(length):
    chain = [Identity.generate(SeededSource(seed), peer="ada") for seed in range(length + 1)]
    roster = Roster({"ada": chain[0].public, "bob": BOB.public})
    for old, new in itertools.pairwise(chain):
        roster = roster.rotated("ada", new.public, rotation(old, new.public, peer="ada"))
    roster.check("ada", chain[-1].public)
    roster.check("bob", BOB.public)
    assert roster.former["ada"] == tuple(old.public for old in chain[:-1])
    for old in chain[:-1]:
        assert "from which it has rotated" in refusal(roster, "ada", old.public)


@given(bit=st.integers(0, 511))
def test_a_changed_statement_rotates_nothing(bit):
    changed = bytearray(rotation(ADA, NEXT.public, peer="ada"))
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(PeerError, match='the rotation of "ada" is not signed by its present key'):
        ROSTER.rotated("ada", NEXT.public, bytes(changed))


@pytest.mark.parametrize(
    ("signer", "key", "peer"), [(BOB, NEXT, "ada"), (NEXT, NEXT, "ada"), (ADA, LAST, "ada"), (ADA, NEXT, "bob")]
)
def test_a_statement_by_another_key_for_another_key_or_for_another_peer_rotates_nothing(signer, key, peer):
    with pytest.raises(PeerError, match='the rotation of "ada" is not signed by its present key'):
        ROSTER.rotated("ada", NEXT.public, rotation(signer, key.public, peer=peer))


def test_a_signature_from_another_domain_rotates_nothing():
    message = b"ada\0" + ADA.public + NEXT.public
    assert ADA.sign(message, domain="rotation") == rotation(ADA, NEXT.public, peer="ada")
    with pytest.raises(PeerError, match='the rotation of "ada" is not signed by its present key'):
        ROSTER.rotated("ada", NEXT.public, ADA.sign(message, domain="header"))


def test_an_old_statement_cannot_bring_an_old_key_back():
    first = rotation(ADA, NEXT.public, peer="ada")
    roster = ROSTER.rotated("ada", NEXT.public, first)
    with pytest.raises(PeerError, match='the rotation of "ada" is not signed by its present key'):
        roster.rotated("ada", NEXT.public, first)
    with pytest.raises(PeerError, match="weak or was in use before"):
        roster.rotated("ada", ADA.public, rotation(NEXT, ADA.public, peer="ada"))


def test_a_revoked_key_vouches_for_nothing():
    roster = ROSTER.revoke(ADA.public, reason="stolen")
    with pytest.raises(PeerError, match='revoked for "stolen"'):
        roster.rotated("ada", NEXT.public, rotation(ADA, NEXT.public, peer="ada"))


def test_a_key_is_rotated_to_a_new_one_only():
    roster = ROSTER.revoke(EVE.public, reason="lost")
    for public in (ADA.public, BOB.public, EVE.public):
        with pytest.raises(PeerError, match="weak or was in use before"):
            roster.rotated("ada", public, rotation(ADA, public, peer="ada"))
    weak = ADA.sign(b"ada\0" + ADA.public + bytes(32), domain="rotation")
    with pytest.raises(PeerError, match="weak or was in use before"):
        roster.rotated("ada", bytes(32), weak)


def test_a_stranger_has_nothing_to_rotate():
    with pytest.raises(PeerError, match='the roster does not contain "eve"; add it before it rotates its key'):
        ROSTER.rotated("eve", NEXT.public, rotation(EVE, NEXT.public, peer="eve"))


def test_nobody_signs_a_rotation_to_what_is_no_key():
    with pytest.raises(
        InputError,
        match=(
            "00000000000000000000000000000000000000000000000000000000000000 with 31 bytes is not a public key of 32 "
            "bytes, or is weak; copy the key of the peer's identity again"
        ),
    ):
        rotation(ADA, bytes(31), peer="ada")
    with pytest.raises(InputError, match="is not a valid name; rename the peer"):
        rotation(ADA, NEXT.public, peer="a\0b")


def test_what_is_revoked_is_a_key_and_has_a_reason():
    with pytest.raises(
        InputError,
        match=(
            "616461 with 3 bytes is not a public key of 32 bytes, or is weak; copy the key of the peer's identity again"
        ),
    ):
        ROSTER.revoke(b"ada", reason="lost")
    with pytest.raises(InputError, match="the reason of a revocation is '', not one line of text; state a reason"):
        ROSTER.revoke(ADA.public, reason="")


def test_first_use_remembers_the_first_key_and_refuses_another():
    trust = FirstUse()
    checked: Trust = trust
    checked.check("ada", EVE.public)  # a word is no meeting
    trust.remember("ada", ADA.public)
    trust.remember("ada", ADA.public)
    checked.check("ada", ADA.public)
    with pytest.raises(PeerError, match="as before"):
        trust.remember("ada", EVE.public)
    sentence = refusal(trust, "ada", EVE.public)
    assert f'"ada" presents the key {EVE.fingerprint} instead of {ADA.fingerprint} as before' in sentence
    assert trust.seen == {"ada": ADA.public}


def test_first_use_goes_on_with_what_an_earlier_run_remembered():
    trust = FirstUse({"ada": ADA.public})
    trust.check("ada", ADA.public)
    assert trust.news("ada") is None
    refusal(trust, "ada", EVE.public)


def test_first_use_is_loud_once_for_each_peer():
    trust = FirstUse()
    assert trust.news("ada") is None
    trust.remember("ada", ADA.public)
    trust.remember("bob", BOB.public)
    assert trust.news("ada") == ADA.public
    assert trust.news("ada") is None
    assert trust.news("bob") == BOB.public


@pytest.mark.parametrize(
    ("peer", "public"), [("eve", ADA.public), ("eve", bytes(32)), ("eve", bytes(31)), ("e v", EVE.public)]
)
def test_first_use_refuses_what_is_weak_anothers_or_nameless(peer, public):
    trust = FirstUse()
    trust.remember("ada", ADA.public)
    assert "its name is invalid, or the key is weak or belongs to another peer; exclude" in refusal(trust, peer, public)
    assert trust.seen == {"ada": ADA.public}
