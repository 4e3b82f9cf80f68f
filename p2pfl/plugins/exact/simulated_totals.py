"""Totals of an experiment whose peers are all in this process, for statistics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from p2pfl.cli import terminal
from p2pfl.cli.experiments import experiment_of
from p2pfl.cli.running import budget_warning
from p2pfl.core.errors import InputError
from p2pfl.data.data_description import Description
from p2pfl.experiment import Experiment, Plan, plan, read
from p2pfl.experiment.schema import LearningSettings, ModelSettings, PrivacySettings
from p2pfl.learning.exact_learner import ExactLearner
from p2pfl.plugins.exact.exact_commands import StatisticsOptions
from p2pfl.plugins.exact.saved_statistics import meaning_of, model_of, tensors_of
from p2pfl.results.models.model_file import load
from p2pfl.results.summary import describe
from p2pfl.simulation import simulate

Found = tuple[str, Any, Mapping[str, np.ndarray], Description]
"""A name, a model, its numbers, and the meaning of the columns."""


def found(options: StatisticsOptions, *, model: str, given: Mapping[str, Any], private: str | None = None) -> Found:
    """Return the model that an argument names, or that follows from the data of the experiment which it names.

    Parameters
    ----------
    options
        Arguments of the command.
    model
        Name of the model.
    given
        Options of the model; ``None`` where the user has given none.
    private
        Name of a model whose totals take private noise, which runs as the experiment says if it names that model.

    Raises
    ------
    InputError
        Options are given of a model that has its own.
    """
    chosen = {key: value for key, value in given.items() if value is not None}
    if Path(options.experiment).suffix != ".safetensors":
        experiment = experiment_of(options)
        if private is not None and experiment.model.name == private:
            if chosen:
                named = ", ".join(map(_option, chosen))
                raise InputError(f"options of {private} are in model.options, so {named} has no effect; leave it out")
            return experiment.name, *_run(plan(experiment, unaccounted=options.unaccounted))
        if model == "description" and experiment.data.options.get("event") is not None:
            chosen["event"] = True
        return experiment.name, *totalled(experiment, model=model, options=chosen, unaccounted=options.unaccounted)
    if options.changes or chosen or options.unaccounted:
        others = {"--set": options.changes, "--unaccounted": options.unaccounted}
        named = ", ".join([*map(_option, chosen), *(option for option, given in others.items() if given)])
        raise InputError(f"a saved model has its options already, so {named} has no effect; leave it out")
    saved = load(options.experiment)
    names = [model, *([] if private is None else [private])]
    made = model_of(saved, names=names, command=options.command)
    return Path(options.experiment).stem, made, tensors_of(saved), meaning_of(saved)


def totalled(
    experiment: Experiment, *, model: str, options: Mapping[str, Any], rounds: int = 1, unaccounted: bool = False
) -> tuple[Any, Mapping[str, np.ndarray], Description]:
    """Return a model from totals over the data of an experiment, its numbers, and the meaning of the columns.

    What the experiment says on learning and its protection has no part in it, except the account of its data, which
    cannot count exact totals.

    Parameters
    ----------
    experiment
        Experiment with data and peers.
    model, options, rounds
        Model, its options, and rounds.
    unaccounted
        True if the totals may stay outside of the account of the data.

    Raises
    ------
    InputError
        The data have an account.
    """
    wanted = Experiment(
        name=experiment.name,
        seed=experiment.seed,
        rounds=rounds,
        topology=experiment.topology,
        data=read(experiment, changes=["data.scale=false"]).data,
        model=ModelSettings(name=model, options=dict(options)),
        learning=LearningSettings(algorithm="exact"),
        privacy=PrivacySettings(mode="none", budget=experiment.privacy.budget),
    )
    return _run(plan(wanted, unaccounted=unaccounted))


def _option(key: str) -> str:
    """Return the option of the command that sets an option of a model."""
    return "--union" if key == "times" else f"--{key}"


def _run(resolved: Plan) -> tuple[Any, Mapping[str, np.ndarray], Description]:
    """Return the model of a plan after its rounds, its numbers, and the meaning of the columns."""
    budget_warning.warn(resolved)
    terminal.note(f"privacy: {describe(resolved, spent=None)['statement']}")
    run = simulate(resolved, baselines=False)
    learner = cast("ExactLearner", resolved.learner)
    meaning = resolved.federation.dataset.description
    return learner.model, {name: tensor.numpy() for name, tensor in next(iter(run.models.values())).items()}, meaning
