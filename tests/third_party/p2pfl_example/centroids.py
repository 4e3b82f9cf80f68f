"""An exact model of one's own."""

import numpy as np
import torch
from torch import nn

from p2pfl.core.rows import Layout
from p2pfl.learning import ExactModel, Outcome, Question

GRID = 2.0**16
"""Features are rounded to this part of 1, so that their sums are exact."""


class Nearest(nn.Module):
    """Classifier by the nearest mean."""

    def __init__(self, classes, features):
        super().__init__()
        self.register_buffer("counts", torch.zeros(classes, dtype=torch.float64))
        self.register_buffer("means", torch.zeros(classes, features, dtype=torch.float64))

    def forward(self, features):
        """Return logits ``[n, C]``: the negative squared distances from the means."""
        return -torch.cdist(features.flatten(1).double(), self.means).square()


class Centroids(ExactModel):
    """Classifier by the nearest of the means of the classes, from one total.

    Parameters
    ----------
    features, classes
        Number of features and of classes.
    """

    name = "centroids"
    shows = "how many samples each class has, and the sums of their features"
    scored = "classes"

    def __init__(self, features: int, classes: int):
        self.features, self.classes = features, classes

    @property
    def layout(self):
        """Names and shapes of the tensors."""
        return Layout(("counts", "means"), ((self.classes,), (self.classes, self.features)))

    def start(self):
        """Return the model of no samples."""
        return {"counts": np.zeros(self.classes), "means": np.zeros((self.classes, self.features))}

    def round(self, tensors, own):
        """Count and add up the samples of each class; further rounds change nothing."""
        if tensors["counts"].any():
            return Outcome(tensors, over=True)
        total = yield Question(lambda peer: self._counted(own(peer).train), size=self.classes * (1 + self.features))
        counts, sums = total[: self.classes].astype(float), total[self.classes :].reshape(self.classes, -1)
        return Outcome({"counts": counts, "means": sums / GRID / np.maximum(counts, 1)[:, None]}, over=True)

    def module(self):
        """Return the torch module for predictions."""
        return Nearest(self.classes, self.features)

    def predicted(self, tensors, part):
        """Return logits ``[n, C]``."""
        wide = part.features.astype(np.float64)
        return -np.square(wide[:, None] - tensors["means"]).sum(axis=2)

    def _counted(self, part):
        hot = part.targets[:, None] == np.arange(self.classes)  # [n, C]
        sums = hot.T.astype(np.int64) @ np.rint(part.features.astype(np.float64) * GRID).astype(np.int64)  # [C, F]
        return np.concatenate([hot.sum(axis=0), sums.ravel()]).astype(np.int64)
