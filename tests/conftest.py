"""What all tests share."""

import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # tests/swarms.py
os.environ["PATH"] += os.pathsep + "/usr/sbin"  # where Debian keeps mosquitto

settings.register_profile("untimed", deadline=None)  # a busy machine is slow, and no test is timed
settings.load_profile("untimed")

collect_ignore = ["fuzz.py"]  # scripts/fuzz runs it, with atheris


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Peers of one process must not each start as many threads as there are cores."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_dir():
    """Return the folder with data sets; a test that asks for it is skipped where there is none."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("P2PFL_DATA") or root.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no folder with data sets; set P2PFL_DATA")
    return folder
