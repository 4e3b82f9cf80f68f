"""How a vertical run comes together: its learner, and the statement of who learns what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p2pfl.core.errors import ExperimentError
from p2pfl.core.traits import DataTraits
from p2pfl.data import Federation
from p2pfl.data.parties import Parties
from p2pfl.experiment import Experiment
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.parts.option_tables import checked_options, parameter_types
from p2pfl.experiment.partitionings import Disclosure, name_of
from p2pfl.learning import Learner
from p2pfl.plugins.vertical.roles import MAX_PREDICTORS, Roles
from p2pfl.plugins.vertical.statement import VerticalRun
from p2pfl.plugins.vertical.vertical_learner import VerticalLearner
from p2pfl.plugins.vertical.vertical_models import VerticalGLM, VerticalModel

MODELS: Mapping[str, Callable[..., VerticalModel]] = {"glm": VerticalGLM}
"""Models by name."""

STEPS = 8
"""Steps of noisy Newton in which the label holder sees a linear predictor of each row."""


@dataclass(frozen=True)
class VerticalPartitioning:
    """Peers hold different columns of the same people."""

    traits: DataTraits = DataTraits(columns=True)  # noqa: RUF009 (it is frozen)

    def learner(self, experiment: Experiment, federation: Federation) -> Learner:
        """Return the learner of a vertical run.

        Raises
        ------
        ExperimentError
            The model or an option does not work with columns at different peers.
        """
        parties = parties_of(experiment, federation)
        return VerticalLearner(
            parties,
            vertical_model(experiment),
            peers=federation.peers,
            seed=experiment.seed,
            test=Composition.of(experiment).test_share,
        )

    def disclosed(self, experiment: Experiment, federation: Federation, peers: Sequence[str]) -> Disclosure:
        """Return who learns what."""
        parties, model = parties_of(experiment, federation), vertical_model(experiment)
        roles = Roles(parties.names, parties.label, parties.helper)
        tables = [*parties.own.values()]
        run = VerticalRun(
            label=roles.label,
            features=roles.features,
            solver=roles.solver,
            helper=roles.helper,
            others=tuple(sorted({*peers} - {*roles.peers})),
            steps=STEPS if model.iterates else 0,
            most=MAX_PREDICTORS,
            noisy=model.noisy,
            shown=model.open,
            rows=min(map(len, tables), default=0),
            columns=float(np.mean([table.features.shape[1] for table in tables])) if tables else 0.0,
            keys=len(parties.keys),
        )
        return run.disclosure


def parties_of(experiment: Experiment, federation: Federation) -> Parties:
    """Return the parties of a federation, which the partitioning has made.

    Raises
    ------
    ExperimentError
        It has none.
    """
    if federation.parties is None:
        raise ExperimentError(
            f"{name_of(experiment.data)} needs peers with different columns, but the data have none; take the data "
            "that the experiment names"
        )
    return federation.parties


def vertical_model(experiment: Experiment) -> VerticalModel:
    """Return the model of an experiment.

    Raises
    ------
    ExperimentError
        The model or an option does not work with columns at different peers.
    """
    name, options = experiment.model.name, experiment.model.options
    if name not in MODELS:
        raise ExperimentError(
            f'model.name = "{name}" does not work with {name_of(experiment.data)}; set it to '
            f"{' or '.join(MODELS)}, whose models follow from products of columns"
        )
    kind = MODELS[name]
    types = parameter_types(kind, without=())
    values: dict[str, Any] = checked_options(options, types, key="model.options", name=f"{name} of columns")
    if "family" in types and "family" not in values:
        raise ExperimentError(
            'model.options.family is missing, and peers without the target cannot tell it; set it, such as "gaussian"'
        )
    return kind(**values)


PARTITIONING = VerticalPartitioning()
"""The entry point of ``data.name = "vertical"`` and ``data.split = "columns"``."""
