"""Arguments of the commands that plan an experiment, or judge it beforehand."""

from __future__ import annotations

from argparse import ArgumentParser

from p2pfl.cli import options
from p2pfl.cli.command import Command


def _topology(command: ArgumentParser) -> None:
    command.add_argument("topology", metavar="NAME|FILE", help="a kind such as ring, MODULE:FUNCTION, or a graph file")
    command.add_argument("--peers", type=options.count, default=16, metavar="N", help="default: %(default)s")
    command.add_argument("--degree", type=options.count, default=4, metavar="K", help="default: %(default)s")
    command.add_argument("--seed", type=int, default=0, help="of random kinds (default: %(default)s)")
    command.add_argument(
        "--clusters", type=options.count, default=4, metavar="N", help="of hierarchical, default: %(default)s"
    )
    command.add_argument(
        "--every",
        type=options.count,
        default=4,
        metavar="K",
        help="gossip steps from bridge to bridge, default: %(default)s",
    )
    command.add_argument(
        "--period", type=options.count, default=64, metavar="N", help="of epidemic schedules, default: %(default)s"
    )
    command.add_argument("--plot", metavar="FILE", help="draw it")
    options.as_json(command)


def _explain(command: ArgumentParser) -> None:
    options.experiment(command)
    options.peers(command)
    options.as_json(command)


def _privacy(command: ArgumentParser) -> None:
    options.experiment(command)
    options.peers(command)
    command.add_argument("--name", metavar="PEER", help="the one peer whose data are here (default: those of all are)")
    command.add_argument("--no-baselines", action="store_true", help="do not compare with peers that learn alone")
    command.add_argument("--plot", metavar="FILE", help="draw epsilon over rounds")
    options.as_json(command)


COMMANDS = {
    "topology": Command(
        "plan",
        "degree, diameter, spectral gap, rounds to consensus",
        _topology,
        "p2pfl.cli.planning.planning_commands:topology",
    ),
    "explain": Command(
        "plan",
        "who has what, and what an experiment will cost, before it runs",
        _explain,
        "p2pfl.cli.planning.planning_commands:explain",
    ),
    "privacy": Command(
        "plan",
        "the guarantee by observer, and whether learning together can pay",
        _privacy,
        "p2pfl.cli.planning.planning_commands:privacy",
    ),
}
