"""Sealing and opening rows in chunks, against one copy of their bytes in memory: 4 MB in the cache, 50 MB beyond it.

    python -m benchmarks.sealing

Baselines, as in :mod:`benchmarks.wire`: a copy into memory that is mapped and in cache, and one into
fresh memory. Then the two usual algorithms side by side, and what a signed header costs. How AES
fares on a processor without instructions for it, one that has them shows as well:

    OPENSSL_ia32cap=~0x200000200000000 python -m benchmarks.sealing

Last, what it costs to prove to each neighbour that a heartbeat is the sender's: one tag for each, as is done, against
one Ed25519 signature for all, pair by pair with a seal that proves nothing; in processor time.
"""

import hashlib
import time
from collections.abc import Callable

import blake3
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from benchmarks.timing import pair
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.messages import Announcement, Pulse
from p2pfl.network.protocol.wire.wire_codec import add_tags, authentic, digest_of, encode, parts, split
from p2pfl.privacy.keys import ExchangeKey, Identity, SecretSource, SenderKey, verify

SIZES = (4_000_000, 50_000_000)
CHUNK = 256 * 1024 - 512
REPEATS = 51
HEADER = bytes(40)
OFTEN = 50
"""Messages in one measurement."""


def main() -> None:
    """Print the tables."""
    print(f"{'':<20} {'ms':>8} {'against':>20} {'ms':>8} {'ratio':>20}")
    for size in SIZES:
        sealing(size)
    signatures()
    authentication()


def sealing(size: int) -> None:
    """Compare sealing and opening a row with copies of it, and the two algorithms with each other."""
    row = np.frombuffer(np.random.default_rng(0).bytes(size), np.uint8)
    target = np.empty(size, np.uint8)
    chunks = [memoryview(row)[start : start + CHUNK] for start in range(0, size, CHUNK)]
    key = SenderKey.draw(SecretSource(), peer="ada")
    sealed = [key.seal(chunk, stream=0, sequence=place, header=HEADER) for place, chunk in enumerate(chunks)]

    def seal() -> None:
        for place, chunk in enumerate(chunks):
            key.seal(chunk, stream=0, sequence=place, header=HEADER)

    def open_() -> None:
        for place, chunk in enumerate(sealed):
            key.open(chunk, stream=0, sequence=place, header=HEADER)

    def mapped() -> None:
        target[:] = row

    for name, body in ((f"seal {size / 1e6:.0f} MB", seal), ("open", open_)):
        for kind, baseline in (("copy into mapped", mapped), ("copy into fresh", lambda: bytearray(row))):
            table(name, body, kind, baseline)
    ciphers(chunks)


def ciphers(chunks: list[memoryview]) -> None:
    """Compare the algorithm in use with the other one."""
    chacha, aes = ChaCha20Poly1305(bytes(32)), AESGCM(bytes(32))

    def run(cipher: ChaCha20Poly1305 | AESGCM) -> None:
        for place, chunk in enumerate(chunks):
            cipher.encrypt(place.to_bytes(12, "little"), chunk, HEADER)

    table("AES-256-GCM", lambda: run(aes), "ChaCha20-Poly1305", lambda: run(chacha))


def signatures() -> None:
    """Time a signature and its verification against the digest they cover."""
    ada, data = Identity.generate(SecretSource(), peer="ada"), bytes(CHUNK)
    signature = ada.sign(HEADER, domain="header")
    digest = lambda: hashlib.sha256(data)  # noqa: E731 (a baseline in one line)
    table("sign a header", lambda: ada.sign(HEADER, domain="header"), "SHA-256 of a chunk", digest)
    table(
        "verify a header",
        lambda: verify(ada.public, HEADER, signature, domain="header"),
        "SHA-256 of a chunk",
        digest,
    )


def authentication() -> None:
    """Compare tags with a signature on a heartbeat, for the sender and for one receiver."""
    print(f"\n{'a heartbeat to':<20} {'us':>8} {'against':>20} {'us':>8} {'ratio':>20} {'bytes':>8}")
    for neighbours in (2, 4, 16, 64):
        ends = acquainted(neighbours)
        sender, receiver = ends[0], ends[1]
        key, signed = receiver._keys["peer0"], Identity.generate(SecretSource(), peer="peer0")  # noqa: SLF001
        message = encode(Pulse(1, 0, 10**3, 10**3, 100, 2, waiting=True, first=0))
        prefix, header = bytes(13), bytes(32)
        sealed = sender.sender.seal(message, stream=0, sequence=0, header=prefix)
        signature = signed.sign(header, domain="sealed")
        payload = sender.seal(Pulse(1, 0, 10**3, 10**3, 100, 2, waiting=True, first=0))
        tags = [own for own, _ in sender._tags.values()]  # noqa: SLF001

        def bare(sender=sender, message=message, prefix=prefix) -> None:
            sender.sender.seal(message, stream=0, sequence=0, header=prefix)

        def digest(message=message, prefix=prefix) -> bytes:
            head, data = split(message)
            return digest_of(prefix, head, blake3.blake3(data).digest())

        def tagging(bare=bare, sealed=sealed, prefix=prefix, tags=tags, digest=digest) -> None:
            bare()
            add_tags(prefix, digest(), sealed, keys=tags)

        def signing(bare=bare, signed=signed, header=header, prefix=prefix, sealed=sealed) -> None:
            bare()
            blake3.blake3(prefix + sealed).digest()
            signed.sign(header, domain="sealed")

        def opening(key=key, sealed=sealed, prefix=prefix) -> None:
            key.open(sealed, stream=0, sequence=0, header=prefix)

        own = receiver._tags["peer0"][1]  # noqa: SLF001

        def looking(opening=opening, payload=payload, own=own, digest=digest) -> None:
            opening()
            authentic(parts(payload, prefix=13), digest(), key=own)

        def verifying(opening=opening, signed=signed, header=header, signature=signature) -> None:
            opening()
            verify(signed.public, header, signature, domain="sealed")

        for name, body, kind, baseline, size in (
            ("seal, tags", tagging, "seal", bare, len(payload)),
            ("seal, signature", signing, "seal", bare, len(payload) - 16 * neighbours + 64),
            ("open, tags", looking, "open", opening, len(payload)),
            ("open, signature", verifying, "open", opening, len(payload) - 16 * neighbours + 64),
        ):
            mine, other, ratio = pair(often(body), often(baseline), repeats=REPEATS, clock=time.thread_time)
            us = 1e6 / OFTEN
            print(f"{neighbours:>3} {name:<16} {us * mine:>8.1f} {kind:>20} {us * other:>8.1f} {ratio:>20} {size:>8}")


def often(body: Callable[[], None]) -> Callable[[], None]:
    """Return what does something many times, for it is short."""

    def repeated() -> None:
        for _ in range(OFTEN):
            body()

    return repeated


def acquainted(neighbours: int) -> list[Envelope]:
    """Return a peer that has met its neighbours, and them."""
    source = SecretSource()
    ends = [
        Envelope(
            f"peer{number}",
            1,
            ExchangeKey.from_source(source, peer="x"),
            SenderKey.draw(source, peer=f"peer{number}"),
            "run",
        )
        for number in range(neighbours + 1)
    ]
    first, *others = ends
    for other in others:
        for one, two in ((first, other), (other, first)):
            one.meet(Announcement(two.me, 1, "up", key=two.exchange.public))
        other.receive(first.me, first.handover(other.me))
    return ends


def table(name, body, kind, baseline) -> None:
    """Print one line."""
    mine, other, ratio = pair(body, baseline, repeats=REPEATS)
    print(f"{name:<20} {1e3 * mine:>8.3f} {kind:>20} {1e3 * other:>8.3f} {ratio:>20}")


if __name__ == "__main__":
    main()
