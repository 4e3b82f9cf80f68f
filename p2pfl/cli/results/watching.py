"""``p2pfl watch``: the page of a run, its state as text, and its replay."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from p2pfl.cli.interrupts import until_interrupted
from p2pfl.errors import InputError
from p2pfl.watch import frames
from p2pfl.watch.feed import Feed
from p2pfl.watch.sinks import Sinks


def run(options: argparse.Namespace) -> int:
    """Show a run directory until the command is interrupted, or once."""
    if options.json and not options.once:
        raise InputError("--json prints the state once; add --once")
    if options.speed is not None and not options.replay:
        raise InputError("--speed is that of a replay; add --replay")
    sys.path.insert(0, str(Path.cwd()))  # where the user's own package.module:function is
    sinks = Sinks(options.sink, complain=lambda sentence: print(f"p2pfl: {sentence}", file=sys.stderr))
    with Feed(Path(options.run), sink=sinks if options.sink else None) as feed:
        return _once(feed, options) if options.once else _serve(feed, options)


def _once(feed: Feed, options: argparse.Namespace) -> int:
    feed.refresh()
    if options.json:
        print(json.dumps(frames.frame(feed.swarm, now=feed.at, stage=feed.stage), allow_nan=False))
    else:
        print("\n".join(frames.text(feed.swarm, now=feed.at)))
    return 0


def _serve(feed: Feed, options: argparse.Namespace) -> int:
    try:
        from p2pfl.watch.serving import serve, token_of  # noqa: PLC0415 (needs an extra)
    except ImportError as error:
        raise InputError(
            f'the page needs the package "{error.name}", which is not installed; run pip install "p2pfl-mqtt[watch]", '
            "or print the state with --once"
        ) from None
    token = None if options.token is None else token_of(Path(options.token))
    replay = (options.speed or 1.0) if options.replay else None

    def ready(address: str) -> None:
        print(f"open {address} (Ctrl-C ends it)", file=sys.stderr)

    until_interrupted(serve(feed, port=options.port, token=token, replay=replay, ready=ready))
    return 0
