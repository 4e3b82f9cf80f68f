"""Totals of an experiment whose peers are all in this process, for statistics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from p2pfl.data.description import Description
from p2pfl.exact import ExactLearner
from p2pfl.experiment import Experiment, plan, read
from p2pfl.experiment.schema import Learning, Model, Privacy
from p2pfl.simulation import simulate


def is_model(name: str) -> bool:
    """Return whether an argument names a saved model and not an experiment."""
    return Path(name).suffix == ".safetensors"


def totalled(
    experiment: Experiment, *, model: str, options: Mapping[str, Any], rounds: int = 1
) -> tuple[Any, Mapping[str, np.ndarray], Description]:
    """Return a model from totals over the data of an experiment, its numbers, and the meaning of the columns.

    What the experiment says on learning and its protection has no part in it.

    Parameters
    ----------
    experiment
        Experiment with data and peers.
    model, options, rounds
        Model, its options, and rounds.
    """
    wanted = Experiment(
        name=experiment.name,
        seed=experiment.seed,
        rounds=rounds,
        topology=experiment.topology,
        data=read(experiment, changes=["data.scale=false"]).data,
        model=Model(name=model, options=dict(options)),
        learning=Learning(algorithm="exact"),
        privacy=Privacy(mode="none"),
    )
    resolved = plan(wanted)
    run = simulate(resolved, baselines=False)
    learner = cast("ExactLearner", resolved.learner)
    meaning = resolved.federation.dataset.description
    return learner.model, {name: tensor.numpy() for name, tensor in next(iter(run.models.values())).items()}, meaning
