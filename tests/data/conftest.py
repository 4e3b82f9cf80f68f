import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir():
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("P2PFL_DATA") or root.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no folder with data sets; set P2PFL_DATA")
    return folder
