"""Each notice as a sentence; other tests compare kinds and fields."""

import pytest

from p2pfl.network.peer.end import list_open
from p2pfl.results.content import Unsettled
from p2pfl.results.notices import kinds as notices
from p2pfl.results.spending.stated import BudgetStop

GOOD, BAD = {"accuracy": 0.97, "loss": 0.1}, {"accuracy": 0.29, "loss": 28.0}
ME = {"peer": "ada"}
SENTENCES = [
    (
        notices.PhaseBegan(**ME, phase="learning", round=0),
        "learning began in round 1",
    ),
    (
        notices.WaitBegan(**ME, round=11, neighbours=("bob", "cy")),
        "waits in round 12 for bob, cy",
    ),
    (
        notices.WaitBegan(**ME, round=11, neighbours=(), connected=False),
        "waits in round 12 for the broker, which cannot be reached",
    ),
    (notices.WaitEnded(**ME), "waits no longer"),
    (
        notices.PresenceChanged(**ME, came=("bob",), left=("cy", "dan")),
        "bob is present; cy, dan are gone",
    ),
    (notices.PresenceChanged(**ME), "its neighbours are as before"),
    (notices.PeerAnnounced(**ME, status="up"), "is connected to the broker"),
    (notices.PeerAnnounced(**ME, status="dead"), "is not connected to the broker any more"),
    (notices.PeerAnnounced(**ME, status="left"), "left the swarm"),
    (notices.PeerAnnounced(**ME, status="left", done=True), "left after all rounds"),
    (
        notices.PeerSilent(**ME, seconds=12.4),
        ("gives no sign of life for 12 s, although it is connected; look at its process and at the load of its device"),
    ),
    (notices.PeerResponded(**ME), "gives signs of life again"),
    (
        notices.TelemetryStopped(**ME, message="the broker refused the subscription"),
        "observers cannot look at this peer: the broker refused the subscription",
    ),
    (
        notices.PeerFinished(**ME, scores={"loss": 0.5}),
        "finished with loss 0.500",
    ),
    (
        notices.PeerFinished(**ME, scores={}),
        "finished",
    ),
    (
        notices.PeerFailed(**ME, error="RunError", message="the disk is full; free some space", status=1),
        "the disk is full; free some space",
    ),
    (
        notices.JoinsLate(**ME, round=6, rounds=6, again=True),
        "the others are ahead, in their last round: it comes too late to play one of the 6 rounds",
    ),
    (
        notices.JoinsLate(**ME, round=5, rounds=6, again=True),
        "the others are ahead: it comes back in round 6, from where they are then",
    ),
    (
        notices.JoinsLate(**ME, round=2, rounds=6, again=False),
        "the others are ahead: it begins in round 3, from where they are then",
    ),
    (
        notices.ReleasesEnded(**ME, rounds=5, lost=True),
        (
            "an earlier incarnation has promised to release nothing more: its model after 5 rounds is kept as it "
            "is; what was released after it stays with the others and changes the mean of all models"
        ),
    ),
    (
        notices.LearningStopped(**ME, reason="budget", message="the budget is spent"),
        "the budget is spent; what was learned before is kept",
    ),
    (
        notices.AwaitsReturn(**ME, round=2, seconds=600.0),
        (
            "it waits up to 600 s until all peers are there again (transport.outage), and then plays round 3 again; "
            "start the missing ones with --resume"
        ),
    ),
    (
        notices.BudgetExceeded(**ME, spent=5.8, epsilon=4.0),
        "epsilon 5.8 has been spent, more than privacy.epsilon = 4, because a release lacked a mask",
    ),
    (
        notices.KeyTrusted(**ME, neighbour="bob", key="ab:cd"),
        (
            'TRUSTED ON FIRST USE: "bob" has the key ab:cd; compare it with the one that bob shows, because the '
            "broker could have substituted its own, or use a roster"
        ),
    ),
    (
        notices.NameShared(**ME, key="ab:cd", own="ef:01"),
        (
            'a peer with the key ab:cd answers to the name "ada"; neighbours that know the key ef:01 ignore it, '
            "so find out whose it is or use a roster"
        ),
    ),
    (
        notices.VersionDiffers(**ME, neighbour="bob", theirs="0.2", ours="0.1"),
        'peer "bob" runs p2pfl 0.2, this peer runs 0.1',
    ),
    (
        notices.VersionDiffers(**ME, neighbour="bob", theirs="", ours="0.1"),
        'peer "bob" runs p2pfl of an unknown version, this peer runs 0.1',
    ),
    (
        notices.PeerExcluded(**ME, neighbour="bob", key="ab:cd", signed="row", round=1, step=0, proof="p.json"),
        (
            'EXCLUDED: "bob" with the key ab:cd signed two different rows for step 0 of round 1; the proof is in '
            "p.json; ask its owner why, and revoke the key without a good answer"
        ),
    ),
    (
        notices.AcceptanceWithheld(**ME, neighbour="bob", round=1, times=2),
        (
            '"bob" has not accepted that round 2 counts, although it reported it complete (2 such rounds so far), '
            "which delayed the round; look at its log and at the connection to the broker, and ask its owner why if it "
            "happens again"
        ),
    ),
    (
        notices.ModelsRefused(**ME, neighbour="bob", round=1),
        (
            'the model of "bob" in round 2 is not used, because its size or type is not that of this run, or it '
            "contains NaN; run the same code at both, and declare by a property `beside` of the algorithm what it "
            "sends beside a model"
        ),
    ),
    (
        notices.NeighboursMissing(**ME, absent=("bob",), gone=(), message="bob did not come"),
        "bob did not come",
    ),
    (
        notices.LossRose(**ME, round=11, before=GOOD, now=BAD, best_round=7, best_file="a/b.safetensors"),
        (
            "ALARM: the loss rose steeply in round 12 (accuracy 0.970 before, 0.290 now; loss 0.100 before, 28.000 "
            "now); lower learning.rate, or look for a peer that reports what it has not sent; the best model so far is "
            "that of round 8, in a/b.safetensors"
        ),
    ),
    (
        notices.LossRose(**ME, round=11, now=BAD, best_round=7),
        (
            "ALARM: the loss rose steeply in round 12; lower learning.rate, or look for a peer that reports what it "
            "has not sent; the best model so far is that of round 8"
        ),
    ),
    (
        notices.StepsUnsettled(**ME, steps={"bob": 1, "eve": 2}),
        ("3 gossip steps with bob, eve may have moved only one of two models, which changes the mean of all models"),
    ),
    (
        notices.SumsUnsettled(**ME, sums={"bob": 1}),
        "1 sum without bob may have moved only one of two models, which changes the mean of all models",
    ),
    (
        notices.RestartUnsettled(**ME, neighbours=("bob",)),
        (
            "gossip steps of an earlier incarnation with bob may have moved only one of two models, which changes"
            " the mean of all models, because no neighbour confirmed that it reverted them"
        ),
    ),
    (
        notices.ConsensusUnknown(**ME, message="no partner is left"),
        "no consensus, so models differ: no partner is left",
    ),
    (
        notices.CommonScoresUnknown(**ME, message="no partner is left"),
        "the scores of the common model stay unknown: no partner is left",
    ),
    (
        notices.BrokerUnavailable(**ME, message="no broker; start it", seconds=60.0),
        "no broker; start it; this peer retries for up to 60 s (transport.outage)",
    ),
    (
        notices.BrokerUnavailable(**ME, message="no broker; start it", seconds=None),
        "no broker; start it; this peer retries without a time limit (transport.outage)",
    ),
    (
        notices.QualityLowered(**ME, message="the broker refuses the subscription a/b"),
        (
            "the broker refuses the subscription a/b; at quality of service 0 it grants the subscription, so this peer "
            "goes on with that: set transport.mqtt.qos = 0, as clusters of brokers need it"
        ),
    ),
    (
        notices.HookFailed(**ME, round=7, message="ended with status 3"),
        "the command of --on-model ended with status 3 after round 7; this peer goes on",
    ),
    (
        notices.PasswordExposed(**ME, brokers=("mqtt://b:1883",)),
        (
            "WARNING: a password goes to mqtt://b:1883 unencrypted, so others on the network can read it; use "
            "mqtts:// or wss:// (p2pfl broker --config), and change the password"
        ),
    ),
    (
        notices.ClockBehind(**ME, seconds=3600),
        'the clock of this device is 1 h 0 min behind the last start of peer "ada"; set the clock',
    ),
    (
        notices.ClockBehind(**ME, seconds=59, key="ab:cd"),
        (
            'the clock of this device is 59 s behind the last start of peer "ada" under another key (ab:cd); set '
            "the clock"
        ),
    ),
    (
        notices.AnnouncementAhead(**ME, key="ab:cd", topic="a/b"),
        (
            'the broker retains an announcement of peer "ada" under another key (ab:cd) that is more than 80 '
            "years ahead of the clock of this device; set the clock, or clear the retained message on a/b, "
            "because neighbours that have met that key refuse this peer"
        ),
    ),
    (
        notices.CheckpointDamaged(**ME, file="a.state", message="torn", previous=True),
        "a.state: torn; the one before is used",
    ),
    (
        notices.CheckpointDamaged(**ME, file="a.state", message="torn", previous=False),
        "a.state: torn; there is none before it",
    ),
    (
        notices.BestModelDamaged(**ME, file="a.best", message="torn"),
        "a.best cannot be read (torn); the next better model takes its place",
    ),
    (
        notices.DataRead(
            **ME, round=9, rows=3300, train=2640, new=3000, appended=True, loss=0.4, drift=0.5, feature="temp"
        ),
        (
            "has 3,300 rows before round 10, 3,000 of them new; it trains on 2,640; loss on the new rows 0.400; temp "
            "has changed (population stability index 0.50)"
        ),
    ),
    (
        notices.DataRead(**ME, round=9, rows=40, train=32, new=0, appended=False, rate=0.5),
        (
            "has 40 rows before round 10, 0 of them new, and lacks some of the earlier ones; it trains on 32; a step "
            "now takes 0.5 of its rows, so each round costs single samples more epsilon"
        ),
    ),
    (
        notices.ChangeTaken(**ME, number=4, digest="0" * 64, operator="5ce8 9ef7"),
        "can follow change 4 of the operator 5ce8 9ef7, and waits for the order",
    ),
    (
        notices.ChangeTaken(**ME, number=4, digest="0" * 64, operator="5ce8 9ef7", neighbour="bob", last=9),
        (
            "ends this run after round 9, and goes on with the next one, by change 4 of the operator 5ce8 9ef7, which "
            '"bob" relayed'
        ),
    ),
    (
        notices.ChangeRefused(**ME, neighbour="bob", message="it is for another run of this swarm"),
        'does not follow a change of the swarm that "bob" relayed: it is for another run of this swarm',
    ),
    (
        notices.ChangeRefused(**ME, ordered=True, message="its roster lacks cleo"),
        (
            "does not follow a change of the swarm: its roster lacks cleo; the others end this run without this peer, "
            "so ask the operator"
        ),
    ),
    (
        notices.ChangeUnconfirmed(**ME, neighbours=("bob", "cleo"), last=9),
        (
            "ends this run after round 9, and bob, cleo did not confirm the change; if they go on with this run, stop "
            "them, and begin the next one there with p2pfl next"
        ),
    ),
    (
        notices.DataUnreadable(**ME, round=9, message="a.csv is empty; add rows"),
        "goes on with the rows that it has in round 10, because a.csv is empty; add rows",
    ),
    (
        notices.DataOutdated(**ME, round=9),
        (
            "its data file has changed since it was read, as seen before round 10; set data.refresh to use new rows, "
            "or begin another run with them"
        ),
    ),
    (
        notices.DataReplaced(**ME),
        (
            "its data no longer begin with the rows of its checkpoint, as when old rows have left; it goes on with "
            "those that are there"
        ),
    ),
]


@pytest.mark.parametrize(("notice", "said"), SENTENCES, ids=[type(notice).__name__ for notice, _ in SENTENCES])
def test_a_notice_has_a_sentence(notice, said):
    assert str(notice) == said


def test_every_kind_is_worded_here():
    assert {type(notice) for notice, _ in SENTENCES} == {*notices.kinds().values()}


def test_what_stays_open_is_one_notice_of_each_kind():
    assert list_open("ada", Unsettled()) == []
    found = list_open("ada", Unsettled({"bob": 2}, {"eve": 1}, ("bob",)))
    assert found == [
        notices.StepsUnsettled(peer="ada", steps={"bob": 2}),
        notices.SumsUnsettled(peer="ada", sums={"eve": 1}),
        notices.RestartUnsettled(peer="ada", neighbours=("bob",)),
    ]


def test_how_a_budget_stops_a_run_is_worded_with_the_account_and_the_number_of_peers():
    said = "3 of 9 rounds: another one would exceed privacy.epsilon = 8"
    assert str(BudgetStop(3, 9, 8.0)) == said
    assert str(BudgetStop(3, 9, 8.0, "b.jsonl")) == f"{said}, including what b.jsonl had before"
    assert str(BudgetStop(3, 9, 8.0, peers=2, among=3)) == f"{said} (2 of 3 peers)"
