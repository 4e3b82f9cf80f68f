"""The sentences of notices: the only place that words them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch

from p2pfl.results.notices import course, damage, device, neighbour_notices, observing
from p2pfl.results.notices.kinds import Notice
from p2pfl.results.spending.stated import BudgetStop

MOVED = "may have moved only one of two models, which changes the mean of all models"
"""Possible effect of a gossip step that was not settled."""


@singledispatch
def sentence(notice: Notice) -> str:
    """Return a notice as a sentence for people, without the name of the peer that reports it.

    Examples
    --------
    >>> sentence(damage.MasksCancelled(peer="ada", round=11, partners=("bob",)))
    'masks of bob are cancelled: what was missing in round 12 no longer moves the mean of the models'
    """
    raise TypeError(f"{type(notice).__name__} has no sentence; register one in p2pfl.results.notices.notice_sentences")


# ---------------------------------------------------------------------- the course of a peer


@sentence.register
def _(notice: course.PhaseBegan) -> str:
    return f"{notice.phase} began in round {notice.round + 1}"


@sentence.register
def _(notice: course.WaitBegan) -> str:
    if not notice.connected:
        return f"waits in round {notice.round + 1} for the broker, which cannot be reached"
    return f"waits in round {notice.round + 1} for {', '.join(notice.neighbours)}"


@sentence.register
def _(notice: course.WaitEnded) -> str:  # noqa: ARG001 (the function is chosen by its type)
    return "waits no longer"


@sentence.register
def _(notice: course.PresenceChanged) -> str:
    moved = ((notice.came, "present"), (notice.left, "gone"))
    said = [f"{', '.join(who)} {'is' if len(who) == 1 else 'are'} {how}" for who, how in moved if who]
    return "; ".join(said) or "its neighbours are as before"


@sentence.register
def _(notice: observing.PeerAnnounced) -> str:
    if notice.status == "left":
        return "left after all rounds" if notice.done else "left the swarm"
    return "is connected to the broker" if notice.status == "up" else "is not connected to the broker any more"


@sentence.register
def _(notice: observing.PeerSilent) -> str:
    return (
        f"gives no sign of life for {duration(round(notice.seconds))}, although it is connected; look at its process "
        "and at the load of its device"
    )


@sentence.register
def _(notice: observing.PeerResponded) -> str:
    del notice
    return "gives signs of life again"


@sentence.register
def _(notice: observing.ScoresRecalled) -> str:
    return f"recalls the score {notice.score} of {len(notice.rounds)} earlier rounds"


@sentence.register
def _(notice: observing.TelemetryStopped) -> str:
    return f"observers cannot look at this peer: {notice.message}"


@sentence.register
def _(notice: course.PeerFinished) -> str:
    scores = ", ".join(f"{name} {value:.3f}" for name, value in notice.scores.items())
    return f"finished with {scores}" if scores else "finished"


@sentence.register
def _(notice: course.PeerFailed) -> str:
    return notice.message


@sentence.register
def _(notice: course.JoinsLate) -> str:
    if notice.round >= notice.rounds:
        return f"the others are ahead, in their last round: it comes too late to play one of the {notice.rounds} rounds"
    how = "comes back" if notice.again else "begins"
    return f"the others are ahead: it {how} in round {notice.round + 1}, from where they are then"


@sentence.register
def _(notice: course.ReleasesEnded) -> str:
    why = "; what was released after it stays with the others and changes the mean of all models"
    return (
        f"an earlier incarnation has promised to release nothing more: its model after {notice.rounds} rounds is kept "
        f"as it is{why if notice.lost else ''}"
    )


@sentence.register
def _(notice: course.LearningStopped) -> str:
    return f"{notice.message}; what was learned before is kept"


@sentence.register
def _(notice: course.AwaitsReturn) -> str:
    return (
        f"it waits up to {notice.seconds:g} s until all peers are there again (transport.outage), and then plays round "
        f"{notice.round + 1} again; start the missing ones with --resume"
    )


@sentence.register
def _(notice: course.BudgetExceeded) -> str:
    return (
        f"epsilon {notice.spent:.3g} has been spent, more than privacy.epsilon = {notice.epsilon:g}, because a release "
        "lacked a mask"
    )


# ---------------------------------------------------------------------- neighbours


@sentence.register
def _(notice: neighbour_notices.KeyTrusted) -> str:
    return (
        f'TRUSTED ON FIRST USE: "{notice.neighbour}" has the key {notice.key}; compare it with the one that '
        f"{notice.neighbour} shows, because the broker could have substituted its own, or use a roster"
    )


@sentence.register
def _(notice: neighbour_notices.NameShared) -> str:
    return (
        f'a peer with the key {notice.key} answers to the name "{notice.peer}"; neighbours that know the key '
        f"{notice.own} ignore it, so find out whose it is or use a roster"
    )


@sentence.register
def _(notice: neighbour_notices.VersionDiffers) -> str:
    theirs = notice.theirs or "of an unknown version"
    return f'peer "{notice.neighbour}" runs p2pfl {theirs}, this peer runs {notice.ours}'


@sentence.register
def _(notice: neighbour_notices.PeerExcluded) -> str:
    kept = "" if notice.proof is None else f"; the proof is in {notice.proof}"
    return (
        f'EXCLUDED: "{notice.neighbour}" with the key {notice.key} signed two different {notice.signed}s for step '
        f"{notice.step} of round {notice.round}{kept}; ask its owner why, and revoke the key without a good answer"
    )


@sentence.register
def _(notice: neighbour_notices.ModelsRefused) -> str:
    return (
        f'the model of "{notice.neighbour}" in round {notice.round + 1} is not used, because its size or type is not '
        "that of this run, or it contains NaN; run the same code at both, and declare by a property `beside` of the "
        "algorithm what it sends beside a model"
    )


@sentence.register
def _(notice: neighbour_notices.NeighboursMissing) -> str:
    return f"{notice.message}; all rounds are played, and the model is kept as it is"


@sentence.register
def _(notice: neighbour_notices.PartnersAwaited) -> str:
    return f"the next release waits up to {notice.seconds:g} s for mask partners: {', '.join(notice.partners)}"


# ---------------------------------------------------------------------- masks, and what stays open


@sentence.register
def _(notice: damage.MasksUncancelled) -> str:
    lost = notice.partners
    names, one = ", ".join(lost), len(lost) == 1
    who, are, have, them = ("it", "is", "has", "it") if one else ("they", "are", "have", "them")
    what = (
        f"nothing came from {names} in round {notice.round + 1}, so the masks that {who} shared did not cancel: they "
        f"leave noise of deviation {notice.deviation:.2g} in the models"
    )
    cure = (
        f"If {names} {are} only slow, or offline for a while, the masks cancel when {who} {are} received again; if "
        f"{who} {have} ended, start {them} with --resume while the others run. This peer says when they are cancelled"
    )
    return _alarm(notice, what, cure)


@sentence.register
def _(notice: damage.LossRose) -> str:
    what = f"the loss rose steeply in round {notice.round + 1}; the models may contain masks of a peer that disappeared"
    return _alarm(notice, what, "Find the peer that disappeared, and start it with --resume while the others run")


@sentence.register
def _(notice: damage.MasksCancelled) -> str:
    said = f"what was missing in round {notice.round + 1} no longer moves the mean of the models"
    return f"masks of {', '.join(notice.partners)} are cancelled: {said}"


@sentence.register
def _(notice: damage.SettlementIncomplete) -> str:
    return (
        f"nothing came from {', '.join(notice.neighbours)} in the gossip step that settles masks, which changes the "
        "mean of all models"
    )


@sentence.register
def _(notice: damage.MasksUnsettled) -> str:
    return (
        f"{counted(sum(notice.masks.values()), 'mask')} shared with {', '.join(notice.masks)} may not have cancelled: "
        f"noise of deviation {notice.deviation:.2g} or less may stay in each parameter of the mean model"
    )


@sentence.register
def _(notice: damage.StepsUnsettled) -> str:
    return f"{counted(sum(notice.steps.values()), 'gossip step')} with {', '.join(notice.steps)} {MOVED}"


@sentence.register
def _(notice: damage.SumsUnsettled) -> str:
    return f"{counted(sum(notice.sums.values()), 'sum')} without {', '.join(notice.sums)} {MOVED}"


@sentence.register
def _(notice: damage.RestartUnsettled) -> str:
    return (
        f"gossip steps of an earlier incarnation with {', '.join(notice.neighbours)} {MOVED}, because no neighbour "
        "confirmed that it reverted them"
    )


@sentence.register
def _(notice: damage.ConsensusUnknown) -> str:
    return f"no consensus, so models differ: {notice.message}"


@sentence.register
def _(notice: damage.CommonScoresUnknown) -> str:
    return f"the scores of the common model stay unknown: {notice.message}"


# ---------------------------------------------------------------------- broker, clock and disk


@sentence.register
def _(notice: device.BrokerUnavailable) -> str:
    limit = "without a time limit" if notice.seconds is None else f"for up to {notice.seconds:g} s"
    return f"{notice.message}; this peer retries {limit} (transport.outage)"


@sentence.register
def _(notice: device.PasswordExposed) -> str:
    return (
        f"WARNING: a password goes to {', '.join(notice.brokers)} unencrypted, so others on the network can read it; "
        "use mqtts:// or wss:// (p2pfl broker --config), and change the password"
    )


@sentence.register
def _(notice: device.ClockBehind) -> str:
    whose = "" if notice.key is None else f" under another key ({notice.key})"
    return (
        f'the clock of this device is {duration(notice.seconds)} behind the last start of peer "{notice.peer}"{whose}; '
        "set the clock"
    )


@sentence.register
def _(notice: device.AnnouncementAhead) -> str:
    return (
        f'the broker retains an announcement of peer "{notice.peer}" under another key ({notice.key}) that is more '
        f"than 80 years ahead of the clock of this device; set the clock, or clear the retained message on "
        f"{notice.topic}, because neighbours that have met that key refuse this peer"
    )


@sentence.register
def _(notice: device.CheckpointDamaged) -> str:
    instead = "the one before is used" if notice.previous else "there is none before it"
    return f"{notice.file}: {notice.message}; {instead}"


@sentence.register
def _(notice: device.BestModelDamaged) -> str:
    return f"{notice.file} cannot be read ({notice.message}); the next better model takes its place"


# ---------------------------------------------------------------------- parts


def stopped(stop: BudgetStop) -> str:
    """Return how the budget stopped a run, as the end of a sentence.

    Examples
    --------
    >>> stopped(BudgetStop(3, 9, 8.0, peers=2, among=3))
    '3 of 9 rounds: another one would exceed privacy.epsilon = 8 (2 of 3 peers)'
    """
    before = "" if stop.account is None else f", including what {stop.account} had before"
    who = "" if stop.peers == stop.among else f" ({stop.peers} of {stop.among} peers)"
    return (
        f"{stop.done} of {stop.rounds} rounds: another one would exceed privacy.epsilon = {stop.epsilon:g}{before}{who}"
    )


def counted(count: int, what: str) -> str:
    """Return a number of things in words.

    Examples
    --------
    >>> counted(1, "mask"), counted(2, "gossip step")
    ('1 mask', '2 gossip steps')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def duration(seconds: int) -> str:
    """Return a number of seconds in the two largest units that it fills.

    Examples
    --------
    >>> duration(59), duration(3600), duration(40 * 86400)
    ('59 s', '1 h 0 min', '40 d 0 h')
    """
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if not minutes:
        return f"{seconds} s"
    if not hours:
        return f"{minutes} min {seconds % 60} s"
    return f"{days} d {hours % 24} h" if days else f"{hours} h {minutes % 60} min"


def _alarm(notice: damage.Alarm, what: str, cure: str) -> str:
    changes = _changes(notice.before or {}, notice.now)
    scores = f" ({changes})" if changes else ""
    best, place = notice.best_round, "" if notice.best_file is None else f", in {notice.best_file}"
    kept = "" if best is None else f"; the best model so far is that of round {best + 1}{place}"
    return f"ALARM: {what}{scores}. {cure}{kept}; a smaller privacy.mask limits such damage, and hides less"


def _changes(before: Mapping[str, float], now: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {before[name]:.3f} before, {now[name]:.3f} now" for name in now if name in before)
