"""A command of one's own."""

from typing import Annotated

from p2pfl.cli.command import Argument, Command, Options


class DegreesOptions(Options):
    """The neighbours of each peer."""

    experiment: Annotated[str, Argument("an experiment file, or the name of a shipped one")]


def run(options: DegreesOptions) -> int:
    """Print how many neighbours each peer has."""
    from p2pfl import plan, read  # noqa: PLC0415 (p2pfl --help must not wait for torch)

    topology = plan(read(options.experiment)).topology.union
    for peer in topology.peers:
        print(peer, len(topology.neighbours(peer)))  # noqa: T201
    return 0


DEGREES = Command("plan", DegreesOptions, "p2pfl_example.degrees:run")
