"""Vertical runs: their data, their learner, and the statement of who learns what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from p2pfl.core.errors import ExperimentError
from p2pfl.core.traits import DataTraits
from p2pfl.data import Federation
from p2pfl.data.loader import check_options, source_of
from p2pfl.data.parties import Parties
from p2pfl.experiment import Experiment
from p2pfl.experiment.accounts import data_files, data_folder
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.partitionings import Disclosure, name_of
from p2pfl.experiment.parts.option_tables import checked_options, parameter_types
from p2pfl.learning import Learner
from p2pfl.plugins.vertical.joint_kernel import VerticalKernel
from p2pfl.plugins.vertical.party_loading import deal_columns, load_parties
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.plugins.vertical.party_tables import declared_columns, vertical
from p2pfl.plugins.vertical.vertical_components import VerticalPCA
from p2pfl.plugins.vertical.vertical_descent import VerticalDescent
from p2pfl.plugins.vertical.vertical_glm import VerticalGLM
from p2pfl.plugins.vertical.vertical_lasso import VerticalLasso
from p2pfl.plugins.vertical.vertical_learner import VerticalLearner
from p2pfl.plugins.vertical.vertical_models import VerticalModel
from p2pfl.plugins.vertical.vertical_trees import VerticalBoosting
from p2pfl.results import Run

if TYPE_CHECKING:  # they need torch
    from p2pfl.plugins.vertical.split_network import SplitNetwork
    from p2pfl.plugins.vertical.vertical_prediction import JoinedPredictions

MODELS: Mapping[str, Callable[..., VerticalModel]] = {
    kind.name: kind
    for kind in (VerticalGLM, VerticalLasso, VerticalPCA, VerticalKernel, VerticalDescent, VerticalBoosting)
}
"""Models by name, which numpy computes."""

NETWORK = "split_network"
"""Name of the model that torch computes."""

OWN_TABLES = "vertical"
"""Name of the data set of tables that peers own."""

ROLE_OPTIONS = {"label": str, "helper": str}
"""Options of the split ``columns``."""


@dataclass(frozen=True)
class VerticalPartitioning:
    """Peers hold different columns of the same people."""

    traits: DataTraits = DataTraits(columns=True, numpy_models=tuple(MODELS))  # noqa: RUF009 (it is frozen)

    def federate(
        self, experiment: Experiment, *, peers: tuple[str, ...], only: Sequence[str] | None = None
    ) -> Federation:
        """Return the tables of the local parties: their own files, or columns that are dealt out.

        Raises
        ------
        DataError
            An option is invalid, or a table does not fit.
        """
        data, local = experiment.data, peers if only is None else tuple(only)
        if data.name == OWN_TABLES:
            check_options(OWN_TABLES, vertical, data.options)
            return load_parties(vertical(data_folder(), **data.options), peers, local)
        roles = checked_options(data.split_options, ROLE_OPTIONS, key="data.split_options", name=data.split)
        source = source_of(data.name, data_folder(), data.options)
        label, helper = roles.get("label"), roles.get("helper")
        return deal_columns(source, peers, local, label=label, helper=helper, seed=experiment.seed)

    def own_columns(self, experiment: Experiment, peer: str) -> Mapping[str, object] | None:
        """Return the columns that a peer declares beside its table, with the key columns; none of a helper.

        Raises
        ------
        DataError
            The declaration or an option is wrong.
        """
        options = experiment.data.options
        if experiment.data.name != OWN_TABLES:
            return None
        if peer == options.get("helper"):
            return {}
        return declared_columns(data_files(experiment, [peer])[peer], options.get("keys"))

    def learner(self, experiment: Experiment, federation: Federation) -> Learner:
        """Return the learner of a vertical run.

        Raises
        ------
        ExperimentError
            The model or an option does not work with columns at different peers.
        """
        parties = parties_of(experiment, federation)
        model = vertical_model(experiment, parties.names)
        if parties.rows == "hidden" and not (isinstance(model, VerticalGLM) and model.family == "gaussian"):
            raise ExperimentError(
                'data.options.rows = "hidden" works with model.name = "glm" and family = "gaussian" alone, as other '
                'models would show who is common by what they send of each row; set it to "common" or "labelled"'
            )
        common: dict[str, Any] = {
            "peers": federation.peers,
            "run": experiment.name,
            "seed": experiment.seed,
            "test": Composition.of(experiment).test_share,
        }
        if experiment.model.name != NETWORK:
            return VerticalLearner(parties, cast("VerticalModel", model), **common)
        from p2pfl.plugins.vertical.split_learner import SplitLearner, split_steps  # noqa: PLC0415 (they need torch)

        network = cast("SplitNetwork", model)
        steps = split_steps(experiment.learning, seed=experiment.seed, absent=network.absent)
        return SplitLearner(parties, network, **common, steps=steps, rounds=experiment.horizon)

    def predict(self, folder: Path, table: str, *, unaccounted: bool) -> JoinedPredictions:
        """Return the predictions for new tables of all parties.

        Raises
        ------
        InputError
            A file or a table is missing.
        """
        from p2pfl.plugins.vertical.vertical_prediction import predict_together  # noqa: PLC0415 (it needs torch)

        return predict_together(Run.load(folder), table, unaccounted=unaccounted)

    def predict_live(
        self,
        folder: Path,
        table: str | None,
        *,
        peer: str | None,
        brokers: Sequence[str],
        most: int,
        unaccounted: bool,
    ) -> JoinedPredictions:
        """Return the predictions of the label holder's new rows; other peers answer until they are interrupted.

        Raises
        ------
        InputError
            The peer, its file or its table is missing, or a feature holder does not answer so many rows.
        """
        from p2pfl.plugins.vertical.prediction_command import take_part  # noqa: PLC0415 (with the network)

        return take_part(folder, table, name=peer, brokers=brokers, most=most, unaccounted=unaccounted)

    def disclosed(self, experiment: Experiment, federation: Federation, peers: Sequence[str]) -> Disclosure:
        """Return who learns what."""
        parties = parties_of(experiment, federation)
        model = vertical_model(experiment, parties.names)
        roles = PartyRoles(parties.names, parties.label, parties.helper)
        tables = [*parties.own.values()]
        run = model.statement(
            label=roles.label,
            features=roles.features,
            solver=roles.solver,
            helper=roles.helper,
            others=tuple(sorted({*peers} - {*roles.peers})),
            steps=model.predictors,
            noisy=model.noisy,
            received=model.received,
            published=model.published,
            tested=Composition.of(experiment).test_share > 0 and bool(model.scores),
            rows=min(map(len, tables), default=0),
            columns=float(np.mean([table.features.shape[1] for table in tables])) if tables else 0.0,
            keys=len(parties.keys),
            joined=parties.rows,
            dealt=experiment.data.name != OWN_TABLES,
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


def vertical_model(experiment: Experiment, parties: tuple[str, ...]) -> VerticalModel | SplitNetwork:
    """Return the model of an experiment, of parties of some names.

    Raises
    ------
    ExperimentError
        The model or an option does not work with columns at different peers.
    """
    name, options = experiment.model.name, experiment.model.options
    if name not in (*MODELS, NETWORK):
        known = " or ".join((*MODELS, NETWORK))
        raise ExperimentError(f'model.name = "{name}" does not work with {name_of(experiment.data)}; set it to {known}')
    kind: Callable[..., VerticalModel | SplitNetwork] = MODELS[name] if name in MODELS else _split_network()
    given: dict[str, Any] = {}
    if kind is VerticalBoosting:
        given = {"rounds": experiment.horizon, "seed": experiment.seed, "parties": parties}
    types = parameter_types(kind, without=tuple(given))
    values: dict[str, Any] = checked_options(options, types, key="model.options", name=f"{name} of columns")
    if kind is VerticalGLM and "family" not in values:
        raise ExperimentError(
            'model.options.family is missing, and peers without the target cannot tell it; set it, such as "gaussian"'
        )
    if kind is VerticalBoosting and "loss" not in values:
        raise ExperimentError(
            'model.options.loss is missing, and peers without the target cannot tell it; set it, such as "log_loss"'
        )
    return kind(**values, **given)


def _split_network() -> type[SplitNetwork]:
    from p2pfl.plugins.vertical.split_network import SplitNetwork  # noqa: PLC0415 (it needs torch)

    return SplitNetwork


PARTITIONING = VerticalPartitioning()
"""The entry point of ``data.name = "vertical"`` and ``data.split = "columns"``."""
