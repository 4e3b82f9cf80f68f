"""How a life goes on from what an earlier one left."""

from __future__ import annotations

from p2pfl.errors import RunError
from p2pfl.peer.link import Link
from p2pfl.peer.notices import PROMISED
from p2pfl.peer.settling import compared
from p2pfl.peer.storage.checkpoint import Checkpoint
from p2pfl.peer.storage.writer import Keeper
from p2pfl.protocol.entering import common, entrance
from p2pfl.protocol.ledgers.masks import LEAP
from p2pfl.protocol.ledgers.page import Page


async def resumed(link: Link, keeper: Keeper) -> tuple[Checkpoint | None, int]:
    """Go on from a checkpoint, if there is one, with a round: both are returned.

    Where all come back together they go on with the last round that all have; where others go on, with one that is
    still to come.
    """
    kept, journal, membership, me = keeper.former.kept, keeper.former.journal, link.membership, link.me
    there = [membership.up[peer] for peer in membership.present]
    from_ = kept[0].round if kept else 0
    together = common([me.rounds, *(hello.rounds for hello in there)])
    attempt = 0
    if not link.whereabouts.running and me.rounds:
        first = from_ = from_ if together is None or together not in me.rounds else together
        attempt = max(hello.attempt for hello in (me, *there) if hello.attempt <= me.attempt + LEAP)
    else:
        again = journal is None or journal.released < from_
        first = entrance(from_, others=link.whereabouts.supported(), again=again)
    chosen = next((each for each in kept if each.round == from_), None)
    page, rows = (Page(), {}) if chosen is None else (chosen.page, chosen.rows)
    if me.rounds:
        link.books.turn(page, rows, round=first, journal=None if journal is None else journal.masks)
        link.turned()
    link.books.masks.agree(attempt)
    if chosen is not None:
        link.line.bytes_out += chosen.bytes_out
        link.line.bytes_in += chosen.bytes_in
    link.begin(first)
    await keeper.back(from_)
    if not link.whereabouts.running and journal is not None:
        back = frozenset(hello.peer for hello in there if hello.rounds)
        await compared(link, back & link.books.masks.partners)
    return chosen, first


def rest(keeper: Keeper, peer: str) -> Checkpoint:
    """The last row of one that promised to release nothing more.

    Raises
    ------
    RunError
        There is none.
    """
    kept = keeper.former.kept
    if not kept:
        raise RunError(
            f'expected the last row of "{peer}", an earlier life of which has {PROMISED}, got none on the disk: '
            "begin a new run"
        )
    return kept[0]
