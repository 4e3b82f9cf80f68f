"""Resume from the checkpoint of an earlier incarnation, and meet the neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from p2pfl.core.errors import LostModelError, ResumeError
from p2pfl.experiment.resolved import Plan
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.storage.checkpoint import Checkpoint
from p2pfl.network.peer.storage.writer import Keeper
from p2pfl.network.protocol.interface.effects import Admitted
from p2pfl.network.protocol.interface.requests import Begin, Join, Resume
from p2pfl.network.protocol.ledgers.mask_slots import LEAP
from p2pfl.network.protocol.ledgers.page import Page
from p2pfl.network.protocol.membership.entry_round import common, entrance
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.membership.refusals import escape
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.privacy.keys import FirstUse, fingerprint
from p2pfl.results.formats import of_rounds
from p2pfl.results.notices.kinds import KeyTrusted, NameShared, NeighboursMissing, Notice, VersionDiffers


def restarts_together(plan: Plan) -> bool:
    """Return whether peers that could not complete a round wait for the missing ones, and begin again together.

    A peer that comes back then does not join the others late, because they are about to end as well.
    """
    privacy, transport = plan.experiment.privacy, plan.experiment.transport
    return plan.commits and privacy.departures == "wait" and transport.outage > 0


async def gather_neighbours(
    connection: Connection, keeper: Keeper, *, plan: Plan, notify: Callable[[Notice], None]
) -> None:
    """Wait for the neighbours; a peer that has played all rounds can do without them.

    Parameters
    ----------
    connection, keeper
        Of the peer.
    plan
        Of its experiment: the neighbours to wait for, and how long.
    notify
        Called with a notice if the peer goes on without them.

    Raises
    ------
    ResumeError
        The run has ended without this peer, or too few neighbours are there to go on.
    PeerError
        The same of a peer that begins.
    """
    settings, former = plan.experiment.transport, keeper.former
    kept = former.kept[0].round if former.kept else 0
    played = bool(kept) and kept in {keeper.journal.ended, plan.experiment.horizon}
    begun = kept or (former.journal is not None and former.journal.released >= 0)
    membership = connection.session.membership
    together = bool(begun) and not played and restarts_together(plan)
    gather = settings.gathering
    within = max(gather.seconds, settings.outage) if together else gather.seconds
    error = await connection.gather(quorum=gather.quorum, within=within, together=together)
    if error is not None and played:
        me = membership.me.peer
        why = f"{error}; all rounds are played, and the model is kept as it is"
        notify(NeighboursMissing(peer=me, absent=error.absent, gone=error.gone, message=why))
    elif begun and not played and (error is not None or membership.over):
        why = explain_stranding(membership, kept, rounds=plan.experiment.rounds, within=within)
        absent, gone = ([], sorted(membership.neighbours)) if error is None else (error.absent, error.gone)
        raise ResumeError(why, absent=absent, gone=gone)
    elif error is not None:
        raise error


def explain_stranding(membership: Membership, kept: int, *, rounds: int | str, within: float) -> str:
    """Return why a resumed peer cannot go on, which model it has, and what to do.

    Parameters
    ----------
    membership
        Peers that were present.
    kept
        The round after which its model is; 0 if there is none.
    rounds
        Of the experiment.
    within
        Seconds that it waited.
    """
    name = membership.me.peer
    model = (
        f'the model of "{name}" after round {of_rounds(kept, rounds)} is kept'
        if kept
        else f'no model of "{name}" is kept'
    )
    if ended := sorted(membership.finished):
        why = f'the run ended while "{name}" was away: {", ".join(ended)} played the last round'
        return f"{why}; {model}; begin a new run without --resume"
    absent = ", ".join(sorted(membership.neighbours - membership.present))
    why = f'"{name}" cannot resume: {absent} did not come within {within:g} s, so the run has ended or stopped'
    return f"{why}; {model}; start the others with --resume, too, or begin a new run without it"


def explain_exclusion(name: str) -> str:
    """Return why a peer cannot take part again in a run whose peers commit rounds together."""
    return (
        f'"{name}" cannot take part again, because the others have ended, or their privacy.departures is not "go_on"; '
        "start all with --resume"
    )


async def resume_peer(connection: Connection, keeper: Keeper, *, joins: bool) -> tuple[Checkpoint | None, int]:
    """Go on from a checkpoint, if there is one, with a round: both are returned.

    Where all come back together they go on with the last round that most have, and this peer comes late if it lacks
    that; where others go on, with one that is still to come. If ``joins`` is true, the others play rounds as members,
    which have to admit this peer, unless all come back together: then it is a member, even without a checkpoint.

    Raises
    ------
    ResumeError
        The others have ended and have not admitted this peer, or most members have no round in common.
    """
    kept, journal, session = keeper.former.kept, keeper.former.journal, connection.session
    membership, progress, me = session.membership, session.shared.progress, session.shared.me
    there = [membership.up[peer] for peer in membership.present]
    from_ = kept[0].round if kept else 0
    together = common([me.rounds, *(announcement.rounds for announcement in there)])
    attempt, running = 0, session.shared.running
    again = journal is None or journal.released < from_
    if not running and (me.rounds or (joins and together is not None)):
        if joins and together is None:
            raise ResumeError(explain_rounds([me, *there]), absent=[], gone=[])
        first = from_ if together is None else together
        from_ = max((each.round for each in kept if each.round <= first), default=0)
        attempt = next_attempt(me, there, bare=journal is None)
    elif joins and not running and again:
        first = from_  # the others, some of which need no model of this peer for their first gossip steps, wait for it
    elif joins:
        admitted = await connection.ask(Join())
        if not isinstance(admitted, Admitted):
            raise ResumeError(explain_exclusion(me.peer), absent=[], gone=sorted(membership.neighbours))
        first, attempt = admitted.round, admitted.attempt
    else:
        first = entrance(from_, others=progress.supported_steps(), again=again, paused=session.pauses)
    chosen = next((each for each in kept if each.round == from_), None)
    page, rows = (Page(), {}) if chosen is None else (chosen.page, chosen.rows)
    if me.rounds:
        connection.submit(Resume(page, rows, first, late=first > from_))
    session.ledgers.masks.agree(attempt)
    if chosen is not None:
        connection.bytes_out += chosen.bytes_out
        connection.bytes_in += chosen.bytes_in
    connection.submit(Begin(first))
    await keeper.back(from_)
    return chosen, first


def next_attempt(me: Announcement, there: Sequence[Announcement], *, bare: bool) -> int:
    """Return the largest attempt that peers announce and can have reached.

    Parameters
    ----------
    me, there
        Announcements of this peer and of the others.
    bare
        True if this peer has no journal: then it goes by the attempt that two others have reached, not by its own.
    """
    announced = sorted(announcement.attempt for announcement in there)
    known = announced[-2] if bare and len(announced) > 1 else me.attempt
    return max(each for each in (me.attempt, *announced) if each <= known + LEAP)


def explain_rounds(there: Sequence[Announcement]) -> str:
    """Return why peers whose checkpoints are of different rounds cannot go on together."""
    rounds = ", ".join(f"{each.peer} {max(each.rounds)}" for each in there if each.rounds)
    return (
        f"no round is in the checkpoints of most peers (their last are {rounds}); start those whose numbers are wrong "
        "without their checkpoints, or begin a new run"
    )


def rest(keeper: Keeper, peer: str) -> Checkpoint:
    """Return the last model of a peer that promised to release nothing more.

    Raises
    ------
    LostModelError
        There is none.
    """
    kept = keeper.former.kept
    if not kept:
        raise LostModelError(
            f'the last model of "{peer}" is not on the disk, and an earlier incarnation promised to release no more; '
            "begin a new run"
        )
    return kept[0]


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
                self._notify(VersionDiffers(peer=me.peer, neighbour=peer, theirs=escape(theirs), ours=me.version))
            self._reported[peer] = theirs


def strangers(membership: Membership) -> list[Notice]:
    """Return notices of keys that are trusted on first use, and of a peer with the same name; each once."""
    trust, me = membership.trust, membership.me
    notices: list[Notice] = []
    if isinstance(trust, FirstUse):
        new = {peer: key for peer in sorted(membership.present) if (key := trust.news(peer)) is not None}
        notices += [KeyTrusted(peer=me.peer, neighbour=peer, key=fingerprint(key)) for peer, key in new.items()]
    if membership.namesake:
        notices.append(NameShared(peer=me.peer, key=fingerprint(membership.namesake), own=fingerprint(me.identity)))
        membership.namesake = b""
    return notices
