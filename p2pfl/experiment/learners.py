"""From the sections ``[model]`` and ``[learning]`` to a learner, a user's own code included."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from p2pfl.data import Federation
from p2pfl.data.imported import told
from p2pfl.errors import ExperimentError, ModelError, P2PFLError
from p2pfl.experiment.schema import Experiment
from p2pfl.identity import SecretSource, Source
from p2pfl.learning import Learner, TorchLearner, build
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.learning.losses import BUILT_IN, Own, PerSample
from p2pfl.privacy.stream import normals


def learner(experiment: Experiment, federation: Federation, *, peers: int = 1, source: Source | None = None) -> Learner:
    """The learner of an experiment on a federation.

    ``peers`` multiplies the steps of a round where they are given as a number, so that one model on
    pooled data takes as many as all peers together. ``source`` hides samples: the system's by default.
    """
    learning, model = experiment.learning, experiment.model
    kind: Callable[..., TorchLearner] = TorchLearner
    if learning.example_noise:
        if learning.algorithm != "fedavg":
            raise ExperimentError(
                "learning.example_noise: expected fedavg as learning.algorithm, whose steps each take a secret batch, "
                f'got "{learning.algorithm}": change it, or leave the noise out'
            )
        kind = partial(
            ExamplePrivateLearner,
            noise=learning.example_noise,
            clip=learning.example_clip,
            source=source or SecretSource(),
            normals=normals,
        )
    full = learning.algorithm == "fedsgd"
    steps = learning.steps
    if learning.algorithm == "dpsgd" and steps is None:
        steps = 1
    found = kind(
        _model(experiment, federation),
        federation,
        seed=experiment.seed,
        optimizer=learning.optimizer,
        rate=learning.rate,
        options=learning.options,
        schedule=learning.schedule,
        schedule_options=learning.schedule_options,
        batch=None if full or learning.batch == "all" else learning.batch,
        epochs=1 if full else learning.epochs,
        steps=None if full or steps is None else steps * peers,
        loss=None if learning.loss is None else _own(learning.loss),
        metrics={name: _own(reference) for name, reference in learning.metrics.items()} or None,
        pretrained=model.pretrained,
        frozen=model.frozen,
        device=learning.device,
        dtype=torch.float64 if learning.dtype == "float64" else torch.float32,
        precision=learning.precision,
    )
    found.recipe.check(experiment.rounds)
    return found


def _model(experiment: Experiment, federation: Federation) -> torch.nn.Module:
    """The model of an experiment; whatever a user's own class raises is said in one sentence."""
    model, dataset = experiment.model, federation.dataset
    if ":" not in model.name and model.options:
        raise ExperimentError(
            f'expected model.options for a class of your own, got {", ".join(model.options)} for "{model.name}": '
            "set model.hidden for the widths of mlp and cnn"
        )
    try:
        return build(
            model.name,
            shape=dataset.shape,
            classes=dataset.classes,
            seed=experiment.seed,
            options=model.options | ({"hidden": model.hidden} if model.name in {"mlp", "cnn"} else {}),
        )
    except P2PFLError:
        raise
    except Exception as error:
        said = told(error, module=model.name.partition(":")[0])
        raise ModelError(f"expected model.name {model.name} to make a model, got {said}: mend it") from error


def _own(reference: str) -> PerSample:
    """A user's loss or metric, under the name that he gave it; ours as they are."""
    function: PerSample = imported(reference)
    return function if function in BUILT_IN else Own(function, name=reference)


def imported(reference: str) -> Callable[..., Any]:
    """What ``package.module:name`` names."""
    module, _, name = reference.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except Exception as error:
        said = told(error, module=module)
        raise ExperimentError(
            f'expected "package.module:name" that can be imported, got "{reference}": {said}'
        ) from error
    if not callable(found):
        raise ExperimentError(f'expected "package.module:name" of something that can be called, got "{reference}"')
    return found
