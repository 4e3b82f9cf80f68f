"""Models of exact totals, computed again from the totals that the evidence of a run has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import InputError, P2PFLError
from p2pfl.data import Dataset, Federation, Table
from p2pfl.experiment import Experiment, Plan, plan
from p2pfl.experiment.parts.peer_graph import peer_names
from p2pfl.learning import additive
from p2pfl.learning.additive import Asking, Question, Step, answer_questions
from p2pfl.plugins.evidence.verification import Difference, PeerEvidence
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.evidence import RoundPlayed, row_digest


def plan_without_data(experiment: Experiment) -> Plan:
    """Return the plan of an experiment whose tables are not here: declared columns and no rows.

    Raises
    ------
    InputError
        The experiment cannot be resolved without the data.
    """
    federation = None
    if experiment.data.name == "table":
        options = {key: value for key, value in experiment.data.options.items() if key not in {"path", "without"}}
        declared = Table(**options)
        width = sum(1 if each.levels is None else len(each.levels) for each in declared.fields)
        targets = torch.zeros(0, dtype=torch.float64 if declared.classes is None else torch.int64)
        features = torch.zeros(0, width, dtype=torch.float64)
        parts = dict.fromkeys(peer_names(experiment), np.empty(0, np.int64))
        dataset = Dataset(features, targets, declared.classes, {}, declared.description)
        federation = Federation(dataset, parts, parts, parts)
    return plan(experiment, data=federation, unaccounted=True).drawing(SeededSource(0), live=True)


def recompute(resolved: Plan, chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield rounds whose model does not follow from the model before and the totals that a peer took.

    Parameters
    ----------
    resolved
        Plan of a model from exact totals.
    chains
        Evidence of each peer.
    """
    learner = additive(resolved.learner)
    assert learner is not None  # noqa: S101 (asked by the caller)
    for own in chains:
        row = resolved.learner.start((own.peer,))[0]  # [P]
        for round, played in sorted(own.played.items()):
            try:
                step = _answered(learner.asking(row, round=round), played)
            except (P2PFLError, ValueError, ArithmeticError, IndexError) as error:
                yield Difference(own.peer, round, f"its totals are not those that the model asks for ({error})")
                break
            row = step.row.to(row)
            if row_digest(row, None) != played.row:
                yield Difference(own.peer, round, "the model does not follow from the totals")
                break


def _answered(asking: Asking, played: RoundPlayed) -> Step:
    """Return the result of a round whose questions have the totals of the evidence for answers.

    Raises
    ------
    InputError
        There are fewer totals, or others, than the model asks for.
    """
    totals = [total.read() for total in played.totals]

    def total(question: Question) -> Ints:
        if question.to is not None:
            raise InputError("a total went to one peer alone")
        answer = totals.pop(0) if totals else None
        if answer is None or len(answer) != question.size:
            raise InputError("one is missing, or has another size")
        return answer.copy()

    step = answer_questions(asking, total)
    if totals:
        raise InputError("there are more than that")
    return step
