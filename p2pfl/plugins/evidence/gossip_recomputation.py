"""Models of gossip, computed again from the rows that peers have kept: the algorithm runs with unknown training.

The algorithm of the experiment plays each round of a peer once more. Its releases are the rows in the evidence, its
mixing is that of live peers, and what training returns is not a number. So every number of the result follows from
released rows alone, and is the model of the peer to the bit, or the peer has not done what the experiment says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import torch

from p2pfl.algorithms import Idle, State, start
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import InputError, RunError
from p2pfl.core.neighbourhood import (
    Contribution,
    Public,
    ReceivedModels,
    Released,
    TotalOptions,
    run_without_loop,
)
from p2pfl.core.rows import Rows
from p2pfl.experiment import Plan
from p2pfl.learning import Fitted, Fitting, Sloping
from p2pfl.network.peer.masking.mask_cover import peer_ledgers_of
from p2pfl.network.peer.masking.round_attempts import EARLIEST_STOP, first_step, steps_of_half
from p2pfl.network.peer.neighbourhoods.live import Conserved, Weighted, row_fault, values
from p2pfl.network.protocol.ledgers.peer_ledgers import WINDOW
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.wire.wire_rows import Delivery, Head
from p2pfl.plugins.evidence.recorded_chain import PeerEvidence
from p2pfl.plugins.evidence.verification import Difference
from p2pfl.results.evidence import KEY_SUFFIX, PeerBegan, RoundPlayed, RowSent, row_digest
from p2pfl.results.formats import count_of
from p2pfl.results.sent_rows import SentRow, read_row


class _UnknownError(InputError):
    """Error for a round that cannot be computed, as a row is not there."""


class _ChangedRowError(InputError):
    """Error for a file that is not the row of its digest; anybody who has the file can change it."""


class _DeviationError(Exception):
    """Error for a row that a peer has sent, and that does not follow from those before."""


class UnknownTraining(Idle):
    """Learner whose result nobody knows: no number."""

    async def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Return rows without a number."""
        return await super().fit(torch.full_like(rows, torch.nan), **options)

    async def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        """Return gradients without a number."""
        del options
        return torch.full_like(rows, torch.nan)


class RecordedNeighbourhood:
    """One round of one peer, with the rows of its evidence.

    Parameters
    ----------
    plan
        Plan of the experiment.
    peer, played
        The peer, and its evidence of the round.
    sent
        Digests of the rows that it sent in the round, by gossip step.
    runs
        Run directories with rows.
    large
        True if rows are mixed as those that come one at a time.
    """

    def __init__(
        self,
        plan: Plan,
        peer: str,
        played: RoundPlayed,
        *,
        sent: Mapping[int, str],
        runs: Sequence[Path],
        large: bool,
    ) -> None:
        self.plan, self.played, self.round = plan, played, played.round
        self.peers = (peer,)
        self._sent, self._runs = sent, runs
        self.step = self._first_step()
        self._edges = Edges(peer, plan.topology, plan.weights)
        self._ledgers = peer_ledgers_of(plan, peer, large=large)

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Return rows without a number; :meth:`mix` takes those that the peer sent."""
        del since
        return Released(torch.full_like(rows, torch.nan), masses)

    async def mix(self, released: Released) -> Released:
        """Return the average that a live peer computes of the rows."""
        own, weights, like = self._own(released), self._row_weights(), released
        if released.chain is None:  # the first gossip step after a release
            released = self._released(own)
        elif SentRow.of(released).digest != own.digest:
            raise _DeviationError(f"the row of gossip step {self.step} does not follow from the rows before")
        total = self._sum(released, dict(weights))
        for sender, delivery in self._deliveries(weights, like=like, weighted=like.masses is not None):
            total.add(sender, weights[sender], delivery)
        self.step += 1
        return replace(total.close(), chain=self.step)

    async def receive(self, released: Released) -> ReceivedModels:
        """Return the rows of all, the own one first."""
        own, weights = self._released(self._own(released)), self._row_weights()
        rows, peers, used = [own.values], [self.peers[0]], [weights[self.peers[0]]]
        for sender, delivery in self._deliveries(weights, like=released, weighted=False):
            rows.append(values(delivery, own).to(rows[0]).unsqueeze(0))
            peers.append(sender)
            used.append(weights[sender])
        self.step += 1
        count = len(rows)
        shares = torch.tensor(used, dtype=torch.float64)
        edges = torch.zeros(count, dtype=torch.int64), torch.arange(count)
        return ReceivedModels(torch.cat(rows), *edges, shares, tuple(peers))

    async def total(self, contribution: Contribution, **options: Unpack[TotalOptions]) -> Ints:
        """Raise an error, as rows do not show what peers added to a total."""
        del contribution, options
        raise _UnknownError("the algorithm takes totals in its rounds, which rows do not show")

    def _first_step(self) -> int:
        """Return the first gossip step of the attempt at the round that counts, which is the last one."""
        if not self.plan.commits:
            return 0
        half = steps_of_half(self.plan.topology.period)
        last = max(self._sent, default=0)
        floods = self.plan.stop is not None and self.round >= EARLIEST_STOP
        return first_step(half, attempts=last // (2 * half), floods=floods)

    def _row_weights(self) -> dict[str, float]:
        return self._edges.row(self._phase)

    @property
    def _phase(self) -> int:
        return (self.round + self.step) % self._edges.period

    def _sum(self, released: Released, weights: dict[str, float]) -> Weighted | Conserved:
        share = weights.pop(self.peers[0], 0.0)
        if not self._ledgers.conserving:
            return Weighted(released, share)
        step = (self.round, self.step)
        total = Conserved(released, self._ledgers, gossip_step=step, chain=self.step)
        self._ledgers.open(step, total.own, weights=weights, chain=self.step)
        return total

    def _deliveries(
        self, weights: Mapping[str, float], *, like: Released, weighted: bool
    ) -> list[tuple[str, Delivery]]:
        """Return the row of each neighbour, in the order in which a live peer adds them."""
        turns, key = self._edges.turns[self._phase], f"{self.round}.{self.step}"
        rows = []
        for _, sender in sorted((turns[peer], peer) for peer in weights if peer != self.peers[0]):
            digest = self.played.received.get(sender, {}).get(key)
            if digest is None:
                raise _UnknownError(f"the row of {sender} did not arrive")
            delivery = self._delivery(self._row(digest, sender, like=like))
            if fault := row_fault(delivery, like=like, weighted=weighted, peers=self._edges.peers):
                raise _UnknownError(f"the row of {sender} is no model of this run ({fault})")
            rows.append((sender, delivery))
        return rows

    def _own(self, like: Released) -> SentRow:
        digest = self._sent.get(self.step)
        if digest is None:
            raise _UnknownError("its own row is not in its evidence")
        return self._row(digest, self.peers[0], like=like)

    def _row(self, digest: str, sender: str, *, like: Released) -> SentRow:
        try:
            sent = read_row(self._runs, sender, digest, size=like.rows.shape[-1])
        except InputError as error:
            raise _ChangedRowError(str(error)) from None
        if sent is None:
            raise _UnknownError(f"{sender} has not kept its row")
        return sent

    def _grid(self, sent: SentRow) -> int | None:
        return None if sent.row.is_floating_point() else self.plan.experiment.privacy.bits

    def _released(self, sent: SentRow) -> Released:
        grid = self._grid(sent)
        row = sent.row if grid is None else sent.row.to(torch.int64)
        masses = None if sent.mass is None else torch.tensor([[sent.mass]], dtype=torch.float64)
        return Released(row.unsqueeze(0), masses, grid=grid, dtype=self.plan.learner.dtype)

    def _delivery(self, sent: SentRow) -> Delivery:
        head = Head(self.round, self.step, "float32", len(sent.row), self._grid(sent), sent.mass)
        return Delivery(head, sent.row)


def recompute_gossip(resolved: Plan, chains: Sequence[PeerEvidence]) -> tuple[list[Difference], list[str], list[str]]:
    """Return rounds whose model does not follow from the rows, what was computed, and what was not.

    Where rows were lost or a peer began again, the rounds after it settle what one end of an edge lacked. Of these a
    round whose model is another one is named as not computed.

    Parameters
    ----------
    resolved
        Plan of a model of gossip.
    chains
        Evidence of each peer.
    """
    runs = sorted({own.folder for own in chains})
    disturbed = {round for own in chains for round in _disturbed(own, resolved)}
    differences, unknown, count = list[Difference](), defaultdict[tuple[str, str], list[int]](list), 0
    for own in chains:
        recorded = _RecordedPeer(resolved, own, runs)
        state: State | None = start(resolved.learner, (own.peer,))
        before = -1
        for round, played in own.played.items():
            state = state if round == before + 1 else _forget(state)
            before = round
            try:
                state = recorded.play(played, state)
                count += 1
            except _DeviationError as error:
                if any(each - 1 <= round <= each + WINDOW for each in disturbed):
                    unknown[own.peer, "rows were lost, or a peer began again"].append(round)
                else:
                    differences.append(Difference(own.peer, round, str(error)))
                state = _forget(state)
            except _ChangedRowError as error:
                differences.append(Difference("", -1, str(error)))
                unknown[own.peer, "somebody has changed a row"].append(round)
                state = _forget(state)
            except (InputError, RunError) as error:
                unknown[own.peer, str(error)].append(round)
                state = _forget(state)
    checked = [f"{count_of(count, 'model')} of a peer and round, computed again from rows"] if count else []
    unchecked = [
        f"the models of {peer} in {count_of(len(rounds), 'round')} from round {rounds[0]}, because {reason}"
        for (peer, reason), rounds in unknown.items()
    ]
    return differences, checked, unchecked


class _RecordedPeer:
    """Evidence of one peer, from which its rounds are computed again."""

    def __init__(self, plan: Plan, own: PeerEvidence, runs: Sequence[Path]) -> None:
        self.plan, self.own, self.runs = plan, own, runs

    def play(self, played: RoundPlayed, state: State | None) -> State:
        """Return the state after a round.

        Raises
        ------
        InputError
            It cannot be computed.
        _DeviationError
            The peer has another model, or has sent another row.
        """
        if state is None:
            raise _UnknownError("the state before is not known")
        if not played.public and self.own.key is None:
            raise _UnknownError(f"their digests need {self.own.peer}{KEY_SUFFIX}, or that it keeps its rows")
        try:
            return self._play(played, state, large=False)
        except _DeviationError:
            return self._play(played, state, large=True)

    def _play(self, played: RoundPlayed, state: State, *, large: bool) -> State:
        facts = self.own.facts(played.round)
        sent = {fact.step: fact.row for fact in facts if isinstance(fact, RowSent)}
        net = RecordedNeighbourhood(self.plan, self.own.peer, played, sent=sent, runs=self.runs, large=large)
        learner = UnknownTraining(self.plan.learner)
        try:
            after = run_without_loop(self.plan.algorithm.round(state, learner, net, played.round))
        except (ValueError, RuntimeError, IndexError) as error:
            raise _DeviationError(f"its rows are no models of this experiment ({error})") from None
        if bool(after.rows.isnan().any()):
            raise _UnknownError("training follows the mixing, and is private")
        if row_digest(after.rows[0], None, key=None if played.public else self.own.key) != played.row:
            raise _DeviationError("the model does not follow from the rows that it received")
        return after


def _forget(state: State | None) -> State | None:
    """Return a state whose numbers are all unknown; ``None`` if the algorithm keeps more than models."""
    if state is None or state.memory or state.extra or state.known:
        return None
    unknown = torch.full_like(state.rows, torch.nan)
    return State(unknown, Public(unknown))


def _disturbed(own: PeerEvidence, plan: Plan) -> Iterator[int]:
    """Yield the rounds in which a peer missed a row, or began again."""
    others, round = len(plan.topology.peers) - 1, -1
    for fact in (entry.fact for _, entry in own.entries()):
        if isinstance(fact, RowSent | RoundPlayed):
            round = fact.round
        if isinstance(fact, PeerBegan) and round >= 0:
            yield from (round, round + 1)
        if isinstance(fact, RoundPlayed):
            steps = {f"{round}.{step}" for step in own.sent(round)}
            if sum(len(steps & {*received}) for received in fact.received.values()) < others * len(steps):
                yield round
