""":class:`GrowingData`, which lets the peers of a plan read data of their own again between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch

from p2pfl.algorithms import Statistics
from p2pfl.core.errors import DataError
from p2pfl.core.rows import Rows
from p2pfl.data import Federation
from p2pfl.data.readings import DataPosition, NewRows, compare_readings, digests_of, position_of, shorten
from p2pfl.experiment.parts.robustness_parts import mislead
from p2pfl.experiment.resolved import Plan
from p2pfl.experiment.resolving import federate_data
from p2pfl.experiment.swarm_agreement import scale


@dataclass(frozen=True, kw_only=True)
class RowsChange:
    """What became of the rows of a peer with a reading.

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
    """

    rows: int
    train: int
    new: int
    appended: bool
    loss: float | None
    drift: float | None
    feature: str | None


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
    read
        Round before which the data were last read.
    """

    plan: Plan
    peers: tuple[str, ...]
    statistics: Statistics | None = None
    read: int = 0

    def due(self, round: int) -> bool:
        """Return whether the peers read their data again before a round.

        A peer that was away reads in the first round that it plays after one in which the others read.
        """
        apart = self.plan.experiment.data.refresh
        return apart is not None and self._reading(round) > self.read

    def _reading(self, round: int) -> int:
        apart = self.plan.experiment.data.refresh or 1
        return round // apart * apart

    def position(self, peer: str) -> DataPosition | None:
        """Return the rows that a peer has, for its checkpoint; ``None`` if its data are read once."""
        return self._positions.get(peer)

    @cached_property
    def _positions(self) -> dict[str, DataPosition]:
        """Positions of all local peers, computed once after a reading."""
        if self.plan.experiment.data.refresh is None:
            return {}
        return {peer: position_of(digests_of(self.plan.federation, peer), round=self.read) for peer in self.peers}

    def again(self, round: int) -> Self:
        """Return the plan with the data as they are now, read before a round.

        Raises
        ------
        DataError
            The data cannot be read, or are of another kind than at the beginning.
        """
        plan, reading = self.plan, self._reading(round)
        names = tuple(sorted({*plan.topology.peers, *plan.experiment.learning.without}))
        federation = mislead(federate_data(plan.experiment, names, self.peers, reading=reading), plan.attack)
        _check_alike(plan.federation, federation)
        made = replace(plan, federation=federation, learner=plan.learner)
        if self.statistics is not None:
            made = scale(made, self.statistics)
        else:
            made = replace(made, learner=plan.learner.on(federation))
        return replace(self, plan=made, read=reading)

    def resumed(self, positions: Mapping[str, DataPosition]) -> tuple[Self, list[str]]:
        """Return the plan with the rows of checkpoints, and the peers whose data no longer begin with these.

        Raises
        ------
        DataError
            As :meth:`again`.
        """
        if not positions:
            return self, []
        made, changed = self.again(max(position.round for position in positions.values())), list[str]()
        federation = made.plan.federation
        for peer, position in sorted(positions.items()):
            shorter = shorten(federation, peer, position)
            if shorter is None:
                changed.append(peer)
            else:
                federation = shorter
        plan = replace(made.plan, federation=federation, learner=made.plan.learner.on(federation))
        return replace(made, plan=plan), changed

    def changes(self, before: Self, rows: Rows) -> dict[str, RowsChange]:
        """Return what became of the rows of each peer since the reading before, if anything did.

        Parameters
        ----------
        before
            The same, with the data of the reading before.
        rows
            Models ``[R, P]`` of the local peers, which have not trained on the new rows.
        """
        federation = self.plan.federation
        found = {peer: compare_readings(before.plan.federation, federation, peer) for peer in self.peers}
        losses = self._losses(found, rows)
        return {
            peer: RowsChange(
                rows=sum(federation.sizes(peer)),
                train=federation.sizes(peer).train,
                new=len(change.rows),
                appended=change.appended,
                loss=losses[peer],
                drift=float(change.drift.max()) if len(change.drift) else None,
                feature=self._feature(int(change.drift.argmax())) if len(change.drift) else None,
            )
            for peer, change in found.items()
            if len(change.rows) or not change.appended
        }

    def _losses(self, changes: Mapping[str, NewRows], rows: Rows) -> dict[str, float | None]:
        """Return the loss of each model on the new rows of its peer; ``None`` where there are none."""
        parts = {peer: change.rows for peer, change in changes.items()}
        new = replace(self.plan.federation, test=parts)
        losses = torch.zeros(len(rows))
        if any(len(part) for part in parts.values()):
            losses = self.plan.learner.on(new).evaluate(rows, peers=self.peers)["loss"]
        return {peer: float(loss) if len(parts[peer]) else None for peer, loss in zip(self.peers, losses, strict=True)}

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
