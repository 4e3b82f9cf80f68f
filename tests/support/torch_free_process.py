"""Peers in a process that cannot import torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import safetensors.torch

PROGRAM = Path(__file__).with_name("torch_free.py")
DEADLINE = 300.0


def run_without_torch(tmp_path, jobs):
    """Return the lines that a process without torch printed, and the tensors of each job."""
    file = tmp_path / "jobs.json"
    for number, job in enumerate(jobs):
        job["result"] = str(tmp_path / f"{number}.safetensors")
    file.write_text(json.dumps(jobs), "utf-8")
    paths = os.pathsep.join([str(PROGRAM.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, PROGRAM, str(file)],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    found = [
        safetensors.torch.load_file(job["result"]) for job in jobs if not {"refused", "runs", "command"} & job.keys()
    ]
    return done.stdout.splitlines(), found
