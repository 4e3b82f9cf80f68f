"""The experiment that a command names, and warnings where the account of its data lacks what the command does."""

from __future__ import annotations

import glob
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pfl.cli import terminal
from p2pfl.cli.core_commands import PeerOptions, SimulateOptions
from p2pfl.cli.options import ExperimentOptions, OwnTableOptions, ReviewOptions
from p2pfl.core.errors import InputError
from p2pfl.core.texts import printable
from p2pfl.experiment import Experiment, read
from p2pfl.experiment.accounts import admitted_table, beside, beside_file, counting, data_folder, uncounted_start
from p2pfl.experiment.approval import consent_problems
from p2pfl.experiment.file.own_code import LIBRARIES, named_modules, unlisted_code
from p2pfl.experiment.file.own_modules import search
from p2pfl.experiment.file.reading import check, draft, plain
from p2pfl.experiment.parts.peer_graph import check_peers, peers_of
from p2pfl.experiment.site_policy import policy_paths, read_policy

if TYPE_CHECKING:  # it imports torch
    from p2pfl.experiment import Plan


def experiment_of(options: ExperimentOptions, *, broker: Sequence[str] = ()) -> Experiment:
    """Return the experiment of a command, with the changes of its options.

    Parameters
    ----------
    options
        Arguments of the command.
    broker
        Addresses of brokers, in place of those of the file; empty to keep them.

    Raises
    ------
    InputError
        The experiment or a change is wrong.
    """
    changes = list(options.changes)
    if options.peers is not None:
        changes.append(f"topology.peers={options.peers}")
    if broker:
        changes.append(f"transport.broker={json.dumps(broker if broker[1:] else broker[0])}")
    trusted = trusts_code(
        options.experiment,
        changes=changes,
        agreed=options.trust_code,
        name=options.name if isinstance(options, OwnTableOptions | PeerOptions) else None,
        reviews=isinstance(options, ReviewOptions),
    )
    experiment = read(options.experiment, changes=changes, trust_code=trusted)
    if isinstance(options, SimulateOptions) and options.name is not None:
        experiment = of_one_peer(experiment, options.name)
    if options.peers is not None and experiment.topology.files:
        files = ", ".join(experiment.topology.files)
        raise InputError(
            f"--peers does not work with topology.kind = {files}, because the file lists the peers; leave it out"
        )
    return experiment


def check_owner(experiment: Experiment, peer: str) -> None:
    """Check the one peer whose data are here.

    Raises
    ------
    InputError
        There is no such peer, or the data are not those of single peers.
    """
    if not experiment.data.owned:
        raise InputError(
            f'data.name = "{experiment.data.name}" is one table of all peers, so --name has no effect; leave it out'
        )
    check_peers(experiment, peers_of(experiment), [peer])


def of_one_peer(experiment: Experiment, peer: str) -> Experiment:
    """Return an experiment in which one peer is alone with its own data.

    Raises
    ------
    InputError
        As :func:`check_owner`.
    """
    check_owner(experiment, peer)
    budget = {} if experiment.privacy.budget is None else {"budget": experiment.privacy.budget}
    alone = {"topology": {"kind": "ring", "peers": [peer]}, "privacy": {"mode": "none"} | budget}
    return check(plain(experiment) | alone)


def trusts_code(
    source: str | Path, *, changes: Sequence[str] = (), agreed: bool, name: str | None = None, reviews: bool = False
) -> bool:
    """Return whether the code that an experiment names may run; it is printed if it may because the user agrees.

    Nothing is imported. ``agreed`` says whether the user has agreed with ``--trust-code``; for all else see
    :func:`find_unlisted`.
    """
    unlisted = find_unlisted(source, changes=changes, name=name, reviews=reviews)
    if agreed:
        note_code(unlisted)
    return agreed or not unlisted


def note_code(names: Sequence[str]) -> None:
    """Print code that runs because the user agrees."""
    if names:
        terminal.note(f"p2pfl: runs {', '.join(names)}, as --trust-code agrees")


def find_unlisted(
    source: str | Path, *, changes: Sequence[str] = (), name: str | None = None, reviews: bool = False
) -> list[str]:
    """Return the code of an experiment that a policy of its data does not list, and to which the user may agree.

    Nothing is imported.

    Parameters
    ----------
    source, changes
        The experiment, and changes of its keys.
    name
        The one peer whose data are here; ``None`` if those of all are.
    reviews
        Whether the command shows the experiment alone, so that the user may agree to what a policy does not list.

    Raises
    ------
    InputError
        The policy of a site does not list the code.
    """
    drafts = [draft(source), *([draft(source, changes=changes)] if changes else [])]
    add_own_code(*map(plain, drafts))
    names = [name] if name is not None else [] if reviews else _names(drafts[-1])
    paths = policy_paths(drafts[-1], names)
    policies: list[Path | None] = [*dict.fromkeys(paths.values())]
    for path in policies or [None]:  # the policy of each owner must list the code
        listed = {} if path is None else read_policy(path).code
        unlisted = list(dict.fromkeys(code for each in drafts for code in unlisted_code(plain(each), listed)))
        if unlisted and path is not None and not reviews:
            raise InputError(
                f"{path} does not list code that {source} names: {', '.join(unlisted)}; leave it out, or ask the "
                "officer to add it"
            )
        if unlisted:
            return unlisted
    return []


def add_own_code(*tables: Mapping[str, Any]) -> None:
    """Look for modules in the working directory if one of the tables names code that may lie there."""
    named = [module for table in tables for module in named_modules(table)]
    if {*named} - LIBRARIES:
        search(Path.cwd())


def _names(experiment: Experiment) -> list[str]:
    """Return names that peers may have; a function that makes their graph is not called: it may name any owner here."""
    if experiment.topology.files:
        return [*peers_of(experiment)]
    peers, names = experiment.topology.peers, list[str]()
    parts = str(experiment.data.options.get("path")).split("{peer}")
    if ":" in str(experiment.topology.kind) and parts[1:]:
        pattern, named = "*".join(map(glob.escape, parts)), re.compile("(.+)".join(map(re.escape, parts)))
        folders = (None, data_folder())  # paths without a folder may be of either
        files = {file for folder in folders for file in glob.glob(pattern, root_dir=folder)}  # noqa: PTH207 (as text)
        names = [match[1] for file in sorted(files) if (match := named.fullmatch(file))]
    return [*names, *(map("peer{}".format, range(peers)) if isinstance(peers, int) else peers)]


def check_consent(experiment: Experiment, peers: Sequence[str]) -> None:
    """Refuse a run that the policy of a site does not allow, or that its officer has not approved.

    Raises
    ------
    InputError
        The message is the last reason; the others are printed before.
    """
    problems = consent_problems(experiment, peers, today=datetime.now(UTC).date())
    for sentence in problems[:-1]:
        terminal.note(f"p2pfl: {sentence}")
    if problems:
        raise InputError(problems[-1])
    for path in dict.fromkeys(policy_paths(experiment, peers).values()):
        if os.access(path, os.W_OK):
            terminal.note(f"p2pfl: whoever runs this peer can change {path}; let the officer own it and its folder")


def warn_unaccounted(resolved: Plan) -> None:
    """Print a warning if the account of its data lacks a plan."""
    if resolved.accounted:
        return
    if resolved.claims and (reason := uncounted_start(resolved.experiment)) is not None:
        why = reason.rpartition(";")[0]
        print(f"UNACCOUNTED: epsilon is that of this run alone, because {why}", file=sys.stderr)
    else:
        _warn(beside(resolved.experiment))


def check_kept_rows(resolved: Plan, *, wanted: bool, resumed: Path | None) -> None:
    """Refuse to keep the rows of a run where they would show more than each peer has seen, or show a model in clear.

    Parameters
    ----------
    resolved
        Plan of the run.
    wanted
        Whether somebody asks for the rows.
    resumed
        Directory of the run that goes on; ``None`` if a new one begins.

    Raises
    ------
    InputError
        Some rows go to some peers only, nothing hides them, or they are no models; or the run began without them.
    """
    from p2pfl.results.sent_rows import FOLDER  # noqa: PLC0415 (it imports torch)

    graph, why = resolved.asked.graph, ""
    if resolved.asked.algorithm.additive or resolved.protection.sums is not None or resolved.codec is not None:
        why = "no models leave as they are averaged; leave it out"
    elif resolved.asynchronous or resolved.rule is not None or resolved.attack is not None:
        why = "peers do not average all models that leave; leave it out"
    elif graph is None or not graph.uniform:
        why = (
            'each peer sends to its neighbours alone, and rows of all would show more; set topology.kind = "complete", '
            "or leave it out"
        )
    elif not (resolved.masked or resolved.protection.claimed):
        why = 'models leave in clear; set privacy.mode = "pairwise", or leave it out'
    if not wanted:
        return
    if why:
        raise InputError(f"--keep-rows does not work here, because {why}")
    if resumed is not None and not (resumed / FOLDER).is_dir():
        raise InputError("this run began without --keep-rows; leave it out, or begin a new run")
    terminal.note(
        "p2pfl: the folder rows in the run directory gets each row that leaves, as all other peers receive it; give it "
        "to auditors alone"
    )


def note_tables(resolved: Plan) -> None:
    """Print what the owner of a table should know of it; nothing of this leaves the computer."""
    _note(resolved.federation.notes)


def note_comparisons(resolved: Plan) -> None:
    """Print to each owner how its samples differ from those of the others, which totals of a run have shown it."""
    from p2pfl.learning import ExactLearner  # noqa: PLC0415 (it imports torch)

    if isinstance(learner := resolved.learner, ExactLearner):
        _note({peer: learner.compared(peer) for peer in resolved.federation.peers})
        if learner.shared_keys is not None:
            again = f"{learner.shared_keys} times a person of one site is at another one, too, by the key"
            print(f"note: {again}; agree on which site keeps each", file=sys.stderr)


def _note(sentences: Mapping[str, Sequence[str]]) -> None:
    for peer, own in sorted(sentences.items()):
        for sentence in own:
            print(printable(f"note: table of {peer}: {sentence}"), file=sys.stderr)


def warn_of_exact(resolved: Plan) -> None:
    """Print a warning if an account counts the data of a plan, of which a command shows exact results."""
    if (account := counting(resolved.experiment, resolved.federation.peers)) is not None:
        _warn(account)


def warn_of_table(path: str, *, unaccounted: bool) -> None:
    """Refuse an exact use of a table that has an account, or print a warning.

    Raises
    ------
    InputError
        The table has an account, and ``--unaccounted`` is not given.
    """
    if not admitted_table(path, unaccounted=unaccounted):
        _warn(beside_file(path))


def _warn(path: Path | None) -> None:
    print(f"UNACCOUNTED: {path} does not count this run; do not rely on that account any more", file=sys.stderr)
