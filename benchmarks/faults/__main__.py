"""``python -m benchmarks.faults NAME``: hurt live peers and say what came of it.

    python -m benchmarks.faults broker --restarts 20
    python -m benchmarks.faults kills --kills 200 --write docs/notes/faults.md

What needs namespaces needs root and iproute2.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.faults import deaths, foretold, hostile, masked, memory, partition
from benchmarks.faults.page import write


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.splitlines()[0])
    parser.add_argument("--write", metavar="FILE", help="put the line into this page")
    parser.add_argument("--keep", metavar="DIR", help="leave the run's files there")
    proofs = parser.add_subparsers(dest="proof", required=True, metavar="NAME")
    _deadly(proofs)
    _long(proofs)
    return parser.parse_args(arguments)


def _deadly(proofs) -> None:
    """Peers, brokers and cables that go."""
    one = proofs.add_parser("broker", help=deaths.brokers.__doc__)
    one.set_defaults(play=deaths.brokers)
    _sized(one, peers=6, rounds=60)
    one.add_argument("--restarts", type=int, default=20)
    one.add_argument("--every", type=float, default=2.0, metavar="SECONDS")
    one.add_argument("--in-order", action="store_true", help="end the broker by SIGTERM, not SIGKILL")
    one.add_argument("--forgetful", action="store_true", help="it keeps nothing on disk")

    one = proofs.add_parser("kills", help=deaths.kills.__doc__)
    one.set_defaults(play=deaths.kills)
    _sized(one, peers=8, rounds=600)
    one.add_argument("--kills", type=int, default=200)
    one.add_argument("--every", type=float, default=1.5, metavar="SECONDS", help="on average")
    one.add_argument("--takes", type=float, default=0.3, metavar="SECONDS", help="that training takes at least")
    one.add_argument("--down", type=float, default=0.0, metavar="SECONDS", help="before it is started again")
    one.add_argument("--privacy", default="none", choices=["none", "pairwise"])
    one.add_argument("--seed", type=int, default=0)

    one = proofs.add_parser("deaths", help=deaths.bereaved.__doc__)
    one.set_defaults(play=deaths.bereaved)
    _sized(one, peers=8, rounds=40)
    one.add_argument("--kill", type=int, default=2, metavar="PEERS")
    one.add_argument("--kind", default="ring")

    one = proofs.add_parser("masked", help=masked.masked.__doc__)
    one.set_defaults(play=masked.masked)
    _sized(one, peers=3, rounds=0)
    one.add_argument("--kills", type=int, default=10)
    one.add_argument("--deaths", type=int, default=1, help="kills in each swarm, one after another")
    one.add_argument("--kind", default="ring")
    one.add_argument("--anytime", action="store_true", help="kill at a random time, not between masking and sending")
    one.add_argument("--steps", type=int, default=1, help="gossip steps per round")
    one.add_argument("--mask", type=float, metavar="DEVIATION", help="of a mask, by default that of the experiment")
    one.add_argument("--at", type=int, default=20, metavar="ROUND", help="before a peer is stopped")

    one = proofs.add_parser("partition", help=partition.partition.__doc__)
    one.set_defaults(play=partition.partition)
    _sized(one, peers=6, rounds=120)
    one.add_argument("--bridged", action="store_true", help="each side has a broker")
    one.add_argument("--cut", type=float, default=60.0, metavar="SECONDS")
    one.add_argument("--after", type=int, default=8, metavar="ROUND")
    one.add_argument("--takes", type=float, default=1.0, metavar="SECONDS", help="that training takes at least")


def _long(proofs) -> None:
    """What is counted or measured."""
    one = proofs.add_parser("endurance", help=memory.endurance.__doc__)
    one.set_defaults(play=memory.endurance)
    one.add_argument("--peers", type=int, default=24)
    one.add_argument("--minutes", type=float, default=10.0)
    one.add_argument("--takes", type=float, default=2.0, metavar="SECONDS", help="that training takes at least")
    one.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="between two looks")

    one = proofs.add_parser("virtual", help=memory.virtual.__doc__)
    one.set_defaults(play=memory.virtual)
    _sized(one, peers=24, rounds=900)
    one.add_argument("--network", default="wan")

    one = proofs.add_parser("forecast", help=foretold.foretold.__doc__)
    one.set_defaults(play=foretold.foretold)
    _sized(one, peers=8, rounds=20)
    one.add_argument("--network", default="wan")
    one.add_argument("--hidden", type=int, default=64, help="of the model: so large are rows")

    one = proofs.add_parser("hostile", help=hostile.hostile.__doc__)
    one.set_defaults(play=hostile.hostile)

    one = proofs.add_parser("fuzz", help=hostile.fuzz.__doc__)
    one.set_defaults(play=hostile.fuzz)
    one.add_argument("--seconds", type=int, default=240, help="of fuzzing")


def _sized(parser: argparse.ArgumentParser, *, peers: int, rounds: int) -> None:
    parser.add_argument("--peers", type=int, default=peers)
    parser.add_argument("--rounds", type=int, default=rounds)


def main() -> None:
    """Play a proof and print its line."""
    given = sys.argv[1:]
    options = _options(given)
    options.command = " ".join(given[given.index(options.proof) :])
    with tempfile.TemporaryDirectory() as folder:
        shown = options.play(options, Path(options.keep or folder))
    print(shown)
    if options.write:
        write(Path(options.write), shown)


if __name__ == "__main__":
    main()
