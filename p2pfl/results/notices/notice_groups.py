"""Groups of notices that repeat each other: one kind, and the same peer or key that they are about."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from p2pfl.results.formats import join_names
from p2pfl.results.notices.kinds import LossRose, Notice

AnyNotice = TypeVar("AnyNotice", bound=Notice)

CAUSE_FIELDS = ("neighbour", "neighbours")
"""Fields that name the peers that a notice is about; a notice without them is about the peer that reports it."""

SEPARATING_FIELDS = ("key", "theirs", "file", "message")
"""Fields in which notices of one group are equal."""


def group_alike(notices: Iterable[Notice]) -> list[list[int]]:
    """Return the places of notices in groups that have the same kind and the same cause.

    The cause is the peers that a notice names (:data:`CAUSE_FIELDS`), whoever reports them, or else the peer that
    reports it. Notices that differ in a key, a version, a file, a message, or whether their masks have cancelled
    (:data:`SEPARATING_FIELDS`) stay apart.

    Parameters
    ----------
    notices
        Notices in the order of their times.

    Returns
    -------
    list of list of int
        Places in each group in ascending order; the groups in the order of their last place.

    Examples
    --------
    >>> from p2pfl.results.notices.kinds import LossRose
    >>> rose = [LossRose(peer=peer, round=round, now={}) for round in range(2) for peer in ("ada", "bob")]
    >>> group_alike(rose)
    [[0, 2], [1, 3]]
    """
    groups: dict[Hashable, list[int]] = {}
    for number, notice in enumerate(notices):
        groups.setdefault((type(notice), *_cause(notice)), []).append(number)
    return sorted(groups.values(), key=lambda numbers: numbers[-1])


def describe_repeats(group: Sequence[Notice]) -> str:
    """Return the text after the sentence of the last notice of a group; empty for a single notice.

    Examples
    --------
    >>> from p2pfl.results.notices.kinds import LossRose
    >>> rose = [LossRose(peer="ada", round=round, now={}) for round in (11, 12, 14)]
    >>> describe_repeats(rose), describe_repeats(rose[:1])
    ('; and 2 more like it, rounds 12 to 15', '')
    """
    if len(group) == 1:
        return ""
    others = sorted({notice.peer for notice in group} - {group[-1].peer})
    by = f" from {join_names(others)}" if others else ""
    rounds = sorted({notice.round + 1 for notice in group if isinstance(notice, LossRose)})
    when = "" if not rounds else f", round {rounds[0]}" if len(rounds) == 1 else f", rounds {rounds[0]} to {rounds[-1]}"
    return f"; and {len(group) - 1} more like it{by}{when}"


def group_notices(notices: Iterable[AnyNotice]) -> list[tuple[AnyNotice, str]]:
    """Return the last notice of each group, and what follows its sentence.

    Examples
    --------
    >>> from p2pfl.results.notices.kinds import LossRose
    >>> rose = (LossRose(peer="ada", round=round, now={}) for round in range(3))
    >>> [(latest.round, more) for latest, more in group_notices(rose)]
    [(2, '; and 2 more like it, rounds 1 to 3')]
    """
    sequence = list(notices)
    groups = [[sequence[number] for number in numbers] for numbers in group_alike(sequence)]
    return [(group[-1], describe_repeats(group)) for group in groups]


def _cause(notice: Notice) -> tuple[Hashable, ...]:
    """Return the facts that distinguish a notice from others of its kind."""
    about = next((named for name in CAUSE_FIELDS if (named := getattr(notice, name, None))), notice.peer)
    return about, *(getattr(notice, name, None) for name in SEPARATING_FIELDS)
