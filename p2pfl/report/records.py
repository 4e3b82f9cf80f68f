"""One round of one peer, as it is written down."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    r"""One peer's round.

    Attributes
    ----------
    scores
        On the test part: the score named in ``summary.json`` and ``loss``.
    training_loss
        Mean loss of the last local epoch; ``None`` where the peer sat out.
    distance
        How far the last exchange moved the model (L2): zero at consensus.
    update
        How far local training moved the row (L2), the ruler for both distances; 0 where it did not.
    disagreement
        How far what the peer has released lies from the mean of all peers' (L2), and
    diversity
        how differently their training moved them, :math:`\overline{\lVert u_k \rVert^2} / \lVert \bar u \rVert^2`:
        1 where all agree, N where they have nothing in common; both known to a simulation alone.
    bytes_out, bytes_in
        Since the start of the run.
    seconds_training, seconds_waiting
        In this round.
    heard, missed
        Rows used in this round; neighbours whose row did not come in time.
    privacy_spent
        Epsilon so far against the broker and ``privacy.colluders`` peers; ``None`` where none is claimed.
    """

    peer: str
    round: int
    scores: dict[str, float]
    training_loss: float | None
    distance: float
    bytes_out: int
    bytes_in: int
    seconds_training: float
    seconds_waiting: float
    heard: int
    missed: list[str] = []
    privacy_spent: float | None = None
    update: float | None = None
    disagreement: float | None = None
    diversity: float | None = None
