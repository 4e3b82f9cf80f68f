"""``p2pfl run``, ``simulate`` and ``peer``: what trains models."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import p2pfl
from p2pfl.cli import folders, tables, terminal
from p2pfl.cli.core_commands import PeerOptions, RunOptions, SimulateOptions, SwarmOptions, TrainingOptions
from p2pfl.cli.experiments import (
    check_consent,
    check_kept_rows,
    experiment_of,
    note_comparisons,
    note_tables,
    warn_unaccounted,
)
from p2pfl.cli.interrupts import run_until_interrupted
from p2pfl.cli.running import following
from p2pfl.core.errors import InputError, RunError, SwarmMovedError
from p2pfl.core.imports import pause_collection
from p2pfl.experiment import Experiment

if TYPE_CHECKING:  # they import torch
    from p2pfl.experiment import Plan
    from p2pfl.network.peer.storage.checkpoint import Former
    from p2pfl.results import Record, Run


def run(options: RunOptions) -> int:
    """``p2pfl run``."""
    with pause_collection():
        from p2pfl.cli.running import view  # noqa: PLC0415 (each command imports what it needs)
        from p2pfl.network.peer.launch import swarm  # noqa: PLC0415

    folder = None if options.resume is None else _resumed_folder(options)
    if folder is not None and folders.has_ended(folder):
        return _over(folder, options)
    if not options.experiment and folder is None:
        raise InputError("the EXPERIMENT is missing; name a file or a shipped experiment, or a run with --resume")
    experiment = experiment_of(options, broker=options.broker)
    resolved = p2pfl.plan(experiment, live=True, unaccounted=options.unaccounted)
    check_consent(experiment, resolved.topology.peers)
    warn_unaccounted(resolved)
    note_tables(resolved)
    check_kept_rows(resolved, wanted=options.keep_rows, resumed=folder)
    again, compare = folder is not None, not options.no_baselines
    folder = folder or folders.new(options.runs, experiment.name)
    peers = len(resolved.topology.peers)
    lines = view.Lines(resolved, peers=peers, quiet=options.json, compares=compare)
    note_processes(peers, options.workers, patience=resolved.pinned.transport.patience)
    shared = "" if options.workers is None else f" --workers {options.workers}"
    with _kept(folder, again=f"p2pfl run --resume {folder}{shared}{_trust(options)}"):
        result = swarm.run(
            experiment,
            folder=folder,
            resolved=resolved,
            observe=lines.observe,
            resume=again,
            baselines=compare,
            keep_rows=options.keep_rows,
            workers=options.workers,
        )
    return _finish(result.summary, folder, options)


def note_processes(peers: int, workers: int | None, *, patience: float) -> None:
    """State how many processes serve the peers where the user does not, and how long they then wait for neighbours."""
    from p2pfl.network.peer.launch.process_groups import count_processes, count_turns  # noqa: PLC0415

    count, turns = count_processes(peers, workers), count_turns(peers, workers)
    if workers is None and count < peers:
        what = "process" if count == 1 else "processes"
        terminal.note(f"{peers} peers share {count} {what}, one for each core; choose another number with --workers")
    if turns > 1 and math.isfinite(patience):
        waits = f"{turns * patience:g} s instead of {patience:g} s (transport.patience)"
        terminal.note(f"up to {turns} peers share a core, so each waits {waits} for a neighbour")


def simulate(options: SimulateOptions) -> int:
    """``p2pfl simulate``."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch reads it once: huge pages for stacks of models
    with pause_collection():
        from p2pfl.cli.running import view  # noqa: PLC0415
        from p2pfl.simulation import simulate as simulated  # noqa: PLC0415
        from p2pfl.simulation.sharding.workers import is_launched, leads  # noqa: PLC0415

    _check_forecast(options, shared=is_launched())
    if not leads():
        return _follow(options)
    last = _resumed_folder(options, check=folders.check_simulated) if options.resume is not None else None
    if last is not None and folders.has_ended(last):
        return _over(last, options)
    if not options.experiment:
        raise InputError("the EXPERIMENT is missing; name a file or a shipped experiment, or a run with --resume")
    experiment = experiment_of(options)
    if options.network is not None:
        return _forecast(options, experiment, network=options.network)
    shown = list[view.RoundsView]()
    with ExitStack() as stack:

        def begin(resolved: Plan) -> Path:
            """Return the run directory, once nothing is left that could refuse the run."""
            warn_unaccounted(resolved)
            note_tables(resolved)
            folder = last or folders.new(options.runs, experiment.name)
            shared = f" --workers {options.workers}" if options.workers > 1 else ""
            again = f"p2pfl simulate --resume {folder}{shared}{_trust(options)}"
            stack.enter_context(_kept(folder, again=again, needs="simulation.state"))
            shown.append(stack.enter_context(view.RoundsView(resolved, quiet=options.json)))
            return folder

        def observe(records: list[Record]) -> None:
            shown[0].observe(records)

        result = simulated(
            experiment,
            folder=begin,
            resume=last is not None,
            baselines=not options.no_baselines,
            unaccounted=options.unaccounted,
            workers=options.workers,
            observe=observe,
        )
    return _finish(result.summary, Path(result.folder or ""), options)


def _check_forecast(options: SimulateOptions, *, shared: bool) -> None:
    """Refuse what a forecast does not have, among it processes that torchrun started."""
    if options.network is None:
        return
    if options.resume is not None:
        raise InputError("--network does not work with --resume, because a forecast has no checkpoint; leave one out")
    if options.workers > 1 or shared:
        other = "torchrun" if shared else "--workers"
        raise InputError(f"--network does not work with {other}, because a forecast has one clock; leave one out")


def _follow(options: SimulateOptions) -> int:
    """``p2pfl simulate`` in a process that torchrun started beside the first one, which writes and prints."""
    from p2pfl.simulation import simulate as simulated  # noqa: PLC0415

    if options.resume is not None:
        if folders.has_ended(Path(options.resume)):
            return 0
        _resumed_folder(options, check=folders.check_simulated)
    if not options.experiment:
        return InputError.status  # the first process says why
    simulated(experiment_of(options), resume=options.resume is not None, baselines=not options.no_baselines)
    return 0


def _forecast(options: SimulateOptions, experiment: Experiment, *, network: str) -> int:
    """``p2pfl simulate --network``."""
    from p2pfl.cli.running import view  # noqa: PLC0415
    from p2pfl.network.virtual import forecast as forecasts  # noqa: PLC0415

    over = forecasts.network(network)
    resolved = p2pfl.plan(experiment, unaccounted=options.unaccounted)
    warn_unaccounted(resolved)
    note_tables(resolved)
    folder = folders.new(options.runs, experiment.name)
    with _kept(folder), view.RoundsView(resolved, quiet=options.json) as rounds:
        result = forecasts.forecast(
            experiment,
            over,
            folder=folder,
            observe=rounds.observe,
            baselines=not options.no_baselines,
            unaccounted=options.unaccounted,
        )
    return _finish(result.summary, folder, options)


def peer(options: PeerOptions) -> int:
    """``p2pfl peer``: one run, and those that follow it by changes of the swarm."""
    experiment = experiment_of(options, broker=options.broker)
    last = following.last_run(options.runs, experiment, peer=options.name) if options.resume else None
    if last is not None and (file := following.experiment_in(last)) is not None:
        options, experiment = _following_options(options, file)
    while True:
        status, folder, left = _play_peer(options, experiment, last)
        follows = following.following(folder, peer=options.name, left=left)
        if follows is None:
            return status
        file, last = follows
        options, experiment = _following_options(options, file)


def _following_options(options: PeerOptions, file: Path) -> tuple[PeerOptions, Experiment]:
    """Return the arguments and the experiment of a run that follows by a change."""
    made = PeerOptions(**{**vars(options), "experiment": str(file), "changes": [], "peers": None})
    return made, experiment_of(made, broker=made.broker)


def _play_peer(options: PeerOptions, experiment: Experiment, last: Path | None) -> tuple[int, Path, bool]:
    """Play one run of a peer, new or resumed; return the exit status, the run directory, and whether it left."""
    with pause_collection():
        from p2pfl.cli.running import view  # noqa: PLC0415
        from p2pfl.network.peer.launch.worker import live  # noqa: PLC0415
    from p2pfl.core.process import return_freed_memory  # noqa: PLC0415
    from p2pfl.network.peer.launch.brokers import password_warnings  # noqa: PLC0415
    from p2pfl.network.peer.launch.ended import summarise_peer  # noqa: PLC0415
    from p2pfl.network.peer.launch.event_log import EventLog  # noqa: PLC0415
    from p2pfl.network.peer.storage.credentials import credentials  # noqa: PLC0415
    from p2pfl.network.peer.storage.writer import erase_keys  # noqa: PLC0415
    from p2pfl.network.peer.updates import Alone, Done, ModelDescription  # noqa: PLC0415
    from p2pfl.results import Record  # noqa: PLC0415

    urls = brokers_of_peer(experiment)
    if last is not None and folders.has_ended(last):
        return _over(last, options), last, False
    return_freed_memory()
    check_consent(experiment, [options.name])
    resolved = p2pfl.plan(experiment, only=[options.name], unaccounted=options.unaccounted)
    warn_unaccounted(resolved)
    note_tables(resolved)
    check_kept_rows(resolved, wanted=options.keep_rows, resumed=last)
    with ExitStack() as stack:
        folder, own, former = _own_tables(options, experiment, stack, last=last)
        if own.summary:  # it ended while this command waited for the lock
            return _over(folder, options), folder, False
        compare = not options.no_baselines
        lines = view.Lines(resolved, peers=1, quiet=options.json, compares=compare)
        log = EventLog(own, now=lambda: datetime.now(UTC))

        conclude = partial(summarise_peer, resolved, run=own)
        done: Done | None = None

        def report(event: Any) -> None:
            nonlocal done
            if isinstance(event, Record):
                log.record(event)
            elif isinstance(event, ModelDescription):
                own.describe(event.about)
            log.observe(event)
            if isinstance(event, Done):  # what follows may be interrupted
                done = event
                own.finish(conclude(event, alarms=log.alarms))
                erase_keys(folder)
            elif isinstance(event, Alone) and done is not None:
                own.finish(conclude(done, alarms=log.alarms, alone=event))
            lines.observe(event)

        for warning in password_warnings(experiment, urls=urls, peer=options.name):
            report(warning)
        owned = credentials(
            experiment.trust, peer=options.name, folder=folder / "keys", again=bool(former and former.journal)
        )
        playing = live(
            resolved,
            options.name,
            urls=urls,
            folder=folder,
            owned=owned,
            notify=report,
            former=former,
            compare=compare,
            on_model=options.on_model,
        )
        try:
            run_until_interrupted(playing)
        except SwarmMovedError as moved:
            terminal.note(str(moved))
            return 0, folder, True
    note_comparisons(resolved)
    return _finish(own.summary, folder, options), folder, False


def brokers_of_peer(experiment: Experiment) -> tuple[str, ...]:
    """Return the addresses of the brokers of a single peer.

    Raises
    ------
    InputError
        The broker is embedded.
    """
    from p2pfl.network.peer.launch.brokers import brokers  # noqa: PLC0415

    urls = brokers(experiment)
    if "embedded" in urls:
        raise InputError(
            'transport.broker = "embedded" does not work for a single peer, because others could not reach it; '
            'start one with "p2pfl broker", and give its address with --broker mqtt://host:1883'
        )
    return urls


def _own_tables(
    options: PeerOptions, experiment: Experiment, stack: ExitStack, *, last: Path | None
) -> tuple[Path, Run, Former | None]:
    """Return a peer's run directory, its run, and what an earlier incarnation left in it, until the stack is left."""
    from p2pfl.network.peer.launch.worker import earlier  # noqa: PLC0415
    from p2pfl.results import Run  # noqa: PLC0415
    from p2pfl.results.lock import LOCK_SECONDS, PEER_LOCK, own_directory  # noqa: PLC0415
    from p2pfl.results.sent_rows import keep_rows  # noqa: PLC0415

    if options.resume and last is None:
        terminal.note(f'there is nothing to resume of "{options.name}" in {options.runs}: it begins')
    if last is None:
        folder = folders.new(options.runs, experiment.name, suffix=options.name)
        stack.enter_context(_kept(folder, again="--resume"))
        own = stack.enter_context(Run(experiment, folder=folder, began=datetime.now(UTC)))
        if options.keep_rows:
            keep_rows(folder)
        stack.enter_context(own_directory(folder / PEER_LOCK))
        return folder, own, None
    stack.enter_context(own_directory(last / PEER_LOCK, within=LOCK_SECONDS))
    if folders.has_ended(last):
        return last, Run.load(last), None
    stack.enter_context(_kept(last, again="--resume"))
    former = earlier(last, options.name, notify=lambda notice: terminal.note(str(notice)))
    return last, stack.enter_context(Run.resume(last, first={options.name: max(former.rounds, default=0)})), former


def _resumed_folder(options: SwarmOptions, *, check: Callable[[Path], None] = folders.check_played) -> Path:
    """Return the run directory to resume; its experiment is used if none is named."""
    if not options.resume:
        newest = folders.newest(options.runs) or Path(options.runs, "NAME-DATE-TIME")
        raise InputError(f"--resume needs a run directory; name it, such as --resume {newest}")
    folder = Path(options.resume)
    kept = folders.read_experiment(folder)
    if options.experiment:
        folders.check_same(experiment_of(options), folder, kept)
    elif options.changes or options.peers is not None:
        raise InputError(
            f"--set and --peers do not work with --resume, which runs the experiment in {folder} as it is; leave them "
            "out"
        )
    check(folder)
    options.experiment, options.changes, options.peers = str(folder / "experiment.toml"), [], None
    return folder


def _trust(options: SwarmOptions) -> str:
    """Return the option with which the user has agreed to run code; empty if they have not."""
    return " --trust-code" if options.trust_code else ""


@contextmanager
def _kept(folder: Path, *, again: str = "", needs: str = ".") -> Iterator[None]:
    """State where the files are, if something goes wrong, and how to go on where that helps and a file exists."""
    try:
        yield
    except (InputError, RunError, KeyboardInterrupt) as error:
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
        if folder.exists():
            error.add_note(f"what was written is in {folder}")
            helps = isinstance(error, KeyboardInterrupt) or (isinstance(error, RunError) and error.resumes)
            if again and helps and (folder / needs).exists():
                error.add_note(f"go on with {again}")
        raise


def _over(folder: Path, options: TrainingOptions) -> int:
    """Report a run that has ended to whoever wants to resume it; that is no failure, as a service does so at boot."""
    from p2pfl.network.peer.storage.writer import erase_keys  # noqa: PLC0415
    from p2pfl.results import Run  # noqa: PLC0415

    erase_keys(folder)  # it may have been killed between its summary and this
    terminal.note(
        f"the run in {folder} has ended and there is nothing to resume; leave out --resume to begin a new one"
    )
    return _finish(Run.load(folder).summary, folder, options)


def _finish(summary: dict[str, Any], folder: Path, options: TrainingOptions) -> int:
    if options.json:
        print(json.dumps(summary | {"folder": str(folder)}))
    else:
        tables.summary(summary, folder)
    return 0
