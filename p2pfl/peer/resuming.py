"""How a life goes on from what an earlier one left."""

from __future__ import annotations

from p2pfl.errors import RunError
from p2pfl.peer.connection import Connection
from p2pfl.peer.notices import PROMISED
from p2pfl.peer.storage.checkpoint import Checkpoint
from p2pfl.peer.storage.writer import Keeper
from p2pfl.protocol.entering import common, entrance
from p2pfl.protocol.ledgers.masks import LEAP
from p2pfl.protocol.ledgers.page import Page
from p2pfl.protocol.session.events import Begin, Compare, Resume


async def resumed(connection: Connection, keeper: Keeper) -> tuple[Checkpoint | None, int]:
    """Go on from a checkpoint, if there is one, with a round: both are returned.

    Where all come back together they go on with the last round that all have; where others go on, with one that is
    still to come.
    """
    kept, journal, session = keeper.former.kept, keeper.former.journal, connection.session
    membership, progress, me = session.membership, session.shared.progress, session.shared.me
    there = [membership.up[peer] for peer in membership.present]
    from_ = kept[0].round if kept else 0
    together = common([me.rounds, *(hello.rounds for hello in there)])
    attempt = 0
    if not progress.running and me.rounds:
        first = from_ = from_ if together is None or together not in me.rounds else together
        attempt = max(hello.attempt for hello in (me, *there) if hello.attempt <= me.attempt + LEAP)
    else:
        again = journal is None or journal.released < from_
        first = entrance(from_, others=progress.supported(), again=again)
    chosen = next((each for each in kept if each.round == from_), None)
    page, rows = (Page(), {}) if chosen is None else (chosen.page, chosen.rows)
    if me.rounds:
        connection.tell(Resume(page, rows, first, None if journal is None else journal.masks))
    session.books.masks.agree(attempt)
    if chosen is not None:
        connection.bytes_out += chosen.bytes_out
        connection.bytes_in += chosen.bytes_in
    connection.tell(Begin(first))
    await keeper.back(from_)
    if not progress.running and journal is not None:
        back = frozenset(hello.peer for hello in there if hello.rounds)
        await connection.ask(Compare(back & session.books.masks.partners))
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
