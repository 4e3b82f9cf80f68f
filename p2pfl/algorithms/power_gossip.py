"""PowerGossip: neighbours exchange the leading directions of their difference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.gossip import UNSET, Gossip
from p2pfl.algorithms.message_slots import one_graph, slots, width
from p2pfl.core.draws import keys, subkeys
from p2pfl.core.errors import ExperimentError, TopologyError
from p2pfl.core.neighbourhood import Neighbourhood, ReceivedModels, Released
from p2pfl.core.rows import Layout, Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits
from p2pfl.topology import UNBOUND, Schedule, Topology, Weights


@dataclass(frozen=True)
class PowerGossip:
    r"""A local step, then gossip along the leading directions of each edge's difference.

    For each matrix X of the model, both ends of an edge know an orthonormal :math:`\hat v` of ``rank`` columns. In
    gossip steps of even number

    .. math:: p_i = X_i \hat v_{ij}, \qquad
              X_i \leftarrow X_i + \sum_j W_{ij} (p_j - p_i) \hat v_{ij}^\top, \qquad
              \hat u_{ij} = \mathrm{orth}(p_i - p_j)

    and in those of odd number the same for the transposed matrices, along :math:`\hat u_{ij}`, which gives the next
    :math:`\hat v_{ij}`. Each gossip step is a step of the power iteration, which continues from round to round. There
    is no error feedback and no step size. The mean of the models is conserved. Tensors of one dimension are sent whole.

    A peer sends one message to all neighbours: one :math:`p_i` for each edge, and for each edge a flag whether its
    direction is warm. Ends with different flags (one missed the other's message) draw a direction by key and start
    again. Messages are as long as the peer with the most neighbours requires.

    Parameters
    ----------
    topology, weights
        Constant, undirected topology and symmetric weights; a run fills them in.
    layout
        Layout of the models; a run fills it in.
    seed
        Seed of the first directions.
    gossip
        Gossip steps per round; one in the paper's shortest form.
    rank
        Columns of a direction; with the smaller side of a square matrix it is plain gossip.

    Raises
    ------
    TopologyError
        The topology is a schedule or directed, or the weights are not symmetric.
    ExperimentError
        The gossip is accelerated.

    Examples
    --------
    >>> PowerGossip(rank=2).rank
    2

    References
    ----------
    Vogels, Karimireddy and Jaggi, Practical low-rank communication compression in decentralized deep learning,
    NeurIPS 2020, Algorithm 1.
    """

    traits: ClassVar[Traits] = Traits(
        full_participation=True,
        default_steps=1,
        nonlinear="sends products of rows",
        no_privacy="sends products of rows, in which masks do not cancel",
        no_compression="sends products of rows, which are few already",
        needs_plain_averages="mixes differences of rows along directions of its own",
        needs_one_graph="remembers what each neighbour sent",
        needs_symmetric_weights="mixes differences",
        no_acceleration="takes steps that are no powers of one matrix",
        state_per_edge="keeps a vector for each edge",
    )
    topology: Topology | Schedule = UNBOUND
    weights: tuple[Weights, ...] = ()
    layout: Layout = Layout((), ())
    seed: int = 0
    gossip: Gossip = UNSET
    rank: Annotated[int, Meta(ge=1)] = 1

    def __post_init__(self) -> None:
        graph = one_graph(self.topology, name="power_gossip")
        if graph.directed or not all(each.symmetric for each in self.weights[:1]):
            raise TopologyError(
                "power_gossip does not work with asymmetric weights, because it mixes differences; take an undirected "
                'topology and gossip.weights = "metropolis"'
            )
        if self.gossip.rho is not None:
            raise ExperimentError(
                "gossip.acceleration does not work with power_gossip, whose steps are no powers of one matrix; leave "
                "it out, or take another algorithm"
            )

    @property
    def beside(self) -> int:
        """Largest count of numbers that a message has beside a model."""
        degree = width(self.topology.at(0))
        return max(0, *(degree * (sum(self._sizes(odd=odd)) + 1) for odd in (False, True)))

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: a local step and its gossip steps."""
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        rows = (await net.release(fitted.rows, since=state.public)).values  # [R, P]
        warm = state.extra
        for step in range(self.gossip.steps):
            rows, warm = await self.exchange(net, rows, warm, number=round * self.gossip.steps + step)
        return State(rows, Released(rows).public, fitted.memory, warm, fitted.report)

    async def exchange(
        self, net: Neighbourhood, rows: Rows, warm: Mapping[str, torch.Tensor], *, number: int
    ) -> tuple[Rows, dict[str, torch.Tensor]]:
        """Run one gossip step of public models.

        Parameters
        ----------
        net
            Neighbourhood that carries the messages.
        rows
            Public models, ``[R, P]``.
        warm
            Second result of the previous gossip step; empty at first.
        number
            Number of the gossip step, the same for all peers.

        Returns
        -------
        rows, warm
            The mixed models; and ``direction`` ``[R, D, F]``, zero where an edge starts again, with ``number``
            ``[R, 1]`` of the gossip step that it is for.
        """
        odd, graph = bool(number % 2), self.topology.at(0)
        matrices, vectors = self._split(rows, odd=odd)  # [R, n, m] each, [R, V]
        previous = self._previous(warm, rows, number=number)  # [R, D, F]
        flags = previous.any(-1).to(rows)  # [R, D]
        along = self._orthonormal(net.peers, previous, number=number)  # [R, D, m, r] each
        products = [_project(x, v).flatten(2) for x, v in zip(matrices, along, strict=True)]
        own = torch.cat([previous[..., :0], *products], dim=-1)  # [R, D, L]
        received = await net.receive(Released(torch.cat([own.flatten(1), flags, vectors], dim=-1)))
        others = received.sender != received.listener  # [E]
        listener, sender, slot, back = slots(graph, net.peers, received)  # [E] each
        theirs, their_flags, whole = received.rows.tensor_split(
            [own[0].numel(), own[0].numel() + flags.shape[-1]], dim=-1
        )
        alike = (their_flags[sender, back] == flags[listener, slot]).unsqueeze(-1)  # [E, 1]
        gap = (own[listener, slot] - theirs.view(len(theirs), *own.shape[1:])[sender, back]) * alike  # [E, L]
        pulls = torch.zeros_like(own)  # [R, D, L]
        weights = to_device(received.weights[others], rows.device).to(rows).unsqueeze(-1)  # [E, 1]
        pulls[listener, slot] = weights * gap
        moved = [x - _expand(p, v) for x, p, v in zip(matrices, self._parts(pulls, odd=odd), along, strict=True)]
        vectors = vectors.index_add(0, listener, weights * (whole[sender] - vectors[listener]))
        fresh = torch.zeros_like(previous)
        fresh[listener, slot, : own.shape[-1]] = gap * to_device(_signs(graph, net.peers, received), gap.device).to(gap)
        after = torch.full((len(rows), 1), number + 1, device=rows.device)  # [R, 1]
        return self._join(moved, vectors, odd=odd), {"direction": fresh, "number": after}

    def _matrices(self, *, odd: bool) -> list[tuple[int, int, int]]:
        """Return rows, columns and rank of each matrix, as this gossip step multiplies it."""
        both = [(shape[0], math.prod(shape[1:])) for shape in self.layout.shapes if len(shape) > 1]
        return [(m, n, min(self.rank, n, m)) if odd else (n, m, min(self.rank, n, m)) for n, m in both]

    def _sizes(self, *, odd: bool) -> list[int]:
        """Return the size of each matrix's product with a direction."""
        return [n * r for n, _, r in self._matrices(odd=odd)]

    def _split(self, rows: Rows, *, odd: bool) -> tuple[list[torch.Tensor], Rows]:
        """Return the matrices ``[R, n, m]``, transposed if ``odd``, and the vectors ``[R, V]``."""
        parts = list(self.layout.split(rows).values())
        matrices = [part.flatten(2) for part in parts if part.dim() > 2]
        vectors = [part.reshape(len(rows), -1) for part in parts if part.dim() <= 2]
        return [each.mT if odd else each for each in matrices], torch.cat([rows[:, :0], *vectors], dim=-1)

    def _join(self, matrices: list[torch.Tensor], vectors: Rows, *, odd: bool) -> Rows:
        """Return models ``[R, P]``; the inverse of :meth:`_split`."""
        flat, start, columns = iter(matrices), 0, []
        for shape, size in zip(self.layout.shapes, self.layout.sizes, strict=True):
            if len(shape) > 1:
                matrix = next(flat)
                columns.append((matrix.mT if odd else matrix).flatten(1))
            else:
                columns.append(vectors[:, start : start + size])
                start += size
        return torch.cat(columns, dim=-1)  # [R, P]

    def _parts(self, blocks: torch.Tensor, *, odd: bool) -> list[torch.Tensor]:
        """Return the parts ``[R, D, n, r]`` of ``[R, D, L]`` for each matrix."""
        shapes, sizes = self._matrices(odd=odd), self._sizes(odd=odd)
        parts = torch.split(blocks[..., : sum(sizes)], sizes, dim=-1)
        return [part.view(*part.shape[:-1], n, r) for part, (n, _, r) in zip(parts, shapes, strict=True)]

    def _previous(self, warm: Mapping[str, torch.Tensor], rows: Rows, *, number: int) -> torch.Tensor:
        """Return the directions from the previous gossip step, ``[R, D, F]``; zero where there are none."""
        longest = max(sum(self._sizes(odd=odd)) for odd in (False, True))
        nothing = rows.new_zeros(len(rows), width(self.topology.at(0)), longest)  # [R, D, F]
        if not warm:
            return nothing
        return torch.where((warm["number"] == number).unsqueeze(-1), warm["direction"], nothing)

    def _orthonormal(self, peers: tuple[str, ...], previous: torch.Tensor, *, number: int) -> list[torch.Tensor]:
        """Return the directions by which each matrix is multiplied, ``[R, D, m, r]``; drawn where none was found."""
        odd, graph = not number % 2, self.topology.at(0)
        parts = self._parts(previous, odd=odd)
        counts = torch.tensor([len(graph.senders(peer)) for peer in peers])  # [R]
        real = to_device(torch.arange(previous.shape[1]) < counts.unsqueeze(-1), previous.device)  # [R, D]
        cold = [real & ~part.flatten(2).any(-1) for part in parts]  # [R, D] each
        if previous.device.type != "cpu" or any(bool(each.any()) for each in cold):
            drawn = self._parts(self._draw(peers, previous, number=number), odd=odd)
            parts = [torch.where(c[..., None, None], n, p) for c, n, p in zip(cold, drawn, parts, strict=True)]
        wide = [torch.linalg.qr(part.double()).Q for part in parts]  # both ends must find the same, on any processor
        return [(each * real[..., None, None]).to(previous) for each in wide]

    def _draw(self, peers: tuple[str, ...], previous: torch.Tensor, *, number: int) -> torch.Tensor:
        """Return a direction for each edge, ``[R, D, F]``: numbers uniform in [-1, 1), the same at both ends."""
        count, degree, longest = previous.shape
        names = [["\0".join(sorted((peer, other))) for other in self.topology.at(0).senders(peer)] for peer in peers]
        padded = tuple(name for each in names for name in (*each, *[""] * (degree - len(each))))
        each = torch.from_numpy(keys(self.seed, "power gossip", padded, number)).view(count, degree, 1)
        bits = subkeys(to_device(each, previous.device), torch.arange(longest, device=previous.device))  # [R, D, F]
        return ((bits >> 11).double() * 2.0**-52).to(previous.dtype)


def _project(matrices: torch.Tensor, along: torch.Tensor) -> torch.Tensor:
    """Return ``X v`` for each place: ``[R, n, m]`` and ``[R, D, m, r]`` to ``[R, D, n, r]``."""
    wide = matrices @ along.transpose(1, 2).flatten(2)  # [R, n, D r]
    return wide.view(*wide.shape[:2], along.shape[1], along.shape[3]).transpose(1, 2)


def _expand(products: torch.Tensor, along: torch.Tensor) -> torch.Tensor:
    """Return the sum over places of ``p v^T``: ``[R, D, n, r]`` and ``[R, D, m, r]`` to ``[R, n, m]``."""
    return products.transpose(1, 2).flatten(2) @ along.transpose(1, 2).flatten(2).mT


def _signs(graph: Topology, peers: tuple[str, ...], received: ReceivedModels) -> torch.Tensor:
    """Return 1 where the receiver precedes the sender, else -1, ``[E, 1]``, so both ends keep one direction."""
    order = {peer: number for number, peer in enumerate(graph.peers)}
    pairs = zip(
        received.listener.tolist(),
        received.sender.tolist(),
        received.sender.ne(received.listener).tolist(),
        strict=True,
    )
    ahead = [order[peers[to]] < order[received.peers[by]] for to, by, other in pairs if other]
    return torch.tensor(ahead).to(torch.float64).reshape(-1, 1) * 2 - 1  # [E, 1]
