"""Notices: what people should know of a run besides its records, each as a kind with fields and a sentence.

The text of a notice is a sentence without the name of the peer that reports it. The kind is the name of the class in
snake case; ``events.jsonl`` has one notice a line, and docs/schema.json describes each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Final, Literal

import msgspec

from p2pfl.results.formats import count_of, duration

SCHEMA: Final = 1
"""Version of the files of a run; it grows when a field or a kind changes its meaning or disappears."""

Severity = Literal["info", "warning", "alarm", "resolved"]
"""Level of a notice: it is news, asks for attention, harms the result, or ends such harm."""


def kind_of(name: str) -> str:
    """Return the kind of a class of notices.

    Examples
    --------
    >>> kind_of("LossRose")
    'loss_rose'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=kind_of):
    """Something that people should know of a peer; its text is a sentence about it.

    Attributes
    ----------
    schema
    time
        When it was recorded, in UTC.
    peer
        Peer that reports it.
    """

    severity: ClassVar[Severity] = "warning"

    schema: Literal[1] = SCHEMA
    time: datetime | None = None
    peer: str


MOVED_REMEDY = "may have moved only one of two models, which changes the mean of all models"
"""Possible effect of a gossip step that was not settled."""


# ------------------------------------------------------------ the course of a peer


class PhaseBegan(Notice, frozen=True, kw_only=True):
    """A peer began a phase of its run.

    Attributes
    ----------
    phase
        ``joining``, ``gathering``, ``learning``, ``leaving`` or ``done``.
    round
    """

    severity = "info"

    phase: str
    round: int

    def __str__(self) -> str:
        return f"{self.phase} began in round {self.round + 1}"


STALLED_REMEDY = 1.0
"""Seconds of waiting in the same gossip step after which a peer reports a :class:`WaitBegan`."""


class WaitBegan(Notice, frozen=True, kw_only=True):
    """A peer has waited for the same gossip step longer than a second.

    Attributes
    ----------
    round
    neighbours
        For which it waits; a later event replaces them.
    connected
        Whether it reaches the broker.
    """

    severity = "info"

    round: int
    neighbours: tuple[str, ...]
    connected: bool = True

    def __str__(self) -> str:
        if not self.connected:
            return f"waits in round {self.round + 1} for the broker, which cannot be reached"
        return f"waits in round {self.round + 1} for {', '.join(self.neighbours)}"


class WaitEnded(Notice, frozen=True, kw_only=True):
    """A peer waits no longer."""

    severity = "info"

    def __str__(self) -> str:
        return "waits no longer"


class PresenceChanged(Notice, frozen=True, kw_only=True):
    """Neighbours of a peer came or left, as far as it knows.

    Attributes
    ----------
    came, left
    """

    severity = "info"

    came: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        moved = ((self.came, "present"), (self.left, "gone"))
        sentences = [f"{', '.join(who)} {'is' if len(who) == 1 else 'are'} {state}" for who, state in moved if who]
        return "; ".join(sentences) or "its neighbours are as before"


class PeerFinished(Notice, frozen=True, kw_only=True):
    """A peer ended as it should.

    Attributes
    ----------
    scores
    """

    severity = "info"

    scores: dict[str, float]

    def __str__(self) -> str:
        scores = ", ".join(f"{name} {value:.3f}" for name, value in self.scores.items())
        return f"finished with {scores}" if scores else "finished"


class PeerFailed(Notice, frozen=True, kw_only=True):
    """A peer ended early.

    Attributes
    ----------
    error
        Class.
    message
    status
        Exit status.
    """

    severity = "alarm"

    error: str
    message: str
    status: int

    def __str__(self) -> str:
        return self.message


class JoinsLate(Notice, frozen=True, kw_only=True):
    """The other peers are ahead, and the peer begins where they are.

    Attributes
    ----------
    round
        In which it takes part first.
    rounds
        Of the experiment.
    again
        Whether it comes back.
    """

    round: int
    rounds: int
    again: bool

    def __str__(self) -> str:
        if self.round >= self.rounds:
            return (
                f"the others are ahead, in their last round: it comes too late to play one of the {self.rounds} rounds"
            )
        verb = "comes back" if self.again else "begins"
        return f"the others are ahead: it {verb} in round {self.round + 1}, from where they are then"


class ReleasesEnded(Notice, frozen=True, kw_only=True):
    """An earlier incarnation promised to release nothing more; the model stays as it is.

    Attributes
    ----------
    rounds
        Behind the model.
    lost
        Whether a newer model was released.
    """

    rounds: int
    lost: bool

    def __str__(self) -> str:
        why = "; what was released after it stays with the others and changes the mean of all models"
        return (
            f"an earlier incarnation has promised to release nothing more: its model after {self.rounds} rounds is "
            f"kept as it is{why if self.lost else ''}"
        )


class LearningStopped(Notice, frozen=True, kw_only=True):
    """A peer may not release another model, and stops learning.

    Attributes
    ----------
    reason
        ``budget`` (spent), ``partners`` (too few mask partners) or ``undecided`` (which models count).
    message
    """

    reason: Literal["budget", "partners", "undecided"]
    message: str

    def __str__(self) -> str:
        return f"{self.message}; what was learned before is kept"


class AwaitsReturn(Notice, frozen=True, kw_only=True):
    """A round did not complete; the peer waits for all others, to play it again.

    Attributes
    ----------
    round
    seconds
        ``transport.outage``.
    """

    round: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"it waits up to {self.seconds:g} s until all peers are there again (transport.outage), and then plays "
            f"round {self.round + 1} again; start the missing ones with --resume"
        )


class BudgetExceeded(Notice, frozen=True, kw_only=True):
    """More than the privacy budget is spent, because a release lacked a mask.

    Attributes
    ----------
    spent
        So far.
    epsilon
    """

    spent: float
    epsilon: float

    def __str__(self) -> str:
        return (
            f"epsilon {self.spent:.3g} has been spent, more than privacy.epsilon = {self.epsilon:g}, because a release "
            "lacked a mask"
        )


# ------------------------------------------------------------ its neighbours


class KeyTrusted(Notice, frozen=True, kw_only=True):
    """The key of a neighbour is trusted because it is the first that was seen.

    Attributes
    ----------
    neighbour
    key
    """

    neighbour: str
    key: str

    def __str__(self) -> str:
        return (
            f'TRUSTED ON FIRST USE: "{self.neighbour}" has the key {self.key}; compare it with the one that '
            f"{self.neighbour} shows, because the broker could have substituted its own, or use a roster"
        )


class NameShared(Notice, frozen=True, kw_only=True):
    """Another peer answers to the name of this one.

    Attributes
    ----------
    key
    own
        Fingerprint of this peer.
    """

    key: str
    own: str

    def __str__(self) -> str:
        return (
            f'a peer with the key {self.key} answers to the name "{self.peer}"; neighbours that know the key '
            f"{self.own} ignore it, so find out whose it is or use a roster"
        )


class VersionDiffers(Notice, frozen=True, kw_only=True):
    """A neighbour runs another release of p2pfl.

    Attributes
    ----------
    neighbour
    theirs
        Empty if it announces none.
    ours
    """

    neighbour: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        theirs = self.theirs or "of an unknown version"
        return f'peer "{self.neighbour}" runs p2pfl {theirs}, this peer runs {self.ours}'


class PeerExcluded(Notice, frozen=True, kw_only=True):
    """A neighbour signed two different messages for one gossip step and was excluded.

    Attributes
    ----------
    neighbour
    key
    signed
        Kind of statement.
    round, step
    proof
        File.
    """

    severity = "alarm"

    neighbour: str
    key: str
    signed: str
    round: int
    step: int
    proof: str | None = None

    def __str__(self) -> str:
        kept = "" if self.proof is None else f"; the proof is in {self.proof}"
        return (
            f'EXCLUDED: "{self.neighbour}" with the key {self.key} signed two different {self.signed}s for step '
            f"{self.step} of round {self.round}{kept}; ask its owner why, and revoke the key without a good answer"
        )


class ModelsRefused(Notice, frozen=True, kw_only=True):
    """Models of a neighbour were not used, because their size or numbers are not those of this run.

    Attributes
    ----------
    neighbour
    round
        The first one.
    """

    neighbour: str
    round: int

    def __str__(self) -> str:
        return (
            f'the model of "{self.neighbour}" in round {self.round + 1} is not used, because its size or type is not '
            "that of this run, or it contains NaN; run the same code at both, and declare by a property `beside` of "
            "the algorithm what it sends beside a model"
        )


class AcceptanceWithheld(Notice, frozen=True, kw_only=True):
    """A peer that helps to decide whether a round counts reported that it is complete, and withheld its acceptance.

    It is reported the first, second, fourth, eighth time, and so on. Decisions do not wait for such a peer.

    Attributes
    ----------
    neighbour
    round
        The last one.
    times
        Such rounds so far.
    """

    neighbour: str
    round: int
    times: int

    def __str__(self) -> str:
        return (
            f'"{self.neighbour}" has not accepted that round {self.round + 1} counts, although it reported it complete '
            f"({count_of(self.times, 'such round')} so far), which delayed the round; look at its log and at the "
            "connection to the broker, and ask its owner why if it happens again"
        )


class NeighboursMissing(Notice, frozen=True, kw_only=True):
    """Neighbours did not come; the peer goes on, because it has played all rounds, or because it comes back later.

    Attributes
    ----------
    absent
        Never came.
    gone
        Left.
    message
    """

    absent: tuple[str, ...]
    gone: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return self.message


# ------------------------------------------------------------ what harms the mean of all models


class LossRose(Notice, frozen=True, kw_only=True):
    """The loss under masks rose steeply; a member may have left half of its masks in the models.

    Attributes
    ----------
    round
    before, now, best_round, best_file
    """

    severity = "alarm"

    round: int
    before: dict[str, float] | None = None
    now: dict[str, float]
    best_round: int | None = None
    best_file: str | None = None

    def __str__(self) -> str:
        changes = _changes(self.before or {}, self.now)
        scores = f" ({changes})" if changes else ""
        best, file = self.best_round, "" if self.best_file is None else f", in {self.best_file}"
        kept = "" if best is None else f"; the best model so far is that of round {best + 1}{file}"
        return (
            f"ALARM: the loss rose steeply in round {self.round + 1}{scores}; lower learning.rate, or look for a peer "
            f"that reports what it has not sent{kept}"
        )


class StepsUnsettled(Notice, frozen=True, kw_only=True):
    """Gossip steps may have moved only one of two models.

    Attributes
    ----------
    steps
        Number by neighbour.
    """

    steps: dict[str, int]

    def __str__(self) -> str:
        return f"{count_of(sum(self.steps.values()), 'gossip step')} with {', '.join(self.steps)} {MOVED_REMEDY}"


class SumsUnsettled(Notice, frozen=True, kw_only=True):
    """Sums lacked the part of a neighbour.

    Attributes
    ----------
    sums
        Number by neighbour.
    """

    sums: dict[str, int]

    def __str__(self) -> str:
        return f"{count_of(sum(self.sums.values()), 'sum')} without {', '.join(self.sums)} {MOVED_REMEDY}"


class RestartUnsettled(Notice, frozen=True, kw_only=True):
    """No neighbour confirmed that it reverted gossip steps of an earlier incarnation.

    Attributes
    ----------
    neighbours
    """

    neighbours: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"gossip steps of an earlier incarnation with {', '.join(self.neighbours)} {MOVED_REMEDY}, because no "
            "neighbour confirmed that it reverted them"
        )


class ConsensusUnknown(Notice, frozen=True, kw_only=True):
    """The peers could not agree on a model, and the peer keeps its own.

    Attributes
    ----------
    message
    """

    message: str

    def __str__(self) -> str:
        return f"no consensus, so models differ: {self.message}"


class CommonScoresUnknown(Notice, frozen=True, kw_only=True):
    """The scores of the common model stay unknown.

    Attributes
    ----------
    message
    """

    message: str

    def __str__(self) -> str:
        return f"the scores of the common model stay unknown: {self.message}"


# ------------------------------------------------------------ broker, clock and disk of a device


class BrokerUnavailable(Notice, frozen=True, kw_only=True):
    """A peer waits for the broker.

    Attributes
    ----------
    message
    seconds
        For which it retries.
    """

    message: str
    seconds: float | None

    def __str__(self) -> str:
        limit = "without a time limit" if self.seconds is None else f"for up to {self.seconds:g} s"
        return f"{self.message}; this peer retries {limit} (transport.outage)"


class QualityLowered(Notice, frozen=True, kw_only=True):
    """A peer goes on at quality of service 0, because the broker did not grant its subscriptions at 1.

    Attributes
    ----------
    message
    """

    message: str

    def __str__(self) -> str:
        return (
            f"{self.message}; at quality of service 0 it grants the subscription, so this peer goes on with that: set "
            "transport.mqtt.qos = 0, as clusters of brokers need it"
        )


class PasswordExposed(Notice, frozen=True, kw_only=True):
    """A password travels unencrypted.

    Attributes
    ----------
    brokers
        Addresses.
    """

    brokers: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"WARNING: a password goes to {', '.join(self.brokers)} unencrypted, so others on the network can read it; "
            "use mqtts:// or wss:// (p2pfl broker --config), and change the password"
        )


class HookFailed(Notice, frozen=True, kw_only=True):
    """The command that the user runs after each new model failed.

    Attributes
    ----------
    round
    message
    """

    round: int
    message: str

    def __str__(self) -> str:
        return f"the command of --on-model {self.message} after round {self.round}; this peer goes on"


class ClockBehind(Notice, frozen=True, kw_only=True):
    """The clock of the device is behind the last start of the peer.

    Attributes
    ----------
    seconds
        By how much.
    key
        Of that start if it is another one.
    """

    seconds: int
    key: str | None = None

    def __str__(self) -> str:
        whose = "" if self.key is None else f" under another key ({self.key})"
        return (
            f'the clock of this device is {duration(self.seconds)} behind the last start of peer "{self.peer}"{whose}; '
            "set the clock"
        )


class AnnouncementAhead(Notice, frozen=True, kw_only=True):
    """The broker retains an announcement under the peer's name more than 80 years ahead of the clock.

    Attributes
    ----------
    key
    topic
    """

    key: str
    topic: str

    def __str__(self) -> str:
        return (
            f'the broker retains an announcement of peer "{self.peer}" under another key ({self.key}) that is more '
            f"than 80 years ahead of the clock of this device; set the clock, or clear the retained message on "
            f"{self.topic}, because neighbours that have met that key refuse this peer"
        )


class CheckpointDamaged(Notice, frozen=True, kw_only=True):
    """A checkpoint could not be used and was removed.

    Attributes
    ----------
    file, message
    previous
        Whether an earlier one is tried.
    """

    file: str
    message: str
    previous: bool

    def __str__(self) -> str:
        instead = "the one before is used" if self.previous else "there is none before it"
        return f"{self.file}: {self.message}; {instead}"


class BestModelDamaged(Notice, frozen=True, kw_only=True):
    """The file of the best model cannot be read.

    Attributes
    ----------
    file, message
    """

    file: str
    message: str

    def __str__(self) -> str:
        return f"{self.file} cannot be read ({self.message}); the next better model takes its place"


# ------------------------------------------------------------ what observers see from outside


class PeerAnnounced(Notice, frozen=True, kw_only=True):
    """The broker retains a new announcement, as an observer sees it.

    Attributes
    ----------
    status
        ``up``; ``left`` after a goodbye; ``dead`` if the broker lost it.
    done
        Whether it left after all rounds.
    rounds
        Number of rounds of its run, which a change of the swarm may have set; 0 without an end, ``None`` if unknown.
    """

    severity = "info"

    status: Literal["up", "left", "dead"]
    done: bool = False
    rounds: int | None = None

    def __str__(self) -> str:
        if self.status == "left":
            return "left after all rounds" if self.done else "left the swarm"
        return "is connected to the broker" if self.status == "up" else "is not connected to the broker any more"


class PeerSilent(Notice, frozen=True, kw_only=True):
    """A connected peer sends nothing.

    Attributes
    ----------
    seconds
        Since the last one.
    """

    seconds: float

    def __str__(self) -> str:
        return (
            f"gives no sign of life for {duration(round(self.seconds))}, although it is connected; look at its process "
            "and at the load of its device"
        )


class PeerResponded(Notice, frozen=True, kw_only=True):
    """A silent peer sends again."""

    severity = "info"

    def __str__(self) -> str:
        return "gives signs of life again"


class TelemetryStopped(Notice, frozen=True, kw_only=True):
    """Observers cannot look at a peer.

    Attributes
    ----------
    message
    """

    message: str

    def __str__(self) -> str:
        return f"observers cannot look at this peer: {self.message}"


# ------------------------------------------------------------ changes of the swarm


class ChangeTaken(Notice, frozen=True, kw_only=True):
    """A peer holds a change of its swarm that the operator has signed.

    Attributes
    ----------
    number
    digest
        SHA-256 of what changes.
    operator
    neighbour
        That relayed it; null if it came from the operator.
    last
        Rounds after which the run ends; null for a proposal.
    """

    severity = "info"

    number: int
    digest: str
    operator: str
    neighbour: str | None = None
    last: int | None = None

    def __str__(self) -> str:
        by = "" if self.neighbour is None else f', which "{self.neighbour}" relayed'
        what = f"change {self.number} of the operator {self.operator}{by}"
        if self.last is None:
            return f"can follow {what}, and waits for the order"
        return f"ends this run after round {self.last}, and goes on with the next one, by {what}"


class ChangeRefused(Notice, frozen=True, kw_only=True):
    """A peer does not follow a change of its swarm.

    Attributes
    ----------
    neighbour
        That relayed it; null if it came from the broker.
    ordered
        Whether the others end the run by it.
    message
    """

    neighbour: str | None = None
    ordered: bool = False
    message: str

    def __str__(self) -> str:
        by = "" if self.neighbour is None else f' that "{self.neighbour}" relayed'
        more = "; the others end this run without this peer, so ask the operator" if self.ordered else ""
        return f"does not follow a change of the swarm{by}: {self.message}{more}"


class ChangeUnconfirmed(Notice, frozen=True, kw_only=True):
    """Neighbours are not known to hold the change by which a peer ends its run.

    Attributes
    ----------
    neighbours
    last
        Rounds after which the run ends.
    """

    neighbours: tuple[str, ...]
    last: int

    def __str__(self) -> str:
        names = ", ".join(self.neighbours)
        return (
            f"ends this run after round {self.last}, and {names} did not confirm the change; if they go on with this "
            "run, stop them, and begin the next one there with p2pfl next"
        )


# ------------------------------------------------------------ data that grow


DRIFTED = 0.25
"""Population stability index above which a distribution counts as changed."""


class DataRead(Notice, frozen=True, kw_only=True):
    """A peer read its data again, because of ``data.refresh``.

    Attributes
    ----------
    round
        Before which it did.
    rows, train
        All of now, and those that it trains on.
    new
        Not there before.
    appended
        Whether the earlier rows are all there, in front.
    loss
        Mean loss on the new rows before it trains on them.
    drift, feature
        Largest population stability index of a feature, of the new rows against the earlier ones; and that feature.
    rate
        At which DP-SGD samples rows, where it rose because there are fewer.
    """

    severity = "info"

    round: int
    rows: int
    train: int
    new: int
    appended: bool
    loss: float | None = None
    drift: float | None = None
    feature: str | None = None
    rate: float | None = None

    def __str__(self) -> str:
        where = "" if self.appended else ", and lacks some of the earlier ones"
        text = f"has {self.rows:,} rows before round {self.round + 1}, {self.new:,} of them new{where}"
        text += f"; it trains on {self.train:,}"
        if self.loss is not None:
            text += f"; loss on the new rows {self.loss:.3f}"
        text += _drifted(self.drift, self.feature)
        if self.rate is not None:
            text += f"; a step now takes {self.rate:.3g} of its rows, so each round costs single samples more epsilon"
        return text


class DataUnreadable(Notice, frozen=True, kw_only=True):
    """A peer could not read its data again, and goes on with those that it has.

    Attributes
    ----------
    round
        Before which it tried.
    message
    """

    round: int
    message: str

    def __str__(self) -> str:
        return f"goes on with the rows that it has in round {self.round + 1}, because {self.message}"


class DataOutdated(Notice, frozen=True, kw_only=True):
    """The data file of a peer has changed since the peer read it, and ``data.refresh`` is not set.

    Attributes
    ----------
    round
        Round before which it was seen.
    """

    round: int

    def __str__(self) -> str:
        return (
            f"its data file has changed since it was read, as seen before round {self.round + 1}; set data.refresh to "
            "use new rows, or begin another run with them"
        )


class DataReplaced(Notice, frozen=True, kw_only=True):
    """The data of a peer that resumes do not begin with the rows of its checkpoint, as when the oldest rows have left.

    It takes all that are there.

    Attributes
    ----------
    drift, feature
        Largest population stability index of a feature against the rows of the checkpoint; and that feature.
    """

    drift: float | None = None
    feature: str | None = None

    def __str__(self) -> str:
        return (
            "its data no longer begin with the rows of its checkpoint, as when old rows have left; it goes on with "
            f"those that are there{_drifted(self.drift, self.feature)}"
        )


def _drifted(drift: float | None, feature: str | None) -> str:
    changed = drift is not None and drift > DRIFTED
    return f"; {feature} has changed (population stability index {drift:.2f})" if changed else ""


# ------------------------------------------------------------ all of them


def kinds() -> dict[str, type[Notice]]:
    """Return all classes of notices that occur, by kind.

    Examples
    --------
    >>> sorted(kinds())[:3]
    ['acceptance_withheld', 'announcement_ahead', 'awaits_return']
    """
    pending, leaves = [Notice], list[type[Notice]]()
    while pending:
        one = pending.pop()
        below = one.__subclasses__()
        leaves += [] if below else [one]
        pending += below
    return {kind_of(one.__name__): one for one in sorted(leaves, key=lambda one: one.__name__)}


def _changes(before: Mapping[str, float], now: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {before[name]:.3f} before, {now[name]:.3f} now" for name in now if name in before)
