"""Workers of a simulation in threads of a test, connected by real process groups of gloo."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from torch.distributed import HashStore

from p2pfl.experiment import plan
from p2pfl.identity import SeededSource
from p2pfl.simulation.engine import RunStart, simulate_shard
from p2pfl.simulation.sharding.part import WorkerShard
from p2pfl.simulation.sharding.workers import connected

BUILDING = threading.Lock()
"""Building a model draws from torch's generator, which all threads of a process share."""


def together(work, *, workers):
    """Return what ``work(group)`` returns in each worker, or raise the first error of one."""
    store = HashStore()

    def one(rank):
        group = connected(store, rank=rank, size=workers, local=workers)
        try:
            return work(group)
        except BaseException as error:
            group.fail(error)
            group.close()
            raise

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(one, rank) for rank in range(workers)]
        return [future.result() for future in futures]


def simulated(experiment, *, workers, folder=None, observe=None, baselines=False, resume=False):
    """Return the run of a simulation by several workers."""

    def work(group):
        with BUILDING:
            resolved = plan(experiment)
        leads = group.rank == 0
        how = {"folder": folder, "observe": observe} if leads else {}
        begun = RunStart(time.perf_counter(), datetime.now(UTC))
        how |= {"begun": begun, "source": SeededSource(experiment.seed), "baselines": baselines, "resume": resume}
        return simulate_shard(resolved, WorkerShard(resolved.weights, group), **how)

    return together(work, workers=workers)[0]
