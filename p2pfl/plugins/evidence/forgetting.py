"""Settings of a replay without peers or people, and deletion of what the old run has learned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from safetensors.torch import load_file

from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import OWNER_ONLY
from p2pfl.core.files import replace as replace_file
from p2pfl.data.tables.declaration import withdrawals
from p2pfl.experiment import Experiment, Plan
from p2pfl.experiment.account_entries import RunEntry
from p2pfl.experiment.accounts import data_folder
from p2pfl.experiment.file.reading import flat
from p2pfl.plugins.evidence.certificate import (
    DeletedFile,
    Deletion,
    EmptiedFile,
    file_digest,
    read_deletion,
    write_deletion,
)
from p2pfl.results.evidence import (
    KEY_SUFFIX,
    SUFFIX,
    PeerBegan,
    RoundPlayed,
    data_commitment,
    first_file,
    read_chain,
    read_entries,
    tensors_digest,
)
from p2pfl.results.repetitions.digests import digests
from p2pfl.results.run_files import table_of
from p2pfl.results.sent_rows import FOLDER as ROWS
from p2pfl.results.spending.account_file import AccountFile
from p2pfl.results.spending.ledger import run_ledgers

PEERS = "peers"
"""Folder of models and checkpoints in a run directory."""

MODEL_FILES = (
    "metrics.jsonl",
    "events.jsonl",
    "model.json",
    "data.json",
    "simulation*.state",
    "*.safetensors",
    "*.onnx",
    "*.pt",
    "*.pt2",
    "*.bin",
    f"{ROWS}/*/*",
)
"""Files of a run that have a model, a part of one, its scores, or digests of data that a guess can match."""

OUTPUTS = ("*.html", "*.csv", "*.tex", "*.docx", "*.md", "*.svg", "*.pdf", "*.png")
"""Files that people have written from a model."""

KEPT_IN_PEERS = ("*.journal", "*.accuses-*.json")
"""Files beside models that say what was spent, which stays spent, and who has broken the protocol."""

LEARNED_KEYS = (
    "explained",
    "statistics",
    "alone",
    "together",
    "pooled",
    "common",
    "per_peer",
    "scores",
    "intervals",
    "best",
    "alarms",
    "lossless",
    "difference",
)
"""Keys of ``summary.json`` whose values follow from totals or models; exact scores are equations for the parameters."""

EMPTY: Mapping[str, Any] = {"per_peer": {}, "scores": {}, "intervals": {}, "best": {}, "alarms": []}
"""Values of these keys once they are deleted, where null is none."""


def changes_without(experiment: Experiment, peers: Sequence[str], rows: str | None) -> list[str]:
    """Return the changes by which an experiment becomes the one that never had some peers or people.

    Parameters
    ----------
    experiment
        The experiment.
    peers
        Peers that leave.
    rows
        Path of the file of each owner with the keys of people who leave; ``None`` if nobody does.

    Raises
    ------
    InputError
        Nobody leaves, or the data have no keys.
    """
    absent = sorted({*experiment.learning.without, *peers})
    changes = []
    if peers:
        changes.append(f"learning.without={absent}".replace("'", '"'))
    if rows is not None:
        if experiment.data.name != "table" or "key" not in experiment.data.options:
            raise InputError(
                "people leave a run by their keys, and these data have none; set data.options.key of tables, or name a "
                "--peer"
            )
        changes.append(f'data.options.without="{rows}"')
    if not changes:
        raise InputError("nobody leaves; name a --peer, or the --rows of people who have withdrawn")
    return changes


def check_same(before: Experiment, after: Experiment) -> None:
    """Refuse a run that differs from another one in more than who takes part.

    Raises
    ------
    InputError
        It does; the message names a key.
    """
    first, second = _without_absent(before), _without_absent(after)
    if different := sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key)):
        raise InputError(
            f"the replay differs in {different[0]}, so it is not the run without those who leave; play it with "
            "the same settings"
        )


def _without_absent(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that a replay shares with the old run; who trained the model it starts from may differ."""
    values = {key: value for key, value in flat(experiment).items() if key != "learning.without"}
    options = dict(values.get("data.options", {}))
    options.pop("without", None)
    broker = ("transport.broker", "transport.credentials", "trust.keys")
    values |= {"data.options": options, "model.pretrained": experiment.model.pretrained is not None}
    return {key: value for key, value in values.items() if key not in broker}


def withdrawn_keys(experiment: Experiment, peers: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Return the keys of people who have withdrawn, by local peer that has some."""
    without = experiment.data.options.get("without")
    if without is None:
        return {}
    keys = {peer: withdrawals(str(without), data_folder(), peer=peer) for peer in peers}
    return {peer: own for peer, own in keys.items() if own}


def lone_difference(plan: Plan, leaving: Collection[str]) -> str | None:
    """Return what the difference of the old and the new model shows of a peer that leaves alone; ``None`` if nothing.

    The accounts of tables refuse other differences that show a peer, or few people
    (:mod:`p2pfl.results.spending.ledger`).

    Parameters
    ----------
    plan
        Plan of the replay.
    leaving
        Peers that leave.
    """
    exact = plan.asked.algorithm.additive and not plan.claims
    if not exact or len(leaving) != 1:
        return None
    return f"the difference of the old and the new model shows the exact totals of {min(leaving)} to whoever has both"


def accepted_exposures(plan: Plan, leaving: Collection[str]) -> tuple[str, ...]:
    """Return what the difference of both runs shows, and who owns the data or replays them has accepted.

    The accounts of the data have it, where they have the run.
    """
    accepted = [sentence] if (sentence := lone_difference(plan, leaving)) else []
    for ledger in (each for each in run_ledgers(plan, plan.federation.peers) if each.exact):
        runs = [entry for entry in AccountFile(ledger.account.path).read() if isinstance(entry, RunEntry)]
        last = [run for run in runs if run.experiment == ledger.digest][-1:]
        accepted += [reason.partition(";")[0] for run in last for reason in run.accepted]  # without the remedy
    return tuple(dict.fromkeys(accepted))


def compare_data(old: Path, plan: Plan, *, replay: Path | None = None) -> dict[str, bool | None]:
    """Return by local peer of a replay whether its training samples are those of the old run; ``None`` if unknown.

    Parameters
    ----------
    old
        Directory of the old run.
    plan
        Plan of the replay, with the data as they are now.
    replay
        Directory of a replay that has been played, with whose data those of the plan are compared as well.
    """
    peers = digests(plan.federation).get("peers", {})
    folders = [old] if replay is None else [old, replay]
    same = {peer: [_is_data(folder, peer, samples, plan) for folder in folders] for peer, samples in peers.items()}
    return {peer: None if None in each else all(each) for peer, each in sorted(same.items())}


def _is_data(folder: Path, peer: str, samples: Mapping[str, str], plan: Plan) -> bool | None:
    """Return whether a run had these training samples of a peer; ``None`` if its records do not say so."""
    recorded = table_of(folder / "data.json", what="digests of data").get("peers", {})
    if peer in recorded:
        return bool(recorded[peer].get("train") == samples["train"])
    chain, key = (folder / PEERS / f"{peer}{ending}" for ending in (SUFFIX, KEY_SUFFIX))
    if not plan.experiment.data.owned or not chain.is_file() or not key.is_file():
        return None  # test samples of bundled data are those of all peers together
    begun = [entry.fact for _, entry in read_chain(chain) if isinstance(entry.fact, PeerBegan)]
    return bool(begun) and begun[-1].data == data_commitment(samples, key.read_bytes())


def check_left(before: Experiment, plan: Plan, data: Mapping[str, bool | None], *, same_models: bool = True) -> None:
    """Refuse a replay in which those who had left the old run are back, or everybody of the old run still is.

    Parameters
    ----------
    before, plan
        Experiment of the old run, and plan of the replay.
    data
        Result of :func:`compare_data`.
    same_models
        False if the models of the replay are others, so people of other peers may have left, which they alone know.

    Raises
    ------
    InputError
        It is so.
    """
    absent, gone = {*plan.experiment.learning.without}, {*before.learning.without}
    if back := gone - absent:
        raise InputError(f"{min(back)} had left the old run already; name them in learning.without again")
    former, now = (withdrawn_keys(each, plan.federation.peers) for each in (before, plan.experiment))
    for peer, keys in former.items():
        if count := len(keys - now.get(peer, frozenset())):
            raise InputError(
                f"people of {peer} had left the old run already, and would be back ({count}); add the keys of "
                f"{before.data.options['without']} to the file of withdrawals"
            )
    if absent == gone and same_models and all(data.get(peer) for peer in now):
        raise InputError("nobody who leaves was in the old run; name a --peer, or the --rows of people who withdraw")


def precision_of(plan: Plan) -> str:
    """Return to which precision a replay equals a run that never had some data."""
    if plan.claims:
        return "in distribution: private noise is drawn anew, and its cost is charged again"
    if plan.masked and not plan.asked.algorithm.additive:
        return f"to one step of the grid of masks, 2^-{plan.experiment.privacy.bits}"
    return "to the last bit, on one version and kind of processor"


def model_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each model file of a run, by its name."""
    return {path.name: file_digest(path) for path in sorted((folder / PEERS).glob("*.safetensors"))}


def listed_models(deletion: Deletion) -> dict[str, str]:
    """Return the SHA-256 of each model file that a list of deleted files has, by its name."""
    models = {Path(each.path): each.sha256 for each in deletion.deleted if each.path.endswith(".safetensors")}
    return {path.name: digest for path, digest in models.items() if path.parent == Path(PEERS)}


def model_files(folder: Path) -> list[Path]:
    """Return the files of a run that have a model, or a part of one.

    They are models, checkpoints, exports, pages and tables, chains of evidence with totals, from which the model
    follows, or with digests of models without a key, and the key of all others, without which nobody can try whose
    data or models fit their digests.
    """
    files = [path for path in (folder / PEERS).rglob("*") if path.is_file()]
    shown = {first_file(path) for path in files if _is_of_chain(path) and _shows_models(path)}
    inside = [path for path in files if first_file(path) in shown or not _stays(path)]
    beside = {path for pattern in (*MODEL_FILES, *OUTPUTS) for path in folder.glob(pattern) if path.is_file()}
    return sorted([*inside, *beside])


def _stays(path: Path) -> bool:
    """Return whether a file beside models has no part of one, as its name shows; a chain may, as its entries show."""
    return _is_of_chain(path) or any(path.match(pattern) for pattern in KEPT_IN_PEERS)


def _is_of_chain(path: Path) -> bool:
    return first_file(path).name.endswith(SUFFIX)


def _shows_models(file: Path) -> bool:
    """Return whether a file of a chain shows models: by totals, or by digests without a key, or if it is damaged."""
    try:
        rounds = (entry.fact for _, _, entry in read_entries(file) if isinstance(entry.fact, RoundPlayed))
        return any(played.totals or played.public for played in rounds)
    except InputError:
        return True


def list_deletion(folder: Path) -> Deletion:
    """Return what of a run is to be deleted, and what an earlier deletion has listed that is gone.

    Parameters
    ----------
    folder
        Run directory.
    """
    listed, summary = read_deletion(folder), folder / "summary.json"
    now = tuple(DeletedFile(path.relative_to(folder).as_posix(), file_digest(path)) for path in model_files(folder))
    before, table = {each.path: each for each in listed.emptied}.get(summary.name), table_of(summary, what="a summary")
    keys = tuple(key for key in LEARNED_KEYS if table.get(key) or (before is not None and key in before.keys))
    digest = before.sha256 if before is not None else file_digest(summary) if keys else ""
    emptied = (EmptiedFile(summary.name, keys, digest),) if keys else ()
    earlier = [each for each in listed.deleted if not (folder / each.path).exists()]
    return Deletion(tuple(sorted([*earlier, *now], key=lambda each: each.path)), emptied)


def delete_models(folder: Path, deletion: Deletion) -> None:
    """Delete what a run has learned; the list is on the disk before, so that nothing is lost if this is interrupted.

    Files that have no part of a model stay, even if a list of somebody else names them.

    Raises
    ------
    StorageError
        A file cannot be deleted or written; those before it are gone.
    """
    write_deletion(deletion, folder)
    for path in sorted({folder / each.path for each in deletion.deleted} & {*model_files(folder)}):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{path} cannot be deleted ({error.strerror}); check its permissions") from None
    for emptied in deletion.emptied:
        path = folder / emptied.path
        table = table_of(path, what="a summary")
        table |= {key: EMPTY.get(key) for key in emptied.keys}
        replace_file(path, msgspec.json.format(msgspec.json.encode(table)) + b"\n", mode=OWNER_ONLY)


def common_parameters(plan: Plan, folder: Path) -> str:
    """Return the digest of the tensors that all peers of an exact model hold; empty where each has its own.

    Parameters
    ----------
    plan, folder
        Plan of the replay, and its directory.
    """
    if not plan.asked.algorithm.additive or plan.claims:
        return ""
    held = {tensors_digest(load_file(path)) for path in (folder / PEERS).glob("*.safetensors")}
    return held.pop() if len(held) == 1 else ""
