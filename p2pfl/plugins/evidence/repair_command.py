"""``p2pfl repair``: remove a peer from a model approximately, and compare with a replay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch

from p2pfl.cli import folders, terminal
from p2pfl.cli.experiments import note_tables, warn_unaccounted
from p2pfl.cli.running.repeating import check_repeatable, check_trust
from p2pfl.cli.tables import render
from p2pfl.core.errors import InputError
from p2pfl.core.files import OWNER_ONLY, replace, replace_all
from p2pfl.experiment import Plan, plan, read
from p2pfl.plugins.evidence.evidence_commands import RepairOptions
from p2pfl.plugins.evidence.forgetting import changes_without
from p2pfl.plugins.evidence.repair import (
    calibrated,
    mean_model,
    membership,
    repair_cost,
    repairable_learner,
    update_lengths,
    with_other_batches,
)
from p2pfl.results import Run
from p2pfl.results.facts import FactTable
from p2pfl.results.models.model_description import metadata
from p2pfl.results.saved_models import model_file

FILE = "repaired.json"
"""Name of the file of a repair, beside its models."""


class RepairedModel(msgspec.Struct, frozen=True):
    """One of the models that a repair compares.

    Attributes
    ----------
    model
        ``with`` the peers that leave, ``repaired``, or the ``replay`` without them.
    cost
        Samples trained on, as a share of those of the replay; ``None`` for the old model.
    score
        Score on the test data.
    distance
        L2 distance to the replay, in units of that between two replays whose batches come in another order.
    membership
        By peer that leaves, the area under the ROC curve by which the loss tells its training samples from others of
        its own; ``None`` where it has no others.
    """

    model: str
    cost: float | None
    score: float | None
    distance: float | None
    membership: Mapping[str, float | None]


class Repair(msgspec.Struct, frozen=True):
    """Result of a repair, with its distance to a replay.

    Attributes
    ----------
    run
        Directory of the old run.
    peers
        Peers that leave.
    metric
        Name of the score.
    models
        The models.
    """

    run: str
    peers: tuple[str, ...]
    metric: str
    models: tuple[RepairedModel, ...]


def run(options: RepairOptions) -> int:
    """Repair a run, compare, and write the models; return the exit status.

    Raises
    ------
    InputError
        Nobody leaves, or the run cannot be repaired.
    """
    from p2pfl.simulation import simulate  # noqa: PLC0415 (it imports torch)

    folder = Path(options.run)
    check_repeatable(folder, live=True)
    check_trust(folder, trust=options.trust_code, command="repair")
    if not options.peer:
        raise InputError("nobody leaves; name a --peer")
    before = read(folder / "experiment.toml", trust_code=True)  # as checked above
    old = Run.load(folder)
    rounds = f"rounds={old.summary['rounds']}"  # it may have stopped early
    changes = [*changes_without(before, options.peer, None), rounds]
    after = read(folder / "experiment.toml", changes=changes, trust_code=True)
    whole, never = plan(before), plan(after)
    _check(never, old)
    repairing = calibrated(never, update_lengths(old.metrics))
    warn_unaccounted(never)
    note_tables(never)
    repaired = simulate(repairing, baselines=False)
    rows = {"with": mean_model(old, never), "repaired": mean_model(repaired, never)}
    unit = math.nan
    if options.replay:
        rows["replay"] = mean_model(simulate(never, baselines=False), never)
        other = mean_model(simulate(with_other_batches(never), baselines=False), never)
        unit = float((rows["replay"] - other).norm())
    costs = {"repaired": repair_cost(never), "replay": 1.0}
    repair = Repair(
        run=folder.name,
        peers=tuple(options.peer),
        metric=repaired.summary["metric"],
        models=tuple(
            RepairedModel(
                model=name,
                cost=costs.get(name),
                score=_score(never, row, repaired.summary["metric"]),
                distance=float((row - rows["replay"]).norm()) / unit if unit > 0 else None,
                membership={peer: _membership(whole, row, peer) for peer in options.peer},
            )
            for name, row in rows.items()
        ),
    )
    target = _write(repair, repaired, folders.new(options.runs, before.name, suffix="repaired"))
    return terminal.answer(
        options, msgspec.to_builtins(repair) | {"file": str(target)}, lambda _: _show(repair, target)
    )


def _check(never: Plan, old: Run) -> None:
    """Refuse runs whose updates cannot be calibrated, or whose models would not be compared rightly."""
    repairable_learner(never)
    if absent := sorted({*never.topology.peers} - {*old.models}):
        raise InputError(
            f"{old.folder} has no model of {absent[0]}, and a repair needs the models, records and data of all peers; "
            "replay the run with p2pfl forget"
        )
    if never.claims or never.experiment.data.scale:
        key = "private noise, which each new run is charged for" if never.claims else "data.scale"
        raise InputError(f"a repair does not work with {key}; replay the run with p2pfl forget")


def _score(never: Plan, row: torch.Tensor, metric: str) -> float | None:
    """Return the mean score of a model over the test data of the peers that remain."""
    peers = never.topology.peers
    score = float(never.learner.evaluate(row.repeat(len(peers), 1), peers=peers)[metric].nanmean())
    return score if math.isfinite(score) else None


def _membership(whole: Plan, row: torch.Tensor, peer: str) -> float | None:
    """Return the success of the loss attack against a peer's own other samples; ``None`` if it has none."""
    data = whole.federation
    own = whole.experiment.data.split == "iid" or not data.common  # then test samples are like those of the peer
    others = "validation" if len(data.validation[peer]) else "test"
    if (others == "test" and not own) or not len(getattr(data, others)[peer]):
        return None
    return membership(whole, row, peer=peer, others=others)


def _write(repair: Repair, repaired: Run, folder: Path) -> Path:
    """Write the repaired models and what they were compared with; return the path of the latter."""
    (folder / "peers").mkdir()
    about = metadata(repaired.description)
    replace_all(
        folder / "peers",
        (
            (f"{peer}.safetensors", model_file(model, {"peer": peer, **about}))
            for peer, model in repaired.models.items()
        ),
        mode=OWNER_ONLY,
    )
    path = folder / FILE
    replace(path, msgspec.json.format(msgspec.json.encode(repair)) + b"\n", mode=OWNER_ONLY)
    return path


def _show(repair: Repair, path: Path) -> None:
    """Print the table, and what it does not mean."""
    heads = ("model", "cost", repair.metric, "distance", *(f"membership of {peer}" for peer in repair.peers))
    cells = [
        (
            each.model,
            *(_number(value) for value in (each.cost, each.score, each.distance)),
            *(_number(each.membership[peer]) for peer in repair.peers),
        )
        for each in repair.models
    ]
    terminal.console().print(
        render(FactTable(f"Repair of {repair.run} without {', '.join(repair.peers)}", heads, cells))
    )
    for sentence in sentences(repair):
        terminal.note(sentence)
    terminal.note(f"repair: {path}")


def sentences(repair: Repair) -> list[str]:
    """Return what the figures of a repair mean."""
    lines = ["A repair is approximate and erases nothing: p2pfl forget makes the model that never had these data."]
    if all(each.distance is None for each in repair.models):
        lines.append("Distances and the membership to aim at need a replay; add --replay.")
    else:
        lines.append("Distances are in units of that between two replays whose batches come in another order.")
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
