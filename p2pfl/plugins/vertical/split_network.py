""":class:`SplitNetwork`, a network whose bottoms lie at the owners of columns, and whose top at the label holder."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import nll_loss

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats
from p2pfl.core.errors import DataError, ModelError
from p2pfl.core.imports import import_callable
from p2pfl.data.parties import IN_TABLE, Party
from p2pfl.learning.losses import cross_entropy, mean, squared_error
from p2pfl.learning.metrics import determination
from p2pfl.learning.models import build
from p2pfl.plugins.vertical.aligned_table import check_complete
from p2pfl.plugins.vertical.block import describe_part, describe_run
from p2pfl.plugins.vertical.label_protection import RandomisedResponse
from p2pfl.plugins.vertical.party_network import NETWORK, PartyNetwork
from p2pfl.plugins.vertical.party_roles import MAX_PREDICTORS, PartyRoles
from p2pfl.plugins.vertical.split_statement import SplitRun
from p2pfl.plugins.vertical.split_training import Loss
from p2pfl.plugins.vertical.whole import score_classes

SCORES: Mapping[str, tuple[str, ...]] = {
    "classification": ("loss", "auc", "accuracy"),
    "regression": ("loss", "r2"),
}
"""Names of the scores of a task."""

FIGURES = "figures"
"""Tensor of numbers that every peer has, in the file of each."""

KINDS = ("linear", "mlp")
"""Modules that p2pfl builds."""

TARGET = "target"
"""Tensor of the label holder: mean and deviation of the targets, by which numbers are scaled; 0 and 1 of classes."""

GIVEN = {"bottom": ("columns", "width"), "top": ("width", "outputs")}
"""Parameters by which a class of the user's own receives the numbers of its inputs and outputs."""


@dataclass(frozen=True, kw_only=True)
class SplitNetwork:
    """Network of columns at different peers.

    Parameters
    ----------
    task
        What the target is, which the other parties cannot see.
    width
        Numbers of the embedding, to which each party adds.
    hidden
        Widths of the hidden layers of ``mlp``.
    bottom, top
        ``mlp``, ``linear`` or ``package.module:Class`` of the module of each party's columns and of that of the label
        holder. A party may name a bottom of its own beside its table. A class receives ``columns`` or ``width``, the
        number of its inputs, and ``width`` or ``outputs``, where it has parameters of these names.
    absent
        Chance with which each of the other parties is left out of a step, so that the label holder can predict without
        them.
    labels
        ``shown`` if the label holder accepts that gradients show labels to the other parties.
    label_epsilon
        Privacy of each label under randomised response, in place of ``labels``.
    standardise
        False to divide all columns of a party by one number, the root mean square of their deviations, as for pixels.
    alone_column
        True if a party may take part with a single column.
    """

    name: ClassVar[str] = "split_network"
    figures: ClassVar[tuple[str, ...]] = ("samples", "held_out", "loss")
    predictors: ClassVar[int] = MAX_PREDICTORS
    noisy: ClassVar[bool] = False
    received: ClassVar[str] = "its own part of the network"
    published: ClassVar[str] = "the mean loss of each round"

    task: Literal["classification", "regression"] = "classification"
    width: int = 16
    hidden: tuple[int, ...] = (64,)
    bottom: str = "mlp"
    top: str = "mlp"
    absent: float = 0.0
    labels: Literal["shown"] | None = None
    label_epsilon: float | None = None
    standardise: bool = True
    alone_column: bool = False

    def __post_init__(self) -> None:
        if self.width < 1 or not 0 <= self.absent < 1:
            raise ModelError(
                f"model.options: width = {self.width} and absent = {self.absent} make no network; set width to at "
                "least 1, and absent to at least 0 and below 1"
            )
        if (self.labels is None) == (self.label_epsilon is None):
            raise ModelError(
                "the gradients of a split network show the labels to the other parties; set either "
                'model.options.label_epsilon, or model.options.labels = "shown" if the label holder agrees'
            )
        if self.label_epsilon is not None:
            if self.task != "classification":
                raise ModelError(
                    "model.options.label_epsilon protects classes, not numbers; leave it out, and set "
                    'model.options.labels to "shown"'
                )
            RandomisedResponse(self.label_epsilon)

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores."""
        return SCORES[self.task]

    @property
    def statement(self) -> Callable[..., SplitRun]:
        """Function that makes the statement of who learns what from public facts of a run."""
        return partial(SplitRun, width=self.width, label_epsilon=self.label_epsilon)

    def check(self, peer: str, party: Party, roles: PartyRoles) -> None:
        """Refuse missing values, a party with few columns, and targets that do not fit the task."""
        check_complete(peer, party)
        if peer != roles.label:
            own = party.features.shape[1] - (len(IN_TABLE.levels or ()) if party.may_lack else 0)
            roles.check_columns(peer, own, alone_column=self.alone_column)
            return
        classes = np.issubdtype(party.targets.dtype, np.integer)
        if classes != (self.task == "classification"):
            held, other = ("classes", "classification") if classes else ("numbers", "regression")
            raise DataError(f'{peer} has {held} as targets; set model.options.task to "{other}"')

    def outputs(self, party: Party) -> int:
        """Return the number of outputs, which the label holder knows."""
        if self.task == "regression":
            return 1
        named = party.description.classes
        return int(party.targets.max()) + 1 if named is None else len(named)

    def network(
        self, columns: int, *, outputs: int | None, seed: int, peer: str, bottom: str | None = None
    ) -> PartyNetwork:
        """Return the network of a party with its initial values, which follow from the seed and its name.

        Parameters
        ----------
        columns
            Number of its columns.
        outputs
            Number of outputs at the label holder; ``None`` elsewhere.
        seed, peer
            Seed, and name of the party.
        bottom
            Its own choice of a bottom.

        Raises
        ------
        ModelError
            A module is unknown or cannot be made.
        """
        key = int(draw(seed, "split network", peer).integers(2**63))
        lower = self._module(bottom or self.bottom, "bottom", columns, self.width, seed=key) if columns else None
        upper = None if outputs is None else self._module(self.top, "top", self.width, outputs, seed=key + 1)
        return PartyNetwork(lower, upper, width=self.width)

    def _module(self, name: str, place: str, inputs: int, outputs: int, *, seed: int) -> nn.Module:
        """Return the module at the bottom or at the top, of a known kind or of the user's own class."""
        if ":" not in name and name not in KINDS:
            raise ModelError(
                f'model.options.{place} is "{name}"; set it to {" or ".join(KINDS)}, or to "package.module:Class"'
            )
        options: dict[str, Any] = {"hidden": self.hidden} if name == "mlp" else {}
        if ":" in name:
            kind = import_callable(name, key=f"model.options.{place}", sought="a torch module", refused=ModelError)
            given = {GIVEN[place][0]: inputs, GIVEN[place][1]: outputs}
            options = {key: each for key, each in given.items() if key in inspect.signature(kind).parameters}
        return build(name, shape=(inputs,), classes=None, outputs=outputs, seed=seed, options=options)

    def response(self, classes: int) -> RandomisedResponse:
        """Return the protection of labels of some classes, where they are protected."""
        assert self.label_epsilon is not None  # noqa: S101 (asked by the caller)
        return RandomisedResponse(self.label_epsilon, classes)

    def loss(self, *, protected: bool) -> Loss:
        """Return the mean loss of a batch, of changed labels if labels are ``protected`` and the option says so."""
        if not protected or self.label_epsilon is None:
            return partial(mean, cross_entropy if self.task == "classification" else squared_error)

        def corrected(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            response = self.response(outputs.shape[1])
            return nll_loss(response.probabilities(outputs.softmax(dim=1)).log(), targets)

        return corrected

    def score(self, outputs: Floats, targets: npt.NDArray[Any]) -> dict[str, float]:
        """Return the scores of outputs ``[n, K]`` by name, numbers in the unit of the target; NaN without rows."""
        if not len(targets):
            return dict.fromkeys(self.scores, math.nan)
        if self.task == "regression":
            error = float(((outputs[:, 0] - targets) ** 2).mean())
            return {"loss": error, "r2": determination(error, float(targets.var()))}
        return score_classes(outputs, targets)

    def kept(self, tensors: Mapping[str, Floats]) -> Mapping[str, Floats]:
        """Return the tensors that the file of a party holds."""
        whole = {"mean", "deviation", TARGET}
        return {name: each for name, each in tensors.items() if name in whole or name.startswith(NETWORK)}

    def described(self, party: Party | None, *, label: bool) -> Mapping[str, Any]:
        """Return the description in the file of a party, or, without one, what all may know."""
        if party is None:
            shown = {"task": self.task, "width": self.width, "absent": self.absent}
            return describe_run(self.name, shown)
        options = {"label": label, "width": self.width, "hidden": [*self.hidden], "top": self.top}
        options |= {"bottom": party.bottom or self.bottom, "absent": self.absent}
        names: list[str] | None = None
        if label and self.task == "classification":
            named = party.description.classes
            names = [*map(str, range(self.outputs(party)) if named is None else named)]
        target = party.description.target if label else None
        features = party.features.shape[1]
        return describe_part(self.name, options, party.description, features=features, classes=names, target=target)

    def explained(self, tensors: Mapping[str, Floats], party: Party, *, label: bool) -> None:
        """Return nothing, as the weights of a network have no meaning by themselves."""
        del tensors, party, label
