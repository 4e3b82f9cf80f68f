"""Robust rules for one receiver in numpy, as their papers write them: what those of stacks are compared with."""

import numpy as np

from p2pfl.algorithms.robust import ClippedGossip, Krum, Median, NearestMixed, SelfCentredClipping, TrimmedMean


def far(rows):
    wide = rows.astype(np.float64)
    return np.array([[np.linalg.norm(one - other) for other in wide] for one in wide])


def clipped(rows, weights, radius):
    apart = far(rows)[0]
    found = weights[0] * rows[0].astype(np.float64)
    for row, weight, distance in zip(rows[1:], weights[1:], apart[1:], strict=True):
        found += weight * (rows[0] + (row.astype(np.float64) - rows[0]) * min(1.0, radius / max(distance, 1e-300)))
    return found


def aggregated(rule, rows, weights):
    """Return what a rule makes of ``[n, P]``, the own model first, and weights ``[n]``."""
    count = len(rows)
    match rule:
        case ClippedGossip(attackers=f):
            terms = sorted(weights[1:] * far(rows)[0, 1:] ** 2)
            radius = np.sqrt(sum(terms[: count - 1 - f]) / sum(sorted(weights[1:])[count - 1 - f :]))
            return clipped(rows, weights, radius)
        case SelfCentredClipping(radius=radius):
            return clipped(rows, np.full(count, 1 / count), radius)
        case TrimmedMean(attackers=f):
            return np.sort(rows, axis=0)[f : count - f].mean(0)
        case Median():
            ordered = np.sort(rows, axis=0)
            return ordered[(count - 1) // 2] / 2 + ordered[count // 2] / 2
        case Krum(attackers=f, several=several):
            squares = far(rows) ** 2
            scores = np.array([np.sort(np.delete(line, i))[: count - f - 2].sum() for i, line in enumerate(squares)])
            best = np.argsort(scores, kind="stable")[: count - f if several else 1]
            return rows[best].mean(0)
        case NearestMixed(rule=inner, attackers=f):
            nearest = np.argsort(far(rows), axis=1, kind="stable")[:, : count - f]
            return aggregated(inner, np.array([rows[each].mean(0) for each in nearest]), weights)
    raise AssertionError(rule)


def around(weights, names, peer):
    """Return the numbers of the models that a peer has, its own first and then by name, and their weights."""
    found = {name: weight for name, weight in weights.items() if name != peer}
    order = [peer, *sorted(found)]
    share = [found[name] for name in order[1:]]
    return [names.index(name) for name in order], np.array([1 - sum(share), *share])
