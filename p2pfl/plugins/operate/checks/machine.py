"""The machine: Python and torch, memory, disk, clock."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import p2pfl
from p2pfl.core.errors import P2PFLError
from p2pfl.core.tensors import TORCH_INSTALLED, torch
from p2pfl.experiment import Experiment, Plan
from p2pfl.experiment.accounts import file_states
from p2pfl.plugins.operate.checks.finding import Finding, duration, ok, problem, size, warning

OLDEST_TORCH = (2, 6)
"""Oldest version of torch that pyproject.toml permits."""

RESIDENT_BYTES = (330 if TORCH_INSTALLED else 120) * 2**20
"""Bytes of a peer with a linear model on Linux x86-64."""

PARAMETER_COPIES = 8
"""Copies of its parameters that a peer holds: its own, the one it trains, gradients, ledgers, and what arrives."""

WRITTEN_COPIES = 12
"""Copies of its parameters that a run directory holds: two checkpoints with their ledgers, last and best model."""

SLOW_FSYNC = 0.1
"""Seconds above which a round waits noticeably for the disk."""

TIMED_TRIES = 5
"""Files that are written to time the disk, and training steps that are timed after a first one."""

CLOCK_TOLERANCE = 60.0
"""Seconds by which clocks may differ."""


def check_data_file(experiment: Experiment, *, peer: str, since: int | None) -> Finding | None:
    """Check whether the peer that runs here has read its data file as it is; ``None`` if none runs, or it has.

    Parameters
    ----------
    experiment, peer
        Its experiment and its name.
    since
        When its process started, in nanoseconds since 1970; ``None`` if none runs.
    """
    state = file_states(experiment, [peer]).get(peer)
    if state is None or experiment.data.refresh is not None or since is None or state[1] <= since:
        return None
    text = (
        "the data file has changed since the peer that runs here read it; set data.refresh to use new rows, or begin "
        "another run with them"
    )
    return warning("rows", text)


def check_torch() -> Finding:
    """Check Python and torch; an experiment that needs torch is refused where it is missing."""
    if not TORCH_INSTALLED:
        text = "no torch, which perceptrons and models from totals do without"
        return ok("torch", f"p2pfl {p2pfl.__version__}, Python {platform.python_version()}, {text}")
    return judge_torch(torch.__version__, cuda=torch.version.cuda, usable=torch.cuda.is_available())


def judge_torch(version: str, *, cuda: str | None, usable: bool) -> Finding:
    """Judge a build of torch.

    Parameters
    ----------
    version
        Version of torch.
    cuda
        Version of CUDA, if the build has one.
    usable
        Whether a GPU can be used.
    """
    if tuple(map(int, version.split("+", maxsplit=1)[0].split(".")[:2])) < OLDEST_TORCH:
        least = ".".join(map(str, OLDEST_TORCH))
        return problem("torch", f"torch {version} is too old; install torch {least} or later")
    if cuda and not usable:
        text = (
            f"torch {version} is a build for CUDA {cuda}, which takes up to 3 GB, and no GPU can be used here; install "
            'the CPU build (on aarch64 "torch<2.11", elsewhere --index-url https://download.pytorch.org/whl/cpu)'
        )
        return warning("torch", text)
    machine, python = platform.machine(), platform.python_version()
    return ok("torch", f"p2pfl {p2pfl.__version__}, Python {python}, torch {version} on {machine}")


def check_training(plan: Plan, *, peer: str) -> Finding | None:
    """Time a training step on the peer's own data; ``None`` for models that do not train in steps."""
    learning, patience = plan.experiment.learning, plan.experiment.transport.patience
    if plan.asked.algorithm.additive or learning.learner is not None:
        return None
    samples = len(plan.federation.train[peer])
    batches = 1 if learning.batch == "all" else math.ceil(samples / learning.batch)
    steps = learning.steps or learning.epochs * batches
    rows, seconds = plan.learner.start((peer,)), []
    try:
        for step in range(TIMED_TRIES + 1):
            began = time.perf_counter()
            plan.learner.gradient(rows, peers=(peer,), round=0, step=step)
            seconds.append(time.perf_counter() - began)
    except P2PFLError as error:
        return problem("training", str(error))
    one = statistics.median(seconds[1:])
    text = f"a training step takes {duration(one)}; a round has {steps} and takes about {duration(one * steps)}"
    if one * steps > patience:
        text = f"{text}, longer than neighbours wait (transport.patience = {patience:g})"
        return warning("training", f"{text}; take fewer steps or a smaller model, or raise it on all devices")
    return ok("training", text)


def check_memory(parameters: int | None, *, available: int | None = None) -> Finding:
    """Check the memory for a model.

    Parameters
    ----------
    parameters
        Bytes of the model's parameters; ``None`` if it is unknown.
    available
        Bytes; what the system reports by default.
    """
    free = available if available is not None else available_memory()
    if free is None:
        return warning("memory", "the system does not report its memory; check it yourself")
    needed = RESIDENT_BYTES + PARAMETER_COPIES * (parameters or 0)
    what = "a peer" if parameters is None else f"a peer with {size(parameters)} of parameters"
    if free < needed:
        text = f"{size(free)} of memory are available and {what} needs about {size(needed)}; end other programs, or use"
        return problem("memory", f"{text} a smaller model")
    return ok("memory", f"{size(free)} are available, {what} needs about {size(needed)}")


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that a new process could use, by the kernel and the control group; ``None`` if it is unknown.

    The memory of this process counts as available, because the peer will run in its place.
    """
    try:
        lines = (root / "proc/meminfo").read_text("ascii").splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        pages = int((root / "proc/self/statm").read_text("ascii").split()[1])
    except (OSError, StopIteration, ValueError):
        return None
    free = kilobytes * 1024
    group = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError, ValueError):  # there is no limit
        most, used = (int((group / f"memory.{name}").read_text("ascii")) for name in ("max", "current"))
        free = min(free, most - used)
    return free + pages * os.sysconf("SC_PAGE_SIZE")


def check_disk(runs: Path, parameters: int | None) -> Finding:
    """Check that run directories can be written, and how fast.

    Parameters
    ----------
    runs
        Where they go.
    parameters
        Bytes of the model's parameters; ``None`` if it is unknown.
    """
    folder = next(each for each in (runs.absolute(), *runs.absolute().parents) if each.exists())
    needed = WRITTEN_COPIES * (parameters or 0) + 2**20
    try:
        seconds = [_measure_sync(folder, size=needed if number == 0 else 4096) for number in range(TIMED_TRIES)]
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return problem("disk", f"{folder} cannot be written ({error.strerror}); choose another folder with --runs")
    if free < needed:
        text = f"{size(free)} are free in {folder} and a run needs about {size(needed)}; free some space"
        return problem("disk", f"{text}, or choose another folder with --runs")
    took = duration(statistics.median(seconds[1:]))
    if statistics.median(seconds[1:]) > SLOW_FSYNC:
        text = f"{folder} takes {took} to sync a small file, and a peer syncs in every round; use a faster disk"
        return warning("disk", f"{text}, or write checkpoints in fewer rounds (transport.checkpoint)")
    return ok("disk", f"{size(free)} are free in {folder}, a small file is synced in {took}")


def _measure_sync(folder: Path, *, size: int) -> float:
    """Return the seconds that it takes to write and sync a file, which is removed."""
    began = time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - began


def check_clock(latest: Mapping[str, float], *, now: float) -> Finding:
    """Check the clock against the age of the installed files and against what others have announced.

    Parameters
    ----------
    latest
        By source, seconds since 1970 that have passed for certain, such as the start of a certificate.
    now
        Seconds since 1970 by the clock of this device.
    """
    times = {"the installation of p2pfl": Path(p2pfl.__file__).stat().st_mtime, **latest}
    source, least = max(times.items(), key=lambda each: each[1])
    if least - now > CLOCK_TOLERANCE:
        text = (
            f"the clock of this device is at least {duration(least - now)} behind {source}; set the clock (peers join "
            "all the same, but records carry wrong times, and certificates of public authorities are refused)"
        )
        return warning("clock", text)
    return ok("clock", f"not behind {source}")
