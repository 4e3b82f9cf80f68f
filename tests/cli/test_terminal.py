"""Text from others reaches the terminal without the characters that control it."""

import json
import os

from rich.text import Text

from p2pfl.cli import terminal

EVIL = "[red]ada\x1b]0;owned\x07\x1b[2J"
SHOWN = r"[red]ada\x1b]0;owned\x07\x1b[2J"


def test_a_console_escapes_what_controls_a_terminal_and_keeps_its_own_styles(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal.console().print(Text(f"one {EVIL}\ntwo\u00a0three", style="bold"))
    out = capsys.readouterr().out
    assert SHOWN.replace(r"\x07", "") in out.replace(r"\x07", "")
    assert EVIL not in out
    assert "two\u00a0three" in out
    assert "\x1b[1m" in out  # bold


def test_only_its_owner_reads_a_new_file_that_a_command_writes(tmp_path):
    (tmp_path / "given.csv").write_text("a")
    (tmp_path / "given.csv").chmod(0o644)
    umask = os.umask(0)
    try:
        for name in ("new.csv", "given.csv"):
            with terminal.output(str(tmp_path / name)) as file:
                file.write("b\n")
    finally:
        os.umask(umask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"new.csv": 0o600, "given.csv": 0o644}
    assert (tmp_path / "given.csv").read_text() == "b\n"


def test_an_error_is_one_line(p2pfl, place):
    (place / "evil\n\x1b[2J.csv").write_text("a,b\n1,2\n")
    said = p2pfl("columns", place / "evil\n\x1b[2J.csv", "--target", "c")
    assert said.status == 2
    assert said.err.count("\n") == 1
    assert r"evil\n\x1b[2J.csv has no column" in said.err


def test_a_run_directory_of_others_does_not_control_the_terminal(p2pfl, place):
    p2pfl("simulate", "small.toml", "--no-baselines")
    [run] = (place / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    summary["per_peer"][EVIL] = summary["per_peer"].pop("peer0")
    (run / "summary.json").write_text(json.dumps(summary))
    said = p2pfl("report", run)
    assert said.status == 0
    assert "\x1b" not in said.out + said.err
    assert r"[red]ada\x1b]0;" in said.out


def test_remarks_on_columns_are_lines(p2pfl, place):
    (place / "own.csv").write_text('"a\nb",y\n,1\n,2\n')
    said = p2pfl("columns", "own.csv", "--target", "y")
    assert r'note: "a\nb" has no values' in said.err
