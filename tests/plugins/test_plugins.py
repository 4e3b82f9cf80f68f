"""Plug-ins register their commands by entry points; without a plug-in, the rest works."""

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import p2pfl
from p2pfl.cli.command_catalogue import overview

PACKAGE = Path(p2pfl.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
REGISTERED = PROJECT["entry-points"]["p2pfl.commands"]

HELLO = '''
from typing import Annotated

from p2pfl.cli.command import Argument, Command, Options

class HelloOptions(Options):
    """Greet somebody."""

    name: Annotated[str, Argument("name to greet")]

def hello(options):
    print(f"hello {options.name}")
    return 0

HELLO = Command("greetings", HelloOptions, "acme.hello:hello")
LOST = Command("greetings", HelloOptions, "acme.lost:hello")
OTHER = 7
'''

BROKEN = {
    "lost": "p2pfl: \"acme.lost:hello\" cannot be imported (ModuleNotFoundError: No module named 'acme.lost')",
    "number": 'p2pfl: the plug-in "acme.hello:OTHER" is of the type int; register a p2pfl.cli.command.Command',
    "raises": 'p2pfl: "acme.raises:HELLO" cannot be imported (ZeroDivisionError: division by zero',
    "exits": 'p2pfl: "acme.exits:HELLO" cannot be imported (SystemExit: 3',
    "imports": 'p2pfl: "acme.imports:HELLO" cannot be imported (ModuleNotFoundError: No module named',
}


class Copy:
    """A copy of the package, installed beside other packages."""

    def __init__(self, folder):
        self.folder = folder
        shutil.copytree(PACKAGE, folder / "p2pfl")  # with its bytecode, which is still valid
        self.install("p2pfl_mqtt", PROJECT["entry-points"])

    def install(self, name, groups):
        """Write what an installed package declares; the first package of a name on the path counts."""
        information = self.folder / f"{name}-{p2pfl.__version__}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {p2pfl.__version__}\n")
        lines = []
        for group, values in groups.items():
            lines += [f"[{group}]", *(f"{part} = {value}" for part, value in values.items())]
        (information / "entry_points.txt").write_text("\n".join([*lines, ""]))

    def p2pfl(self, *arguments):
        environment = os.environ | {"PYTHONPATH": str(self.folder)}
        return subprocess.run(  # noqa: PLW1510 (many fail on purpose)
            [sys.executable, "-m", "p2pfl", *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=self.folder,
            env=environment,
        )


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


@pytest.mark.parametrize("group", PROJECT["entry-points"])
def test_the_installed_entry_points_are_those_of_the_project(group):
    entries = [entry for entry in entry_points(group=group) if entry.dist.name == PROJECT["name"]]
    installed = {entry.name: entry.value for entry in entries}
    assert installed == PROJECT["entry-points"][group]


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("plugin", sorted(path.parent.name for path in (PACKAGE / "plugins").glob("*/__init__.py")))
def test_without_the_folder_of_a_plug_in_help_lacks_its_commands(copy, plugin):
    shutil.rmtree(copy.folder / "p2pfl" / "plugins" / plugin)
    result = copy.p2pfl("--help")
    assert (result.returncode, result.stderr) == (0, "")
    lost = {name for name, value in REGISTERED.items() if value.startswith(f"p2pfl.plugins.{plugin}.")}
    before, after = ({*text.replace(",", " ").split()} for text in (overview(), result.stdout))
    assert lost or plugin == "language"  # which is used from Python alone
    assert lost <= before - after
    assert {*REGISTERED} - lost <= after
    for command in sorted(lost)[:1]:
        assert f'there is no command "{command}"' in copy.p2pfl(command).stderr


def test_without_plug_ins_help_has_fewer_lines(copy):
    shutil.rmtree(copy.folder / "p2pfl" / "plugins")
    assert len(copy.p2pfl("--help").stdout.splitlines()) < len(overview().splitlines())


@pytest.fixture
def acme(copy):
    """Install a package of a third party with a command that works, and with some that do not."""
    (copy.folder / "acme").mkdir()
    modules = {"hello": HELLO, "raises": "1 / 0", "exits": "raise SystemExit(3)", "imports": "import no_such_library"}
    for name, text in modules.items():
        (copy.folder / "acme" / f"{name}.py").write_text(text)
    (copy.folder / "acme" / "__init__.py").touch()
    values = {"hello": "acme.hello:HELLO", "lost": "acme.hello:LOST", "number": "acme.hello:OTHER"}
    values |= {name: f"acme.{name}:HELLO" for name in ("raises", "exits", "imports")}
    copy.install("acme", {"p2pfl.commands": values | {"gone": "acme.gone:HELLO"}})
    return copy


@pytest.mark.slow
def test_a_package_of_a_third_party_adds_a_command_in_a_group_of_its_own(acme):
    printed = acme.p2pfl("--help").stdout
    assert "greetings   commands of plug-ins\n            hello, lost\n" in printed
    assert "  hello  Greet somebody\n" in acme.p2pfl("help", "greetings").stdout
    assert acme.p2pfl("hello", "ada").stdout == "hello ada\n"
    assert acme.p2pfl("hello").stderr == ("p2pfl: the following arguments are required: name; see p2pfl hello --help\n")


@pytest.mark.slow
def test_a_plug_in_that_cannot_be_imported_says_so_when_it_is_used_and_disturbs_nothing_else(acme):
    result = acme.p2pfl("--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert "gone" not in result.stdout
    assert "broken      plug-ins that cannot be imported\n            exits, imports, number, raises\n" in result.stdout
    assert "raises   p2pfl raises says why" in acme.p2pfl("help", "broken").stdout
    assert acme.p2pfl("topology", "ring").returncode == 0
    for name, sentence in BROKEN.items():
        result = acme.p2pfl(name, *(["ada"] if name == "lost" else []))
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith(sentence)
        assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_third_party_takes_no_name_of_ours(copy):
    (copy.folder / "acme.py").write_text(HELLO.replace("acme.hello", "acme"))
    copy.install("acme", {"p2pfl.commands": {"audit": "acme:HELLO", "simulate": "acme:HELLO", "hello": "acme:HELLO"}})
    copy.install("zenith", {"p2pfl.commands": {"hello": "acme:LOST"}})
    for name in ("audit", "simulate"):
        assert f"usage: p2pfl {name} [-h] [--trust-code]" in copy.p2pfl("help", name).stdout
    assert copy.p2pfl("hello", "ada").stderr == (
        'p2pfl: "hello" is registered in p2pfl.commands by "acme:HELLO" and "acme:LOST"; uninstall all but one of '
        "their packages\n"
    )
