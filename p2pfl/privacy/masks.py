r"""Pairwise noise that cancels.

The two ends of an edge draw the same noise row :math:`D_{ij}` from the key they share; the end with
the smaller name adds it, the other subtracts it. With B the signed incidence of the mask graph the
masks of all peers are :math:`B D`, and :math:`1^\top B = 0`: they are integers, so their sum over the
peers is zero to the last bit, while each single row is hidden by the noise of its edges.

References
----------
C. Sabater, A. Bellet, J. Ramon, "An accurate, scalable and verifiable protocol for federated
differentially private averaging" (GOPA), Machine Learning 111, 2022.
Y. Allouah et al., "The privacy power of correlated noise in decentralized learning" (DECOR), ICML 2024.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from p2pfl.core.errors import CoverError, InputError, PrivacyError
from p2pfl.privacy.keys import FIRST, Announced, ExchangeKey, Source, edge_key, edge_secret, epoch_of, epoch_secret
from p2pfl.privacy.normal_stream import MAX_DEVIATIONS, POINT_LIMIT, VALUES_PER_BLOCK, Ints, Sampler, spans, to_grid
from p2pfl.topology import Schedule, Topology

Edge = tuple[str, str]
"""Names of two peers, the smaller first."""


def neighbour_secrets(
    own: ExchangeKey, *, peer: str, publics: Mapping[str, bytes], run: str, epochs: Mapping[str, bytes] | None = None
) -> dict[Edge, bytes]:
    """Return the edge secrets of one peer, as a device needs them.

    Parameters
    ----------
    own, peer
        Its key pair and its name.
    publics
        The authenticated public key of each neighbour.
    run
        As in :func:`p2pfl.privacy.keys.edge_secret`.
    epochs
        By neighbour, the epoch in which the secrets are for use; without them they are those from which the secrets of
        all epochs follow.
    """
    secrets = {other: edge_secret(own, public, run=run) for other, public in publics.items()}
    if epochs is not None:
        secrets = {other: epoch_secret(secret, epochs[other]) for other, secret in secrets.items()}
    return {_edge(peer, other): secret for other, secret in secrets.items()}


def swarm_secrets(topology: Topology | Schedule, *, source: Source, run: str) -> dict[Edge, bytes]:
    """Return the edge secrets of all peers, each in its first incarnation, as a simulation needs them.

    They are those of live peers that draw from the same source and never restart.

    Parameters
    ----------
    topology
        The mask graph; of a schedule, every edge of its period.
    source
        Draws the key pair and the nonce of each peer, as that peer would draw them.
    run
        As in :func:`p2pfl.privacy.keys.edge_secret`.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SeededSource
    >>> from p2pfl.topology import ring
    >>> sorted(swarm_secrets(ring(3), source=SeededSource(7), run="demo"))
    [('peer0', 'peer1'), ('peer0', 'peer2'), ('peer1', 'peer2')]
    """
    keys = {peer: ExchangeKey.from_source(source, peer=peer) for peer in topology.peers}
    ends = {peer: Announced.draw(source, peer=peer, incarnation=FIRST) for peer in topology.peers}
    return {
        (a, b): epoch_secret(edge_secret(keys[a], keys[b].public, run=run), epoch_of(ends[a], ends[b]))
        for a, b in _mask_edges(topology.union)
    }


@dataclass(frozen=True)
class Masks:
    """Masks of the local peers, drawn afresh for every round.

    Parameters
    ----------
    secrets
        Secrets of every edge of a local peer.
    deviation
        Standard deviation of an edge's noise.
    topology
        The mask graph, or one for each round; directed edges mask as undirected ones.
    bits
        Fraction bits of the grid.

    Raises
    ------
    InputError
        The deviation is not a positive number, or so large that masks leave the grid.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SeededSource
    >>> from p2pfl.topology import ring
    >>> swarm = ring(4)
    >>> masks = Masks(swarm_secrets(swarm, source=SeededSource(7), run="demo"), deviation=10.0, topology=swarm)
    >>> sums = masks.sums(swarm.peers, round=0, size=1000)
    >>> sums.shape, bool(sums.any()), bool(sums.sum(axis=0).any())
    ((4, 1000), True, False)
    """

    secrets: Mapping[Edge, bytes] = field(repr=False)
    deviation: float = field(kw_only=True)
    topology: Topology | Schedule = field(kw_only=True, repr=False)
    bits: int = field(kw_only=True, default=20)

    def __post_init__(self) -> None:
        ends = (Counter(end for edge in edges for end in edge) for edges in self._edges)
        degree = max((max(each.values(), default=0) for each in ends), default=0)
        largest = POINT_LIMIT * 2.0**-self.bits / (MAX_DEVIATIONS * max(degree, 1))
        if not 0 < self.deviation < largest:
            raise InputError(
                f"the mask deviation {self.deviation} is not above 0 and below {largest:.6g}, where {degree} "
                f"masks at one peer stay on a grid of {self.bits} bits; change the deviation or the bits"
            )

    def among(self, present: Collection[str], *, least: int = 1) -> "Masks":
        """Return the masks between peers in ``present`` only, as no absent peer subtracts its part.

        Parameters
        ----------
        present
            Peers that take part.
        least
            How many mask partners a peer needs that has any in the whole graph.

        Raises
        ------
        CoverError
            One of them would be left with fewer.
        """
        graph = self.topology.among(present)
        for peer in present:
            if self.topology.neighbours(peer):
                check_partners(peer, graph.neighbours(peer), self.topology.neighbours(peer), least=least)
        return replace(self, topology=graph)

    def sums(self, peers: Sequence[str], *, round: int, size: int, attempt: int = 0) -> Ints:
        """Return the signed sum of each peer's masks, grid points ``[R, P]``.

        An edge with both ends at hand is drawn once, so the whole swarm costs one draw an edge and
        no memory beside the result. The row of a peer does not depend on who else is at hand.

        Parameters
        ----------
        peers
            Names of the R peers.
        round
            Chooses the graph and the keys.
        size
            P, the length of a row.
        attempt
            Number of the release within the round: no mask is ever used twice.

        Raises
        ------
        PrivacyError
            The secret of an edge is missing.
        """
        sums = np.zeros((len(peers), size), np.int64)  # [R, P]
        row = {peer: number for number, peer in enumerate(peers)}
        drawn = self.keys(peers, round=round, attempt=attempt)
        edges, keys = [*drawn], [*drawn.values()]
        sampler = Sampler()
        for columns in spans(size, VALUES_PER_BLOCK):
            for group in spans(len(edges), max(1, VALUES_PER_BLOCK // size)):  # short rows: many edges at a time
                noise = to_grid(sampler.window(keys[group], columns), scale=self.scale)  # [group, columns]
                for (a, b), points in zip(edges[group], noise, strict=True):
                    if a in row:
                        sums[row[a], columns] += points
                    if b in row:
                        sums[row[b], columns] -= points
        return sums

    @property
    def scale(self) -> float:
        """Grid points of a standard deviation."""
        return self.deviation * 2.0**self.bits

    def keys(self, peers: Sequence[str], *, round: int, attempt: int = 0) -> dict[Edge, bytes]:
        """Return the key of each mask of some peers, by edge; :meth:`sums` explains the parameters.

        Raises
        ------
        PrivacyError
            The secret of an edge is missing.
        """
        here = {*peers}
        edges = [edge for edge in self._edges[round % len(self._edges)] if edge[0] in here or edge[1] in here]
        return {edge: self._key(edge, round=round, attempt=attempt) for edge in edges}

    @cached_property
    def _edges(self) -> list[list[Edge]]:
        """Edges of the graph of each round of a period."""
        return [_mask_edges(self.topology.at(number)) for number in range(self.topology.period)]

    def _key(self, edge: Edge, *, round: int, attempt: int) -> bytes:
        if edge not in self.secrets:
            raise PrivacyError(
                f"the edge {edge[0]}-{edge[1]} has no shared secret to mask round {round}; exchange public keys "
                "with all neighbours before the first round"
            )
        return edge_key(self.secrets[edge], purpose="mask", a=edge[0], b=edge[1], round=round, attempt=attempt)


def check_partners(peer: str, here: Collection[str], all_: Collection[str], *, least: int) -> None:
    """Raise :class:`CoverError` if a peer has fewer mask partners than it needs.

    Raises
    ------
    CoverError
        Partners are missing; the message names them.
    """
    if len(here) < least:
        missing = ", ".join(sorted({*all_} - {*here}))
        count = "no mask partner" if not here else f"{len(here)} of its mask partners"
        raise CoverError(
            f"{peer} needs {least} mask partners to release its model and has {count}; start {missing} again, "
            f"or set privacy.partners to {max(1, len(here))} if as few are enough"
        )


def _edge(a: str, b: str) -> Edge:
    return min(a, b), max(a, b)


def _mask_edges(topology: Topology) -> list[Edge]:
    """Return every pair once, whichever way it is directed."""
    return sorted({_edge(a, b) for a, b in topology.edges})
