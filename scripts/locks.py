#!/usr/bin/env python3
"""Write the hashed requirements that `p2pfl deploy` puts into bundles, one file for each architecture and extra.

Needs uv on the path (`pip install uv`), whose resolver reads the markers of another platform; pip takes the markers of
the machine on which it runs. On aarch64 pyproject.toml bounds torch to the last release without CUDA. On x86_64 the
CPU build of torch comes from its own index, or from wheels in the folder TORCH_WHEELS where that cannot be reached;
then the lock has the hashes of these wheels alone. Its lock is a file of its own, so that no other package comes from
that index. `build.txt` has what builds p2pfl itself, for `scripts/environment --locked`.
"""

import hashlib
import os
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "p2pfl" / "plugins" / "operate" / "bundles" / "locks"
EXTRAS = ("local", "privacy", "table", "zstd")
INDEX = "https://download.pytorch.org/whl/cpu"


def pinned(machine: str, requirements: list[str], *arguments: str) -> dict[str, str]:
    """Return the requirements of an architecture by package, each with its hashes."""
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
    command += ["--python-version", "3.11", "--python-platform", f"{machine}-manylinux_2_28", *arguments, "-"]
    said = subprocess.run(  # noqa: S603 (our own command line)
        command, input="\n".join(requirements), capture_output=True, text=True, check=True
    )
    found = re.split(r"\n(?=[A-Za-z])", said.stdout.strip())
    return {entry.partition("==")[0]: entry for entry in found}


def wheels(folder: Path, machine: str) -> str:
    """Return the requirement of the newest torch in a folder of wheels."""
    paths = sorted(folder.glob(f"torch-*_{machine}.whl"))
    version = paths[-1].name.split("-")[1]
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.name.split("-")[1] == version]
    return " \\\n    ".join([f"torch=={version}", *(f"--hash=sha256:{each}" for each in hashes)])


def core(machine: str, requirements: list[str]) -> dict[str, str]:
    """Return what every peer needs."""
    folder = os.environ.get("TORCH_WHEELS")
    if machine == "aarch64":
        return pinned(machine, requirements)
    if folder is None:
        return pinned(machine, requirements, "--torch-backend", "cpu")
    plain = [each for each in requirements if not each.startswith("torch")]
    needs = ["filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools"]  # of torch
    return {"torch": wheels(Path(folder), machine)} | pinned(machine, plain + needs)


def supported(torch: str) -> tuple[str, str]:
    """Return the oldest and the newest Python for which there are hashes of torch."""
    folder = os.environ.get("TORCH_WHEELS")
    if folder is None or "+cpu" not in torch:
        return "3.11", "3.14"
    names = [path.name for path in Path(folder).glob("torch-*.whl")]
    minors = sorted({int(found[1]) for name in names if (found := re.search(r"-cp3(\d+)-", name))})
    return f"3.{minors[0]}", f"3.{minors[-1]}"


def main() -> None:
    """Write all locks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for machine in ("aarch64", "x86_64"):
        base = core(machine, project["dependencies"])
        torch = base.pop("torch")
        write(f"{machine}-torch.txt", f"--index-url {INDEX}\n" if machine == "x86_64" else "", {"torch": torch})
        oldest, newest = supported(torch)
        write(f"{machine}.txt", f"# Python {oldest} to {newest}\n", base)
        pins = [entry.split()[0] for entry in base.values()]
        for extra in EXTRAS:
            found = pinned(machine, [*pins, *project["optional-dependencies"][extra]])
            write(f"{machine}-{extra}.txt", "", {name: entry for name, entry in found.items() if name not in base})
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    write("build.txt", "", pinned("x86_64", [*build, "editables"]))


def write(name: str, head: str, entries: dict[str, str]) -> None:
    """Write one lock."""
    text = head + "".join(f"{entry}\n" for _, entry in sorted(entries.items()))
    (LOCKS / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
