"""Program that runs live peers without torch: python torch_free.py JOB, where JOB is a file of JSON."""

import asyncio
import contextlib
import io
import json
import sys

sys.modules["torch"] = None  # as if it were not installed

from p2pfl.core.errors import P2PFLError  # noqa: E402 (here and below: after torch is blocked)
from p2pfl.core.tensors import save  # noqa: E402
from p2pfl.experiment import plan, read  # noqa: E402
from p2pfl.network.peer.launch.brokers import connect  # noqa: E402
from p2pfl.network.transport import MemoryTransport  # noqa: E402
from p2pfl.privacy.keys import SeededSource  # noqa: E402
from p2pfl.results import Run  # noqa: E402
from p2pfl.results.repetitions.repetition import repetition  # noqa: E402
from p2pfl.results.sent_rows import read_row  # noqa: E402
from swarms import live  # noqa: E402


async def play(job):
    experiment = read(job["table"], changes=job["changes"])
    url = job.get("broker")
    transport = connect(experiment, urls=[url], peer="boards") if url else MemoryTransport()
    ended = await live(experiment, transport, source=SeededSource(11), names=job.get("names"))
    tensors = {}
    for name, each in ended.items():
        saved = each.peer.plan.saved(each.state.rows[0], peer=name)
        tensors |= {f"{name}/{key}": value for key, value in saved.items()}
    return tensors


def compare(job):
    """Read a sent row and compare two runs; return the digest of the row, and the differences."""
    before, after = (Run.load(folder) for folder in job["runs"])
    sent = read_row([before.folder], job["peer"], job["digest"], size=100)
    found = repetition(before, after)
    print(json.dumps([sent.digest, sent.row.tolist(), found.table]))


def call(words):
    """Run a command; print its exit status and what it says."""
    from p2pfl.cli import main  # noqa: PLC0415 (peers need no command line)

    with contextlib.redirect_stderr(io.StringIO()) as said:
        status = main(words)
    print(json.dumps([status, said.getvalue()]))


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        jobs = json.load(file)
    for job in jobs:
        if "runs" in job:
            compare(job)
            continue
        if "command" in job:
            call(job["command"])
            continue
        if job.get("refused"):
            try:
                plan(read(job["table"], changes=job["changes"]), live=True)
            except P2PFLError as error:
                print(error)
            continue
        data = save(asyncio.run(play(job)))
        with open(job["result"], "wb") as file:  # noqa: PTH123
            file.write(data)
    print(json.dumps(sorted(sys.modules)))
