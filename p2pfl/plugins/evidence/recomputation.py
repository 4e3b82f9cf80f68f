"""What follows from the settings of a run, computed again: models from their totals, charges, the privacy statement."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import InputError, P2PFLError
from p2pfl.data import Dataset, Federation, Table
from p2pfl.experiment import Experiment, Plan, plan
from p2pfl.experiment.parts.formula_parts import with_formula
from p2pfl.experiment.parts.peer_graph import peer_names
from p2pfl.learning import additive
from p2pfl.learning.additive import Asking, Question, Step, answer_questions
from p2pfl.plugins.evidence.verification import Difference, PeerEvidence
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.evidence import KEPT_TOTAL, RoundPlayed, row_digest, tensors_digest
from p2pfl.results.spending.promises import promise

TOLERANCE = 1e-6
"""Relative difference of two charges that come from other versions of the same mathematics."""

NUMBER = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?")


def plan_without_data(experiment: Experiment) -> Plan:
    """Return the plan of an experiment whose tables are not here: declared columns, and zeros where a model needs rows.

    Raises
    ------
    InputError
        The experiment cannot be resolved without the data.
    """
    federation = None
    if experiment.data.name == "table":
        options = {key: value for key, value in experiment.data.options.items() if key not in {"path", "without"}}
        declared, peers = Table(**options), peer_names(experiment)
        rows = 0 if experiment.learning.algorithm == "exact" else 1  # of each peer: a torch model is tried on one
        width = sum(1 if each.levels is None else len(each.levels) for each in declared.fields)
        exact = torch.float64 if rows == 0 else torch.float32
        targets = torch.zeros(rows * len(peers), dtype=exact if declared.classes is None else torch.int64)
        features = torch.zeros(len(targets), width, dtype=exact)
        parts = {peer: np.arange(number * rows, (number + 1) * rows) for number, peer in enumerate(peers)}
        dataset = Dataset(features, targets, declared.classes, {}, declared.description)
        federation = with_formula(experiment, Federation(dataset, parts, parts, parts))
    return plan(experiment, data=federation, unaccounted=True).drawing(SeededSource(0), live=True)


class _UnkeptError(InputError):
    """Error for a total of which nobody has the integers, because there are too many."""


def recompute(resolved: Plan, chains: Sequence[PeerEvidence]) -> tuple[list[Difference], list[str], str]:
    """Return what does not follow from the settings, what was computed again, and why not all of it.

    Parameters
    ----------
    resolved
        Plan of the experiment (:func:`plan_without_data`).
    chains
        Evidence of each peer.
    """
    differences = [*_promises(resolved, chains)]
    computed = ["the privacy statement", *(["charges, computed again"] if resolved.claims else [])]
    if resolved.experiment.learning.algorithm != "exact":
        return differences, computed, "training is private, so that no model of gossip is computed again"
    others, reason = _models(resolved, chains)
    return [*differences, *others], [*computed, *([] if reason else ["models, computed again from totals"])], reason


def _models(resolved: Plan, chains: Sequence[PeerEvidence]) -> tuple[list[Difference], str]:
    """Return rounds whose model does not follow from the model before and the totals, and why not all were computed."""
    learner = additive(resolved.learner)
    assert learner is not None  # noqa: S101 (asked by the caller)
    differences, totals = list[Difference](), _known_totals(chains)
    for own in chains:
        row = resolved.learner.start((own.peer,))[0]  # [P]
        for round, played in sorted(own.played.items()):
            try:
                step = _answered(learner.asking(row, round=round), played, totals)
            except _UnkeptError:
                return differences, "models were not computed again, because nobody has the integers of large totals"
            except (P2PFLError, ValueError, ArithmeticError, IndexError) as error:
                sentence = f"its totals are not those that the model asks for ({error})"
                differences.append(Difference(own.peer, round, sentence))
                break
            row = step.row.to(row)
            if row_digest(row, None) != played.row:
                differences.append(Difference(own.peer, round, "the model does not follow from the totals"))
                break
        else:
            if own.ended is not None and tensors_digest(resolved.saved(row, peer=own.peer)) != own.ended.model:
                differences.append(Difference(own.peer, -1, "the model with which it ended is not that of its rounds"))
    return differences, ""


def _promises(resolved: Plan, chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield peers that promised or charged something else than the settings give.

    Each release of a round, and each contribution to its totals, costs what the accountant says; earlier runs on the
    same data can only add to it.
    """
    protection = resolved.protection
    statement = promise(resolved.experiment, protection, spent=None)["statement"]
    digest = hashlib.sha256(statement.encode()).hexdigest()
    cost = repr(protection.cost) if resolved.claims else None
    for own in chains:
        if any(began.statement != digest for began in own.beginnings):
            yield Difference(own.peer, -1, "its privacy statement is not that of the settings")
        for charge in sorted({str(began.charge) for began in own.beginnings if not _equal(began.charge, cost)}):
            yield Difference(own.peer, -1, f"a round costs {charge} by its evidence, and {cost} by the settings")
        if cost is None:
            continue
        sent, released = {round for round, _ in own.sent}, 0
        for round, played in sorted(own.played.items()):
            released += round in sent or any(own.peer in total.participants for total in played.totals)
            least = protection.total({protection.cost: released}) if released else 0.0
            if (played.spent or 0.0) < least * (1 - TOLERANCE):
                paid = f"{played.spent or 0.0:.3g}"
                yield Difference(
                    own.peer, round, f"it has spent epsilon {paid}, and its {released} rounds cost {least:.3g}"
                )
                break


def _equal(charge: str | None, cost: str | None) -> bool:
    """Return whether two costs in words are the same, but for the last digits of their numbers."""
    first, second = charge or "", cost or ""
    pairs = zip(NUMBER.findall(first), NUMBER.findall(second), strict=False)
    return NUMBER.sub("", first) == NUMBER.sub("", second) and all(
        math.isclose(float(each), float(other), rel_tol=TOLERANCE) for each, other in pairs
    )


def _known_totals(chains: Sequence[PeerEvidence]) -> dict[str, Ints]:
    """Return the totals of which some peer has the integers, by digest; malformed ones are reported elsewhere."""
    known: dict[str, Ints] = {}
    for total in (total for own in chains for played in own.played.values() for total in played.totals):
        if total.digest not in known:
            with contextlib.suppress(InputError):
                values = total.read()
                if values is not None:
                    known[total.digest] = values
    return known


def _answered(asking: Asking, played: RoundPlayed, known: Mapping[str, Ints]) -> Step:
    """Return the result of a round whose questions have the totals of the evidence for answers.

    Raises
    ------
    InputError
        There are fewer totals, or others, than the model asks for, or nobody has the integers of one.
    """
    digests = [total.digest for total in played.totals]

    def total(question: Question) -> Ints:
        if not digests:
            raise InputError("one is missing")
        digest = digests.pop(0)
        if digest not in known and question.size * 8 > KEPT_TOTAL:
            raise _UnkeptError("nobody has the integers of a total")
        if digest not in known or len(known[digest]) != question.size:
            raise InputError("one has another size, or no integers")
        return known[digest].copy()

    step = answer_questions(asking, total)
    if digests:
        raise InputError("there are more than that")
    return step
