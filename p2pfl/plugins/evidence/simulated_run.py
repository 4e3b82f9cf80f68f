"""Comparison of the evidence of live peers with a simulation of their experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from p2pfl.cli.running.repeating import check_repeatable
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.experiment.approval import experiment_digest
from p2pfl.plugins.evidence.recorded_chain import PeerEvidence
from p2pfl.plugins.evidence.verification import Difference
from p2pfl.results import Run
from p2pfl.results.evidence import tensors_digest

TOLERANCE = 1e-4
"""Largest difference of a parameter from sums in another order and grids of masks, as a share of the largest one."""


def compare_simulation(
    folder: Path, chains: Sequence[PeerEvidence], *, trust: bool
) -> tuple[list[Difference], list[str], list[str]]:
    """Return where the peers ended with other models than a simulation, what was compared, and what was not.

    Models from exact totals are compared to the bit, by the digests in the evidence; others by their files.

    Parameters
    ----------
    folder
        Run directory of the simulation.
    chains
        Evidence of each peer.
    trust
        Whether code that the experiment names may be imported.

    Raises
    ------
    InputError
        The directory has no simulation that has ended.
    """
    check_repeatable(folder)
    experiment = read(folder / "experiment.toml", trust_code=trust)
    digest, models = experiment_digest(experiment), Run.load(folder).models
    others = [own.peer for own in chains if any(began.experiment != digest for began in own.beginnings)]
    if others:
        return [Difference(peer, -1, "it began with another experiment than the simulation") for peer in others], [], []
    if any(began.charge is not None for own in chains for began in own.beginnings):
        return [], [], ["private noise is drawn anew in a simulation, so its models are not compared"]
    differences, absent, largest = list[Difference](), list[str](), 0.0
    for own in chains:
        if own.ended is None or own.peer not in models:
            absent.append(own.peer)
        elif experiment.learning.algorithm == "exact":
            if tensors_digest(models[own.peer]) != own.ended.model:
                differences.append(Difference(own.peer, -1, "its model is not that of the simulation"))
        elif own.model.is_file():
            share = _largest_difference(_load(own.model), models[own.peer])
            largest = max(largest, share)
            if not share <= TOLERANCE:
                differences.append(
                    Difference(own.peer, -1, f"its model is {share:.1g} away from that of the simulation")
                )
        else:
            absent.append(own.peer)
    if len(absent) == len(chains):
        return [], [], ["no peer has a model of its end, which could be compared with that of the simulation"]
    precision = f"to {largest:.1g} of the largest parameter" if largest else "to the bit"
    unchecked = [f"{', '.join(absent)} have no model of their end to compare with the simulation"] if absent else []
    return differences, [] if differences else [f"the models of the simulation, {precision}"], unchecked


def _load(path: Path) -> Mapping[str, torch.Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} is no model ({error}); ask its peer for the file again") from None


def _largest_difference(own: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """Return the largest difference of two models as a share of the largest parameter; infinite without one."""
    if {name: each.shape for name, each in own.items()} != {name: each.shape for name, each in other.items()}:
        return float("inf")
    scale = max((float(each.double().abs().max()) for each in other.values() if each.numel()), default=1.0)
    apart = [
        float((own[name].double() - each.double()).abs().nan_to_num(nan=float("inf")).max())
        for name, each in other.items()
        if each.numel()
    ]
    return max(apart, default=0.0) / (scale or 1.0)
