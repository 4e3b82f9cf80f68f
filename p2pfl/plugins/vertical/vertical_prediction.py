"""Predictions of a vertical model for new rows, where the files of all parties are in one place."""

from __future__ import annotations

import math
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
from p2pfl.plugins.vertical.block import Block
from p2pfl.plugins.vertical.kernel_block import KernelBlock
from p2pfl.plugins.vertical.keys import PersonKey, identify_rows, read_keys
from p2pfl.plugins.vertical.matching import ABSENT, match_rows
from p2pfl.plugins.vertical.split_block import SplitBlock
from p2pfl.plugins.vertical.tree_block import TreeBlock
from p2pfl.results import Run
from p2pfl.results.models.predictor import Predictions, Predictor, cells_of
from p2pfl.results.saved_models import KEY

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
    classes
        Names of the classes, in the file of the label holder of a classification.
    """

    block: Block | KernelBlock | SplitBlock | TreeBlock
    tensors: Mapping[str, Floats]
    features: Floats
    keys: Sequence[Sequence[str | None]]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.features)

    @property
    def predictor(self) -> Floats:
        """Contribution of the party to the prediction of each row.

        A part of the linear predictor, ``[n]``; of a kernel, squared distances ``[n, m]``; of trees, sides of splits
        ``[n, S]``; of a network, its part of the embedding, ``[n, k]``.
        """
        return self.block.predictor_of(self.tensors, self.features)

    @property
    def width(self) -> int:
        """Number of numbers that a party adds to the prediction of a row."""
        return math.prod(np.shape(self.block.absent_predictor(self.tensors)))

    def predictor_at(self, rows: Ints) -> Floats:
        """Return what the party adds to predictions of some rows, of which -1 stands for a person whom it lacks."""
        absent = np.asarray(self.block.absent_predictor(self.tensors))
        if not len(self):
            return np.broadcast_to(absent, (len(rows), *absent.shape))
        there = (rows != ABSENT).reshape(-1, *[1] * absent.ndim)
        return np.where(there, self.predictor[rows], absent)


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
    files = {
        peer: read_party_file(path, table.replace(PEER, peer), keys, unaccounted=unaccounted)
        for peer, path in block_files(run).items()
    }
    label = next((peer for peer, file in files.items() if file.block.label), None)
    if label is None:
        raise InputError(f"{run.folder} has no file of the label holder; put the files of all parties into its peers/")
    return _joined(label, files)


def block_files(run: Run) -> dict[str, Path]:
    """Return the files in a run directory that hold the part of a party, by peer."""
    paths = sorted((run.folder or Path()).glob("peers/*.safetensors"))
    return {path.name.removesuffix(".safetensors"): path for path in paths if _is_block(path)}


def read_party_file(path: Path, table: str, keys: Sequence[PersonKey], *, unaccounted: bool) -> PartyFile:
    """Return the part of a party, and its table of new rows.

    Parameters
    ----------
    path, table
        Paths of both.
    keys
        Keys of people.
    unaccounted
        True if a table that has an account is read all the same.

    Raises
    ------
    InputError
        The file or the table cannot be read, or does not fit.
    """
    predictor = Predictor.load(path)
    cells = cells_of(table, unaccounted=unaccounted)
    columns = torch.from_numpy(predictor.columns(cells, unaccounted=unaccounted))
    features = predictor.module.inputs(columns).numpy()
    values, _ = identify_rows(cells, keys)
    tensors = {name: value.numpy() for name, value in predictor.saved.module.state_dict().items()}
    block = cast("Block | KernelBlock | SplitBlock | TreeBlock", predictor.saved.exact)
    return PartyFile(block, tensors, features, values, predictor.saved.names)


def _is_block(path: Path) -> bool:
    """Return whether a file holds the part of a party."""
    import safetensors  # noqa: PLC0415 (as readers of models do)

    with safetensors.safe_open(path, "pt") as file:
        described = (file.metadata() or {}).get(KEY, "")
    return any(f'"name": "{kind.name}"' in described for kind in (Block, KernelBlock, SplitBlock, TreeBlock))


def _joined(label: str, files: Mapping[str, PartyFile]) -> JoinedPredictions:
    """Return the predictions of all rows of the label holder."""
    own = files[label]
    foreign = np.zeros_like(own.predictor)
    everybody = np.ones(len(own), bool)
    known: list[list[str]] = [[label] for _ in everybody]
    for peer, party in files.items():
        if peer == label:
            continue
        rows = rows_of(own.keys, party.keys)
        foreign = foreign + party.predictor_at(rows)
        everybody &= (rows != ABSENT) | party.block.may_lack
        for row in np.flatnonzero(rows != ABSENT).tolist():
            known[row].append(peer)
    return predict_rows(
        own, np.asarray(foreign), [who if whole else [] for who, whole in zip(known, everybody, strict=True)]
    )


def predict_rows(own: PartyFile, foreign: Floats, known: Sequence[Sequence[str]]) -> JoinedPredictions:
    """Return the predictions of the rows of the label holder.

    Parameters
    ----------
    own
        File of the label holder.
    foreign
        Sums of what the others add, of the shape of :attr:`PartyFile.predictor`.
    known
        Names of the parties that know the person, by row; empty where the label holder's own model predicts.
    """
    together = own.block.outputs_together(own.tensors, own.features, foreign)
    alone = own.block.outputs_alone(own.tensors, own.features)
    outputs = np.where(np.array([bool(who) for who in known], bool)[:, None], together, alone)
    values = torch.from_numpy(outputs).softmax(1).numpy() if own.classes else outputs[:, 0]
    return JoinedPredictions(values, own.classes, [" ".join(sorted(who)) if who else ALONE for who in known])


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
