"""From the section ``[compression]`` to a codec."""

from __future__ import annotations

import torch

from p2pfl.core.codecs import Codec, Zstd
from p2pfl.core.codecs.codecs import size
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.catalogue import CODECS
from p2pfl.experiment.schema import Experiment


def codec(experiment: Experiment, *, length: int, dtype: torch.dtype) -> Codec | None:
    """Return the codec of an experiment; ``None`` if models are sent whole.

    Parameters
    ----------
    experiment
        Experiment with the section ``[compression]``.
    length, dtype
        Number and type of the parameters.

    Returns
    -------
    Codec or None
        The codec.

    Raises
    ------
    ExperimentError
        The encoded model is not smaller than the model itself.

    Examples
    --------
    >>> from p2pfl.experiment.schema import CompressionSettings
    >>> codec(Experiment(compression=CompressionSettings(name="quantise", bits=4)), length=100, dtype=torch.float32)
    Quantise(bits=4, number=3)
    """
    wanted = experiment.compression
    if wanted.zstd:
        Zstd()
    if wanted.name == "none":
        return None
    given = {name: getattr(wanted, name) for name in ("share", "levels", "bits")}
    made: Codec = CODECS.make(wanted.name, given | {"kind": wanted.name, "seed": experiment.seed})
    short, whole = size(made, length, dtype), length * dtype.itemsize
    if short >= whole:
        raise ExperimentError(
            f'compression.name = "{wanted.name}" sends {short} bytes for a model of {whole} bytes; leave it out, or '
            "lower compression.share, levels or bits"
        )
    return made
