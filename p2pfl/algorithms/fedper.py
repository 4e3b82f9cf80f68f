"""FedPer and FedBN: peers keep some layers for themselves and share the others."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.errors import ExperimentError
from p2pfl.core.neighbourhood import Neighbourhood, Public, derived
from p2pfl.core.rows import Layout, Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits


def common(layout: Layout, *, personal: tuple[str, ...] | None) -> torch.Tensor:
    """Return which parameters all peers share, ``[P]`` bool; tensors that the layout calls local are never among them.

    Parameters
    ----------
    layout
        Places of the tensors.
    personal
        Names, prefixes or globs of the tensors that stay with each peer; ``None`` for those of the last layer.

    Returns
    -------
    torch.Tensor
        True for shared parameters.

    Raises
    ------
    ExperimentError
        A name matches no tensor, or all tensors are personal.

    Examples
    --------
    >>> layout = Layout(("body.weight", "head.weight", "head.bias"), ((2,), (1,), (1,)))
    >>> common(layout, personal=None)
    tensor([ True,  True, False, False])
    >>> common(layout, personal=("*.bias",))
    tensor([ True,  True,  True, False])
    """
    if personal is None:
        final = [name for name in layout.names if name not in layout.local][-1]
        last, dot, _ = final.rpartition(".")
        personal = (last if dot else final,)
    own = set(layout.local)
    for pattern in personal:
        fits = {n for n in layout.names if fnmatch.fnmatchcase(n, pattern) or n.startswith(f"{pattern}.")}
        if not fits:
            raise ExperimentError(
                f'learning.algorithm_options.personal contains "{pattern}", which names no tensor of the model; name '
                f"some of {', '.join(layout.names)}, or their layers"
            )
        own |= fits
    if own == set(layout.names):
        raise ExperimentError(
            f"learning.algorithm_options.personal covers all tensors ({', '.join(sorted(own))}), so none is shared; "
            "name fewer, or take a model of more than one layer"
        )
    return ~layout.mask(own)  # [P]


@dataclass(frozen=True)
class FedPer:
    r"""FedAvg on the shared part of the models; the personal part is trained with it and does not leave a peer.

    .. math:: (u_k, v_k) \leftarrow \text{fit}(u_k, v_k), \qquad u \leftarrow \frac{\sum_k n_k u_k}{\sum_k n_k}

    Peers send the shared parameters alone.

    Parameters
    ----------
    average
        Average over the participants, as for :class:`FedAvg`.
    layout
        Layout of the models; a run fills it in.
    personal
        Names, prefixes or globs of personal tensors, by default those of the last layer; without any it is FedAvg.

    Raises
    ------
    ExperimentError
        A name matches no tensor, or all tensors are personal.

    Examples
    --------
    >>> FedPer(layout=Layout(("body", "head"), ((2,), (1,)))).shared
    2

    References
    ----------
    Arivazhagan, Aggarwal, Singh and Choudhary, Federated learning with personalization layers,
    arXiv:1912.00818, 2019, Algorithms 1 and 2.
    """

    traits: ClassVar[Traits] = Traits(linear=True, convex=True, personal=True, keeps_local=True, idle_alike=True)
    average: Averaging = Averaging()
    layout: Layout = Layout((), ())
    personal: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.layout.names:
            self.common  # noqa: B018 (wrong names are reported at once)

    @cached_property
    def common(self) -> torch.Tensor:
        """Mask of the shared parameters, ``[P]`` bool."""
        return common(self.layout, personal=self.personal)

    @property
    def shared(self) -> int:
        """Number of parameters that leave a peer."""
        return int(self.common.sum())

    def places(self, size: int, *, round: int) -> torch.Tensor:
        """Return the places of the shared parameters, ``[Q]``."""
        del size, round  # the layout knows, and it is the same in all rounds
        return self.common.nonzero().squeeze(-1)

    def sharing(self, size: int) -> Self:
        """Return the algorithm on rows of ``size`` numbers, all of which are shared."""
        return replace(self, layout=Layout(("row",), ((size,),)), personal=())

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: train all tensors and average the shared ones."""
        active = self.average.participants(net.peers, round=round)  # [R]
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active)
        masses = await self.average.masses(learner, net, active)
        after = await self.exchange(net, fitted.rows, public=state.public, masses=masses)
        return replace(after, report=fitted.report)

    async def exchange(self, net: Neighbourhood, rows: Rows, *, public: Public, masses: torch.Tensor | None) -> State:
        """Average the shared parameters of ``rows``; others never see more of the personal ones than the start."""
        where = self.places(rows.shape[-1], round=0)  # [Q]

        def shared(rows: Rows) -> Rows:
            return rows.index_select(-1, to_device(where, rows.device))  # [R, Q]

        def with_mean(rows: Rows, mean: Rows) -> Rows:
            return rows.index_copy(-1, to_device(where, rows.device), mean)  # [R, P]

        mean = await self.average(net, shared(rows), since=derived(shared, public), masses=masses)  # [R, Q]
        return State(with_mean(rows, mean.rows), derived(with_mean, public, mean))


@dataclass(frozen=True)
class FedBN(FedPer):
    r"""FedAvg without batch normalisation, whose parameters and running statistics stay with each peer.

    It is :class:`FedPer` whose personal tensors are those that the model keeps local.

    Parameters
    ----------
    average
        Average over the participants, as for :class:`FedAvg`.
    layout
        Layout of the models; a run fills it in.
    personal
        Further tensors that stay with each peer; none by default.

    Raises
    ------
    ExperimentError
        A name matches no tensor, or all tensors are personal.

    Examples
    --------
    >>> FedBN(layout=Layout(("0.weight", "1.weight", "1.running_mean"), ((4,), (2,), (2,)), local=("1.weight",))).shared
    6

    References
    ----------
    Li, Jiang, Zhang, Kamp, Dou, FedBN: federated learning on non-IID features via local batch normalization,
    ICLR 2021, Algorithm 1.
    """

    traits: ClassVar[Traits] = replace(FedPer.traits, needs_local=True)
    personal: tuple[str, ...] | None = ()
