"""From the section ``[compression]`` to a codec, and what it does not go with."""

from __future__ import annotations

import torch

from p2pfl.compression import QSGD, Codec, Half, Quantise, RandomK, TopK, Zstd
from p2pfl.compression.codecs import size
from p2pfl.errors import ExperimentError
from p2pfl.experiment.algorithms import known
from p2pfl.experiment.schema import Compression, Experiment


def codec(experiment: Experiment, *, length: int, dtype: torch.dtype, period: int) -> Codec | None:
    """The codec of an experiment; ``None`` where rows travel whole.

    Parameters
    ----------
    experiment
        With its section ``[compression]``.
    length, dtype
        Of its rows.
    period
        Of its schedule of topologies.

    Raises
    ------
    ExperimentError
        It does not go with the privacy, the algorithm, the topology or the acceleration, or saves nothing.

    Examples
    --------
    >>> codec(Experiment(compression=Compression(name="quantise", bits=4)), length=100, dtype=torch.float32, period=1)
    Quantise(bits=4, tracked=True, number=3)
    """
    wanted = experiment.compression
    if wanted.zstd:
        Zstd()
    if wanted.name == "none":
        return None
    made = _made(wanted, seed=experiment.seed)
    if why := _misfit(experiment, made, period=period):
        raise ExperimentError(f'compression.name: expected "none" {why}, got "{wanted.name}": leave one of the two out')
    short, whole = size(made, length, dtype), length * dtype.itemsize
    if short >= whole:
        raise ExperimentError(
            f"compression: expected a row in fewer than its {whole} bytes, got {short} with {wanted.name}: "
            "leave it out, or lower share, levels or bits"
        )
    return made


def _made(wanted: Compression, *, seed: int) -> Codec:
    match wanted.name:
        case "float16" | "bfloat16":
            return Half(wanted.name)
        case "quantise":
            return Quantise(wanted.bits)
        case "qsgd":
            return QSGD(wanted.levels, seed)
        case "top_k":
            return TopK(wanted.share)
        case _:
            return RandomK(wanted.share, seed)


def _misfit(experiment: Experiment, made: Codec, *, period: int) -> str:
    """With what it does not go, and why; empty if with everything."""
    mode, name = experiment.privacy.mode, experiment.learning.algorithm
    hidden = "masks and noise are exact whole numbers, and what is lost of them does not cancel"
    if mode != "none":
        return f'with privacy.mode = "{mode}", as {hidden} (zstd and the algorithm "partial" do)'
    if why := known(name).whole:
        return f"with {name}, which {why}"
    if not made.tracked:
        return ""
    if period > 1:
        return "with a schedule of topologies, as a peer keeps one weighted sum of what its neighbours have sent"
    if experiment.gossip.acceleration != "none":
        return f'with gossip.acceleration = "{experiment.gossip.acceleration}", which expects plain mixing'
    return ""
