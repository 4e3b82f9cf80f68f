"""Alignment of three parties and a helper: processor time and bytes of each peer, and what an id costs.

    python -m benchmarks.alignment [ROWS ...]

Each party has as many ids, of which 9 in 10 are common. The peers are in one process and take turns, so the time until
the last one is ready is that of the slowest peer of each phase, as if each had a processor of its own; the network is
left out. Bytes are those of the messages to single peers, without seals and frames. The hash is measured with gmpy2,
if it is installed, and without.
"""

import sys
import time
from collections import defaultdict

import numpy as np

from p2pfl.data.parties import Parties, Party
from p2pfl.learning.additive import Question, add_up, answer_questions
from p2pfl.plugins.vertical.alignment import align
from p2pfl.privacy import commutative_powers
from p2pfl.privacy.commutative_powers import hash_to_point, jacobi_symbol, multiply
from p2pfl.privacy.keys import SecretSource

PEERS = ("ada", "bob", "eve")
HELPER = "cleo"
COMMON = 0.9
SAMPLE = 2000
"""Ids by which one operation is measured."""


class Timed:
    """Network of one process that keeps the time and the bytes of each peer."""

    def __init__(self) -> None:
        self.seconds = defaultdict(float)
        self.sent = defaultdict(int)
        self.until = 0.0

    def total(self, question: Question):
        """Answer a question, and note who took how long."""
        phase = defaultdict(float)

        def answer(peer):
            began = time.process_time()
            own = question.answer(peer)
            phase[peer] = time.process_time() - began
            if question.to is not None:
                self.sent[peer] += own.nbytes
            return own

        result = add_up(Question(answer, question.size, question.bits, to=question.to), [*PEERS, HELPER])
        for peer, seconds in phase.items():
            self.seconds[peer] += seconds
        self.until += max(phase.values())
        return result


def main() -> None:
    """Print the tables."""
    operations()
    print(f"\n{'rows':>9} {'peer':>6} {'s':>8} {'MB sent':>8}")
    for rows in map(int, sys.argv[1:] or ("1000", "10000")):
        align_tables(rows)


def operations() -> None:
    """Print what one id costs."""
    values = [f"{number}".encode() for number in range(SAMPLE)]
    points = [hash_to_point(value) for value in values]
    fast, pure = commutative_powers._symbol, lambda: jacobi_symbol  # noqa: SLF001
    timed = {"hash" if fast() is jacobi_symbol else "hash, with gmpy2": (fast, lambda: [*map(hash_to_point, values)])}
    timed["hash, without gmpy2"] = (pure, lambda: [*map(hash_to_point, values)])
    timed["multiply"] = (fast, lambda: multiply(bytes(range(32)), points))
    for name, (symbol, run) in timed.items():
        commutative_powers._symbol = symbol  # noqa: SLF001
        began = time.process_time()
        run()
        print(f"{name:<20} {(time.process_time() - began) / SAMPLE * 1e6:6.1f} us")
    commutative_powers._symbol = fast  # noqa: SLF001


def align_tables(rows: int) -> None:
    """Align parties with so many rows each."""
    rng, common = np.random.default_rng(0), int(COMMON * rows)
    own = {}
    for number, peer in enumerate(PEERS):
        people = np.concatenate([np.arange(common), (number + 1) * 10 * rows + np.arange(rows - common)])
        ids = tuple(map(str, rng.permutation(people).tolist()))
        own[peer] = Party(np.zeros((rows, 0)), (ids,))
    parties = Parties(PEERS, "bob", HELPER, ("id:digits",), own, least=50)
    network = Timed()
    aligned = answer_questions(align(parties, SecretSource(), run=b"benchmark"), network.total)
    if aligned.common != common:
        raise SystemExit(f"{aligned.common} common rows instead of {common}")
    for peer in (*PEERS, HELPER):
        print(f"{rows:>9,} {peer:>6} {network.seconds[peer]:8.1f} {network.sent[peer] / 1e6:8.1f}")
    print(f"{rows:>9,} {'until':>6} {network.until:8.1f} {sum(network.sent.values()) / 1e6:8.1f}")


if __name__ == "__main__":
    main()
