"""Any algorithm over exchanges of few bytes: CHOCO-Gossip under its mixing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from p2pfl.algorithms.algorithm import Algorithm, AsyncLearner, State
from p2pfl.compression import At, Codec, coded
from p2pfl.encodings import Ints
from p2pfl.errors import RunError
from p2pfl.neighbourhood import Contribution, Heard, Neighbourhood, Public, Released
from p2pfl.rows import Rows


@dataclass(frozen=True)
class Compressed:
    r"""An algorithm that mixes what codecs leave of its rows.

    A codec of differences acts on the difference from what all have of a row already. Each exchange
    mixes y as CHOCO-Gossip does,

    .. math:: q_i = Q(y_i - \hat x_i), \qquad \hat x_i \leftarrow \hat x_i + q_i, \qquad
              s_i \leftarrow s_i + \sum_j W_{ij} q_j, \qquad y_i \leftarrow y_i + \gamma (s_i - \hat x_i)

    where the sum s takes the place of the neighbours' copies, so that a peer keeps two rows however many
    neighbours it has. What Q loses now is in the next difference: that is the feedback of errors. The mean of
    the rows is kept. Any other codec acts on the row itself, whose loss stays with its owner:
    :math:`y_i \leftarrow y_i - Q(y_i) + \sum_j W_{ij} Q(y_j)`. What an algorithm only hears (the flooding of
    sample sizes), or mixes before it releases anything (FedNova's numbers of steps), travels whole.

    The copies and sums are tensors of the state, saved and restored with it. They begin at what all have seen when the
    first row is released, the common start or the part of it that is shared (FedPer), which nobody need send. A
    difference that is missed stays missing in the listener's sum, until ``refresh``.

    Parameters
    ----------
    algorithm
        Releases one row a round.
    codec
        Q.
    gamma
        The step of consensus; the codec's own by default, which is safe on rings, stars and complete graphs. A sparse
        graph bears about twice as much; too much diverges.
    refresh
        Every so many rounds the first exchange sends whole rows, mixes them plainly, and starts copies and sums anew;
        1 is the plain algorithm where it makes one exchange. ``None`` never does.
    even
        Whether everybody's weights of what it hears sum to one. Where only those of what is said do (push), sums of the
        common start differ, and copies begin at zero.

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
        """One round of the algorithm."""
        extra = dict(state.extra)
        copies, sums = extra.pop(COPIES, None), extra.pop(SUMS, None)
        whole = self.refresh is not None and round % self.refresh == 0
        gamma = self.codec.gamma(state.rows.shape[-1]) if self.gamma is None else self.gamma
        few = _Few(
            net, codec=self.codec, gamma=gamma, round=round, copies=copies, sums=sums, whole=whole, even=self.even
        )
        after = await self.algorithm.round(replace(state, extra=extra), learner, few, round)
        if few.copies is None or few.sums is None:
            return after
        return replace(after, extra={**after.extra, COPIES: few.copies, SUMS: few.sums})


COPIES, SUMS = "copies", "sums"
"""Names of the tensors that belong to :class:`Compressed`, ``[R, P]`` each."""


class _Few:
    """One round's neighbourhood that mixes by few bytes."""

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
        self._net = net
        self._codec = codec
        self._gamma = gamma
        self._round = round
        self._whole = whole
        self._even = even
        self._step = 0

    @property
    def peers(self) -> tuple[str, ...]:
        """Whose R rows these are."""
        return self._net.peers

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """As the wrapped neighbourhood releases."""
        self._released = True
        if self._codec.traits.differences and (self.copies is None or self.sums is None):
            self.copies = self.sums = since.rows * self._even  # of what all have nobody need send anything
        return await self._net.release(rows, since=since, masses=masses)

    async def hear(self, released: Released) -> Heard:
        """As the wrapped neighbourhood hears, whole rows."""
        return await self._net.hear(released)

    async def total(
        self, contribution: Contribution, *, size: int, bits: int = 64, change: float | None = None
    ) -> Ints:
        """Add up as the wrapped neighbourhood does, without compression."""
        return await self._net.total(contribution, size=size, bits=bits, change=change)

    async def mix(self, released: Released) -> Released:
        """Mix what is left of the rows.

        Raises
        ------
        RunError
            They are not those that have been tracked.
        """
        if not self._released:  # numbers of steps, and what else is public by itself
            return await self._net.mix(released)
        at = At(self.peers, self._round, self._step)
        self._step += 1
        own, masses = released.values, released.masses
        if not self._codec.traits.differences:
            left, short = coded(self._codec, own, at=at)  # [R, P]
            mixed = await self._net.mix(Released(left, masses, coded=short))
            return Released(mixed.values + (own - left), mixed.masses)
        assert self.copies is not None and self.sums is not None  # noqa: S101, PT018 (since the first release)
        if own.shape != self.copies.shape:
            raise RunError(
                f"expected an algorithm that mixes what it releases, rows of {self.copies.shape[-1]} numbers, got "
                f'{own.shape[-1]}: set compression.name = "none"'
            )
        if self._whole and not at.step:
            mixed = await self._net.mix(released)
            self.copies, self.sums = own, mixed.values
            return mixed
        left, short = coded(self._codec, own - self.copies, at=at)  # [R, P]
        mixed = await self._net.mix(Released(left, masses, coded=short, apart=self.sums - self.copies))
        self.copies, self.sums = self.copies + left, self.sums + mixed.values
        if masses is not None and mixed.masses is not None:
            masses = masses + self._gamma * (mixed.masses - masses)
        return Released(own + self._gamma * (self.sums - self.copies), masses)
