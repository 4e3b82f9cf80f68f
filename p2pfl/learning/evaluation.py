"""Evaluation of rows on a part of the data, in blocks of bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from p2pfl.core.process import cores, spread
from p2pfl.core.rows import Rows, alike, to_device
from p2pfl.core.tensors import torch
from p2pfl.data import IntArray
from p2pfl.learning.histograms import histograms, length
from p2pfl.learning.losses import each_sample, squared_error
from p2pfl.learning.set_scores import KeptBatch, SetScore
from p2pfl.learning.steps.batching import DeviceSamples
from p2pfl.learning.steps.sparse_samples import SparseSamples
from p2pfl.learning.steps.training import Engine, StackedLearner

SAMPLES_PER_CHUNK = 256
"""Largest number of samples of a row that are evaluated at once, unless one row has a device for itself."""

MIN_SORTED_ROWS = 64
"""Fewest rows that repay the sorting of the samples that they share."""

PADDED_SAMPLES = 32
"""Samples of a row that are so few that padding to them costs less than a further block."""


def evaluate(learner: StackedLearner, rows: Rows, part: DeviceSamples, *, engine: Engine) -> dict[str, torch.Tensor]:
    """Return the loss and each metric of the samples of each row, each ``[R]`` float64.

    The loss and most metrics are means over samples; others are scores of all samples
    (:mod:`p2pfl.learning.set_scores`).

    A part that all rows share (the same array) is gathered once for all rows. Rows that are all the same, as after an
    exact average, are evaluated once.
    """
    if part.shared and len(rows) > 1 and alike(rows):
        once = evaluate(learner, rows[:1], part.first_row(), engine=engine)
        return {name: score.repeat(len(rows)) for name, score in once.items()}  # [R]
    functions = {"loss": learner.loss, **learner.metrics}
    if learner.r2:
        functions["r2"] = squared_error
    sums = {name: torch.zeros(len(rows), dtype=torch.float64, device=rows.device) for name in functions}  # [R] each
    kept: dict[str, list[list[KeptBatch]]] = {name: [[] for _ in rows] for name in learner.whole}

    def add(engine: Engine, chosen: IntArray) -> None:
        """Add the scores of a block of rows; threads may do so at once, as no two blocks contain the same row."""
        for where, outputs, targets, real in _outputs(learner, rows, part, chosen, engine=engine, shared=part.shared):
            for name, function in functions.items():
                each = each_sample(function, outputs, targets)  # [K, B]
                sums[name][where] += torch.where(real, each.double(), 0).sum(dim=1)
            _keep(kept, learner.whole, chosen, outputs=outputs, targets=targets, real=real)

    engines = engine.copies(cores()) if rows.device.type == "cpu" else []
    if engines:
        spread(lambda number, chosen: add(engines[number], chosen), _divide(learner, part), workers=len(engines))
    else:
        for chosen in _divide(learner, part):
            add(engine, chosen)
    counts = to_device(torch.from_numpy(part.counts), rows.device)  # [R]
    scores = {name: total / counts for name, total in sums.items()}
    if learner.r2:
        scores["r2"] = _determination(scores["r2"], part.target_variances(learner.targets))
    sizes = part.counts.tolist()
    for name, metric in learner.whole.items():
        each = [metric.score(own) if size else math.nan for own, size in zip(kept[name], sizes, strict=True)]
        scores[name] = to_device(torch.tensor(each, dtype=torch.float64), rows.device)  # [R]
    return {name: scores[name] for name in sorted(scores, key=learner.order.index)}


def _keep(
    kept: Mapping[str, list[list[KeptBatch]]],
    whole: Mapping[str, SetScore],
    chosen: IntArray,
    *,
    outputs: torch.Tensor,
    targets: torch.Tensor,
    real: torch.Tensor,
) -> None:
    """Keep what scores of whole sets need of a chunk of a block of rows, see :func:`_outputs`."""
    for number, row in enumerate(chosen.tolist() if whole else ()):
        mine = real[number % len(real)]  # [B]
        for name, metric in whole.items():
            kept[name][row].append(metric.kept(outputs[number][mine], targets[number][mine]))


def predict_row(
    learner: StackedLearner, rows: Rows, part: DeviceSamples, *, engine: Engine
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs ``[n, *outputs]`` of a single row ``[1, P]`` on all samples of its part, and their targets."""
    chunks = [
        (outputs[0][real[0]].cpu(), targets[0][real[0]].cpu())
        for _, outputs, targets, real in _outputs(learner, rows, part, np.arange(1), engine=engine, shared=False)
    ]
    outputs, targets = zip(*chunks, strict=True)
    return torch.cat(outputs), torch.cat(targets)


def tally_rows(
    learner: StackedLearner, rows: Rows, part: DeviceSamples, *, engine: Engine, classes: int
) -> torch.Tensor:
    """Return the histograms of each row over the samples of its part, ``[R, T]`` int64."""
    tallies = torch.zeros(len(rows), length(classes), dtype=torch.int64, device=rows.device)  # [R, T]
    for chosen in _divide(learner, part):
        for _, outputs, targets, real in _outputs(learner, rows, part, chosen, engine=engine, shared=False):
            for number, row in enumerate(chosen.tolist()):
                tallies[row] += histograms(outputs[number][real[number]], targets[number][real[number]])
    return tallies


def _divide(learner: StackedLearner, part: DeviceSamples) -> list[IntArray]:
    """Return the rows of each block, those with the most samples first.

    Rows are padded to the longest of their block, so a block of long rows has none with less than half of its samples.
    """
    order = np.argsort(-part.counts, kind="stable")
    footprint = learner.footprint
    if part.shared and len(learner.features):  # features exist once, whatever the number of rows
        footprint = replace(footprint, sample=max(1, footprint.sample - learner.features[0].nbytes))
    block = footprint.rows(min(SAMPLES_PER_CHUNK, max(1, int(part.counts.max()))))
    bounds, shorter = [0], -part.counts[order]  # ascending
    while bounds[-1] < len(order):
        low = bounds[-1]
        most = -int(shorter[low])
        fewest = most / 2 if most > PADDED_SAMPLES else 0  # rows with fewer samples would be padding for the most part
        long = int(np.searchsorted(shorter[low : low + block], -fewest, side="right"))
        bounds.append(low + max(1, long))
    return [order[low:high] for low, high in pairwise(bounds)]


def _outputs(
    learner: StackedLearner, rows: Rows, part: DeviceSamples, chosen: IntArray, *, engine: Engine, shared: bool
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield row numbers ``[K]``, outputs ``[K, B, *outputs]``, targets ``[K, B]``, and a mask of the real samples."""
    where = to_device(torch.from_numpy(chosen), rows.device)  # [K]
    tensors = [values.contiguous() for values in learner.layout.split(rows[where]).values()]
    first = engine.first_weight
    if shared and first is not None and rows.device.type == "cpu" and len(rows) >= MIN_SORTED_ROWS:
        sparse = part.sorted_by_zeros(learner.features, width=SAMPLES_PER_CHUNK)
        if sparse is not None and bool(tensors[first].isfinite().all()):  # else zeros times them are NaN
            yield from _sparse_outputs(learner, where, tensors, sparse, engine=engine, first=first)
            return
    most = SAMPLES_PER_CHUNK
    if len(chosen) == 1 and rows.device.type != "cpu":  # as many as fill a block, since each call costs the same
        most *= max(1, engine.block(SAMPLES_PER_CHUNK))
    for index, real in _common(part, most) if shared else _chunks(part, chosen, most):
        features = learner.features[index]  # [B, *shape] or [K, B, *shape]
        targets = learner.targets[index]  # [B, ...] or [K, B, ...]
        targets = targets.expand(len(chosen), *targets.shape) if shared else targets  # [K, B]
        with torch.no_grad():
            outputs = engine.outputs(tensors, features, shared=shared)  # [K, B, *outputs]
        yield where, outputs, targets, real


def _sparse_outputs(
    learner: StackedLearner,
    where: torch.Tensor,
    tensors: list[torch.Tensor],
    sparse: SparseSamples,
    *,
    engine: Engine,
    first: int,
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield what :func:`_outputs` does, by products of the first weights with the features that a batch uses."""
    weight = tensors[first][:, :, sparse.columns]  # [K, O, I]
    for number, used in enumerate(sparse.used):
        batch = slice(number * sparse.width, (number + 1) * sparse.width)
        targets = learner.targets[sparse.positions[batch]]  # [B]
        few = [*tensors[:first], weight[:, :, :used], *tensors[first + 1 :]]
        with torch.no_grad():
            outputs = engine.outputs(few, sparse.features[batch, :used], shared=True)  # [K, B, *outputs]
        real = torch.ones(1, len(targets), dtype=torch.bool)
        yield where, outputs, targets.expand(len(where), *targets.shape), real


def _common(part: DeviceSamples, most: int = SAMPLES_PER_CHUNK) -> Iterator[tuple[torch.Tensor | slice, torch.Tensor]]:
    """Yield positions ``[B]`` of at most so many samples that all rows share, and a mask of the real ones."""
    for low in range(0, len(part.samples), most):
        positions = part.samples[low : low + most]
        real = torch.ones(1, len(positions), dtype=torch.bool, device=positions.device)
        if part.first_of_run is None:
            yield positions, real
        else:  # a view instead of a copy for each block of rows
            start = part.first_of_run + low
            yield slice(start, start + len(positions)), real


def _chunks(part: DeviceSamples, chosen: IntArray, most: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield positions ``[K, B]`` of at most so many samples of each row, and a mask of the real ones."""
    device, longest = part.samples.device, int(part.counts[chosen].max())
    numbers = torch.from_numpy(np.stack([part.starts[chosen], part.counts[chosen]]))
    start, count = to_device(numbers, device).unsqueeze(-1).unbind()  # [K, 1] each
    for low in range(0, longest, most):
        offsets = torch.arange(low, min(low + most, longest), device=device)  # [B]
        real = offsets < count  # [K, B]
        yield torch.where(real, part.samples[torch.where(real, start + offsets, 0)], 0), real


def _determination(error: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    r"""Return :math:`R^2 = 1 - \text{squared error} / \text{variance}`, ``[R]``; 0 where the targets do not vary."""
    return torch.where(spread > 0, 1 - error / spread, 0.0)
