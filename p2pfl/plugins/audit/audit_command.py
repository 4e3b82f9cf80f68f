"""``p2pfl audit``: an audit as tables and files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from rich.text import Text

import p2pfl
from p2pfl.cli import folders, terminal
from p2pfl.cli.experiments import check_owner, experiment_of, warn_of_exact
from p2pfl.cli.running.repeating import check_repeatable, check_trust
from p2pfl.cli.tables import render
from p2pfl.core import files
from p2pfl.core.errors import StorageError
from p2pfl.experiment import Experiment, check, plain, read
from p2pfl.plugins.audit.attacks.withdrawn_members import find_withdrawn
from p2pfl.plugins.audit.audit import Audit, Effort, audit
from p2pfl.plugins.audit.audit_commands import AuditOptions
from p2pfl.plugins.audit.audit_page import (
    EXPOSURE_CAPTION,
    EXPOSURE_NOTE,
    audit_page,
    exposure_table,
    lessons,
    table,
    verdict,
)

MAX_PEERS = 128
"""Peers that are attacked by default: all of a swarm run the same code."""


def run(options: AuditOptions) -> int:
    """Attack an experiment; return 1 if a claim is broken."""
    if options.forgotten:
        return _test_forgotten(options)
    experiment, smaller = experiment_of(options), None
    if options.name is not None:
        check_owner(experiment, options.name)
        smaller = f"attacked are the rows of {options.name} alone, dealt out among all peers; nothing leaves"
    elif options.peers is None:
        experiment, smaller = attackable(experiment)
    if smaller is not None:
        terminal.note(smaller)
    resolved = p2pfl.plan(experiment, only=options.only, unaccounted=options.unaccounted)
    folder = Path(options.out) if options.out else folders.new(options.runs, experiment.name, suffix="audit")
    prepare(folder)
    attacked = replace(audit(resolved, effort=Effort(trials=options.trials)), smaller=smaller)
    warn_of_exact(resolved)
    keep(attacked, folder)
    if options.json:
        print(json.dumps(attacked.results() | {"folder": str(folder)}))
    else:
        show(attacked, folder)
    return 1 if attacked.broken else 0


def _test_forgotten(options: AuditOptions) -> int:
    """Test whether the models of a replay show who left; the result is no claim."""
    folder = Path(options.experiment)
    check_repeatable(folder, live=True)
    check_trust(folder, trust=options.trust_code, command="audit")
    experiment = read(folder / "experiment.toml", changes=options.changes, trust_code=True)  # as checked above
    members = find_withdrawn(folder, experiment, only=options.only)

    def show(_: object) -> None:
        for each in members:
            terminal.note(each.sentence)

    return terminal.answer(options, {"forgotten": [asdict(each) for each in members]}, show)


def attackable(experiment: Experiment) -> tuple[Experiment, str | None]:
    """Return an experiment that is small enough to attack in minutes, and what it leaves out.

    Examples
    --------
    >>> from p2pfl.experiment import read
    >>> smaller, sentence = attackable(read({"name": "crowd", "topology": {"peers": 2000}}))
    >>> smaller.topology.peers, sentence
    (128, 'attacked is a swarm like "crowd" of 128 peers instead of 2000; --peers 2000 attacks it whole')
    """
    topology = experiment.topology
    if topology.files or topology.count <= MAX_PEERS:
        return experiment, None
    table = plain(experiment)
    table["topology"]["peers"] = MAX_PEERS
    sentence = (
        f'attacked is a swarm like "{experiment.name}" of {MAX_PEERS} peers instead of {topology.count}; '
        f"--peers {topology.count} attacks it whole"
    )
    return check(table), sentence


def prepare(folder: Path) -> None:
    """Make the folder before work is spent on what goes into it.

    Raises
    ------
    StorageError
        It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written ({error.strerror}); choose another place") from None


def keep(audit: Audit, folder: Path) -> None:
    """Write ``audit.html`` and ``audit.json``, which only their owner can read.

    Raises
    ------
    StorageError
        They cannot be written.
    """
    files.replace(folder / "audit.html", audit_page(audit).encode(), mode=files.OWNER_ONLY)
    files.replace(folder / "audit.json", (json.dumps(audit.results(), indent=2) + "\n").encode(), mode=files.OWNER_ONLY)


def show(audit: Audit, folder: Path) -> None:
    """Print what each observer could learn, what was measured, and the verdict."""
    console = terminal.console(stderr=True)
    for lesson in lessons(audit):
        console.print(Text(lesson.observer, style="bold"), soft_wrap=True)
        console.print(Text(f"  promised: {lesson.promised}"), soft_wrap=True)
        for sentence in lesson.sentences:
            console.print(Text(f"  {sentence}"), soft_wrap=True)
    if audit.games:
        console.print()
        console.print(render(replace(table("Games by observer", audit.games).without("victim"), text=2)))
    if audit.exposures:
        console.print()
        console.print(Text(EXPOSURE_CAPTION, style="bold"), soft_wrap=True)
        console.print(render(exposure_table(audit)))
        console.print(Text(EXPOSURE_NOTE), soft_wrap=True)
    console.print()
    for part in audit.parts:
        claims = [claim for claim in audit.claims if claim.part == part]
        broken = sum(claim.broken for claim in claims)
        names = ", ".join(claim.name for claim in claims)
        line = f"claims of {part}: {f'{broken} BROKEN' if broken else 'all hold'} ({names})"
        console.print(Text(line, style="red" if broken else ""), soft_wrap=True)
    console.print()
    for sentence in audit.broken:
        console.print(Text(f"broken: {sentence}", style="red"), soft_wrap=True)
    console.print(Text(verdict(audit), style="bold"), soft_wrap=True)
    console.print(f"page: {folder / 'audit.html'}", soft_wrap=True)
