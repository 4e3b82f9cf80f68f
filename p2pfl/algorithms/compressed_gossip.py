"""Compressed gossip for any algorithm: CHOCO-Gossip replaces its mixing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State
from p2pfl.core.codecs import At, Codec, encode_rows
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import Neighbourhood, Public, ReceivedModels, Released, Wrapped
from p2pfl.core.rows import Rows, part_of, with_part
from p2pfl.core.tensors import torch


def places(algorithm: Algorithm, size: int, *, round: int) -> torch.Tensor:
    """Return the places of a row that an algorithm releases in a round, ``[Q]`` int64 in the order of the release.

    An algorithm that releases a part of a row, another one in each round, has a method ``places(size, *, round)``.
    """
    declared = getattr(algorithm, "places", None)
    positions: torch.Tensor = torch.arange(size) if declared is None else declared(size, round=round)  # [Q]
    return positions


@dataclass(frozen=True)
class Compressed:
    r"""An algorithm that mixes encoded models.

    A codec of differences encodes the difference from the copy that all neighbours have already. Each gossip step
    mixes y as CHOCO-Gossip does,

    .. math:: q_i = Q(y_i - \hat x_i), \qquad \hat x_i \leftarrow \hat x_i + q_i, \qquad
              s_i \leftarrow s_i + \sum_j W_{ij} q_j, \qquad y_i \leftarrow y_i + \gamma (s_i - \hat x_i)

    where the sum s replaces the neighbours' copies, so a peer keeps two models however many neighbours it has. The next
    difference includes what Q loses now (error feedback). The mean of the models is conserved. Any other codec encodes
    the model itself, and its owner keeps the loss: :math:`y_i \leftarrow y_i - Q(y_i) + \sum_j W_{ij} Q(y_j)`. What an
    algorithm only receives (the flooding of sample sizes), or mixes before it releases anything (FedNova's numbers of
    steps), is sent uncompressed.

    The copies and sums are tensors of the state, saved and restored with it. They start from the public parameters of
    the first release, the common start or its shared part (FedPer), which no peer has to send. A lost difference stays
    missing in the receiver's sum until ``refresh``.

    On a schedule, each graph of the period has copies and sums of its own, because both ends of an edge must know what
    a difference is taken from. Between pairs the copy is the common reference, :math:`y_i - \hat x_i` is the error
    accumulator of SparseLoCo, and with :math:`\gamma = 1` a first meeting adds the mean of the encoded changes to
    the reference, as SparseLoCo does. One accumulator for all partners would do without copies, but then models can be
    encoded only relative to the common start, and disagreement stays as large as what Q loses of the way from there
    (DeepSqueeze).

    Parameters
    ----------
    algorithm
        Algorithm that releases one model per round.
    codec
        Codec Q.
    gamma
        Consensus step size; the codec's own by default, which is safe on rings, stars and complete graphs. Sparse
        graphs tolerate about twice as much; larger values diverge.
    refresh
        Number of rounds after which the first gossip step sends whole models, mixes them plainly and resets copies and
        sums, in as many rounds as the schedule has graphs; 1 is the plain algorithm if it makes one gossip step.
        ``None`` never resets.
    even
        True if each receiver's weights sum to one. If only each sender's do (push), sums of the common start differ,
        and copies start at zero.
    period
        Number of graphs of the schedule, which take turns by gossip steps.

    Examples
    --------
    >>> from p2pfl.algorithms import FedAvg
    >>> from p2pfl.core.codecs import Quantise
    >>> Compressed(FedAvg(), Quantise(8), refresh=10).refresh
    10

    References
    ----------
    Koloskova, Stich, Jaggi, Decentralized stochastic optimization and gossip algorithms with compressed communication,
    ICML 2019, Algorithms 1 and 5 (the memory-efficient form). Sarfi et al., Communication efficient LLM pre-training
    with SparseLoCo, 2025 (arXiv 2508.15706). Tang et al., DeepSqueeze: decentralization meets error-compensated
    compression, 2019 (arXiv 1907.07346).
    """

    algorithm: Algorithm
    codec: Codec
    gamma: float | None = None
    refresh: int | None = None
    even: bool = True
    period: int = 1

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of the algorithm over a compressed neighbourhood."""
        extra, names = dict(state.extra), [names_of(graph) for graph in range(self.period)]
        kept = {name: extra.pop(name) for name in chain(*names) if name in extra}
        whole = self.refresh is not None and round % self.refresh < self.period
        gamma = self.codec.gamma(state.rows.shape[-1]) if self.gamma is None else self.gamma
        where = None  # places of what a round releases, of copies and sums of whole models
        if self.codec.traits.differences and getattr(self.algorithm, "fragments", 1) > 1:
            where = places(self.algorithm, state.rows.shape[-1], round=round)  # [Q]
            kept = kept or dict.fromkeys(chain(*names), state.public.rows * self.even)
        few = _Few(
            net,
            codec=self.codec,
            gamma=gamma,
            round=round,
            names=names,
            kept=kept,
            where=where,
            whole=whole,
            even=self.even,
        )
        after = await self.algorithm.round(replace(state, extra=extra), learner, few, round)
        return replace(after, extra={**after.extra, **few.kept})


def names_of(graph: int) -> tuple[str, str]:
    """Return the names of the tensors that belong to :class:`Compressed`, ``[R, P]`` each, for a graph of a schedule.

    Examples
    --------
    >>> names_of(0), names_of(2)
    (('copies', 'sums'), ('copies 2', 'sums 2'))
    """
    return (f"copies {graph}", f"sums {graph}") if graph else ("copies", "sums")


class _Few(Wrapped):
    """Neighbourhood of one round that mixes encoded models."""

    def __init__(
        self,
        net: Neighbourhood,
        *,
        codec: Codec,
        gamma: float,
        round: int,
        names: Sequence[tuple[str, str]],
        kept: dict[str, Rows],
        where: torch.Tensor | None,
        whole: bool,
        even: bool,
    ) -> None:
        self.kept = kept
        self._names = names
        self._where = where
        self._released = False
        super().__init__(net)
        self._codec = codec
        self._gamma = gamma
        self._round = round
        self._whole = whole
        self._even = even
        self._step = 0  # of those that are encoded
        self._exchanges = 0

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release models through the wrapped neighbourhood."""
        self._released = True
        if self._codec.traits.differences and not self.kept:  # of what all have nobody need send anything
            self.kept = dict.fromkeys(chain(*self._names), since.rows * self._even)
        return await self._net.release(rows, since=since, masses=masses)

    async def receive(self, released: Released) -> ReceivedModels:
        """Receive as the wrapped neighbourhood does."""
        self._exchanges += 1
        return await self._net.receive(released)

    async def mix(self, released: Released) -> Released:
        """Return the weighted average of the encoded models.

        Raises
        ------
        RunError
            The models have another length than the released ones.
        """
        graph = (self._round + self._exchanges) % len(self._names)
        self._exchanges += 1
        if not self._released:  # numbers of steps, and what else is public by itself
            return await self._net.mix(released)
        at = At(self.peers, self._round, self._step)
        self._step += 1
        own, masses = released.values, released.masses
        if not self._codec.traits.differences:
            left, short = encode_rows(self._codec, own, at=at)  # [R, P]
            mixed = await self._net.mix(Released(left, masses, coded=short))
            return Released(mixed.values + (own - left), mixed.masses)
        copies, sums = (part_of(self.kept[name], self._where) for name in self._names[graph])  # [R, Q]
        if own.shape != copies.shape:
            raise RunError(
                f"the algorithm releases {copies.shape[-1]} numbers and mixes {own.shape[-1]}, whose differences "
                'cannot be compressed; set compression.name to "none"'
            )
        if self._whole and not at.step:
            mixed = await self._net.mix(released)
            self._keep(graph, own, mixed.values)
            return mixed
        left, short = encode_rows(self._codec, own - copies, at=at)  # [R, Q]
        mixed = await self._net.mix(Released(left, masses, coded=short, apart=sums - copies))
        copies, sums = copies + left, sums + mixed.values
        self._keep(graph, copies, sums)
        if masses is not None and mixed.masses is not None:
            masses = masses + self._gamma * (mixed.masses - masses)
        return Released(own + self._gamma * (sums - copies), masses)

    def _keep(self, graph: int, *rows: Rows) -> None:
        """Replace the copies and sums of a graph, ``[R, Q]`` each."""
        for name, part in zip(self._names[graph], rows, strict=True):
            self.kept[name] = with_part(self.kept[name], part, self._where)
