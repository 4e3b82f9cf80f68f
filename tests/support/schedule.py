"""The key schedule of an edge, derived by hand with the cryptography package alone."""

import hashlib

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand


def epoch(*ends):
    """Name the epoch between two ends: name, incarnation and nonce of each."""
    one, other = (f"{peer}/{incarnation}/{nonce.hex()}" for peer, incarnation, nonce in sorted(ends))
    return hashlib.sha256(f"p2pfl/v1/epoch/{one}/{other}".encode()).digest()[:16]


def derived(source, *, run, a, b, incarnations=(1, 1), **use):
    """Return the key of one use of the edge of two peers that draw from a source, each in one incarnation."""
    one, other = (X25519PrivateKey.from_private_bytes(source.bytes(32, purpose="exchange", peer=end)) for end in (a, b))
    ends = [
        (end, incarnation, source.bytes(16, purpose="nonce", peer=end, round=incarnation))
        for end, incarnation in zip((a, b), incarnations, strict=True)
    ]
    salt, info = hashlib.sha256(run.encode()).digest(), b"p2pfl/v1/epoch/" + epoch(*ends)
    present = HKDF(SHA256(), 32, salt=salt, info=info).derive(one.exchange(other.public_key()))
    use = {"attempt": 0, "receiver": ""} | use
    said = f"p2pfl/v1/{use['purpose']}/{min(a, b)}/{max(a, b)}/{use['round']}/{use['attempt']}/{use['receiver']}"
    return HKDFExpand(SHA256(), 32, said.encode()).derive(present)
