"""The commands of the page on joining run in order, and the new member joins as it says."""

import contextlib
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from p2pfl.cli import main
from ports import reserved_port

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[3]

PAGE = (ROOT / "docs" / "churn.md").read_text("utf-8").partition("## Join a running swarm\n")[2].partition("\n## ")[0]

DEADLINE = 300.0


class Terminal:
    """A command that runs for a while, and what it prints."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", *command], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self.lines = []
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self.news:
                self.lines.append(line)
                self.news.notify_all()

    def until(self, text):
        """Wait for a line with this text."""
        with self.news:
            found = self.news.wait_for(lambda: any(text in line for line in self.lines), DEADLINE)
        assert found, f"never said {text!r}, but {''.join(self.lines)}"

    def close(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()


def test_a_fourth_peer_joins_three_that_learn(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    [(name, experiment)] = re.findall(r"^```toml\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert "1883" in experiment
    open_ = {}
    with contextlib.ExitStack() as stack:
        port = str(stack.enter_context(reserved_port()))
        Path(name).write_text(experiment.replace("1883", port))
        for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                command = shlex.split(line.replace("1883", port))
                if command[1] in {"broker", "peer"}:
                    terminal = open_[command[-1]] = Terminal(command)
                    stack.callback(terminal.close)
                    if command[1] == "broker":
                        terminal.until("listens at")
                    continue
                if command[1] == "doctor":
                    open_["peer0"].until("round 2/3000")
                assert main(command[1:]) == 0, capsys.readouterr()
        shown = capsys.readouterr().out
        for neighbour in ("peer0", "peer1", "peer2"):
            assert re.search(rf"^ok +peer {neighbour} ", shown, re.MULTILINE), shown
        open_["peer0"].until("peer0 and its neighbours are there, learning begins")
        open_["peer3"].until("the others are ahead: it begins in round")
        open_["peer3"].until("peer3 and its neighbours are there, learning begins")
        open_["peer0"].until("peer3 is there")
        open_["peer3"].until("(peer3)")  # a round of its own
