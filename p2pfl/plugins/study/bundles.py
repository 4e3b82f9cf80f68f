"""Runs of one experiment with different seeds, which one process makes together where that pays."""

from __future__ import annotations

import json
import math
import sys
import tomllib
import traceback
from collections.abc import Sequence

from p2pfl.experiment import check
from p2pfl.experiment.schema.network import graph_files
from p2pfl.plugins.study.cell import Job, Outcomes, attempt, explained

MOST = 32
"""Most runs that are made together."""

Bundle = tuple[Job, ...]
"""Runs that one process is given at a time."""


def bundles(jobs: Sequence[Job], *, processes: int) -> list[Bundle]:
    """Return the runs in bundles, each of one experiment with several seeds.

    Each bundle has at most :data:`MOST` runs, and as many as possible of the processes have work.

    Parameters
    ----------
    jobs
        All runs to make.
    processes
        Number of processes.
    """
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(_apart_from_seed(job), []).append(job)
    each = math.ceil(processes / max(1, len(groups)))  # bundles of a group
    found: list[Bundle] = []
    for group in groups.values():
        count = min(len(group), max(each, math.ceil(len(group) / MOST)))
        found += [
            tuple(group[place * len(group) // count : (place + 1) * len(group) // count]) for place in range(count)
        ]
    return found


def alike(jobs: Sequence[Job], *, processes: int) -> list[Bundle]:
    """Return the runs in bundles with the same data each, which one process reads once to check all of them."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(_data(job), []).append(job)
    each = math.ceil(processes / max(1, len(groups)))  # bundles of a group
    return [tuple(group[place::each]) for group in groups.values() for place in range(min(each, len(group)))]


def attempt_all(bundle: Bundle) -> Outcomes:
    """Make the runs of a bundle, or only the first one where making them together does not pay."""
    if len(bundle) > 1:
        try:
            found = _together(bundle)
        except Exception:  # noqa: BLE001 (apart, each run says what is wrong with it)
            traceback.print_exc(file=sys.stderr)
            found = None
        if found is not None:
            return found
    return {bundle[0].digest: attempt(bundle[0])}


def _together(bundle: Bundle) -> Outcomes | None:
    """Make runs as one stack; ``None`` where that does not pay."""
    from p2pfl.simulation.together import simulate_together  # noqa: PLC0415 (the fork server has imported it)

    experiments = [check(tomllib.loads(job.experiment)) for job in bundle]
    found = simulate_together(experiments, folders=[job.folder for job in bundle], baselines=bundle[0].baselines)
    if found is None:
        return None
    failures = [explained(each) if isinstance(each, Exception) else None for each in found]
    return {job.digest: failure for job, failure in zip(bundle, failures, strict=True)}


def _apart_from_seed(job: Job) -> str:
    """Return what runs that may be made together have in common; a cost budget is tried run by run."""
    if job.budget is not None:
        return job.digest
    table = tomllib.loads(job.experiment) | {"seed": 0}
    return json.dumps(table, sort_keys=True, default=str)


def _data(job: Job) -> str:
    """Return what decides the data of a run: runs that have it in common are checked with the same data."""
    table = tomllib.loads(job.experiment)
    files, peers = graph_files(table["topology"].get("kind")), table["topology"].get("peers")
    return json.dumps([table["data"], table["seed"], files, peers], sort_keys=True, default=str)
