"""The run directory: ``runs/<name>-<time>/``.

experiment.toml            the resolved experiment
provenance.json            start, versions, commit and own modules of the run
modules/                   source of the own modules that the experiment names
data.json                  digests of the data of each peer, which only their owner can read
metrics.jsonl              one record per peer and round
events.jsonl               one notice per line: what happened besides the rounds
peers/<name>.safetensors   the model under its own names
peers/<name>.state         what a live peer needs to continue; it keeps the previous one as well
keys/                      identities of the peers of a live run, for resuming it
run.lock, peer.lock        locks of the processes of live peers
simulation.state           the state of all peers of a simulation that has not ended, for resuming it
simulation.lock            lock of a simulation
model.json                 columns, scaling and class names, for using a model on raw values
summary.json               alone, together, pooled; the same keys for run and simulate

Only their owner can read the files with models, records, events and results, which hold exact statistics of the data:
:mod:`p2pfl.results.exact_statistics` lists them.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Mapping, MutableMapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from p2pfl.core.errors import InputError, P2PFLError, StorageError
from p2pfl.core.files import DRIVE, OWNER_ONLY, CountingDrive, replace, replace_all
from p2pfl.experiment import Experiment, plain
from p2pfl.experiment.file.own_code import FOLDER as MODULES
from p2pfl.experiment.file.own_code import OwnCode, named_modules, own_code
from p2pfl.experiment.file.reading import read_kept, write_kept
from p2pfl.results.content import BestKept, PeerSummary, Summary
from p2pfl.results.formats import of_rounds
from p2pfl.results.notices.kinds import Notice
from p2pfl.results.provenance import OWN_CODE, provenance
from p2pfl.results.records import Record, columns_of, frame
from p2pfl.results.run_files import DELETION_FILE, events_of, records_of, table_of
from p2pfl.results.saved_models import BEST_SUFFIX, OWN_SUFFIX, SavedModels, model_file

MAX_RECENT = 10_000
"""Number of records, and of notices, that a run without an end keeps in memory."""


class Run:
    """Run with its directory; as a context manager, it removes the directory if wrong input prevents the start.

    Parameters
    ----------
    folder
        Path of a new or empty directory; ``None`` keeps everything in memory.
    experiment
        Resolved experiment.
    began
        Start in UTC, to record it with the versions in use; by default nothing of this is recorded.

    Attributes
    ----------
    provenance
        Result of :func:`p2pfl.results.provenance.provenance`, which becomes part of the summary.
    metrics
        All records, in the order in which rounds ended; of a run without an end the last :data:`MAX_RECENT`, as files
        keep the others.
    events
        All notices, in the order in which they were written down; likewise.
    models
        State dicts by peer, under the names of the model.
    best
        State dicts of the best models by peer, where peers judge them; ``summary["best"]`` has their rounds.
    disk, recorded
        Disk of records and notices, which counts their bytes, and the number of records that this process has added.
    description
        Content of ``model.json``; empty until it is known.
    summary
        Content of ``summary.json``.
    """

    def __init__(self, experiment: Experiment, *, folder: Path | None = None, began: datetime | None = None) -> None:
        self.experiment = experiment
        self.trusted = True  # False of a directory, whose code nobody has agreed to
        self.folder = folder
        self.disk, self.recorded = CountingDrive(), 0
        code = None if folder is None or began is None else own_code(named_modules(plain(experiment)))
        where = None if folder is None else Path.cwd() if code is None else code.folder
        self.provenance = {} if began is None else provenance(experiment, began=began, code=code, folder=where)
        self.metrics: list[Record] = []
        self.events: list[Notice] = []
        self.models: MutableMapping[str, Mapping[str, Any]] = {}
        self.best: MutableMapping[str, Mapping[str, Any]] = {}
        self.description: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self._new = folder is not None
        if folder is not None:
            self._create(folder, code)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Keep the directory, unless nothing was started."""
        unused = isinstance(error, P2PFLError) and error.status == InputError.status and not self.metrics
        if unused and self._new and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _create(self, folder: Path, code: OwnCode | None) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise FileExistsError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            (folder / "peers").mkdir()  # of two runs in one empty directory, the second fails here
            try:
                (folder / "metrics.jsonl").touch(mode=OWNER_ONLY)
                (folder / "events.jsonl").touch(mode=OWNER_ONLY)
                if self.provenance:
                    replace(folder / "provenance.json", _json(self.provenance))
                if code is not None and code.whole:
                    _copy(code, folder / MODULES)
                replace(folder / "experiment.toml", write_kept(self.experiment, folder, run=folder))
                DRIVE.sync(folder.parent)  # its contents are durable only if its name is
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        except (OSError, StorageError) as error:
            cause = error.__context__ if isinstance(error, StorageError) else error
            reason = getattr(cause, "strerror", None) or cause
            raise InputError(
                f"the run directory {folder} cannot be written ({reason}); choose another with --runs"
            ) from None

    def record(self, records: Sequence[Record]) -> None:
        """Add the records of a round; they are on disk when this returns, all of them or none."""
        self.metrics.extend(records)
        self._append("metrics.jsonl", records)
        self.recorded += len(records)
        if self.experiment.endless:
            del self.metrics[: -max(MAX_RECENT, len(records))]

    def rescore(self, scores: Mapping[str, dict[str, float]]) -> None:
        """Replace the scores of the last record of each peer, by name of the peer."""
        last = {record.peer: number for number, record in enumerate(self.metrics)}
        for peer, number in last.items():
            self.metrics[number] = msgspec.structs.replace(self.metrics[number], scores=scores[peer])
        if self.folder is not None:
            replace(self.folder / "metrics.jsonl", _lines(self.metrics), mode=OWNER_ONLY)

    def log(self, notices: Sequence[Notice]) -> None:
        """Add notices; they are on disk when this returns, all of them or none."""
        self.events.extend(notices)
        self._append("events.jsonl", notices)
        if self.experiment.endless:
            del self.events[:-MAX_RECENT]

    def _append(self, name: str, items: Sequence[msgspec.Struct]) -> None:
        if self.folder is None:
            return
        path = self.folder / name
        size = None
        try:
            size = path.stat().st_size
            self.disk.append(path, _lines(items), mode=OWNER_ONLY)
        except OSError as error:
            if size is not None:  # a part may have been written
                os.truncate(path, size)
            raise StorageError(
                f"{path} cannot be written ({error.strerror}), and its old contents are unchanged; free some space"
            ) from None

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write ``model.json`` once, which describes how to use the models of this run on raw values.

        It holds exact statistics of the data, so only its owner can read it, like live checkpoints.

        Parameters
        ----------
        about
            Result of :func:`p2pfl.results.models.model_description.describe_model`; nothing is written if it is empty.

        Raises
        ------
        StorageError
            The disk is full or not writable.
        """
        if not about or about == self.description:
            return
        self.description = dict(about)
        if self.folder is not None:
            text = json.dumps(self.description, indent=2, allow_nan=False) + "\n"
            replace(self.folder / "model.json", text.encode(), mode=OWNER_ONLY)

    def note_data(self, digests: Mapping[str, Any]) -> None:
        """Write ``data.json``, by which a repetition knows that it has the same data.

        Only its owner can read it, as whoever has a digest can test a guess at the data of a peer with few samples.

        Parameters
        ----------
        digests
            Result of :func:`p2pfl.results.repetitions.digests.digests`; nothing is written if it is empty.

        Raises
        ------
        StorageError
            The disk is full or not writable.
        """
        if digests and self.folder is not None:
            replace(self.folder / "data.json", _json(digests), mode=OWNER_ONLY)

    def save(
        self,
        models: Mapping[str, Mapping[str, Any]],
        *,
        round: int,
        own: Mapping[str, Mapping[str, Any]] | None = None,
        about: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Store the models of some peers after ``round``; each file is replaced as a whole or not at all.

        Only their owner can read the files, whose metadata hold exact statistics of the data.

        Parameters
        ----------
        models
            Tensors by name, for each peer.
        round
            Last round.
        own
            Models with effects of the peers' own, for files that only their owner can read.
        about
            Metadata of the file of each peer; the description of all models by default.

        Raises
        ------
        StorageError
            The disk is full or not writable.
        """
        self.models.update(models)
        if self.folder is None:
            return
        from p2pfl.results.models.model_description import metadata  # noqa: PLC0415 (imports torch)

        usual, about = metadata(self.description), about or {}
        for ending, each in (("", models), (OWN_SUFFIX, own or {})):
            replace_all(
                self.folder / "peers",
                (
                    (
                        f"{peer}{ending}.safetensors",
                        model_file(model, {"peer": peer, "round": str(round), **about.get(peer, usual)}),
                    )
                    for peer, model in each.items()
                ),
                mode=OWNER_ONLY,
            )

    def save_best(self, peer: str, model: Mapping[str, Any], kept: BestKept) -> None:
        """Store the best model of a peer, under the round and the loss that it has on which of the peer's data.

        Raises
        ------
        StorageError
            The disk is full or not writable.
        """
        self.best[peer] = model
        if self.folder is None:
            return
        from p2pfl.results.models.model_description import metadata  # noqa: PLC0415 (imports torch)

        about = {"peer": peer, "round": str(kept.round), "loss": str(kept.loss), "part": kept.part}
        replace(self.folder / kept.file, model_file(model, about | metadata(self.description)), mode=OWNER_ONLY)

    def finish(self, summary: Summary | PeerSummary) -> None:
        """Write the summary, with the provenance but for own code; NaN becomes null, as JSON has no NaN."""
        stated = {name: value for name, value in self.provenance.items() if name not in OWN_CODE}
        self.summary = _finite(msgspec.to_builtins(summary) | stated)
        if self.folder is not None:
            replace(self.folder / "summary.json", _json(self.summary), mode=OWNER_ONLY)

    @property
    def attackers(self) -> frozenset[str]:
        """Names of the peers that attack the others.

        Raises
        ------
        InputError
            The run is not finished, and its topology file, which lists the peers, is missing.
        """
        if "per_peer" in self.summary:
            return frozenset(peer for peer, each in self.summary["per_peer"].items() if each.get("attacker"))
        if self.experiment.attack.name == "none":
            return frozenset()
        from p2pfl.experiment.parts.peer_graph import built  # noqa: PLC0415 (imports networkx)
        from p2pfl.experiment.parts.robustness_parts import attackers  # noqa: PLC0415 (imports torch)

        return attackers(self.experiment, built(self.experiment, trusted=self.trusted).peers)

    @property
    def honest(self) -> list[Record]:
        """Records of the peers that do not attack; all of them in the run of an attacker alone."""
        attackers = self.attackers
        return [record for record in self.metrics if record.peer not in attackers] or self.metrics

    def plot(self, path: str | Path | None = None) -> Any:
        """Plot the score, and how far models move, over rounds; write the plot to ``path``, or return the figure."""
        from p2pfl.results.pages import run_charts  # noqa: PLC0415 (matplotlib is an extra)
        from p2pfl.results.plots import draw_charts  # noqa: PLC0415

        if not any(record.scores for record in self.metrics):
            raise InputError(
                "the run has no scores to plot; let it run longer, or give its learner a function evaluate"
            )
        charts = [next(run_charts.score_charts(self)), run_charts.consensus(self)]
        return draw_charts([chart for chart in charts if chart is not None], title=self.experiment.name, path=path)

    def __repr__(self) -> str:
        """Return the name of the experiment, its rounds and, once it is known, the score."""
        done, score = len({record.round for record in self.metrics}), self.summary.get("together")
        score_text = "" if score is None else f", {self.summary.get('metric')} {score:.3f}"
        return f"<Run {self.experiment.name!r}: {of_rounds(done, self.experiment.rounds)} rounds{score_text}>"

    def _repr_html_(self) -> str:
        """Return the result for notebooks."""
        from p2pfl.results.facts import Note  # noqa: PLC0415 (only notebooks ask for it)
        from p2pfl.results.pages.gains import gains, verdict  # noqa: PLC0415
        from p2pfl.results.pages.rendering import fragment  # noqa: PLC0415

        note = Note(verdict(self.summary, self.honest, rounds=self.experiment.rounds), style="strong")
        return fragment([note, *gains(self.summary, self.honest)])

    @property
    def history(self) -> Any:
        """All records as a pandas data frame, with a column for each score.

        Raises
        ------
        InputError
            Pandas is not installed.
        """
        return frame(columns_of(self.metrics), of="run.history", instead="run.metrics")

    @staticmethod
    def resume(folder: str | Path, *, first: Mapping[str, int]) -> Run:
        """Continue a run directory; the records of rounds that run again are dropped, and events stay.

        Parameters
        ----------
        folder
            Directory of an interrupted run.
        first
            By peer, the round with which it continues.

        Raises
        ------
        InputError
            The folder is not a run directory, or cannot be read.
        StorageError
            The directory cannot be written.
        """
        run = Run.load(folder)
        kept = {name: run.provenance.get(name) for name in ("began", *OWN_CODE)}
        run.provenance = provenance(run.experiment, began=None) | kept
        run.metrics = [record for record in run.metrics if record.round < first.get(record.peer, 0)]
        replace(Path(folder) / "metrics.jsonl", _lines(run.metrics), mode=OWNER_ONLY)
        replace(Path(folder) / "events.jsonl", _lines(run.events), mode=OWNER_ONLY)
        return run

    @staticmethod
    def load(folder: str | Path) -> Run:
        """Read a run directory, including that of an interrupted run.

        Raises
        ------
        InputError
            The folder is not a run directory, or cannot be read.
        """
        folder = Path(folder)
        if not (folder / "experiment.toml").is_file():
            raise InputError(f"{folder} is not a run directory with experiment.toml; check the path")
        run = Run(read_kept(folder / "experiment.toml", whole=False))
        run.folder, run.trusted = folder, False
        if (folder / DELETION_FILE).exists():
            raise InputError(
                f"{folder} has no models and scores any more, because p2pfl forget has deleted them; name its replay"
            )
        run.metrics = records_of(folder / "metrics.jsonl")
        run.events = events_of(folder / "events.jsonl")
        run.provenance = table_of(folder / "provenance.json", what="the provenance of a run")
        run.description = table_of(folder / "model.json", what="a description of the model")
        run.models = SavedModels(folder / "peers")
        run.best = SavedModels(folder / "peers", ending=BEST_SUFFIX)
        run.summary = table_of(folder / "summary.json", what="a summary")
        return run


def _lines(items: Sequence[msgspec.Struct]) -> bytes:
    return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


def _copy(code: OwnCode, folder: Path) -> None:
    """Write own modules into a folder."""
    for path, content in code.files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        replace(target, content, mode=OWNER_ONLY)


def _json(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(table, indent=2, allow_nan=False) + "\n").encode()


def _finite(value: Any) -> Any:
    """Return the value with ``None`` for every number that JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
