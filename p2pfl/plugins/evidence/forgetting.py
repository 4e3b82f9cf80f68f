"""Settings of a replay without peers or people, and deletion of the models of the old run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from p2pfl.core.errors import InputError, StorageError
from p2pfl.data.tables.declaration import withdrawals
from p2pfl.experiment import Experiment, Plan
from p2pfl.experiment.accounts import data_folder
from p2pfl.experiment.file.reading import flat
from p2pfl.plugins.evidence.certificate import DeletedFile, file_digest

PEERS = "peers"
"""Folder of models and checkpoints in a run directory."""

MODEL_FILES = ("model.json", "simulation*.state", "*.safetensors", "*.onnx", "*.pt", "*.pt2", "*.bin")
"""Files beside the records of a run that have a model, or a part of one."""

OUTPUTS = ("*.html", "*.csv", "*.tex", "*.docx", "*.md", "*.svg", "*.pdf", "*.png")
"""Files that people have written from a model."""

KEPT_IN_PEERS = (".journal", ".json", ".jsonl", ".key")
"""Endings of files beside models that say what was spent, which stays spent."""


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


def withdrawn_keys(plan: Plan) -> Mapping[str, frozenset[str]]:
    """Return the keys of people who have withdrawn, by local peer that has some."""
    without = plan.experiment.data.options.get("without")
    if without is None:
        return {}
    keys = {peer: withdrawals(str(without), data_folder(), peer=peer) for peer in plan.federation.peers}
    return {peer: own for peer, own in keys.items() if own}


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


def model_files(folder: Path) -> list[Path]:
    """Return the files of a run that have a model, or a part of one: models, checkpoints, and what was exported."""
    inside = [path for path in (folder / PEERS).rglob("*") if path.is_file() and path.suffix not in KEPT_IN_PEERS]
    beside = {path for pattern in (*MODEL_FILES, *OUTPUTS) for path in folder.glob(pattern) if path.is_file()}
    return sorted([*inside, *beside])


def delete_models(folder: Path) -> tuple[DeletedFile, ...]:
    """Delete the models of a run, and return what was deleted.

    Raises
    ------
    StorageError
        A file cannot be deleted; those before it are gone.
    """
    deleted = []
    for path in model_files(folder):
        digest = file_digest(path)
        try:
            path.unlink()
        except OSError as error:
            raise StorageError(f"{path} cannot be deleted ({error.strerror}); check its permissions") from None
        deleted.append(DeletedFile(path.relative_to(folder).as_posix(), digest))
    return tuple(deleted)
