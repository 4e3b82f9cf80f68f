"""From the section ``[compression]`` to a codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from p2pfl.core.codecs import Codec, Zstd, size
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.core.tensors import torch
from p2pfl.experiment.catalogue import CODECS, codec_traits
from p2pfl.experiment.parts.option_tables import checked_options, parameter_types
from p2pfl.experiment.schema import CompressionSettings, Experiment, Number

FILLED = ("kind", "seed", "number")
"""Parameters of codecs that a run fills in, and the number of a codec on the wire."""

DIFFERENCE_OPTIONS: Mapping[str, Any] = {"gamma": Annotated[float, Meta(gt=0, le=1)], "refresh": Number}
"""Options of every codec of differences, which :class:`p2pfl.algorithms.Compressed` takes."""


def codec_options(wanted: CompressionSettings) -> dict[str, Any]:
    """Return ``compression.options``, checked against what the codec takes.

    Raises
    ------
    ExperimentError
        An option is unknown, or its value has another type.
    """
    traits = codec_traits(wanted.name)
    if traits is None:
        return {}
    types = parameter_types(CODECS.kind(wanted.name), without=FILLED)
    types |= DIFFERENCE_OPTIONS if traits.differences else {}
    return checked_options(wanted.options, types, key="compression.options", name=wanted.name)


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
    >>> wanted = CompressionSettings(name="quantise", options={"bits": 4})
    >>> codec(Experiment(compression=wanted), length=100, dtype=torch.float32)
    Quantise(bits=4, number=3)
    """
    wanted = experiment.compression
    if wanted.zstd:
        Zstd()
    if wanted.name == "none":
        return None
    options = {key: value for key, value in codec_options(wanted).items() if key not in DIFFERENCE_OPTIONS}
    try:
        made: Codec = CODECS.make(wanted.name, options | {"kind": wanted.name, "seed": experiment.seed})
    except InputError as error:
        raise ExperimentError(f"compression.options: {error}") from None
    short, whole = size(made, length, dtype), length * dtype.itemsize
    if short >= whole:
        raise ExperimentError(
            f'compression.name = "{wanted.name}" sends {short} bytes for a model of {whole} bytes; leave it out, or '
            "lower share, levels or bits in compression.options"
        )
    return made
