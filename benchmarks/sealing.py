"""Sealing and opening a 4 MB row in chunks, against one copy of its bytes in memory.

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

SIZE = 4_000_000
CHUNK = 256 * 1024 - 512
REPEATS = 101
HEADER = bytes(40)


def main() -> None:
    """Print the tables."""
    row = np.frombuffer(np.random.default_rng(0).bytes(SIZE), np.uint8)
    target = np.empty(SIZE, np.uint8)
    chunks = [memoryview(row)[start : start + CHUNK] for start in range(0, SIZE, CHUNK)]
    key = SenderKey.draw(SecretSource(), peer="ada")
    sealed = [key.seal(chunk, stream=0, sequence=place, header=HEADER) for place, chunk in enumerate(chunks)]

    def sealing() -> None:
        for place, chunk in enumerate(chunks):
            key.seal(chunk, stream=0, sequence=place, header=HEADER)

    def opening() -> None:
        for place, chunk in enumerate(sealed):
            key.open(chunk, stream=0, sequence=place, header=HEADER)

    def mapped() -> None:
        target[:] = row

    print(f"{'4 MB row':<20} {'ms':>8} {'against':>20} {'ms':>8} {'ratio':>20}")
    for name, body in (("seal", sealing), ("open", opening)):
        for kind, baseline in (("copy into mapped", mapped), ("copy into fresh", lambda: bytearray(row))):
            table(name, body, kind, baseline)
    ciphers(chunks)
    signatures()


def ciphers(chunks: list[memoryview]) -> None:
    """Compare the algorithm in use with the other one."""
    chacha, aes = ChaCha20Poly1305(bytes(32)), AESGCM(bytes(32))

    def run(cipher: ChaCha20Poly1305 | AESGCM) -> None:
        for place, chunk in enumerate(chunks):
            cipher.encrypt(place.to_bytes(12, "little"), chunk, HEADER)

    table("ChaCha20-Poly1305", lambda: run(chacha), "AES-256-GCM", lambda: run(aes))


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
