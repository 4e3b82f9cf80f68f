"""Sealing and opening rows in chunks, against one copy of their bytes in memory: 4 MB in the cache, 50 MB beyond it.

    python -m benchmarks.sealing

Baselines, as in :mod:`benchmarks.wire`: a copy into memory that is mapped and in cache, and one into
fresh memory. Then the two usual algorithms side by side, and what a signed header costs. How AES
fares on a processor without instructions for it, one that has them shows as well:

    OPENSSL_ia32cap=~0x200000200000000 python -m benchmarks.sealing
"""

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from benchmarks.timing import pair
from p2pfl.identity import Identity, SecretSource, SenderKey, verify

SIZES = (4_000_000, 50_000_000)
CHUNK = 256 * 1024 - 512
REPEATS = 51
HEADER = bytes(40)


def main() -> None:
    """Print the tables."""
    print(f"{'':<20} {'ms':>8} {'against':>20} {'ms':>8} {'ratio':>20}")
    for size in SIZES:
        sealing(size)
    signatures()


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


def table(name, body, kind, baseline) -> None:
    """Print one line."""
    mine, other, ratio = pair(body, baseline, repeats=REPEATS)
    print(f"{name:<20} {1e3 * mine:>8.3f} {kind:>20} {1e3 * other:>8.3f} {ratio:>20}")


if __name__ == "__main__":
    main()
