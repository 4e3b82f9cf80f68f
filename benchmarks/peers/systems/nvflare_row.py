"""nvflare: a server and one client send each other a row of ten tensors, in processes of its simulator.

    python benchmarks/peers/systems/nvflare_row.py BYTES ROUNDS

It runs in the environment of nvflare. Peaks are growths since before the row existed.
"""

import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from nvflare.apis.controller_spec import Task
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import ReturnCode, Shareable, make_reply
from nvflare.job_config.api import FedJob

TENSORS = 10


def peak() -> int:
    """Return the most bytes of memory that this process has had in use since its peak was reset."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def reset_peak() -> int:
    """Return the bytes of memory in use now, from where the kernel counts the peak anew."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    return peak()


def note(name: str, **found) -> None:
    """Write what a process found."""
    Path(os.environ["P2PFL_FOUND"], f"{name}.json").write_text(json.dumps(found), "utf-8")


class RowController(Controller):
    """The server, which sends what the client returned."""

    def __init__(self, size: int, rounds: int) -> None:
        super().__init__()
        self.size, self.rounds = size, rounds

    def start_controller(self, fl_ctx) -> None:
        """Do nothing."""

    def stop_controller(self, fl_ctx) -> None:
        """Do nothing."""

    def process_result_of_unknown_task(self, client, task_name, client_task_id, result, fl_ctx) -> None:
        """Do nothing."""

    def control_flow(self, abort_signal, fl_ctx) -> None:
        """Let all rounds run after the client has answered once."""

        def ask(name: str, data: Shareable) -> Shareable:
            task = Task(name, data, timeout=600)
            self.broadcast_and_wait(task, fl_ctx, min_responses=1, abort_signal=abort_signal)
            return task.client_tasks[0].result

        ask("begin", Shareable())
        before, processor, ends = reset_peak(), time.process_time(), [time.perf_counter()]
        model = {f"layer{i}": np.zeros(self.size // 4 // TENSORS, np.float32) for i in range(TENSORS)}
        for _ in range(self.rounds):
            model = from_shareable(ask("train", DXO(DataKind.WEIGHTS, data=model).to_shareable())).data
            ends.append(time.perf_counter())
        spent = (time.process_time() - processor) / self.rounds
        note("server", seconds=np.diff(ends).tolist(), processor=spent, peak=peak() - before)
        if any((value != self.rounds).any() for value in model.values()):
            raise RuntimeError("the row did not come back")
        ask("end", Shareable())


class RowExecutor(Executor):
    """The client, which adds one to each number."""

    def execute(self, task_name, shareable, fl_ctx, abort_signal) -> Shareable:
        """Return the row of a round, and note the cost at the end."""
        if task_name == "begin":
            self.before, self.processor = reset_peak(), time.process_time()
        elif task_name == "end":
            note("client", processor=time.process_time() - self.processor, peak=peak() - self.before)
        else:
            model = from_shareable(shareable).data
            return DXO(DataKind.WEIGHTS, data={name: value + 1 for name, value in model.items()}).to_shareable()
        return make_reply(ReturnCode.OK)


def main() -> None:
    """Print what server and client took."""
    size, rounds = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"P2PFL_FOUND": folder, "PYTHONPATH": str(Path(__file__).parent)}
        from nvflare_row import RowController, RowExecutor  # noqa: PLC0415 -- under the name that the client imports

        job = FedJob(name="row")
        job.to_server(RowController(size, rounds))
        job.to(RowExecutor(), "site-1")
        job.simulator_run(f"{folder}/work", threads=1)
        found = {name: json.loads(Path(folder, f"{name}.json").read_text("utf-8")) for name in ("server", "client")}
    print(json.dumps({"version": version("nvflare"), **found}))


if __name__ == "__main__":
    main()
