"""The peer for boards: its parts behind a program, and the module that writes its header."""

import importlib.util
import subprocess
import sys

import pytest

from boards import MICRO, build


class Check:
    """The program that answers what tests ask of the parts of the board's peer."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, asked, data):
        """Return the answer, ``None`` for a refusal; a sanitizer's report ends the program and fails the test."""
        data = bytes(data)
        self.process.stdin.write(asked.encode() + len(data).to_bytes(4, "little") + data)
        self.process.stdin.flush()
        size = self.process.stdout.read(4)
        assert len(size) == 4, "the program ended; its standard error has the report of the sanitizer"
        return self.process.stdout.read(int.from_bytes(size, "little")) or None


@pytest.fixture(scope="session")
def check(tmp_path_factory):
    folder = tmp_path_factory.mktemp("micro")
    asking = Check(build(folder, "check", "SANITIZE=1"))
    yield asking
    asking.process.stdin.close()
    asking.process.stdout.close()
    assert asking.process.wait() == 0


@pytest.fixture(scope="session")
def flash():
    """The module that writes the header of a board, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("flash", MICRO / "flash.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
