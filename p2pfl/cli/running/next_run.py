"""``p2pfl next``: a new run from the last models of an earlier one, of the same kind as that one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from p2pfl.cli import folders
from p2pfl.cli.core_commands import NextOptions, PeerOptions, RunOptions, SimulateOptions
from p2pfl.cli.experiments import experiment_of
from p2pfl.cli.running import running_commands
from p2pfl.cli.running.repeating import check_trust
from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.former_models import FormerModels
from p2pfl.experiment.parts.peer_graph import is_own, peers_of
from p2pfl.results.lock import PEER_LOCK, RUN_LOCK


def begin(options: NextOptions) -> int:
    """Begin the next run as simulation, as live peers on this machine, or as one peer, as the former one was.

    Raises
    ------
    InputError
        The former run cannot be gone on from, or its privacy cost would not count.
    """
    former = Path(options.run).resolve()
    if folders.begun(former):
        check_trust(former, trust=options.trust_code, command="next")
    before = folders.read_experiment(former)
    _check_followed(before, former)
    name = _peer_of(former) if (former / PEER_LOCK).exists() else None
    models = str(former / "peers" / _models(before, former, name))
    changes = [f"model.pretrained={json.dumps(models, ensure_ascii=False)}"]
    given: dict[str, Any] = {
        "experiment": str(former / "experiment.toml"),
        "changes": [*changes, *options.changes],
        **{key: getattr(options, key) for key in ("runs", "json", "no_baselines", "unaccounted", "trust_code")},
    }
    live = (former / RUN_LOCK).exists()
    refused = "--broker" if options.broker and not live and name is None else ""
    refused = "--workers" if options.workers and name is not None else refused
    if refused:
        raise InputError(f"{refused} has no effect, because {former} holds {_kind(name)}; leave it out")
    if name is not None:
        made: PeerOptions | RunOptions | SimulateOptions = PeerOptions(name=name, broker=options.broker, **given)
    elif live:
        made = RunOptions(broker=options.broker, workers=options.workers, **given)
    else:
        made = SimulateOptions(workers=options.workers or 1, **given)
    _check_models(experiment_of(made), name)
    if isinstance(made, PeerOptions):
        return running_commands.peer(made)
    return running_commands.run(made) if isinstance(made, RunOptions) else running_commands.simulate(made)


def _kind(name: str | None) -> str:
    return "a simulation" if name is None else "a single peer"


def _peer_of(former: Path) -> str:
    """Return the peer whose run directory this is."""
    names = sorted(path.name.removesuffix(".journal") for path in (former / "peers").glob("*.journal"))
    if len(names) != 1:
        raise InputError(f"{former} holds no model of its peer yet; begin its run again with p2pfl peer")
    return names[0]


def _models(before: Experiment, former: Path, name: str | None) -> str:
    """Return the name of the one model of all peers, where the former run agreed on one; else that of each peer."""
    if not (before.learning.consensus and folders.has_ended(former)):
        return "{peer}.safetensors"
    return f"{peers_of(before)[0] if name is None else name}.safetensors"


def _check_followed(before: Experiment, former: Path) -> None:
    """Refuse runs whose models nothing can begin with."""
    if Composition.of(before).algorithm.additive:
        raise InputError(
            f"{former} computes its model from totals of all data, so there is nothing to go on from; run it again"
        )


def _check_models(experiment: Experiment, name: str | None) -> None:
    """Refuse peers that have no model to begin with, or models of different rounds, before anything starts."""
    models = FormerModels.of(experiment)
    own = not experiment.topology.files and is_own(str(experiment.topology.kind))
    if models is not None and not (own and name is None):
        peers = [name] if name is not None else [*peers_of(experiment)]
        models.rounds(peer for peer in peers if peer not in experiment.learning.without)
