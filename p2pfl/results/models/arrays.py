""":class:`ArrayPredictor`, predictions of a saved model for samples that are no rows of a table: pictures or tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import InputError
from p2pfl.experiment.accounts import admitted_table
from p2pfl.results.models.predictor import Predictor

SUFFIX = ".npy"
"""End of the name of a file with samples."""


class ArrayPredictor(Predictor):
    """Model that takes arrays of samples, or ``.npy`` files of them, in the unit that ``model.json`` names."""

    block, samples = 256, True

    def columns(self, source: Any, *, unaccounted: bool = False) -> npt.NDArray[Any]:
        """Return samples as the model takes them, ``[n, *shape]``.

        Parameters
        ----------
        source
            Raw samples ``[n, *shape]``, or a file of them.
        unaccounted
            True if a file that has an account may be used outside of it.

        Raises
        ------
        InputError
            The file is none of numpy's or has an account, or the samples do not fit the model.
        """
        if not isinstance(source, np.ndarray):
            admitted_table(source, unaccounted=unaccounted)
        raw, inputs = source if isinstance(source, np.ndarray) else read_samples(Path(source)), self.saved.about.inputs
        kinds = "iu" if inputs.whole else "iufb"
        if raw.shape[1:] != inputs.shape or not len(raw) or raw.dtype.kind not in kinds:
            numbers = "whole numbers" if inputs.whole else "numbers"
            raise InputError(
                f"{self.saved.path} takes {numbers} of shape (n, {', '.join(map(str, inputs.shape))}), which are "
                f"{inputs.raw}, and the samples are {raw.dtype} of shape {raw.shape}; convert them"
            )
        return raw.astype(np.int64 if inputs.whole else np.float64)


def read_samples(path: Path) -> npt.NDArray[Any]:
    """Read an array of numbers from a ``.npy`` file; a file from others cannot run code.

    Raises
    ------
    InputError
        It cannot be read, or holds objects.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); name a file of numpy.save") from None
    except ValueError as error:
        raise InputError(f"{path} is not an array of numbers ({error}); write it with numpy.save") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} holds several arrays; write one with numpy.save")
    return array
