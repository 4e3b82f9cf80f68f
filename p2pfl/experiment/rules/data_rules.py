"""Rules of columns at different peers, of models from totals, and of models with which peers begin."""

from __future__ import annotations

from p2pfl.experiment.catalogue import traits_of
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.former_settings import former_runs
from p2pfl.experiment.rules.settings_rule import SettingsRule, each

BLOCKS = "with columns of the same people at different peers"
"""Beginning of a reason."""

COLUMNS = (
    SettingsRule(
        "learning.algorithm",
        lambda it: it.data.columns and not it.algorithm.additive,
        f"{BLOCKS}, whose models follow from exact totals",
        "leave it out, and set model.name to a model of totals, such as glm",
    ),
    SettingsRule(
        "privacy.mode",
        lambda it: it.data.columns and not it.mode.masks and it.graph and it.graph.peers > 2,
        f"{BLOCKS}, because a total to one peer would show the part of each of the others",
        'set it to "pairwise"',
    ),
    SettingsRule(
        "privacy.mode",
        lambda it: it.data.columns and it.mode.masks and it.graph and it.graph.peers == 2,
        f"{BLOCKS} if there are two, because each of two knows the part of the other in a total",
        'set it to "none": products are encrypted, and all messages are sealed',
    ),
    SettingsRule(
        "topology.kind",
        lambda it: it.data.columns and it.graph and not it.graph.uniform,
        f"{BLOCKS}, because any two of them exchange messages that nobody else may read",
        'set it to "complete"',
    ),
    *each(
        (
            lambda it: it.data.columns,
            (
                f"{BLOCKS}: a guarantee for columns against the label holder needs noise as large as the predictor in "
                "the last step, too"
            ),
        ),
        keys=("privacy.epsilon", "privacy.noise"),
        remedy="leave it out",
    ),
    *each(
        (lambda it: it.data.columns, f"{BLOCKS}, whose owners standardise and check their columns themselves"),
        keys=("data.scale", "data.validation", "learning.learner"),
        remedy="leave it out",
    ),
    *each(
        (lambda it: it.data.columns, f"{BLOCKS}, each of which ends with a model of its own columns"),
        keys=("learning.consensus",),
        remedy="leave it out",
    ),
    SettingsRule(
        "attack.name",
        lambda it: it.data.columns and it.value("attack.name") != "none",
        f"{BLOCKS}, one of which alone has labels",
        "leave it out",
    ),
)
"""Columns of the same people at different peers."""

ADDED = (
    SettingsRule(
        "learning.algorithm",
        lambda it: it.learner and it.algorithm.additive and not it.learner.additive,
        "with this learner, whose model does not follow from totals",
        "take another algorithm, or a model such as boosting",
    ),
    SettingsRule(
        "learning.algorithm",
        lambda it: it.learner and it.learner.additive and not it.algorithm.additive,
        "with this learner, whose model follows from exact totals alone",
        'set it to "exact"',
    ),
    *each(
        (
            lambda it: it.algorithm.additive and it.mode.hides and not it.mode.masks and not it.mode.sums,
            "with {algorithm}, whose totals are exact and have no private noise",
        ),
        keys=("privacy.mode",),
        remedy='set it to "pairwise", which hides the contributions to every total, or to "none"',
    ),
    *each(
        (
            lambda it: it.exact and it.mode.hides,
            "with {algorithm} and this model, whose totals have no private noise",
        ),
        keys=("privacy.noise", "privacy.epsilon"),
        remedy=(
            'leave it out, or set model.name to "random_boosting", "private_glm", "private_description", '
            '"private_kaplan_meier" or "private_pca", whose totals take noise'
        ),
    ),
    *each(
        (lambda it: it.algorithm.additive, "with {algorithm}, because a total takes all peers"),
        keys=("simulation.absence",),
        remedy="leave it out",
    ),
    *each(
        (lambda it: it.algorithm.additive, "with {algorithm}, whose models end by themselves"),
        keys=("learning.stop", "learning.patience"),
        remedy="leave it out, or set model.options.early_stopping where the model has it",
    ),
)
"""Models that follow from exact totals."""


def _begins_apart(it: Composition) -> bool:
    return "{peer}" in (it.experiment.model.pretrained or "")


def _unreleased(it: Composition) -> str:
    """Return the algorithm of a former run whose peers kept models or layers of their own; empty if they did not.

    Nothing that its settings name is imported, so that code of its own counts as such an algorithm.
    """
    former = next(former_runs(it.experiment), None) if _begins_apart(it) else None
    if former is None or former.experiment is None:
        return ""
    name = former.experiment.learning.algorithm
    if ":" in name and name != it.experiment.learning.algorithm:
        return name
    traits = traits_of(name)
    return name if traits.personal or traits.keeps_local or former.experiment.model.norm == "local" else ""


BEGUN_APART = (
    *each(
        (
            lambda it: _begins_apart(it) and (it.claims or it.mode.sums),
            'with a guarantee or with privacy.mode = "{mode}", which need one start that all know',
        ),
        (
            lambda it: _begins_apart(it) and it.differences,
            "with {codec}, whose differences begin with one start that all know",
        ),
        (
            lambda it: _begins_apart(it) and it.algorithm.personal,
            "with {algorithm}, whose models of their own nobody released",
        ),
        keys=("model.pretrained",),
        remedy="name one model for all peers, such as that of a peer with its name in place of {peer}",
    ),
    SettingsRule(
        "model.pretrained",
        _unreleased,
        "with the models of a run of {why}, in which peers may keep models or layers that nobody released",
        "name one model that all peers may know, or leave it out",
    ),
)
"""Peers that begin with models of their own."""
