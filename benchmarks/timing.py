"""How the benchmarks take time: medians of several repeats, ratios pair by pair."""

import statistics
import time
from collections.abc import Callable


def seconds(body: Callable[[], object], *, clock: Callable[[], float] = time.perf_counter) -> float:
    """How long one call takes, by a clock."""
    begun = clock()
    body()
    return clock() - begun


def pair(
    ours: Callable[[], object],
    baseline: Callable[[], object],
    *,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float, str]:
    """Medians of both, called in turn after a warm-up, and the ratio: median (least to most)."""
    ours()
    baseline()
    runs = [(seconds(ours, clock=clock), seconds(baseline, clock=clock)) for _ in range(repeats)]
    ratios = sorted(mine / other for mine, other in runs)
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    return statistics.median(mine for mine, _ in runs), statistics.median(other for _, other in runs), spread
