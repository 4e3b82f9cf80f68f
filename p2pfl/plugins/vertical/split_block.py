""":class:`SplitBlock`, the part of a split network that one party keeps, as its file has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import FloatArray
from p2pfl.learning.exact_model import Part, Tensors
from p2pfl.plugins.exact.tensor_model import Shapes, TensorModule
from p2pfl.plugins.vertical.aligned_table import kept_features
from p2pfl.plugins.vertical.block import PartModel
from p2pfl.plugins.vertical.party_network import PartyNetwork
from p2pfl.plugins.vertical.split_network import FIGURES, KINDS, TARGET, SplitNetwork


@dataclass(frozen=True, kw_only=True)
class SplitBlock(PartModel):
    """Part of a split network that one party keeps.

    The file of the label holder predicts from its own columns, with zeros for the embeddings of the others; those of
    the others return embeddings.

    Parameters
    ----------
    features, classes, fields
        Number of encoded columns of the party; number of classes, in the file of the label holder; and its columns.
    label
        True for the label holder.
    width, hidden, bottom, top, absent
        As of :class:`~p2pfl.plugins.vertical.split_network.SplitNetwork`.

    Examples
    --------
    >>> SplitBlock(features=2, classes=None, hidden=(3,), width=1).layout.names[3:5]
    ('network.bottom.1.weight', 'network.bottom.1.bias')
    """

    name: ClassVar[str] = SplitNetwork.name
    known_to_all: ClassVar[tuple[str, ...]] = (FIGURES,)
    traits: ClassVar[ModelTraits] = ModelTraits(
        steps=("optimizer", "rate", "options", "schedule", "batch", "epochs", "steps", "dtype", "device")
    )

    features: int
    classes: int | None
    width: int = 16
    hidden: tuple[int, ...] = (64,)
    bottom: str = "mlp"
    top: str = "mlp"
    absent: float = 0.0

    def check(self) -> None:
        """Raise :class:`ModelError`, as a part learns with the others alone.

        Raises
        ------
        ModelError
            Always.
        """
        raise ModelError('split_network takes peers with different columns; set data.name = "vertical"')

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        return {name: tuple(each.shape) for name, each in self.module().state_dict().items()}

    @property
    def kept(self) -> list[int]:
        """Positions of the features that the network takes."""
        return list(map(int, kept_features(self.fields, self.features)))

    def module(self) -> SplitModule:
        """Return the module of the party.

        Raises
        ------
        ModelError
            A module is of a class that a file must not import.
        """
        if own := [name for name in (self.bottom, self.top) if name not in KINDS]:
            raise ModelError(
                f"the file has a module {own[0]}, whose import runs its code; build a PartyNetwork in Python and load "
                "the tensors"
            )
        network = SplitNetwork(
            width=self.width, hidden=tuple(self.hidden), bottom=self.bottom, top=self.top, labels="shown"
        )
        outputs = (self.classes or 1) if self.label else None
        made = network.network(len(self.kept), outputs=outputs, seed=0, peer="")
        return SplitModule(made, self.features, self.kept)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return what :meth:`module` does."""
        if self.label:
            return self.outputs_alone(tensors, part.features)
        return self.predictor_of(tensors, part.features)

    def predictor_of(self, tensors: Tensors, features: FloatArray) -> Floats:
        """Return the part of the embedding of each row, ``[n, k]``."""
        return self._call(tensors, SplitModule.embedding, features)

    def absent_predictor(self, tensors: Tensors) -> Floats:
        """Return the part of the embedding of a row that the party lacks, ``[k]``; 0 unless it may lack some."""
        if not self.may_lack:
            return np.zeros(self.width)
        features = np.array(tensors["mean"])
        features[-2:] = 0.0, 1.0
        return np.asarray(self.predictor_of(tensors, features[None])[0])

    def outputs_together(self, tensors: Tensors, features: FloatArray, foreign: Floats) -> Floats:
        """Return logits, or numbers in the unit of the target, with the others' parts of the embedding, ``[n, K]``."""
        return self._call(tensors, SplitModule.outputs, self.predictor_of(tensors, features) + foreign)

    def outputs_alone(self, tensors: Tensors, features: FloatArray) -> Floats:
        """Return the same with zeros in place of the others' parts of the embedding."""
        return self._call(tensors, SplitModule.forward, features)

    def _call(
        self, tensors: Tensors, method: Callable[[SplitModule, torch.Tensor], torch.Tensor], inputs: FloatArray
    ) -> Floats:
        """Return what a method of the module with some tensors returns."""
        module = self.module()
        module.load_state_dict({name: torch.from_numpy(np.array(each)) for name, each in tensors.items()})
        with torch.no_grad():
            outputs: Floats = method(module.eval(), torch.from_numpy(inputs.astype(np.float64))).numpy()
        return outputs


class SplitModule(TensorModule):
    """Network of one party with the scale of its columns.

    Parameters
    ----------
    network
        The network.
    features, kept
        Number of encoded columns, and the positions of those that the network takes.
    """

    mean: torch.Tensor
    deviation: torch.Tensor
    target: torch.Tensor

    def __init__(self, network: PartyNetwork, features: int, kept: list[int]) -> None:
        shapes = {**dict.fromkeys(("mean", "deviation"), (features,)), FIGURES: (len(SplitNetwork.figures),)}
        super().__init__(shapes | ({} if network.top is None else {TARGET: (2,)}))
        self.network, self.kept = network.double(), kept

    def columns(self, features: torch.Tensor) -> torch.Tensor:
        """Return the columns ``[n, a]`` that the network takes."""
        return ((features - self.mean) / self.deviation)[:, self.kept]

    def embedding(self, features: torch.Tensor) -> torch.Tensor:
        """Return the part of the embedding, ``[n, k]``."""
        return self.network.embed(self.columns(features))

    def outputs(self, embedding: torch.Tensor) -> torch.Tensor:
        """Return logits, or numbers in the unit of the target, for embeddings; at the label holder."""
        mean, deviation = self.target
        outputs: torch.Tensor = self.network.output(embedding) * deviation + mean
        return outputs

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the outputs with nobody else's part, or without a top the part of the embedding."""
        embedding = self.embedding(features)
        return embedding if self.network.top is None else self.outputs(embedding)
