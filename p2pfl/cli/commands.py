"""What each command does; printing is all that is added here."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from p2pfl.cli import tables, view
from p2pfl.cli.interrupts import until_interrupted
from p2pfl.errors import BrokerError, InputError, RunError
from p2pfl.experiment import Experiment, plan
from p2pfl.experiment import read as read_experiment


def run(options: argparse.Namespace) -> int:
    """``p2pfl run``."""
    from p2pfl.peer import swarm  # noqa: PLC0415 (each command imports what it needs)

    experiment = _experiment(options, broker=options.broker)
    resolved = plan(experiment)
    folder = _folder(options, experiment)
    with _kept(folder), view.live(resolved, quiet=options.json) as live:
        result = swarm.run(experiment, folder=folder, resolved=resolved, observe=live.observe)
    return _finish(result.summary, folder, options)


def simulate(options: argparse.Namespace) -> int:
    """``p2pfl simulate``."""
    from p2pfl.simulation import simulate as simulated  # noqa: PLC0415

    experiment = _experiment(options)
    folder = _folder(options, experiment)
    with _kept(folder), view.Rounds(experiment, quiet=options.json) as rounds:
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
    resolved = plan(experiment, only=[options.name])
    folder = _folder(options, experiment, suffix=f"-{options.name}")
    summary: dict[str, Any] = {"name": experiment.name, "peer": options.name}
    own = Run(experiment, folder=folder)
    with _kept(folder), own, view.Lines(resolved, peers=1, quiet=options.json) as lines:

        def tell(event: Any) -> None:
            if isinstance(event, Record):
                own.record([event])
            elif isinstance(event, Done):
                summary["scores"] = event.scores
            lines.observe(event)

        until_interrupted(live(resolved, options.name, url=url, folder=folder, tell=tell))
        own.finish(summary)
    return _finish(own.summary, folder, options)


def broker(options: argparse.Namespace) -> int:
    """``p2pfl broker``."""
    from p2pfl.transport.broker import embedded  # noqa: PLC0415

    with embedded(host=options.host, port=options.port, kind=options.kind) as running:
        print(f"{running.kind} listens at {running.url} (Ctrl-C ends it)", file=sys.stderr)
        try:
            running.wait()
        except BrokerError as error:
            raise RunError(str(error)) from None
        except KeyboardInterrupt:
            pass
    return 0


def topology(options: argparse.Namespace) -> int:
    """``p2pfl topology``."""
    from p2pfl.cli import topologies  # noqa: PLC0415

    found = topologies.find(options.topology, peers=options.peers, degree=options.degree, seed=options.seed)
    facts = topologies.facts(found)
    if options.plot:
        topologies.draw(found, options.plot)
    if options.json:
        print(json.dumps(facts))
    else:
        tables.facts(topologies.described(facts))
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
        tables.history(result)
    return 0


def _experiment(options: argparse.Namespace, *, broker: str | None = None) -> Experiment:
    sys.path.insert(0, str(Path.cwd()))  # where the user's own package.module:function is
    changes = list(options.changes)
    if getattr(options, "peers", None) is not None:
        changes.append(f"topology.peers={options.peers}")
    if broker is not None:
        changes.append(f"transport.broker={json.dumps(broker)}")
    return read_experiment(options.experiment, changes=changes)


def _folder(options: argparse.Namespace, experiment: Experiment, *, suffix: str = "") -> Path:
    """A new run directory's path; two runs in one second get different ones."""
    stem = f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}{suffix}"
    folder = Path(options.runs) / stem
    return folder if not folder.exists() else folder.with_name(f"{stem}-{os.getpid()}")


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """Say where what was written lies, if something goes wrong."""
    try:
        yield
    except (InputError, RunError, KeyboardInterrupt) as error:
        if folder.exists():
            error.add_note(f"what was written is in {folder}")
        raise


def _finish(summary: dict[str, Any], folder: Path, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(summary | {"folder": str(folder)}))
    else:
        tables.summary(summary, folder)
    return 0
