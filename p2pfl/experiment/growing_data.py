""":class:`GrowingData`, which lets the peers of a plan read data of their own again between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from p2pfl.algorithms import Statistics
from p2pfl.core.errors import DataError
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.data import Federation
from p2pfl.data.readings import (
    DataPosition,
    Digests,
    NewRows,
    compare_readings,
    digests_of,
    drift_since,
    judging_rows,
    lacks_rows,
    merge_peers,
    position_of,
    share_table,
    shorten,
)
from p2pfl.experiment.accounts import file_states
from p2pfl.experiment.parts.robustness_parts import mislead
from p2pfl.experiment.resolved import Plan
from p2pfl.experiment.resolving import federate_data
from p2pfl.experiment.swarm_agreement import scale
from p2pfl.learning.learner import ProtectsSamples


@dataclass(frozen=True, kw_only=True)
class RowsChange:
    """Change of the rows of a peer by a reading.

    Attributes
    ----------
    rows, train, new
        Numbers of its rows, of those that it trains on, and of those that it did not have before.
    appended
        True if the earlier rows are all there, in front of the new ones.
    loss
        Mean loss on the new rows before training on them; ``None`` without new rows.
    drift, feature
        Largest population stability index of a feature, of the new rows against the earlier ones, and that feature.
    rate
        Rate at which DP-SGD samples rows, where it rose because there are fewer.
    """

    rows: int
    train: int
    new: int
    appended: bool
    loss: float | None
    drift: float | None
    feature: str | None
    rate: float | None = None


class FeatureDrift(NamedTuple):
    """Largest population stability index of a feature, and that feature."""

    value: float
    feature: str


TABLE = "table"
"""Data set of files that belong to one peer each."""


class ShorterDataError(DataError):
    """A table lacks rows that it had."""


@dataclass(frozen=True)
class GrowingData:
    """A plan, and when its peers read their data again.

    Parameters
    ----------
    plan
        Plan with the data of the last reading.
    peers
        Names of the local peers.
    statistics
        Statistics by which the features are scaled; ``None`` without them. They stay those of the beginning.
    digests
        By peer, digests of its rows, before they were scaled; of no peer if the data are read once.
    shares
        By peer, how its features are distributed, before they were scaled; see :func:`.share_table`.
    read
        By peer, round before which its data were last read; 0 where it is missing.
    doubted
        By peer, digest of a table that lacked earlier rows and was not taken, as it may be half written.
    judged
        By peer, round before which the rows changed that judge its models; 0 where it is missing.
    failing
        By peer, which kind of reading failed, if the last one did.
    files
        By peer, the state of its data file when it was read, if it is read once; see :func:`.file_states`.
    """

    plan: Plan
    peers: tuple[str, ...]
    statistics: Statistics | None = None
    digests: Mapping[str, Digests] = field(default_factory=dict)
    shares: Mapping[str, bytes] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)
    doubted: Mapping[str, str] = field(default_factory=dict)
    judged: Mapping[str, int] = field(default_factory=dict)
    failing: Mapping[str, type[DataError]] = field(default_factory=dict)
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, peers: tuple[str, ...]) -> Self:
        """Return those of a plan whose features are not scaled yet; this may take a while."""
        if plan.experiment.data.refresh is None:
            return cls(plan, peers, files=file_states(plan.experiment, peers))
        digests = {peer: digests_of(plan.federation, peer) for peer in peers}
        return cls(plan, peers, digests=digests, shares={peer: share_table(plan.federation, peer) for peer in peers})

    def scaled(self, plan: Plan, statistics: Statistics | None) -> Self:
        """Return the same rows in a plan whose features are scaled by statistics."""
        return replace(self, plan=plan, statistics=statistics)

    def due(self, round: int) -> tuple[str, ...]:
        """Return the peers that read their data again before a round.

        A peer that was away, or could not read, reads in the first round that it plays after that of the others.
        """
        apart = self.plan.experiment.data.refresh
        if apart is None:
            return ()
        return tuple(peer for peer in self.peers if self.read.get(peer, 0) < self._reading(round))

    def outdated(self) -> tuple[str, ...]:
        """Return the peers whose data file has changed since it was read, which ``data.refresh`` would read again."""
        if not self.files:
            return ()
        states = file_states(self.plan.experiment, self.files)
        return tuple(peer for peer, state in self.files.items() if states.get(peer, state) != state)

    def _reading(self, round: int) -> int:
        apart = self.plan.experiment.data.refresh or 1
        return round // apart * apart

    def position(self, peer: str) -> DataPosition | None:
        """Return the rows that a peer has, for its checkpoint; ``None`` if its data are read once."""
        rows = self.digests.get(peer)
        if rows is None:
            return None
        place = position_of(rows, round=self.read.get(peer, 0))
        return replace(place, judged=self.judged.get(peer, 0), shares=self.shares[peer])

    def again(self, round: int) -> tuple[Self, dict[str, str]]:
        """Return the data as they are now, read before a round by the peers for which it is due.

        A peer whose data cannot be read keeps those that it has, and reads before the next round. So does one whose
        table lacks earlier rows, until two readings in a row agree.

        Returns
        -------
        tuple
            The data, and by peer why its reading failed, where the one before had not failed for such a reason.
        """
        reading, due = self._reading(round), self.due(round)
        federations, failed = self._read_each(due, reading)
        digests = {peer: digests_of(federation, peer) for peer, federation in federations.items()}
        doubted = dict[str, str]()
        if self.plan.experiment.data.name == TABLE:
            for peer, rows in digests.items():
                text = position_of(rows, round=reading).digest
                if lacks_rows(rows, self.digests[peer]) and self.doubted.get(peer) != text:
                    doubted[peer] = text
                    failed[peer] = ShorterDataError(
                        f"its table has {len(rows):,} rows and lacks some of the {len(self.digests[peer]):,} that it "
                        "had; it takes them if the next reading finds the same"
                    )
        digests = {peer: rows for peer, rows in digests.items() if peer not in failed}
        new = {peer: str(error) for peer, error in failed.items() if self.failing.get(peer) is not type(error)}
        failing = {peer: type(error) for peer, error in failed.items()}
        others = {peer: kind for peer, kind in self.failing.items() if peer not in due}
        judged = {
            peer: round
            for peer, rows in digests.items()
            if not np.array_equal(
                judging_rows(federations[peer], peer, rows),
                judging_rows(self.plan.federation, peer, self.digests[peer]),
            )
        }
        made = replace(
            self,
            plan=self._merged({peer: federations[peer] for peer in digests}) if digests else self.plan,
            digests={**self.digests, **digests},
            shares={**self.shares, **{peer: share_table(federations[peer], peer) for peer in digests}},
            judged={**self.judged, **judged},
            read={**self.read, **dict.fromkeys(digests, reading)},
            doubted={peer: text for peer, text in self.doubted.items() if peer not in due} | doubted,
            failing=others | failing,
        )
        return made, new

    def _read_each(self, peers: tuple[str, ...], reading: int) -> tuple[dict[str, Federation], dict[str, DataError]]:
        """Return by peer the federation that has its data as they are now, and by peer why there is none."""
        try:
            return dict.fromkeys(peers, self._load(peers, reading)), {}
        except DataError as error:
            if len(peers) == 1:
                return {}, {peers[0]: error}
        federations, failed = dict[str, Federation](), dict[str, DataError]()
        for peer in peers:
            try:
                federations[peer] = self._load((peer,), reading)
            except DataError as error:
                failed[peer] = error
        return federations, failed

    def _load(self, peers: tuple[str, ...], reading: int) -> Federation:
        plan = self.plan
        names = tuple(sorted({*plan.topology.peers, *plan.experiment.learning.without}))
        federation = mislead(federate_data(plan.experiment, names, peers, reading=reading), plan.attack)
        _check_alike(plan.federation, federation)
        return federation

    def _merged(self, federations: Mapping[str, Federation]) -> Plan:
        """Return the plan with the data of some peers that were read, scaled, and of the others as they were."""
        parts = dict.fromkeys(self.peers, self.plan.federation)
        scaled = dict[int, Federation]()
        for peer, federation in federations.items():
            if id(federation) not in scaled:
                scaled[id(federation)] = self._on(federation).federation
            parts[peer] = scaled[id(federation)]
        federation = merge_peers(parts)
        return replace(self.plan, federation=federation, learner=self.plan.learner.on(federation))

    def _on(self, federation: Federation) -> Plan:
        """Return the plan on data, scaled."""
        made = replace(self.plan, federation=federation)
        if self.statistics is not None:
            return scale(made, self.statistics)
        return replace(made, learner=self.plan.learner.on(federation))

    def resumed(self, positions: Mapping[str, DataPosition]) -> tuple[Self, dict[str, FeatureDrift | None]]:
        """Return the plan with the rows of checkpoints, and the peers whose data no longer begin with these.

        They are found before features are scaled. Of such a peer all rows of now are compared with those of then.

        Raises
        ------
        DataError
            The data cannot be read, or are of another kind than at the beginning.
        """
        if not positions:
            return self, {}
        federation = self._load(self.peers, max(each.round for each in positions.values()))
        changed = dict[str, FeatureDrift | None]()
        for peer, position in sorted(positions.items()):
            shorter = shorten(federation, peer, position)
            if shorter is None:
                changed[peer] = self._drift(drift_since(position.shares, federation, peer))
            else:
                federation = shorter
        digests = {peer: digests_of(federation, peer) for peer in self.peers}
        shares = {peer: share_table(federation, peer) for peer in self.peers}
        read = {peer: position.round for peer, position in positions.items()}
        judged = {peer: position.judged for peer, position in positions.items()}
        return replace(
            self, plan=self._on(federation), digests=digests, shares=shares, read=read, judged=judged
        ), changed

    def changes(self, before: Self, rows: Rows) -> dict[str, RowsChange]:
        """Return the change of the rows of each peer since the reading before, where there is one.

        Parameters
        ----------
        before
            The same, with the data of the reading before.
        rows
            Models ``[R, P]`` of the local peers, which have not trained on the new rows.
        """
        federation = self.plan.federation
        compared = {peer: compare_readings(before.plan.federation, federation, peer) for peer in self.peers}
        losses = self._losses(compared, rows)
        return {
            peer: RowsChange(
                rows=sum(federation.sizes(peer)),
                train=federation.sizes(peer).train,
                new=len(change.rows),
                appended=change.appended,
                loss=losses[peer],
                drift=drift and drift.value,
                feature=drift and drift.feature,
                rate=self._higher_rate(before, peer),
            )
            for peer, change in compared.items()
            if len(change.rows) or not change.appended
            for drift in [self._drift(change.drift)]
        }

    def _losses(self, changes: Mapping[str, NewRows], rows: Rows) -> dict[str, float | None]:
        """Return the loss of each model on the new rows of its peer; ``None`` where there are none."""
        parts = {peer: change.rows for peer, change in changes.items()}
        new = replace(self.plan.federation, test=parts)
        losses = torch.zeros(len(rows))
        if any(len(part) for part in parts.values()):
            losses = self.plan.learner.on(new).evaluate(rows, peers=self.peers)["loss"]
        return {peer: float(loss) if len(parts[peer]) else None for peer, loss in zip(self.peers, losses, strict=True)}

    def _higher_rate(self, before: Self, peer: str) -> float | None:
        """Return the rate at which DP-SGD samples the rows of a peer, if it was lower before."""
        old, new = before.plan.learner.bare, self.plan.learner.bare
        if not (isinstance(old, ProtectsSamples) and isinstance(new, ProtectsSamples) and new.noise):
            return None
        earlier, now = old.cost(peer)[0], new.cost(peer)[0]
        return now if now > earlier else None

    def _drift(self, indices: npt.NDArray[np.float64]) -> FeatureDrift | None:
        """Return the largest of the indices of the features; ``None`` without any."""
        return FeatureDrift(float(indices.max()), self._feature(int(indices.argmax()))) if len(indices) else None

    def _feature(self, number: int) -> str:
        """Return the name of a feature, or its number where columns have no names."""
        columns = self.plan.federation.dataset.description.columns or ()
        names = [column.name for column in columns for _ in range(1 if column.levels is None else len(column.levels))]
        return names[number] if number < len(names) else f"feature {number}"


def _check_alike(before: Federation, after: Federation) -> None:
    """Check that samples have the shape and classes of the beginning, for which the model was made."""
    old, new = ((each.dataset.shape, each.dataset.targets.shape[1:], each.dataset.classes) for each in (before, after))
    if old != new:
        raise DataError(
            f"the data have features of shape {new[0]} and {new[2]} classes, and those of the beginning had {old[0]} "
            f"and {old[2]}; give rows of the same kind, and set the option classes where a function returns them"
        )
