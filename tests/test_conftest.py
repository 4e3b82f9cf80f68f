"""What tests/conftest.py changes about pytest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WATCH = "tests/plugins/watch/test_watch_command.py"


@pytest.mark.slow  # it starts pytest
def test_folders_beside_a_file_keep_the_fixtures_of_their_conftest():
    named = ["tests/plugins/serve", "tests/test_conftest.py", WATCH]
    command = [sys.executable, "-m", "pytest", "-qq", "-n", "0", "--setup-plan", "-k", "test_once_prints", *named]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{WATCH}::test_once_prints_the_state_for_programs (fixtures used: " in done.stdout
