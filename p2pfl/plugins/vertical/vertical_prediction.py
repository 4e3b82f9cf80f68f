"""Predictions of a vertical model for new rows, where the files of all parties are in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

import numpy as np
import torch

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import InputError
from p2pfl.core.texts import write_csv
from p2pfl.data.tables.declaration import PEER
from p2pfl.plugins.vertical.block import NAME, Block
from p2pfl.plugins.vertical.keys import identify_rows, read_keys
from p2pfl.plugins.vertical.matching import ABSENT, match_rows
from p2pfl.results import Run
from p2pfl.results.models.predictor import Predictions, Predictor, cells_of

ALONE = "alone"
"""Mark of a prediction from the label holder's columns alone."""


@dataclass(frozen=True, eq=False)
class JoinedPredictions(Predictions):
    """Predictions for the rows of the label holder's table.

    Parameters
    ----------
    parties
        Names of the parties that know the person, by row; ``alone`` where one of them does not.
    """

    parties: Sequence[str] = ()

    def write(self, file: TextIO) -> None:
        """Write them as CSV, with the column ``parties``."""
        probabilities = [f"probability of {name}" for name in self.classes]
        values = self.values.tolist()
        rows = [[label, *row] for label, row in zip(self.labels, values, strict=True)] if self.classes else values
        listed = [each if isinstance(each, list) else [each] for each in rows]
        write_csv(file, [["prediction", *probabilities, "parties"]])
        write_csv(file, [[*row, who] for row, who in zip(listed, self.parties, strict=True)])


@dataclass(frozen=True, eq=False)
class PartyFile:
    """File and table of a party.

    Parameters
    ----------
    block, tensors
        Part of the model, and its numbers.
    features
        Encoded columns of the new rows, ``[n, F]``.
    keys
        For each key, the value of each row.
    """

    block: Block
    tensors: Mapping[str, Floats]
    features: Floats
    keys: Sequence[Sequence[str | None]]


def predict_together(run: Run, table: str, *, unaccounted: bool = False) -> JoinedPredictions:
    """Return the predictions for new rows of the label holder's table.

    A row that every party knows has the prediction of all columns; another one that of the label holder's own model,
    unless the model was trained on rows that parties lack.

    Parameters
    ----------
    run
        Run with the files of all parties.
    table
        Path of the tables, in which ``{peer}`` stands for the name of a party.
    unaccounted
        True if tables that have an account are read all the same.

    Raises
    ------
    InputError
        The path or a file is missing.
    DataError
        A table does not fit.
    """
    options = run.experiment.data.options
    if PEER not in table or "keys" not in options:
        raise InputError(
            f"{table} is no path of the tables of all parties, or the run has no keys; write a path with {PEER}, such "
            f'as "new/{PEER}.csv", for a run on data.name = "vertical"'
        )
    keys = read_keys(options["keys"])
    files, label, classes = dict[str, PartyFile](), "", tuple[str, ...]()
    for path in sorted((run.folder or Path()).glob("peers/*.safetensors")):
        if not _is_block(path):
            continue
        predictor, peer = Predictor.load(path), path.name.removesuffix(".safetensors")
        cells = cells_of(table.replace(PEER, peer), unaccounted=unaccounted)
        columns = torch.from_numpy(predictor.columns(cells, unaccounted=unaccounted))
        features = predictor.module.inputs(columns).numpy()
        values, _ = identify_rows(cells, keys)
        tensors = {name: value.numpy() for name, value in predictor.saved.module.state_dict().items()}
        block = cast("Block", predictor.saved.exact)
        files[peer] = PartyFile(block, tensors, features, values)
        if block.label:
            label, classes = peer, predictor.saved.names
    if not label:
        raise InputError(f"{run.folder} has no file of the label holder; put the files of all parties into its peers/")
    return _joined(label, files, classes)


def _is_block(path: Path) -> bool:
    """Return whether a file holds the part of a party."""
    import safetensors  # noqa: PLC0415 (as readers of models do)

    with safetensors.safe_open(path, "pt") as file:
        return f'"name": "{NAME}"' in (file.metadata() or {}).get("p2pfl", "")


def _joined(label: str, files: Mapping[str, PartyFile], classes: tuple[str, ...]) -> JoinedPredictions:
    """Return the predictions of all rows of the label holder."""
    own = files[label]
    predictor = own.block.predictor_of(own.tensors, own.features)
    everybody = np.ones(len(predictor), bool)
    known: list[list[str]] = [[label] for _ in predictor]
    for peer, party in files.items():
        if peer == label:
            continue
        rows = rows_of(own.keys, party.keys)
        there = rows >= 0
        part = party.block.predictor_of(party.tensors, party.features)
        predictor = predictor + np.where(there, part[rows], party.block.absent_predictor(party.tensors))
        everybody &= there | party.block.may_lack
        for row in np.flatnonzero(there).tolist():
            known[row].append(peer)
    alone = own.block.outputs_alone(own.tensors, own.features)
    outputs = np.where(everybody[:, None], own.block.kind.outputs(predictor[:, None]), alone)
    values = torch.from_numpy(outputs).softmax(1).numpy() if classes else outputs[:, 0]
    parties = [" ".join(sorted(who)) if whole else ALONE for who, whole in zip(known, everybody.tolist(), strict=True)]
    return JoinedPredictions(values, classes, parties)


def rows_of(own: Sequence[Sequence[str | None]], others: Sequence[Sequence[str | None]]) -> Ints:
    """Return for each own row the row of another table of the same person, -1 where there is none.

    Examples
    --------
    >>> rows_of([["1", None], ["x", "y"]], [["1", "2"], ["z", "y"]]).tolist()
    [0, 1]
    """
    rows = np.full(len(own[0]), ABSENT)
    left, right = match_rows([own, others]).common.T
    rows[left] = right
    return rows
