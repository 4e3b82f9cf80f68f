"""What masks cost: milliseconds per million numbers, and seconds for a round of a large swarm.

Run with ``python benchmarks/masks.py``. One thread, best of several; on a shared two-core server
(AMD EPYC, AVX-512, numpy 2.4) it printed

    keystream alone                      1.5 ms per million
    normal numbers                       7.2 ms per million
    scipy.special.ndtri, same words     16.5 ms per million   (and other bits on other machines)
    secagg, each mask, ring of 64 bits   1.5 ms per million and edge
    secagg, each mask, ring of 32 bits   0.85 ms per million and edge

and with AS 241 itself in the parabolas' place 10.2 for normal numbers, 12.0 for 8 masks of one row of a
million, and 0.31 s a round for 2000 peers and 8000 edges of 2410 numbers.

What was tried for that sampler, in ms per million normal numbers on that machine; all variants
give the same bits:

- each branch of AS 241 on its own values, 64k at a time, ``frexp`` and a series: 12.0 to 12.7.
- the central branch everywhere, the tails (15 %) overwritten by index: 10.4. This is what is used.
- ``r < 0`` instead of ``|q| > 0.425`` to find the tails: 0.3 less, and one array less.
- uniforms by planting the exponent bits instead of a cast from uint64: 0.2 less.
- exponent and mantissa by integer operations instead of ``frexp``: 0.4 less.
- rounding by adding 1.5 * 2^52 and subtracting bit patterns instead of ``rint`` and a cast: 0.5 less.
- numerator and denominator as one ``[2, n]`` array, half as many calls: 0.5 more.
- the tails of several blocks gathered and evaluated at once: no difference.
- new arrays for every block instead of the same ones: 10.4 where the allocator keeps them, but 24.6 in a
  fresh process, where it hands each back to the system. Hence the ``Sampler``.
- blocks of 8k / 16k / 32k / 64k / 128k values: 17.6 / 12.6 / 11.7 / 10.8 / 10.4; 64k keeps what a device needs small.
- threads over blocks (keystreams can be entered anywhere): 10 to 20 % less on two cores, which the
  other peers or the training would have used; not worth a pool.

And for masks of sums, in ms per million numbers of 64 bits and mask: ChaCha20 2.4, of which 1.57 are its
keystream; AES-256 in counter mode 1.5 (1.02), AES-128 0.1 less; 2k / 8k / 32k / 64k numbers at a time 1.66 /
1.35 / 1.28 / 1.33 of keystream and sum; a term's memory used for its share 0.3 less.
"""

import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from scipy.special import ndtri

from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import Masks, swarm_secrets
from p2pfl.privacy.noise import NoiseSampler
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK, Sampler, spans, to_grid
from p2pfl.privacy.secagg.protocol import Sender, Sum, SumSlot
from p2pfl.privacy.secagg.weighted_sums import portion
from p2pfl.topology import complete, random_regular

SIZE = 1 << 20
KEY = bytes(32)


def best(action: Callable[[], object], *, repeats: int = 15) -> float:
    """Seconds of the fastest run: what the machine can do when nobody disturbs it."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def keystream() -> None:
    """Encrypt zeros."""
    zeros, out = bytes(8 * VALUES_PER_BLOCK), bytearray(8 * VALUES_PER_BLOCK)
    encryptor = Cipher(ChaCha20(KEY, bytes(16)), mode=None).encryptor()
    for _ in spans(SIZE, VALUES_PER_BLOCK):
        encryptor.update_into(zeros, out)


def numbers() -> None:
    """Draw what masks are made of, block by block."""
    sampler = Sampler()
    for span in spans(SIZE, VALUES_PER_BLOCK):
        sampler.window([KEY], span)


def points() -> None:
    """Draw it on the grid."""
    sampler = Sampler()
    for span in spans(SIZE, VALUES_PER_BLOCK):
        to_grid(sampler.window([KEY], span), scale=2.0**20)


def private_noise() -> None:
    """Draw private noise, which has no holes."""
    sampler = NoiseSampler(1.3 * 2.0**20)
    for span in spans(SIZE, VALUES_PER_BLOCK):
        sampler.window([KEY], span)


def scipy_numbers() -> None:
    """Draw from the same words by scipy."""
    encryptor = Cipher(ChaCha20(KEY, bytes(16)), mode=None).encryptor()
    for span in spans(SIZE, VALUES_PER_BLOCK):
        words = np.frombuffer(encryptor.update(bytes(8 * (span.stop - span.start))), "<u8")
        ndtri(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def secagg(width: int, *, senders: int = 9) -> float:
    """Milliseconds per million numbers for each mask of a share of a sum, all that making it costs shared out.

    A share has a mask for each other sender.
    """
    names = complete(senders).peers
    secrets = swarm_secrets(complete(senders), source=SeededSource(7), run="benchmark")
    which = Sum(SumSlot("receiver", 0, 0), names, size=SIZE, width=width)
    points = np.random.default_rng(0).normal(scale=2.0**20, size=SIZE)

    def share() -> None:
        Sender(which, peer=names[0], secrets=secrets).share(portion(points, weight=1 / (senders + 1)), names)

    return best(share, repeats=7) * 1e9 / SIZE / (senders - 1)


def main() -> None:
    """Print the table."""
    for name, action in (
        ("keystream alone", keystream),
        ("normal numbers", numbers),
        ("normal numbers on the grid", points),
        ("private noise on the grid", private_noise),
        ("scipy.special.ndtri, same words", scipy_numbers),
    ):
        print(f"{name:35}{best(action) * 1e9 / SIZE:6.1f} ms per million")
    for width in (64, 32):
        print(f"{f'secagg, each mask, ring of {width} bits':35}{secagg(width):6.2f} ms per million and edge")
    swarm = random_regular(2000, degree=8, seed=1)
    masks = Masks(swarm_secrets(swarm, source=SeededSource(7), run="benchmark"), deviation=10.0, topology=swarm)
    row = best(lambda: masks.sums(swarm.peers[:1], round=0, size=SIZE), repeats=5)
    print(f"{'8 masks of one row, 1M':35}{row * 1e9 / SIZE / 8:6.1f} ms per million")
    everyone = best(lambda: masks.sums(swarm.peers, round=0, size=2410), repeats=5)
    print(f"{'2000 peers, 8000 edges, P = 2410':35}{everyone:6.2f} s a round")


if __name__ == "__main__":
    main()
