"""Compressed gossip for any algorithm: CHOCO-Gossip replaces its mixing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State
from p2pfl.core.codecs import At, Codec, encode_rows
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import Neighbourhood, Public, Released, Wrapped
from p2pfl.core.rows import Rows, to_device
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
        sums; 1 is the plain algorithm if it makes one gossip step. ``None`` never resets.
    even
        True if each receiver's weights sum to one. If only each sender's do (push), sums of the common start differ,
        and copies start at zero.

    Examples
    --------
    >>> from p2pfl.algorithms import FedAvg
    >>> from p2pfl.core.codecs import Quantise
    >>> Compressed(FedAvg(), Quantise(8), refresh=10).refresh
    10

    References
    ----------
    Koloskova, Stich, Jaggi, Decentralized stochastic optimization and gossip algorithms with compressed communication,
    ICML 2019, Algorithms 1 and 5 (the memory-efficient form).
    """

    algorithm: Algorithm
    codec: Codec
    gamma: float | None = None
    refresh: int | None = None
    even: bool = True

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of the algorithm over a compressed neighbourhood."""
        extra = dict(state.extra)
        copies, sums = extra.pop(COPIES, None), extra.pop(SUMS, None)
        whole = self.refresh is not None and round % self.refresh == 0
        gamma = self.codec.gamma(state.rows.shape[-1]) if self.gamma is None else self.gamma
        where = None  # places of what a round releases, of copies and sums of whole models
        if self.codec.traits.differences and getattr(self.algorithm, "fragments", 1) > 1:
            where = to_device(places(self.algorithm, state.rows.shape[-1], round=round), state.rows.device)  # [Q]
            if copies is None or sums is None:
                copies = sums = state.public.rows * self.even
        few = _Few(
            net,
            codec=self.codec,
            gamma=gamma,
            round=round,
            copies=copies if copies is None or where is None else copies.index_select(-1, where),
            sums=sums if sums is None or where is None else sums.index_select(-1, where),
            whole=whole,
            even=self.even,
        )
        after = await self.algorithm.round(replace(state, extra=extra), learner, few, round)
        if few.copies is None or few.sums is None:
            return after
        if where is None or copies is None or sums is None:
            copies, sums = few.copies, few.sums
        else:
            copies, sums = copies.index_copy(-1, where, few.copies), sums.index_copy(-1, where, few.sums)
        return replace(after, extra={**after.extra, COPIES: copies, SUMS: sums})


COPIES, SUMS = "copies", "sums"
"""Names of the tensors that belong to :class:`Compressed`, ``[R, P]`` each."""


class _Few(Wrapped):
    """Neighbourhood of one round that mixes encoded models."""

    def __init__(
        self,
        net: Neighbourhood,
        *,
        codec: Codec,
        gamma: float,
        round: int,
        copies: Rows | None,
        sums: Rows | None,
        whole: bool,
        even: bool,
    ) -> None:
        self.copies = copies
        self.sums = sums
        self._released = False
        super().__init__(net)
        self._codec = codec
        self._gamma = gamma
        self._round = round
        self._whole = whole
        self._even = even
        self._step = 0

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release models through the wrapped neighbourhood."""
        self._released = True
        if self._codec.traits.differences and (self.copies is None or self.sums is None):
            self.copies = self.sums = since.rows * self._even  # of what all have nobody need send anything
        return await self._net.release(rows, since=since, masses=masses)

    async def mix(self, released: Released) -> Released:
        """Return the weighted average of the encoded models.

        Raises
        ------
        RunError
            The models have another length than the released ones.
        """
        if not self._released:  # numbers of steps, and what else is public by itself
            return await self._net.mix(released)
        at = At(self.peers, self._round, self._step)
        self._step += 1
        own, masses = released.values, released.masses
        if not self._codec.traits.differences:
            left, short = encode_rows(self._codec, own, at=at)  # [R, P]
            mixed = await self._net.mix(Released(left, masses, coded=short))
            return Released(mixed.values + (own - left), mixed.masses)
        assert self.copies is not None and self.sums is not None  # noqa: S101, PT018 (since the first release)
        if own.shape != self.copies.shape:
            raise RunError(
                f"the algorithm releases {self.copies.shape[-1]} numbers and mixes {own.shape[-1]}, whose differences "
                'cannot be compressed; set compression.name to "none"'
            )
        if self._whole and not at.step:
            mixed = await self._net.mix(released)
            self.copies, self.sums = own, mixed.values
            return mixed
        left, short = encode_rows(self._codec, own - self.copies, at=at)  # [R, P]
        mixed = await self._net.mix(Released(left, masses, coded=short, apart=self.sums - self.copies))
        self.copies, self.sums = self.copies + left, self.sums + mixed.values
        if masses is not None and mixed.masses is not None:
            masses = masses + self._gamma * (mixed.masses - masses)
        return Released(own + self._gamma * (self.sums - self.copies), masses)
