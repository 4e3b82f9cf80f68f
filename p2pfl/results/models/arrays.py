""":class:`ArrayPredictor`, predictions of a saved model for samples that are no rows of a table: pictures or tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.core.errors import InputError, LearningError, ModelError
from p2pfl.experiment.accounts import admitted_table
from p2pfl.results.models.model_file import SavedModel, load
from p2pfl.results.models.predictor import Predictions

BLOCK = 256
"""Samples that are predicted at once."""

SUFFIX = ".npy"
"""End of the name of a file with samples."""


class ArrayPredictor:
    """Model that takes arrays of samples.

    Parameters
    ----------
    saved
        The model with its description, see :meth:`load`.
    """

    def __init__(self, saved: SavedModel) -> None:
        self.saved = saved
        self._dtype = next((each.dtype for each in saved.module.parameters()), torch.float32)

    @classmethod
    def load(cls, path: str | Path, *, model: torch.nn.Module | str | None = None) -> ArrayPredictor:
        """Load ``NAME.safetensors`` of a run directory, see :func:`p2pfl.results.models.model_file.load`."""
        return cls(load(path, model=model, samples=True))

    def predict(self, source: str | Path | npt.NDArray[Any], *, unaccounted: bool = False) -> Predictions:
        """Return the predictions for samples.

        Parameters
        ----------
        source
            Raw samples ``[n, *shape]`` in the unit that ``model.json`` names, or a ``.npy`` file of them.
        unaccounted
            True if a file that has an account may be used outside of it.

        Returns
        -------
        Predictions
            Probabilities ``[n, C]`` of the classes, or predicted numbers ``[n]``.

        Raises
        ------
        InputError
            The file is none of numpy's or has an account, or the samples do not fit the model.
        ModelError
            The model refuses the samples.
        LearningError
            The model does not give one finite output for each class and sample.
        """
        if not isinstance(source, np.ndarray):
            admitted_table(source, unaccounted=unaccounted)
        given = self._inputs(source if isinstance(source, np.ndarray) else samples(Path(source)))
        outputs = torch.cat([self._outputs(block) for block in torch.split(given, BLOCK)])
        about, classes = self.saved.about.outputs, self.saved.names
        if classes and outputs.shape == (len(given), len(classes)):
            found = outputs.softmax(dim=1).numpy()
        elif not classes and outputs.numel() == len(given):
            found = (outputs.reshape(-1) * about.deviation + about.mean).numpy()
        else:
            raise LearningError(
                f"{self.saved.path} gives outputs {tuple(outputs.shape[1:])} for a sample, and predict writes one "
                "value or one probability of each class; load the file with safetensors, and call the model itself"
            )
        if not np.isfinite(found).all():
            raise LearningError(f"{self.saved.path} does not give finite numbers; train the model again")
        return Predictions(found, classes)

    def _inputs(self, raw: npt.NDArray[Any]) -> torch.Tensor:
        """Return samples as the model takes them, ``[n, *shape]``."""
        inputs = self.saved.about.inputs
        kinds = "iu" if inputs.whole else "iufb"
        if raw.shape[1:] != inputs.shape or not len(raw) or raw.dtype.kind not in kinds:
            numbers = "whole numbers" if inputs.whole else "numbers"
            raise InputError(
                f"{self.saved.path} takes {numbers} of shape (n, {', '.join(map(str, inputs.shape))}), which are "
                f"{inputs.raw}, and the samples are {raw.dtype} of shape {raw.shape}; convert them"
            )
        if inputs.whole:
            return torch.from_numpy(raw.astype(np.int64))
        flat = raw.astype(np.float64).reshape(len(raw), -1)  # [n, F]
        scaled = (flat - np.asarray(inputs.mean)) / np.asarray(inputs.deviation)
        return torch.from_numpy(scaled.reshape(raw.shape)).to(self._dtype)

    def _outputs(self, given: torch.Tensor) -> torch.Tensor:
        try:
            with torch.inference_mode():
                found: torch.Tensor = self.saved.module(given)
        except Exception as error:  # the code of a model may raise anything, such as IndexError for an unknown token
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ModelError(
                f"{self.saved.path} cannot predict these samples ({reason}); check that they are "
                f"{self.saved.about.inputs.raw}"
            ) from error
        return found.double()


def samples(path: Path) -> npt.NDArray[Any]:
    """Read an array of numbers from a ``.npy`` file; a file from others cannot run code.

    Raises
    ------
    InputError
        It cannot be read, or holds objects.
    """
    try:
        found = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); name a file of numpy.save") from None
    except ValueError as error:
        raise InputError(f"{path} is not an array of numbers ({error}); write it with numpy.save") from None
    if not isinstance(found, np.ndarray):
        raise InputError(f"{path} holds several arrays; write one with numpy.save")
    return found
