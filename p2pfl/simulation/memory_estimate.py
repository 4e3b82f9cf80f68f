"""Memory of a simulation, estimated from shapes before it starts and compared with what is free.

The factors are measured: ``python -m benchmarks.memory`` compares estimates with the largest memory of real runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from p2pfl.core.errors import InputError, RunError, is_out_of_memory
from p2pfl.core.process import FreeMemory, cores, free_memory, resident_memory
from p2pfl.experiment import Plan
from p2pfl.experiment.catalogue import STATES
from p2pfl.learning import home
from p2pfl.results.formats import size
from p2pfl.simulation.cohort import cohort_size, recorded_average, sampled_average

FEWEST_COPIES = 3.2
"""Copies of all models that D-PSGD holds at a time: its state, the trained models, and the mixed ones."""

COPIES = 5.5
"""Copies of all models that other algorithms hold at a time."""

COPIES_PER_STATE = 2.7
"""Copies for each further number per parameter that peers keep from round to round, before and after it changes."""

PER_NEIGHBOUR: Mapping[str, int] = {"relay_sgd": 2}
"""Models that an algorithm keeps for each neighbour, by its name."""

COPIES_PER_GRAPH = 2
"""Models that compressed differences take for each further graph of a schedule."""

BASELINE_COPIES = 6.5
"""Copies while every peer trains alone for comparison, beside those of the state."""

MASKED_COPIES = 3.0
"""Further copies while models are hidden: fixed-point numbers take eight bytes, before and after their masks."""

RECORD = 1000
"""Bytes of the record of a peer's round."""

PEER = 20_000
"""Bytes of a peer's entries in the summary and of its file, while they are written."""

REGISTERED = 400
"""Bytes of a peer that is registered and has no records: its name, and its places among peers and samples."""

EDGE = 60
"""Bytes of an edge while models are mixed, beside those of the plan."""

FIXED = 60 * 2**20
"""Bytes that libraries take when they are used for the first time."""

BLOCK = 24 * 2**20
"""Bytes of the numbers that a thread works on."""


FEWEST_PEERS = 2
"""Fewest peers that an error proposes."""

ROUNDING = 0.9
"""Share of the free memory that what an error proposes may take."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Largest memory of one process of a simulation, in bytes.

    Attributes
    ----------
    models
        Of the models, with what optimisers and algorithms keep for each parameter.
    edges
        Of the edges, while models are mixed.
    records
        Of the records of all rounds and the summary.
    work
        Of libraries and threads.
    held
        What the process holds already: Python, the data and the graph.
    """

    models: int
    edges: int
    records: int
    work: int
    held: int

    @property
    def further(self) -> int:
        """Memory beyond what the process holds already."""
        return self.models + self.edges + self.records + self.work

    @property
    def total(self) -> int:
        """All of it."""
        return self.held + self.further


def estimate(plan: Plan, *, peers: int | None = None, baselines: bool = True, workers: int = 1) -> MemoryEstimate:
    """Estimate the memory of the simulation of a plan.

    Parameters
    ----------
    plan
        The plan.
    peers
        Number of peers of this process; all by default.
    baselines
        Whether every peer trains alone, too.
    workers
        Number of processes that share the peers.
    """
    everyone = len(plan.topology.peers)
    count = everyone if peers is None else peers
    average = sampled_average(plan, workers=workers)
    edges = 0 if average is not None else sum(each.entries for each in plan.weights) * count // everyone
    computed = count
    recorded, personal = recorded_average(plan, workers=workers) is not None, plan.asked.algorithm.personal
    if average is not None and not baselines and (recorded or not personal):
        few = cohort_size(plan, average)
        codec = plan.asked.codec
        lasting = personal or plan.asked.algorithm.idle_weighs or (codec is not None and codec.differences)
        computed = min(count, few * max(1, plan.experiment.horizon) if lasting else few)
    records = count * (RECORD * plan.experiment.horizon + PEER)
    if recorded:
        records = computed * plan.experiment.horizon * (RECORD + PEER) + REGISTERED * count
    models = computed * plan.learner.layout.size * plan.learner.dtype.itemsize
    return MemoryEstimate(
        models=int(models * copies(plan, baselines=baselines)),
        edges=EDGE * edges,
        records=records,
        work=FIXED + BLOCK * cores(),
        held=resident_memory(),
    )


def copies(plan: Plan, *, baselines: bool) -> float:
    """Return the number of copies of all models that a simulation holds at a time."""
    name = plan.experiment.learning.algorithm
    kept = plan.kept_states
    least = FEWEST_COPIES if name == "dpsgd" else COPIES
    for_each_neighbour = PER_NEIGHBOUR[name] * _neighbours(plan) if name in PER_NEIGHBOUR else 0
    playing = least + COPIES_PER_STATE * (kept + for_each_neighbour)
    if plan.asked.mode.hides:
        playing += MASKED_COPIES
    if plan.asked.codec is not None and plan.asked.codec.differences:
        playing += COPIES_PER_GRAPH * (plan.topology.period - 1)
    if plan.validates:
        playing += 1  # the best models
    if baselines and not plan.protection.totals:
        return max(playing, BASELINE_COPIES + STATES.get(name, 0) + COPIES_PER_STATE * plan.optimiser_states)
    return playing


def _neighbours(plan: Plan) -> float:
    """Return the mean number of neighbours of a peer."""
    peers = len(plan.topology.peers)
    return sum(each.entries for each in plan.weights) / (len(plan.weights) * peers) - 1


def check_memory(plan: Plan, *, workers: int = 1, peers: int | None = None, baselines: bool = True) -> None:
    """Refuse a simulation that needs more memory than there is.

    Parameters
    ----------
    plan, peers, baselines
        Arguments of :func:`estimate`.
    workers
        Number of processes on this machine.

    Raises
    ------
    InputError
        The estimate exceeds the memory that is free.
    """
    free = free_memory()
    if free is None or home(plan.learner).type != "cpu":
        return
    needed = estimate(plan, peers=peers, baselines=baselines, workers=workers)
    together = needed.further if free.limit == "process" else workers * needed.further
    if together > free.bytes:
        fitting = max(FEWEST_PEERS, int(len(plan.topology.peers) * free.bytes / together * ROUNDING))
        raise InputError(
            f"the simulation needs about {size(together)} of memory beside the {size(needed.held)} that it holds, but "
            f"{_describe_limit(free)}; simulate fewer peers (about {fitting:,} fit) or a smaller model, leave the "
            "baselines out (--no-baselines), or divide the peers with --workers or torchrun"
        )


def _describe_limit(free: FreeMemory) -> str:
    """Return how much memory is free, and which limit says so."""
    limited = "process (ulimit -v)" if free.limit == "process" else free.limit
    return f"the limit of the {limited} leaves {size(free.bytes)}"


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn an exception of an allocator into one sentence.

    Raises
    ------
    RunError
        Memory ran out inside.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(out_of_memory()) from None


def out_of_memory() -> str:
    """Return the sentence of a process whose memory ran out."""
    free = free_memory()
    left = "" if free is None else f", and {_describe_limit(free)}"
    return (
        f"memory ran out: the process holds {size(resident_memory())}{left}; simulate fewer peers or a smaller model, "
        "or divide the peers with --workers or torchrun"
    )
