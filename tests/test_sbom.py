"""The bills of materials list every package of each lock with its version and its hashes."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CYCLONEDX = shutil.which(os.environ.get("P2PFL_CYCLONEDX", "cyclonedx-py"))


@pytest.mark.slow
@pytest.mark.skipif(CYCLONEDX is None, reason="cyclonedx-py is not installed: pip install cyclonedx-bom")
def test_each_lock_has_a_bill_with_all_of_its_packages(tmp_path):
    environment = {**os.environ, "P2PFL_CYCLONEDX": str(CYCLONEDX)}
    subprocess.run([ROOT / "scripts" / "sbom", tmp_path], check=True, env=environment, capture_output=True)
    locks = [*(ROOT / "p2pfl" / "plugins" / "operate" / "bundles" / "locks").glob("*.txt")]
    assert len([*tmp_path.iterdir()]) == len(locks) > 0
    for lock in locks:
        pinned = set(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([^\s;\\]+)", lock.read_text(), re.MULTILINE))
        bill = json.loads((tmp_path / f"{lock.stem}.cdx.json").read_text())
        assert bill["bomFormat"] == "CycloneDX"
        assert {(each["name"], each.get("version")) for each in bill["components"]} >= pinned
