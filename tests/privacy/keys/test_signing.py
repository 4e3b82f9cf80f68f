import os
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import InputError, StorageError
from p2pfl.privacy.keys import Identity, SecretSource, SeededSource, fingerprint, usable, verify
from p2pfl.privacy.keys.signing import _WEAK

# RFC 8032, section 7.1: secret key, public key, message, signature
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]

ADA = Identity.generate(SeededSource(7), peer="ada")
BOB = Identity.generate(SeededSource(7), peer="bob")


def flipped(data, bit):
    """The bytes with one bit changed."""
    bit %= 8 * len(data)
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize(("private", "public", "message", "signature"), VECTORS)
def test_keys_and_signatures_are_those_of_rfc_8032(private, public, message, signature):
    identity = Identity(bytes.fromhex(private))
    assert identity.public.hex() == public
    assert identity._private.sign(bytes.fromhex(message)).hex() == signature


def test_a_signature_is_over_the_version_the_domain_a_zero_and_the_message():
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    signature = Identity(bytes(range(32))).sign(b"a message", domain="header")
    assert signature == private.sign(b"p2pfl/v1/header\x00a message")


@given(message=st.binary(max_size=200), domain=st.from_regex(r"[a-z]+(-[a-z]+)*", fullmatch=True))
def test_what_a_peer_signs_verifies_under_its_key_alone(message, domain):
    signature = ADA.sign(message, domain=domain)
    assert len(signature) == 64
    assert verify(ADA.public, message, signature, domain=domain)
    assert not verify(BOB.public, message, signature, domain=domain)
    assert not verify(ADA.public, message, signature, domain=domain + "x")


@given(message=st.binary(min_size=1, max_size=200), bit=st.integers(0, 2**16))
def test_one_bit_changed_in_message_signature_or_key_makes_a_signature_fail(message, bit):
    signature = ADA.sign(message, domain="header")
    assert not verify(ADA.public, flipped(message, bit), signature, domain="header")
    assert not verify(ADA.public, message, flipped(signature, bit), domain="header")
    assert not verify(flipped(ADA.public, bit), message, signature, domain="header")


@given(public=st.binary(max_size=40), message=st.binary(max_size=9), signature=st.binary(max_size=70))
def test_hostile_bytes_never_verify_and_never_raise(public, message, signature):
    assert verify(public, message, signature, domain="header") is False


def test_domains_cannot_run_into_messages():
    signature = ADA.sign(b"b\0message", domain="a")
    assert not verify(ADA.public, b"message", signature, domain="ab")
    for domain in ("", "a\0b", "a/b", "Header", "-a", "a-", "a\n", "é"):
        with pytest.raises(InputError, match="is not lower-case words joined by hyphens; rename it"):
            ADA.sign(b"", domain=domain)
        with pytest.raises(InputError, match="is not lower-case words joined by hyphens; rename it"):
            verify(ADA.public, b"", signature, domain=domain)


def doubled(point):
    """Twice a point of the curve -x^2 + y^2 = 1 + d x^2 y^2, by RFC 8032's own formula."""
    x, y = point
    t = D * x * x * y * y % P
    return 2 * x * y * pow(1 + t, -1, P) % P, (y * y + x * x) * pow(1 - t, -1, P) % P


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


def decoded(text):
    """The point that 32 bytes without a sign stand for (RFC 8032, section 5.1.3)."""
    y = int.from_bytes(text, "little") % P
    u, v = (y * y - 1) % P, (D * y * y + 1) % P
    x = u * v**3 * pow(u * v**7, (P - 5) // 8, P) % P
    if v * x * x % P != u:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert v * x * x % P == u
    return x, y


@pytest.mark.parametrize("weak", sorted(_WEAK), ids=lambda weak: weak.hex()[:8])
def test_points_of_small_order_sign_nothing(weak):
    assert doubled(doubled(doubled(decoded(weak)))) == (0, 1)
    for public in (weak, flipped(weak, 255)):
        assert not usable(public)
        # for the neutral element, R = S B holds of every message: here S = 0
        assert not any(
            verify(public, b"%d" % number, (1).to_bytes(32, "little") + bytes(32), domain="header")
            for number in range(16)
        )


def test_all_points_of_small_order_are_known():
    encodings = {y + P * wrap for y in {decoded(weak)[1] for weak in _WEAK} for wrap in (0, 1) if y + P * wrap < 2**255}
    assert {value.to_bytes(32, "little") for value in encodings} == _WEAK
    assert len({value % P for value in encodings}) == 5  # of 8 points: x and -x share a y, and order 1 and 2 have x = 0


def test_the_signature_of_everything_exists_for_a_weak_key():
    neutral = (1).to_bytes(32, "little")
    for message in (b"anything", b"everything"):
        Ed25519PublicKey.from_public_bytes(neutral).verify(neutral + bytes(32), message)  # why usable() exists


def test_a_fingerprint_is_the_beginning_of_sha256_in_fours():
    assert fingerprint(b"abc") == "ba78 16bf 8f01 cfea 4141 40de 5dae 2223"
    assert ADA.fingerprint == fingerprint(ADA.public)


def test_a_representation_shows_the_fingerprint_and_no_secret():
    private = bytes(range(32))
    assert repr(Identity(private)) == f"Identity({Identity(private).fingerprint})"


def test_a_source_gives_every_peer_its_own_identity():
    source = SeededSource(7)
    assert Identity.generate(source, peer="ada").public == ADA.public
    assert ADA.public != BOB.public
    assert Identity.generate(SecretSource(), peer="ada").public != ADA.public


def test_an_identity_survives_its_file_which_only_its_owner_can_read(tmp_path):
    path = tmp_path / "ada.pem"
    before = os.umask(0)
    try:
        ADA.save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    assert Identity.load(path).public == ADA.public
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("dangling", [False, True])
def test_an_identity_is_never_overwritten_nor_written_through_a_link(tmp_path, dangling):
    path = tmp_path / "ada.pem"
    if dangling:
        path.symlink_to(tmp_path / "elsewhere")
    else:
        BOB.save(path)
    with pytest.raises(
        InputError, match=r"/ada\.pem: the file exists already; choose another name, or load the identity in it"
    ):
        ADA.save(path)
    assert not (tmp_path / "elsewhere").exists()
    assert dangling or Identity.load(path).public == BOB.public


def test_an_identity_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    with pytest.raises(StorageError, match="No such file or directory"):
        ADA.save(tmp_path / "nowhere" / "ada.pem")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"cannot be written \(No space left on device\); free some space"):
        ADA.save(tmp_path / "ada.pem")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644])
def test_a_private_key_that_others_can_use_is_refused(tmp_path, mode):
    path = tmp_path / "ada.pem"
    ADA.save(path)
    path.chmod(mode)
    with pytest.raises(InputError, match=rf"\(mode {mode:04o}\); run chmod 600 {path}"):
        Identity.load(path)


def pem(key, *, encryption=None):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a key",
        bytes(5000),
        pem(X25519PrivateKey.generate()),
        pem(Ed25519PrivateKey.generate())[:60],
    ],
    ids=["nothing", "text", "zeros", "x25519", "cut"],
)
def test_a_file_that_is_no_identity_is_refused(tmp_path, content):
    path = tmp_path / "ada.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(
        InputError,
        match=(
            r"/ada\.pem: the file is not an Ed25519 private key as PEM; name the file of the "
            "peer's identity"
        ),
    ):
        Identity.load(path)


def test_a_missing_file_and_a_folder_are_no_identity(tmp_path):
    with pytest.raises(
        InputError,
        match=r"the identity cannot be read \(No such file or directory\); name a file that this user can read",
    ):
        Identity.load(tmp_path / "ada.pem")
    with pytest.raises(
        InputError, match=r"the identity cannot be read \(Is a directory\); name a file that this user can read"
    ):
        Identity.load(tmp_path)


def test_a_private_key_of_the_wrong_length_is_refused():
    with pytest.raises(
        InputError, match="a private key must have 32 bytes, but it has 31; pass the raw bytes of the key"
    ):
        Identity(bytes(31))


def test_a_key_with_a_passphrase_opens_with_it_alone(tmp_path, monkeypatch):
    path, secret = tmp_path / "ada.pem", tmp_path / "passphrase"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    monkeypatch.setenv("P2PFL_KEY_PASSPHRASE_FILE", str(secret))
    ADA.save(path)
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in path.read_bytes()
    assert Identity.load(path).public == ADA.public
    monkeypatch.delenv("P2PFL_KEY_PASSPHRASE_FILE")
    with pytest.raises(InputError, match="the key has a passphrase; set P2PFL_KEY_PASSPHRASE_FILE"):
        Identity.load(path)
    monkeypatch.setenv("P2PFL_KEY_PASSPHRASE", "correct horse")
    assert Identity.load(path).public == ADA.public
    monkeypatch.setenv("P2PFL_KEY_PASSPHRASE", "battery")
    with pytest.raises(InputError, match="the passphrase does not open the key"):
        Identity.load(path)


def test_a_passphrase_file_is_for_its_owner_alone_and_not_empty(tmp_path, monkeypatch):
    secret = tmp_path / "passphrase"
    secret.write_text("\n")
    secret.chmod(0o600)
    monkeypatch.setenv("P2PFL_KEY_PASSPHRASE_FILE", str(secret))
    with pytest.raises(InputError, match="the first line is empty"):
        ADA.save(tmp_path / "ada.pem")
    secret.write_text("correct horse\n")
    secret.chmod(0o644)
    with pytest.raises(InputError, match="other users can read"):
        ADA.save(tmp_path / "ada.pem")
    assert not (tmp_path / "ada.pem").exists()


def test_a_key_without_a_passphrase_opens_where_one_is_set(tmp_path, monkeypatch):
    ADA.save(tmp_path / "ada.pem")
    monkeypatch.setenv("P2PFL_KEY_PASSPHRASE", "correct horse")
    assert Identity.load(tmp_path / "ada.pem").public == ADA.public
