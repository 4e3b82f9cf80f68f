"""What each command does; printing is all that is added here."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from p2pfl.cli import view
from p2pfl.errors import InputError
from p2pfl.experiment import Experiment, plan
from p2pfl.experiment import read as read_experiment


def run(options: argparse.Namespace) -> int:
    """``p2pfl run``."""
    from p2pfl.peer import swarm  # noqa: PLC0415 (each command imports what it needs)

    experiment = _experiment(options, broker=options.broker)
    folder = _folder(options, experiment)
    resolved = plan(experiment)
    with view.Live(resolved, quiet=options.json) as live:
        result = swarm.run(experiment, folder=folder, resolved=resolved, observe=live.observe)
    return _finish(result.summary, folder, options)


def simulate(options: argparse.Namespace) -> int:
    """``p2pfl simulate``."""
    from p2pfl.simulation import simulate as simulated  # noqa: PLC0415

    experiment = _experiment(options)
    folder = _folder(options, experiment)
    with view.Rounds(experiment, quiet=options.json) as rounds:
        result = simulated(experiment, folder=folder, observe=rounds.observe, baselines=not options.no_baselines)
    return _finish(result.summary, folder, options)


def peer(options: argparse.Namespace) -> int:
    """``p2pfl peer``."""
    from p2pfl.peer.child import Done, live  # noqa: PLC0415
    from p2pfl.report import Record, Run  # noqa: PLC0415

    experiment = _experiment(options, broker=options.broker)
    url = experiment.transport.broker
    if url == "embedded":
        raise InputError(
            'expected the address of a broker, got transport.broker = "embedded": start one with "p2pfl broker" and '
            "give its address with --broker mqtt://host:1883"
        )
    result = Run(experiment, folder=_folder(options, experiment, suffix=f"-{options.name}"))
    steps = view.Lines(quiet=options.json)
    last: list[Done] = []

    def tell(event: Any) -> None:
        if isinstance(event, Record):
            result.record([event])
        elif isinstance(event, Done):
            last.append(event)
        steps.observe(event)

    asyncio.run(live(experiment, options.name, url=url, folder=result.folder, tell=tell))
    result.finish(
        {"name": experiment.name, "peer": options.name, "scores": last[0].scores, "folder": str(result.folder)}
    )
    if options.json:
        print(json.dumps(result.summary))
    return 0


def broker(options: argparse.Namespace) -> int:
    """``p2pfl broker``."""
    from p2pfl.transport.broker import embedded  # noqa: PLC0415

    with embedded(host=options.host, port=options.port, kind=options.kind) as running:
        print(f"{running.kind} listens at {running.url} (Ctrl-C ends it)", file=sys.stderr)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


def topology(options: argparse.Namespace) -> int:
    """``p2pfl topology``."""
    from p2pfl.cli import topologies  # noqa: PLC0415

    facts = topologies.facts(options.topology, peers=options.peers, degree=options.degree, seed=options.seed)
    if options.plot:
        topologies.draw(options.topology, options.plot, peers=options.peers, degree=options.degree, seed=options.seed)
    if options.json:
        print(json.dumps(facts))
    else:
        view.table(facts)
    return 0


def report(options: argparse.Namespace) -> int:
    """``p2pfl report``."""
    from p2pfl.report import Run  # noqa: PLC0415

    result = Run.load(options.run)
    if options.plot:
        result.plot(options.plot)
    if options.json:
        print(json.dumps(result.summary))
    else:
        view.history(result)
    return 0


def _experiment(options: argparse.Namespace, *, broker: str | None = None) -> Experiment:
    changes = list(options.changes)
    if getattr(options, "peers", None) is not None:
        changes.append(f"topology.peers={options.peers}")
    if broker is not None:
        changes.append(f'transport.broker="{broker}"')
    return read_experiment(options.experiment, changes=changes)


def _folder(options: argparse.Namespace, experiment: Experiment, *, suffix: str = "") -> Path:
    """A new run directory's path; two runs in one second get different ones."""
    stem = f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}{suffix}"
    folder = Path(options.runs) / stem
    return folder if not folder.exists() else folder.with_name(f"{stem}-{os.getpid()}")


def _finish(summary: dict[str, Any], folder: Path, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(summary | {"folder": str(folder)}))
    else:
        view.summary(summary, folder)
    return 0
