"""Stragglers: peers that do only a part of the work of a round."""

from p2pfl.core.draws import draw


def straggles(peer: str, *, seed: int, round: int, share: float) -> bool:
    """Return whether a peer is a straggler in a round, with probability ``share``; every peer can compute it.

    Examples
    --------
    >>> [straggles("ada", seed=7, round=round, share=0.5) for round in range(4)]
    [False, False, True, True]
    """
    return bool(draw(seed, "straggler", peer, round).random() < share)


def work(peer: str, *, seed: int, round: int, share: float, most: int) -> int:
    r"""Return the number of epochs, or steps, of ``most`` that a peer does in a round.

    A straggler does :math:`e \sim U\{1, \dots, E\}`, every other peer E, as in Li et al., Federated
    optimization in heterogeneous networks, MLSys 2020, section 5.2.

    Examples
    --------
    >>> [work("ada", seed=7, round=round, share=0.5, most=20) for round in range(4)]
    [20, 20, 6, 5]
    """
    if not straggles(peer, seed=seed, round=round, share=share):
        return most
    return int(draw(seed, "straggler's work", peer, round).integers(1, most + 1))
