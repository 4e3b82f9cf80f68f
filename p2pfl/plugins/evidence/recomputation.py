"""Models of exact totals, computed again from the totals that the evidence of a run has."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

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
from p2pfl.plugins.evidence.recorded_chain import PeerEvidence
from p2pfl.plugins.evidence.verification import Difference
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.evidence import KEPT_TOTAL, RoundPlayed, row_digest, tensors_digest


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


def recompute(resolved: Plan, chains: Sequence[PeerEvidence]) -> tuple[list[Difference], list[str], list[str]]:
    """Return rounds whose model does not follow from the model before and the totals, what was computed, and what not.

    Parameters
    ----------
    resolved
        Plan of the experiment (:func:`plan_without_data`).
    chains
        Evidence of each peer.
    """
    learner = additive(resolved.learner)
    assert learner is not None  # noqa: S101 (asked by the caller)
    differences, totals = list[Difference](), _known_totals(chains)
    for own in chains:
        row = resolved.learner.start((own.peer,))[0]  # [P]
        for round, played in own.played.items():
            try:
                step = _answered(learner.asking(row, round=round), played, totals)
            except _UnkeptError:
                return differences, [], ["models, because nobody has the integers of large totals"]
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
    return differences, ["models, computed again from totals"], []


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
