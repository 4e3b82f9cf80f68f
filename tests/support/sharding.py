"""Workers of a simulation in threads of a test, connected by real process groups of gloo."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from torch.distributed import HashStore

from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.experiment import resolving
from p2pfl.simulation.engine import RunStart, simulate_part
from p2pfl.simulation.sharding.workers import connect, divide_plan, source_of

BUILDING = threading.Lock()
"""Building a model draws from torch's generator, which all threads of a process share."""


def together(work, *, workers):
    """Return what ``work(group)`` returns in each worker, or raise the first error of one."""
    store = HashStore()

    def one(rank):
        group = connect(store, rank=rank, size=workers, local=workers)
        try:
            return work(group)
        except BaseException as error:
            group.fail(error)
            group.close()
            raise

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(one, rank) for rank in range(workers)]
        return [future.result() for future in futures]


def simulated(experiment, *, workers, folder=None, observe=None, baselines=False, resume=False, source=None):
    """Return the run of a simulation by several workers."""

    def work(group):
        resolved, shard = divide_plan(experiment, group)
        leads = group.rank == 0
        how = {"folder": folder, "observe": observe} if leads else {}
        begun = RunStart(time.perf_counter(), datetime.now(UTC))
        how |= {
            "begun": begun,
            "source": source_of(resolved, shard, source),
            "baselines": baselines,
            "resume": resume,
        }
        return run_without_loop(simulate_part(resolved, shard, **how))

    with one_learner_at_a_time():
        return together(work, workers=workers)[0]


@contextmanager
def one_learner_at_a_time():
    """Let the threads of a test build one learner after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolving, "learner", one_at_a_time(resolving.learner))
        yield


def one_at_a_time(build):
    """Return the function that builds a learner, for one thread at a time."""

    def built(*given, **how):
        with BUILDING:
            return build(*given, **how)

    return built
