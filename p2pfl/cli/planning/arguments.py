"""Arguments of the commands that plan an experiment, or judge it beforehand."""

from __future__ import annotations

from typing import Any

from p2pfl.cli import options


def topology(commands: Any) -> None:
    """Add ``p2pfl topology``."""
    command = commands.add_parser("topology", help="degree, diameter, spectral gap, rounds to consensus")
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


def explain(commands: Any) -> None:
    """Add ``p2pfl explain``."""
    command = commands.add_parser("explain", help="who has what, and what an experiment will cost, before it runs")
    options.experiment(command)
    options.peers(command)
    options.as_json(command)


def privacy(commands: Any) -> None:
    """Add ``p2pfl privacy``."""
    command = commands.add_parser("privacy", help="the guarantee by observer, and whether learning together can pay")
    options.experiment(command)
    options.peers(command)
    command.add_argument("--name", metavar="PEER", help="the one peer whose data are here (default: those of all are)")
    command.add_argument("--no-baselines", action="store_true", help="do not compare with peers that learn alone")
    command.add_argument("--plot", metavar="FILE", help="draw epsilon over rounds")
    options.as_json(command)


def audit(commands: Any) -> None:
    """Add ``p2pfl audit``."""
    command = commands.add_parser("audit", help="attack what peers release and hold it against the guarantee")
    options.experiment(command)
    command.add_argument(
        "--peers", type=options.count, metavar="N", help="instead of topology.peers (default: as many, but at most 128)"
    )
    command.add_argument(
        "--trials", type=options.trials, default=20_000, metavar="N", help="games of each player (default: %(default)s)"
    )
    command.add_argument("--out", metavar="DIR", help="where the page goes (default: a new directory under --runs)")
    command.add_argument(
        "--samples", action="store_true", help="show attacked training samples and their reconstructions in the page"
    )
    options.accounting(command)
    options.output(command)


def value(commands: Any) -> None:
    """Add ``p2pfl value``."""
    command = commands.add_parser("value", help="what the data of each peer are worth: Shapley, Banzhaf, leave one out")
    options.experiment(command)
    options.peers(command)
    command.add_argument(
        "--method", choices=["shapley", "banzhaf", "loo"], default="shapley", help="default: %(default)s"
    )
    command.add_argument(
        "--draws",
        type=options.count,
        default=200,
        metavar="N",
        help="permutations or coalitions that are drawn with more than ten peers (default: %(default)s)",
    )
    command.add_argument("--metric", metavar="NAME", help="score (default: that of the summary)")
    command.add_argument("--html", metavar="FILE", help="write a page with a chart that needs no other file")
    command.add_argument("--csv", metavar="FILE", help="write the values")
    options.accounting(command)
    options.as_json(command)
