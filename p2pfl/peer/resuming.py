"""Resume from the checkpoint of an earlier incarnation."""

from __future__ import annotations

from collections.abc import Callable

from p2pfl.errors import PeerError, ResumeError, RunError
from p2pfl.experiment import Experiment
from p2pfl.peer.link import Link
from p2pfl.peer.notices import PROMISED
from p2pfl.peer.settling import compared
from p2pfl.peer.storage.checkpoint import Checkpoint
from p2pfl.peer.storage.writer import Keeper
from p2pfl.protocol.entering import common, entrance
from p2pfl.protocol.ledgers.masks import LEAP
from p2pfl.protocol.ledgers.page import Page
from p2pfl.protocol.membership import Membership


async def gathered(link: Link, keeper: Keeper, *, experiment: Experiment, say: Callable[[str], None]) -> None:
    """Wait for the neighbours; a peer that has played all rounds can do without them.

    Parameters
    ----------
    link, keeper
        Of the peer.
    experiment
        Its settings: whom to wait for and how long.
    say
        Tells people a sentence.

    Raises
    ------
    ResumeError
        The run has ended without this peer, or too few neighbours are there to go on.
    PeerError
        The same of a peer that begins.
    """
    settings, former = experiment.transport, keeper.former
    kept = former.kept[0].round if former.kept else 0
    played = bool(kept) and kept in {keeper.journal.ended, experiment.rounds}
    begun = kept or (former.journal is not None and former.journal.released >= 0)
    try:
        await link.gather(quorum=settings.quorum, within=settings.gather)
    except PeerError as error:
        if played:
            say(f"{error}; all rounds are played, and its row is kept as it is")
        elif begun:
            why = stranded(link.membership, kept, rounds=experiment.rounds, within=settings.gather)
            raise ResumeError(why, absent=error.absent, gone=error.gone) from None
        else:
            raise
    else:
        if link.membership.over and begun and not played:
            why = stranded(link.membership, kept, rounds=experiment.rounds, within=settings.gather)
            raise ResumeError(why, gone=sorted(link.membership.neighbours))


def stranded(membership: Membership, kept: int, *, rounds: int, within: float) -> str:
    """Return why a resumed peer cannot go on, which model it has, and what to do.

    Parameters
    ----------
    membership
        Who was there.
    kept
        The round after which its model is; 0 if there is none.
    rounds
        Of the experiment.
    within
        Seconds that it waited.
    """
    name = membership.me.peer
    model = f'the model of "{name}" after round {kept} of {rounds} is kept' if kept else f'no model of "{name}" is kept'
    if ended := sorted(membership.finished):
        why = f'the run ended while "{name}" was away: {", ".join(ended)} played the last round'
        return f"{why}; {model}; begin a new run without --resume"
    absent = ", ".join(sorted(membership.neighbours - membership.present))
    why = f'"{name}" cannot resume: {absent} did not come within {within:g} s, so the run has ended or stopped'
    return f"{why}; {model}; start the others with --resume, too, or begin a new run without it"


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
            f'expected the last row of "{peer}", an earlier incarnation of which has {PROMISED}, got none on the disk: '
            "begin a new run"
        )
    return kept[0]
