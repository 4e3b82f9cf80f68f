"""Notices about the neighbours that a peer meets."""

from __future__ import annotations

from collections.abc import Callable

from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.membership.refusals import escaped
from p2pfl.privacy.keys import FirstUse, fingerprint
from p2pfl.results.notices.kinds import KeyTrusted, NameShared, Notice, VersionDiffers


class Introductions:
    """Report whose key is trusted because it is the first that was seen, and who runs another release of p2pfl.

    Parameters
    ----------
    membership
        Knows the neighbours.
    notify
        Called with each notice, once.
    """

    def __init__(self, membership: Membership, notify: Callable[[Notice], None]) -> None:
        self._membership = membership
        self._notify = notify
        self._reported: dict[str, str] = {}  # by neighbour, the version that it announced

    def __call__(self) -> None:
        """Report those who are new since the last call."""
        membership = self._membership
        me = membership.me
        for notice in strangers(membership):
            self._notify(notice)
        for peer in sorted(membership.present):
            theirs = membership.up[peer].version
            if theirs not in {me.version, self._reported.get(peer)}:
                self._notify(VersionDiffers(peer=me.peer, neighbour=peer, theirs=escaped(theirs), ours=me.version))
            self._reported[peer] = theirs


def strangers(membership: Membership) -> list[Notice]:
    """Return notices of keys that are trusted on first use, and of a peer with the same name; each once."""
    trust, me = membership.trust, membership.me
    found: list[Notice] = []
    if isinstance(trust, FirstUse):
        new = {peer: key for peer in sorted(membership.present) if (key := trust.news(peer)) is not None}
        found += [KeyTrusted(peer=me.peer, neighbour=peer, key=fingerprint(key)) for peer, key in new.items()]
    if membership.namesake:
        found.append(NameShared(peer=me.peer, key=fingerprint(membership.namesake), own=fingerprint(me.identity)))
        membership.namesake = b""
    return found
