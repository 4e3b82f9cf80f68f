"""What people should know of the neighbours that a peer meets."""

from __future__ import annotations

from collections.abc import Callable

from p2pfl.peer.notices import strangers
from p2pfl.protocol.membership import Membership
from p2pfl.protocol.versions import differing


class Introductions:
    """Report whose key is trusted because it is the first that was seen, and who runs another release of p2pfl.

    Parameters
    ----------
    membership
        Knows the neighbours.
    say
        Called with each sentence, once.
    """

    def __init__(self, membership: Membership, say: Callable[[str], None]) -> None:
        self._membership = membership
        self._say = say
        self._reported: dict[str, str] = {}  # by neighbour, the version that it announced

    def __call__(self) -> None:
        """Report those who are new since the last call."""
        membership = self._membership
        for sentence in strangers(membership):
            self._say(sentence)
        for peer in sorted(membership.present):
            theirs = membership.up[peer].version
            sentence = differing(peer, theirs=theirs, ours=membership.me.version)
            if sentence and self._reported.get(peer) != theirs:
                self._say(sentence)
            self._reported[peer] = theirs
