"""A command of one's own."""

from argparse import ArgumentParser, Namespace

from p2pfl.cli.command import Command


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("experiment", help="an experiment file, or the name of a shipped one")


def run(options: Namespace) -> int:
    """Print how many neighbours each peer has."""
    from p2pfl import plan, read  # noqa: PLC0415 (p2pfl --help must not wait for torch)

    topology = plan(read(options.experiment)).topology.union
    for peer in topology.peers:
        print(peer, len(topology.neighbours(peer)))  # noqa: T201
    return 0


DEGREES = Command("plan", "the neighbours of each peer", _arguments, "p2pfl_example.degrees:run")
