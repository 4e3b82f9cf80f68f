"""FedPer: some layers are everybody's own, and only the others travel."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import torch

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.errors import ExperimentError
from p2pfl.neighbourhood import Neighbourhood, Public, derived
from p2pfl.rows import Layout, Rows
from p2pfl.traits import Traits


def common(layout: Layout, *, personal: tuple[str, ...] | None) -> torch.Tensor:
    """Which numbers of a row all peers share, ``[P]`` bool.

    Parameters
    ----------
    layout
        Where each tensor lies.
    personal
        Names, prefixes or globs of the tensors that stay with each peer; ``None`` for those of the last layer.

    Raises
    ------
    ExperimentError
        A name fits no tensor, or all tensors are personal.

    Examples
    --------
    >>> layout = Layout(("body.weight", "head.weight", "head.bias"), ((2,), (1,), (1,)))
    >>> common(layout, personal=None)
    tensor([ True,  True, False, False])
    >>> common(layout, personal=("*.bias",))
    tensor([ True,  True,  True, False])
    """
    if personal is None:
        last, dot, _ = layout.names[-1].rpartition(".")
        personal = (last if dot else layout.names[-1],)
    own = set()
    for pattern in personal:
        fits = {n for n in layout.names if fnmatch.fnmatchcase(n, pattern) or n.startswith(f"{pattern}.")}
        if not fits:
            raise ExperimentError(
                f"learning.algorithm_options.personal: expected names among {', '.join(layout.names)}, "
                f'got "{pattern}": name tensors or layers of the model'
            )
        own |= fits
    if own == set(layout.names):
        raise ExperimentError(
            f"learning.algorithm_options.personal: expected some tensors to share, got all of {', '.join(own)}: "
            "name fewer, or take a model of more than one layer"
        )
    shared = {
        name: torch.full((1, *shape), name not in own) for name, shape in zip(layout.names, layout.shapes, strict=True)
    }
    return layout.join(shared)[0]  # [P]


@dataclass(frozen=True)
class FedPer:
    r"""FedAvg on the shared part of the rows; the personal part is trained with it and stays.

    .. math:: (u_k, v_k) \leftarrow \text{fit}(u_k, v_k), \qquad u \leftarrow \frac{\sum_k n_k u_k}{\sum_k n_k}

    What travels is a row of the shared numbers alone.

    Parameters
    ----------
    average
        As for FedAvg.
    layout
        Of the rows.
    personal
        Names, prefixes or globs of tensors that stay, by default those of the last layer; with none it is FedAvg.

    Raises
    ------
    ExperimentError
        A name fits no tensor, or all tensors are personal.

    References
    ----------
    Arivazhagan, Aggarwal, Singh and Choudhary, Federated learning with personalization layers,
    arXiv:1912.00818, 2019, Algorithms 1 and 2.
    """

    traits: ClassVar[Traits] = Traits(linear=True, convex=True, personal=True)
    average: Averaging = Averaging()
    layout: Layout = Layout((), ())
    personal: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.layout.names:
            self.common  # noqa: B018 (wrong names are told at once)

    @cached_property
    def common(self) -> torch.Tensor:
        """Which numbers of a row are shared, ``[P]`` bool."""
        return common(self.layout, personal=self.personal)

    @property
    def shared(self) -> int:
        """Return how many numbers of a row leave a peer."""
        return int(self.common.sum())

    def places(self, size: int, *, round: int) -> torch.Tensor:
        """Return the places of the shared numbers, ``[Q]``."""
        del size, round  # the layout knows, and it is the same in all rounds
        return self.common.nonzero().squeeze(-1)

    def sharing(self, size: int) -> Self:
        """Return the same on rows of ``size`` numbers, all of which are shared."""
        return replace(self, layout=Layout(("row",), ((size,),)), personal=())

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One round of local training of all tensors and averaging of the shared ones."""
        active = self.average.participants(net.peers, round=round)  # [R]
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active)
        masses = await self.average.masses(learner, net, active)
        after = await self.exchange(net, fitted.rows, public=state.public, masses=masses)
        return replace(after, report=fitted.report)

    async def exchange(self, net: Neighbourhood, rows: Rows, *, public: Public, masses: torch.Tensor | None) -> State:
        """Average the shared numbers of ``rows``; of the personal ones nobody ever sees more than the common start."""

        def shared(rows: Rows) -> Rows:
            return rows[:, self.common]  # [R, Q]

        def with_mean(rows: Rows, mean: Rows) -> Rows:
            rows = rows.clone()  # [R, P]
            rows[:, self.common] = mean
            return rows

        mean = await self.average(net, shared(rows), since=derived(shared, public), masses=masses)  # [R, Q]
        return State(with_mean(rows, mean.rows), derived(with_mean, public, mean))
