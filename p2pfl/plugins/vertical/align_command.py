"""``p2pfl align``: how many rows parties have in common, and which keys find them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from rich.table import Table

import p2pfl
from p2pfl.cli import terminal
from p2pfl.cli.experiments import check_consent, experiment_of, note_tables
from p2pfl.cli.running.running_commands import brokers_of_peer
from p2pfl.core.errors import InputError
from p2pfl.core.tensors import torch
from p2pfl.data.parties import Parties
from p2pfl.experiment import Experiment, Plan
from p2pfl.experiment.parts.peer_graph import peers_of
from p2pfl.learning.additive import Asking, Step
from p2pfl.plugins.vertical.alignment import AlignedRows, align, align_openly
from p2pfl.plugins.vertical.short_session import SessionLearner, join_session
from p2pfl.plugins.vertical.vertical_commands import AlignOptions
from p2pfl.privacy.keys import SecretSource

SUFFIX = "-alignment"
"""Ending of the name of the run, so that no peer takes it for the run that learns."""


class AlignmentLearner(SessionLearner):
    """Learner that aligns rows; its number is that of the common rows.

    Parameters
    ----------
    parties
        Roles and keys, and the tables of the local parties.
    run
        Name of the run.
    """

    def __init__(self, parties: Parties, *, run: str) -> None:
        super().__init__(run=run)
        self.parties = parties
        self.results = list[AlignedRows]()  # of each local peer; copies share the list

    def asking(self, row: torch.Tensor, *, round: int) -> Asking:
        """Return the questions of the alignment."""
        del row
        aligned = yield from align(self.parties, self._source, run=f"{self.run} {round}".encode())
        self.results.append(aligned)
        return Step(torch.tensor([aligned.common], dtype=torch.float64), over=True)


def plan_alignment(experiment: Experiment, *, only: Sequence[str] | None = None) -> tuple[Plan, AlignmentLearner]:
    """Return the plan of a run that aligns the rows of an experiment, and its learner.

    Raises
    ------
    InputError
        The experiment does not work, or its peers have the same columns.
    """
    aside = msgspec.structs.replace(experiment, name=f"{experiment.name}{SUFFIX}")
    resolved = p2pfl.plan(aside, only=only)
    parties = resolved.federation.parties
    if parties is None:
        raise InputError(
            f'the peers of "{experiment.name}" have the same columns, so there is nothing to align; set data.name to '
            '"vertical", or data.split to "columns"'
        )
    learner = AlignmentLearner(parties, run=aside.name)
    matching = "the two parties compare" if parties.helper is None else f"{parties.helper} compares"
    statement = (
        f"no row leaves its owner; {matching} pseudonyms, and each party learns which of its own rows are common"
    )
    protection = replace(resolved.protection, totals=statement, learned={"every peer": "how many rows are common"})
    return replace(resolved, learner=learner, protection=protection), learner


def align_tables(options: AlignOptions) -> int:
    """``p2pfl align``."""
    experiment = experiment_of(options, broker=options.broker)
    check_consent(experiment, options.only or peers_of(experiment))
    resolved, learner = plan_alignment(experiment, only=options.only)
    note_tables(resolved)
    if options.name is None:
        aligned = align_openly(learner.parties, SecretSource())
    else:
        aligned = _align_live(options, resolved, learner, peer=options.name)
    return terminal.answer(options, _results(aligned, learner.parties), _show)


def _align_live(options: AlignOptions, resolved: Plan, learner: AlignmentLearner, *, peer: str) -> AlignedRows:
    """Return the alignment of this peer with the others, which run the same command."""
    from p2pfl.cli.running import view  # noqa: PLC0415 (with its network)

    lines = view.Lines(resolved, peers=1, quiet=options.json, compares=False)
    join_session(resolved, peer, urls=brokers_of_peer(resolved.experiment), notify=lines.observe)
    return learner.results[-1]  # an attempt that was played again has left another one


def _results(aligned: AlignedRows, parties: Parties) -> dict[str, Any]:
    """Return the public numbers of an alignment as JSON values."""
    return {
        "sizes": dict(aligned.sizes),
        "common": aligned.common,
        "rows": aligned.rows,
        "keys": dict(zip(parties.keys, aligned.matched, strict=False)),
    }


def _show(results: dict[str, Any]) -> None:
    """Print the numbers: how many rows each key has found, and what share of the smallest table the keys so far."""
    sizes, common = results["sizes"], results["common"]
    smallest, matched = min(sizes.values()), 0
    print(", ".join(f"{peer} {size:,} rows" for peer, size in sizes.items()))
    print(f"{common:,} rows in common, {common / smallest:.1%} of the smallest table")
    if results["keys"]:
        table = Table("key", "rows", "of the smallest table")
        for key, count in results["keys"].items():
            matched += count
            table.add_row(key, f"{count:,}", f"{matched / smallest:.1%}")
        terminal.console().print(table)
    print("Each party knows which of its own rows are common. Nothing was learned.")
