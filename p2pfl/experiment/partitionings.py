"""Ways in which data lie at peers other than as samples of their own, which packages register by entry points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from p2pfl.core.registry import find_entry_points, load
from p2pfl.core.traits import DataTraits
from p2pfl.experiment.schema import PARTITIONINGS, DataSettings, Experiment

if TYPE_CHECKING:  # settings are read without torch
    from p2pfl.data import Federation
    from p2pfl.learning import Learner


@dataclass(frozen=True)
class Disclosure:
    """Statement of what leaves the peers, of which some learn more than others.

    Parameters
    ----------
    statement
        Clauses of the privacy statement.
    learned
        What each observer learns, and what a malicious one can do, by observer.
    """

    statement: str
    learned: Mapping[str, str]


class Written(Protocol):
    """Predictions that can be written."""

    def write(self, file: TextIO) -> None:
        """Write them as CSV."""
        ...


class Partitioning(Protocol):
    """Partitioning of data over peers, with the learner that its models need.

    An entry point of the group ``p2pfl.partitionings`` names an object with these attributes; its name is a value of
    ``data.name``, where peers own their data, or of ``data.split``.
    """

    @property
    def traits(self) -> DataTraits:
        """Requirements that rules of an experiment read."""
        ...

    def federate(
        self, experiment: Experiment, *, peers: tuple[str, ...], only: Sequence[str] | None = None
    ) -> Federation:
        """Return the data of the local peers ``only``, of all ``peers`` by default.

        Raises
        ------
        InputError
            The data or their options do not work.
        """
        ...

    def learner(self, experiment: Experiment, federation: Federation) -> Learner:
        """Return the learner of ``[model]`` on a federation that :meth:`federate` has made."""
        ...

    def predict(self, folder: Path, table: str, *, unaccounted: bool) -> Written:
        """Return the predictions of a run whose files are all in its folder, for new tables of all peers.

        Parameters
        ----------
        folder
            Run directory.
        table
            Path in which ``{peer}`` stands for the name of a peer.
        unaccounted
            True if tables that have an account are read all the same.
        """
        ...

    def predict_live(
        self,
        folder: Path,
        table: str | None,
        *,
        peer: str | None,
        brokers: Sequence[str],
        most: int,
        unaccounted: bool,
    ) -> Written:
        """Return the predictions for new rows of one peer, with the others over a broker, or answer until interrupted.

        Parameters
        ----------
        folder
            Run directory of the peer.
        table
            Path of its new rows; ``None`` where it has none.
        peer
            Name of the peer; ``None`` for the only one in the directory.
        brokers
            Addresses of brokers, in place of those of the experiment.
        most
            Number of rows of which the peer answers in 24 hours.
        unaccounted
            True if a table that has an account is read all the same.

        Raises
        ------
        InputError
            The peer, its file or its table is missing, or another peer does not answer so many rows.
        """
        ...

    def disclosed(self, experiment: Experiment, federation: Federation, peers: Sequence[str]) -> Disclosure:
        """Return what leaves the peers."""
        ...

    def own_columns(self, experiment: Experiment, peer: str) -> Mapping[str, object] | None:
        """Return the columns that a peer declares itself, which no other peer reads, with the rule of each.

        ``None`` where the peer's declaration is not on this machine.

        Raises
        ------
        InputError
            The declaration is wrong.
        """
        ...


def name_of(data: DataSettings) -> str:
    """Return the setting that names a partitioning; empty if none does.

    Examples
    --------
    >>> name_of(DataSettings(name="digits"))
    ''
    """
    registered = find_entry_points(PARTITIONINGS)
    if data.name in registered:
        return f'data.name = "{data.name}"'
    return f'data.split = "{data.split}"' if data.split in registered else ""


def columns_of_owners(experiment: Experiment, peers: Iterable[str]) -> dict[str, Mapping[str, object]]:
    """Return the columns that peers declare themselves, with the rule of each, by peer.

    Raises
    ------
    InputError
        A declaration is wrong.
    """
    parting = partitioning(experiment.data)
    if parting is None:
        return {}
    declared = {peer: parting.own_columns(experiment, peer) for peer in peers}
    return {peer: columns for peer, columns in declared.items() if columns is not None}


def partitioning(data: DataSettings) -> Partitioning | None:
    """Return the partitioning that ``data.name`` or ``data.split`` names; ``None`` where peers have samples.

    Raises
    ------
    InputError
        Its package cannot be imported.
    """
    name = name_of(data).partition('"')[2].removesuffix('"')
    if not name:
        return None
    made: Partitioning = load(PARTITIONINGS, name)
    return made
