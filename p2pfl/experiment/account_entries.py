"""Lines of an account: what a run was, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from p2pfl.core.errors import InputError


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One release of one peer.

    Attributes
    ----------
    run, peer, round
        Identification of the release.
    mu, probability
        Cost of the release, see :class:`p2pfl.privacy.accounting.spending.Cost`.
    adjacency, colluders
        Conditions of the cost; costs under other conditions cannot be added.
    swarm
        Digest of the names of all peers of its experiment.
    """

    run: str
    peer: str
    round: int
    mu: float
    probability: float = 1.0
    adjacency: Literal["zero-out", "replace"]
    colluders: int
    swarm: str


class SampleEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cost of one peer in one round for each of its samples: steps of DP-SGD, or a total with private noise.

    Attributes
    ----------
    run, peer, round, swarm
        Fields as in :class:`Entry`.
    noise, rate, steps
        Cost for each sample, see :class:`p2pfl.privacy.accounting.examples.SampledSteps`. A total of cost mu is one
        step of noise 1 / mu with all samples.
    adjacency, colluders
        Conditions of the cost of a total; ``None`` for DP-SGD, which has none.
    """

    run: str
    peer: str
    round: int
    noise: float
    rate: float
    steps: int
    swarm: str
    adjacency: Literal["zero-out", "replace"] | None = None
    colluders: int | None = None


class RunEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run whose totals show something of the data, written before the first of them leaves.

    Attributes
    ----------
    run, date
        Name of the experiment, and when its totals began to leave, in UTC.
    experiment
        Digest of the settings from which the totals follow.
    table, header
        Name of the data file, and the columns by which its rows are told apart: those that the run uses, and the key.
    peer, peers
        Whose data, empty for the data of all in one file; and the names of all peers.
    model, columns
        Name of the model, and the declared columns.
    samples
        Number of samples.
    exact
        True if totals are exact; then ``parts`` has the samples of each.
    parts
        By name of a part of the data, a bit for each row that the account knows by the same columns, see
        :mod:`p2pfl.results.spending.people`.
    rows
        Keyed digests of the cells of the rows that are new, enciphered.
    split
        Settings on which the parts of all peers depend.
    epsilon
        Guarantee of the run alone; ``None`` without one.
    purpose, approver
        Purpose, and key of the officer who has approved the experiment.
    accepted
        Reasons against the run that its owner has overruled.
    signer
        Public key of the owner, whose signature follows the line.
    predictors
        Number of linear predictors of each row that the run shows another peer.
    """

    run: str
    date: str
    experiment: str
    table: str
    header: tuple[str, ...]
    peer: str
    peers: tuple[str, ...]
    model: str
    columns: tuple[str, ...]
    samples: int
    exact: bool
    parts: dict[str, str] = {}
    rows: str = ""
    split: str = ""
    epsilon: float | None = None
    purpose: str | None = None
    approver: str | None = None
    accepted: tuple[str, ...] = ()
    signer: str | None = None
    predictors: int = 0

    def results(self) -> dict[str, Any]:
        """Return the fields that say something to a reader, as values for JSON."""
        table: dict[str, Any] = msgspec.to_builtins(self)
        return {key: value for key, value in table.items() if key not in {"parts", "rows"}}


AccountEntry = Entry | SampleEntry | RunEntry
"""A line of an account."""


def entries(path: Path, lines: Sequence[bytes], *, after: int = 0) -> Iterator[AccountEntry]:
    """Parse lines of an account, of which ``after`` others precede the first.

    Raises
    ------
    InputError
        A line is no entry.
    """
    for number, line in enumerate(lines, after + 1):
        try:
            yield entry(line)
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{path}, line {number}: the line is not the cost of a release ({error}); correct it, as "
                "uncounted costs are spent twice"
            ) from None


def entry(line: bytes) -> AccountEntry:
    """Parse a line of an account; raise ``msgspec.MsgspecError`` for another."""
    table = msgspec.json.decode(line, type=dict[str, Any])
    if "experiment" in table:
        return msgspec.convert(table, RunEntry)
    return msgspec.convert(table, SampleEntry) if "steps" in table else msgspec.convert(table, Entry)


def contents(path: Path, *, start: int = 0) -> bytes:
    """Return the bytes of an account from a place on; none if there is no such file.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(f"{path}: the privacy budget cannot be read ({error.strerror}); check the file") from None


def whole_lines(data: bytes) -> list[bytes]:
    """Return the lines of an account without a last one that a crash has cut off: what it stands for never left."""
    lines = data.splitlines()
    if lines and not data.endswith(b"\n"):
        try:
            entry(lines[-1])
        except msgspec.MsgspecError:
            return lines[:-1]
    return lines
