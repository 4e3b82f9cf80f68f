"""Simulated sums with all masks and all messages, which the simulation leaves out because masks cancel."""

import numpy as np
import torch

from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import swarm_secrets
from p2pfl.privacy.secagg.in_process import partners
from p2pfl.privacy.secagg.protocol import Sender, Sum, SumSlot
from p2pfl.privacy.secagg.weighted_sums import portion
from p2pfl.privacy.total_masks import to_signed
from p2pfl.simulation.secagg import SummedNeighbourhood

SOURCE = SeededSource(7)


def run_sum(which, terms, *, secrets):
    """Return the participant set and the sum of the terms that are ready, by sender; there is none of too few."""
    here = tuple(sorted(terms))
    if len(here) < which.fewest:
        return (), None
    shares = [Sender(which, peer=peer, secrets=secrets).share(terms[peer].copy(), here) for peer in here]
    return here, to_signed(np.sum(shares, axis=0, dtype=shares[0].dtype))


class MaskedNeighbourhood(SummedNeighbourhood):
    """The same round of all peers, with every mask drawn: one receiver after the other."""

    def _sums(self, near):
        weights = self.weights[0]
        secrets = swarm_secrets(partners(weights), source=SOURCE, run="test")
        rows = near.rows.numpy()  # [N, P]
        sums = np.empty(rows.shape, np.int64)  # [N, P]
        for row, receiver in enumerate(self.peers):
            own, terms = _row(near.matrix, row)
            sums[row] = portion(rows[row], weight=own)
            if not terms:
                continue
            senders = tuple(self.peers[each] for each in _row(weights.matrix, row)[1])
            facts = {"place": row, "size": rows.shape[-1], "width": self.width, "colluders": self.colluders}
            which = Sum(SumSlot(receiver, self.round, self.step), senders, **facts)
            points = {self.peers[each]: portion(rows[each], weight=weight) for each, weight in terms.items()}
            here, total = run_sum(which, points, secrets=secrets)
            assert len(here) == len(terms)
            sums[row] += total
        return torch.from_numpy(sums)


def _row(matrix, receiver):
    """Return the own weight of a receiver, and those of the neighbours that it receives from."""
    span = slice(matrix.indptr[receiver], matrix.indptr[receiver + 1])
    given = dict(zip(matrix.indices[span].tolist(), matrix.data[span].tolist(), strict=True))
    return given.pop(receiver, 0.0), given
