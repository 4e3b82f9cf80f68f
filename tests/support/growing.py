"""A run directory that grows line by line."""

from datetime import UTC, datetime, timedelta

import msgspec

from p2pfl.experiment import read
from p2pfl.results.notices.kinds import PhaseBegan, WaitBegan
from p2pfl.results.records import Record
from p2pfl.results.run import Run

BEGAN = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
PEERS = ("peer0", "peer1", "peer2", "peer3")


def at(seconds):
    return BEGAN + timedelta(seconds=seconds)


def began(peer, seconds=0.0, phase="learning"):
    return PhaseBegan(peer=peer, phase=phase, round=0, time=at(seconds))


def waits(peer, *others, seconds, round=0):
    return WaitBegan(peer=peer, round=round, neighbours=others, time=at(seconds))


def ended(peer, round, *, seconds, accuracy=0.5):
    return Record(
        time=at(seconds),
        peer=peer,
        round=round,
        scores={"loss": 1.0 - accuracy, "accuracy": accuracy},
        training_loss=1.0,
        distance=0.5,
        bytes_out=1000 * (round + 1),
        bytes_in=900,
        seconds_training=0.1,
        seconds_waiting=0.1,
        received=2,
        missed=[],
    )


class Growing:
    """A run directory of four peers in a ring, and a clock."""

    def __init__(self, folder):
        experiment = read({"name": "plant", "rounds": 10, "topology": {"kind": "ring", "peers": 4}})
        self.run = Run(experiment, folder=folder, began=BEGAN)
        self.folder = folder
        self.seconds = 0.0

    def now(self):
        return at(self.seconds)

    def log(self, *notices):
        self.run.log(notices)

    def record(self, *records):
        self.run.record(records)

    def learn(self, rounds, *, first=0, accuracy=lambda number, round: 0.5 + 0.04 * round + 0.02 * number):
        """All peers end some rounds, two seconds each."""
        for round in range(first, first + rounds):
            for number, peer in enumerate(PEERS):
                self.record(ended(peer, round, seconds=2.0 * (round + 1), accuracy=accuracy(number, round)))

    def raw(self, file, data):
        with (self.folder / file).open("ab") as to:
            to.write(data)

    @staticmethod
    def line(entry):
        return msgspec.json.encode(entry) + b"\n"
