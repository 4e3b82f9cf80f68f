"""What each command does; printing is all that is added here."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import p2pfl
from p2pfl.cli import accounts, folders, tables
from p2pfl.cli.interrupts import until_interrupted
from p2pfl.cli.using import card, coefficients, columns, evaluate, export, predict
from p2pfl.errors import BrokerError, InputError, RunError
from p2pfl.experiment import Experiment
from p2pfl.experiment import read as read_experiment

__all__ = [
    "card",
    "coefficients",
    "columns",
    "evaluate",
    "export",
    "predict",
]  # and the functions below, each for the command of its name

if TYPE_CHECKING:  # they import torch
    from p2pfl.experiment.outline import Outline
    from p2pfl.peer.storage.checkpoint import Former
    from p2pfl.report import Run


def run(options: argparse.Namespace) -> int:
    """``p2pfl run``."""
    from p2pfl.cli import view  # noqa: PLC0415 (each command imports what it needs)
    from p2pfl.peer.launch import swarm  # noqa: PLC0415

    _check_recording(options)
    folder = None if options.resume is None else _resumed(options)
    if folder is not None and folders.ended(folder):
        return _over(folder, options)
    if options.experiment is None and folder is None:
        raise InputError("the EXPERIMENT is missing; name a file or a shipped experiment, or a run with --resume")
    experiment = _experiment(options, broker=options.broker)
    resolved = p2pfl.plan(experiment, live=True)
    accounts.check(options, resolved)
    again = folder is not None
    folder = folder or folders.new(options.runs, experiment.name)
    with _kept(folder, again=f"p2pfl run --resume {folder}"), view.live(resolved, quiet=options.json) as live:
        result = swarm.run(
            experiment,
            folder=folder,
            resolved=resolved,
            observe=live.observe,
            resume=again,
            record=options.record,
            unaccounted=options.unaccounted,
        )
    return _finish(result.summary, folder, options)


def simulate(options: argparse.Namespace) -> int:
    """``p2pfl simulate``."""
    from p2pfl.cli import view  # noqa: PLC0415
    from p2pfl.simulation import simulate as simulated  # noqa: PLC0415

    experiment = _experiment(options)
    if options.network is not None:
        return _forecast(options, experiment)
    resolved = p2pfl.plan(experiment)
    accounts.check(options, resolved)
    folder = folders.new(options.runs, experiment.name)
    with _kept(folder), view.Rounds(experiment, quiet=options.json) as rounds:
        given = {"baselines": not options.no_baselines, "unaccounted": options.unaccounted}
        result = simulated(resolved, folder=folder, observe=rounds.observe, **given)
    return _finish(result.summary, folder, options)


def _forecast(options: argparse.Namespace, experiment: Experiment) -> int:
    """``p2pfl simulate --network``."""
    from p2pfl.cli import view  # noqa: PLC0415
    from p2pfl.virtual.forecast import forecast, network  # noqa: PLC0415

    over = network(options.network)
    accounts.check(options, p2pfl.plan(experiment))
    folder = folders.new(options.runs, experiment.name)
    with _kept(folder), view.Rounds(experiment, quiet=options.json) as rounds:
        given = {"baselines": not options.no_baselines, "unaccounted": options.unaccounted}
        result = forecast(experiment, over, folder=folder, observe=rounds.observe, **given)
    return _finish(result.summary, folder, options)


def peer(options: argparse.Namespace) -> int:
    """``p2pfl peer``."""
    from p2pfl.cli import view  # noqa: PLC0415
    from p2pfl.peer.launch.event_log import EventLog, concluded  # noqa: PLC0415
    from p2pfl.peer.launch.worker import brokers, live, overhearing  # noqa: PLC0415
    from p2pfl.peer.storage.credentials import credentials  # noqa: PLC0415
    from p2pfl.peer.storage.writer import erase_keys  # noqa: PLC0415
    from p2pfl.peer.updates import Described, Done  # noqa: PLC0415
    from p2pfl.report import Record  # noqa: PLC0415

    _check_recording(options)
    experiment = _experiment(options, broker=options.broker)
    urls = brokers(experiment)
    if "embedded" in urls:
        raise InputError(
            'transport.broker = "embedded" does not work for a single peer, because others could not reach it; '
            'start one with "p2pfl broker", and give its address with --broker mqtt://host:1883'
        )
    last = folders.last(options.runs, experiment, peer=options.name) if options.resume else None
    if last is not None and folders.ended(last):
        return _over(last, options)
    resolved = p2pfl.plan(experiment, only=[options.name])
    accounted = accounts.check(options, resolved)
    ended: list[Done] = []
    with ExitStack() as stack:
        folder, own, former = _own(options, experiment, stack, last=last)
        if own.summary:  # it ended while this command waited for the lock
            return _over(folder, options)
        lines = stack.enter_context(view.Lines(resolved, peers=1, quiet=options.json))
        log = EventLog(own, now=lambda: datetime.now(UTC))

        def tell(event: Any) -> None:
            if isinstance(event, Record):
                own.record([event])
            elif isinstance(event, Described):
                own.describe(event.about)
            elif isinstance(event, Done):
                ended.append(event)
            log.observe(event)
            lines.observe(event)

        for warning in overhearing(experiment, urls=urls, peer=options.name):
            tell(warning)
        owned = credentials(experiment.trust, peer=options.name, folder=folder / "keys")
        given: dict[str, Any] = {"former": former, "record": options.record}
        until_interrupted(live(resolved, options.name, urls=urls, folder=folder, owned=owned, tell=tell, **given))
        [done] = ended
        own.finish(concluded(resolved, done, alarms=log.alarms, accounted=accounted))
        erase_keys(folder)
    return _finish(own.summary, folder, options)


def _own(
    options: argparse.Namespace, experiment: Experiment, stack: ExitStack, *, last: Path | None
) -> tuple[Path, Run, Former | None]:
    """Return a peer's run directory, its run, and what an earlier incarnation left in it, until the stack is left."""
    from p2pfl.peer.launch.worker import earlier  # noqa: PLC0415
    from p2pfl.peer.storage.lock import PEER, WITHIN, owned  # noqa: PLC0415
    from p2pfl.report import Run  # noqa: PLC0415
    from p2pfl.report.notices.wording import sentence  # noqa: PLC0415

    if options.resume and last is None:
        print(f'there is nothing to resume of "{options.name}" in {options.runs}: it begins', file=sys.stderr)
    if last is None:
        folder = folders.new(options.runs, experiment.name, suffix=options.name)
        stack.enter_context(_kept(folder, again="--resume"))
        own = stack.enter_context(Run(experiment, folder=folder, began=datetime.now(UTC)))
        stack.enter_context(owned(folder / PEER))
        return folder, own, None
    stack.enter_context(owned(last / PEER, within=WITHIN))
    if folders.ended(last):
        return last, Run.load(last), None
    stack.enter_context(_kept(last, again="--resume"))
    former = earlier(last, options.name, tell=lambda notice: print(sentence(notice), file=sys.stderr))
    return last, stack.enter_context(Run.resume(last, first={options.name: max(former.rounds, default=0)})), former


def identity(options: argparse.Namespace) -> int:
    """``p2pfl identity``."""
    from p2pfl.cli import identities  # noqa: PLC0415

    roster = Path(options.roster) if options.roster else None
    if options.revoke is not None or options.accept is not None:
        if roster is None:
            raise InputError("the roster to change is missing; name it with --roster")
        if options.accept is not None:
            done = identities.accepted(options.name, roster=roster, said=Path(options.accept))
        else:
            done = identities.revoked(options.name, roster=roster, reason=options.revoke)
    elif not options.keys:
        raise InputError("the folder of the peer's key is missing; name it with --keys")
    else:
        change = identities.rotated if options.rotate else identities.shown
        done = change(options.name, keys=Path(options.keys), roster=roster)
    if options.json:
        print(json.dumps(done.results()))
        return 0
    print(done.line)
    if done.statement is not None:  # for the rosters of others
        print(f'rotation = "{done.results()["statement"]}"')
    print(done.told, file=sys.stderr)
    return 0


def broker(options: argparse.Namespace) -> int:
    """``p2pfl broker``."""
    from p2pfl.transport.broker import embedded  # noqa: PLC0415

    if options.config is not None:
        return _configure(options)
    if options.experiment is not None:
        raise InputError(
            "an experiment has no effect without --config DIR, because the embedded broker admits everybody; add "
            "--config DIR, or leave out the experiment"
        )
    port = 1883 if options.port is None else options.port
    with embedded(host=options.host, port=port, kind=options.kind) as running:
        print(f"{running.kind} listens at {running.url} (Ctrl-C ends it)", file=sys.stderr)
        try:
            running.wait()
        except BrokerError as error:
            raise RunError(str(error)) from None
        except KeyboardInterrupt:
            pass
    return 0


def _configure(options: argparse.Namespace) -> int:
    """``p2pfl broker --config``."""
    from p2pfl.experiment.outline import built, loaded  # noqa: PLC0415
    from p2pfl.protocol.wire.sealing import rights  # noqa: PLC0415
    from p2pfl.transport.hardened import closed, configure  # noqa: PLC0415

    port = 8883 if options.port is None else options.port
    swarm, peers = "+", tuple[str, ...]()
    if options.experiment is not None:
        experiment = read_experiment(options.experiment)  # neither model nor data need be here
        swarm, peers = experiment.name, (loaded(experiment) or built(experiment)).peers
    folder = Path(options.config)
    named = configure(folder, rights=rights(swarm), peers=peers, host=options.host, public=options.public, port=port)
    print(f"mosquitto -c {folder / 'mosquitto.conf'}")
    print(f"its certificate is for {', '.join(named)}: name other hosts with --public", file=sys.stderr)
    if (wall := closed(folder)) is not None:
        print(
            f"WARNING: mosquitto gives up root, and its user cannot pass through {wall}, so it will not start: name a "
            f"DIR elsewhere, or run chmod o+x {wall}",
            file=sys.stderr,
        )
    shows = f'credentials = "{folder / "credentials"}"' if peers else "certificate and key, signed by ca.pem"
    print(
        f'peers need, in [transport]: broker = "mqtts://HOST:{port}", ca = "{folder / "broker.pem"}", and {shows};'
        " give each peer its own alone",
        file=sys.stderr,
    )
    return 0


def topology(options: argparse.Namespace) -> int:
    """``p2pfl topology``."""
    from p2pfl.cli import topologies  # noqa: PLC0415

    given = {key: getattr(options, key) for key in ("peers", "degree", "seed", "clusters", "every", "period")}
    found = topologies.find(options.topology, **given)
    facts = topologies.facts(found)
    if options.plot:
        topologies.draw(found, options.plot)
    if options.json:
        print(json.dumps(facts))
    else:
        tables.facts(topologies.described(facts))
    return 0


def explain(options: argparse.Namespace) -> int:
    """``p2pfl explain``."""
    from p2pfl.cli import explain as explaining  # noqa: PLC0415

    found = explaining.explained(p2pfl.plan(_experiment(options)))
    if options.json:
        print(json.dumps(found, allow_nan=False))
    else:
        explaining.show(found)
    return 0


def privacy(options: argparse.Namespace) -> int:
    """``p2pfl privacy``."""
    from p2pfl.cli import privacy as guarantees  # noqa: PLC0415

    experiment = _experiment(options)
    outlined = guarantees.outlined(experiment, only=options.name)
    if outlined.protection.totals:
        return _totals(outlined, options)
    found = guarantees.facts(outlined)
    if options.plot:  # first, for it may be refused
        guarantees.draw(found, options.plot)
    if not options.json:
        guarantees.show(found)
        sys.stdout.flush()  # the table stands while data are read and the comparison trains
    comparison = None if options.no_baselines else guarantees.compared(outlined, only=options.name)
    if options.json:
        print(json.dumps(found | {"comparison": comparison}, allow_nan=False))
    elif comparison is not None:
        guarantees.say(comparison)
    return 0


def _totals(outlined: Outline, options: argparse.Namespace) -> int:
    """Print what exact totals show; there is no guarantee to draw or to compare."""
    from p2pfl.cli import exact  # noqa: PLC0415

    if options.plot:
        raise InputError("exact totals have no epsilon to draw; leave --plot out")
    found = exact.facts(outlined)
    if options.json:
        print(json.dumps(found, allow_nan=False))
    else:
        exact.show(found)
    return 0


def sweep(options: argparse.Namespace) -> int:
    """``p2pfl sweep``."""
    from p2pfl.cli import sweeps  # noqa: PLC0415

    sys.path.insert(0, str(Path.cwd()))  # where the user's own package.module:function is
    return sweeps.run(options)


def report(options: argparse.Namespace) -> int:
    """``p2pfl report``."""
    from p2pfl.cli import reports  # noqa: PLC0415

    return reports.show(options)


def schema(options: argparse.Namespace) -> int:
    """``p2pfl schema``."""
    from p2pfl.report.json_schema import json_schema  # noqa: PLC0415

    del options  # it has none
    print(json.dumps(json_schema(), indent=2))
    return 0


def audit(options: argparse.Namespace) -> int:
    """``p2pfl audit``."""
    from p2pfl.audit import Effort  # noqa: PLC0415
    from p2pfl.audit import audit as attacked  # noqa: PLC0415
    from p2pfl.cli import audits  # noqa: PLC0415

    experiment, smaller = _experiment(options), None
    if options.peers is None:
        experiment, smaller = audits.attackable(experiment)
    if smaller is not None:
        print(smaller, file=sys.stderr)
    resolved = p2pfl.plan(experiment)
    folder = Path(options.out) if options.out else folders.new(options.runs, experiment.name, suffix="audit")
    audits.prepare(folder)
    found = replace(attacked(resolved, effort=Effort(trials=options.trials)), smaller=smaller)
    audits.keep(found, folder)
    if options.json:
        print(json.dumps(found.results() | {"folder": str(folder)}))
    else:
        audits.show(found, folder)
    return 1 if found.broken else 0


def _experiment(options: argparse.Namespace, *, broker: list[str] | None = None) -> Experiment:
    sys.path.insert(0, str(Path.cwd()))  # where the user's own package.module:function is
    changes = list(options.changes)
    if getattr(options, "peers", None) is not None:
        changes.append(f"topology.peers={options.peers}")
    if broker is not None:
        changes.append(f"transport.broker={json.dumps(broker if broker[1:] else broker[0])}")
    experiment = read_experiment(options.experiment, changes=changes)
    if getattr(options, "peers", None) is not None and experiment.topology.file is not None:
        raise InputError(
            f"--peers does not work with topology.file = {experiment.topology.file}, because the file lists the peers; "
            "leave it out"
        )
    return experiment


def _check_recording(options: argparse.Namespace) -> None:
    if options.record and options.resume:
        raise InputError(
            "--record does not work with --resume, because a recording begins with its run; leave out one of the two"
        )


def _resumed(options: argparse.Namespace) -> Path:
    """Return the run directory to resume; its experiment is used if none is named."""
    folder = Path(options.resume)
    kept = folders.held(folder)
    if options.experiment is not None:
        folders.check_same(_experiment(options), folder, kept)
    elif options.changes or options.peers is not None:
        raise InputError(
            f"--set and --peers do not work with --resume, which runs the experiment in {folder} as it is; leave them "
            "out"
        )
    folders.check_played(folder)
    options.experiment, options.changes, options.peers = str(folder / "experiment.toml"), [], None
    return folder


@contextmanager
def _kept(folder: Path, *, again: str = "") -> Iterator[None]:
    """Say where what was written lies, if something goes wrong, and how to go on after an interrupt."""
    try:
        yield
    except (InputError, RunError, KeyboardInterrupt) as error:
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
        if folder.exists():
            error.add_note(f"what was written is in {folder}")
            if again and isinstance(error, KeyboardInterrupt):
                error.add_note(f"go on with {again}")
        raise


def _over(folder: Path, options: argparse.Namespace) -> int:
    """Report a run that has ended to whoever wants to resume it; that is no failure, as a service does so at boot."""
    from p2pfl.peer.storage.writer import erase_keys  # noqa: PLC0415
    from p2pfl.report import Run  # noqa: PLC0415

    erase_keys(folder)  # it may have been killed between its summary and this
    print(
        f"the run in {folder} has ended and there is nothing to resume; leave out --resume to begin a new one",
        file=sys.stderr,
    )
    return _finish(Run.load(folder).summary, folder, options)


def _finish(summary: dict[str, Any], folder: Path, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(summary | {"folder": str(folder)}))
    else:
        tables.summary(summary, folder)
    return 0
