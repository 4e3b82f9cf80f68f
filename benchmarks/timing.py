"""How the benchmarks take time: medians of several repeats, ratios pair by pair."""

import statistics
import time
from collections.abc import Callable


def seconds(body: Callable[[], object]) -> float:
    """How long one call takes."""
    begun = time.perf_counter()
    body()
    return time.perf_counter() - begun


def pair(ours: Callable[[], object], baseline: Callable[[], object], *, repeats: int) -> tuple[float, float, str]:
    """Medians of both, called in turn after a warm-up, and the ratio: median (least to most)."""
    ours()
    baseline()
    runs = [(seconds(ours), seconds(baseline)) for _ in range(repeats)]
    ratios = sorted(mine / other for mine, other in runs)
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    return statistics.median(mine for mine, _ in runs), statistics.median(other for _, other in runs), spread
