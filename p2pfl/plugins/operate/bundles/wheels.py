"""Wheels of a bundle that installs without internet: pip downloads them on the machine of the operator."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from p2pfl.core.errors import InputError
from p2pfl.plugins.operate.bundles.packages import DeviceKind, Machine, locked_pythons

WHEELS = "wheels"
"""Folder of a bundle with its wheels."""

GLIBC = range(28, 16, -1)
"""Minor versions of glibc 2 whose wheels a device can use: Debian 10 and later."""

DOWNLOAD_SECONDS = 3600.0
"""Longest time for the wheels of one file of requirements; torch has 200 MB."""

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class DownloadedWheels:
    """Wheels of one kind of device.

    Attributes
    ----------
    paths
        Where they are, by name.
    digests
        SHA-256 of each.
    torch
        Text of ``torch.txt``: it names no index, has hashes where the lock has none, too, and may be empty.
    """

    paths: Mapping[str, Path]
    digests: Mapping[str, str]
    torch: str


def download_wheels(kind: DeviceKind, *, torch: str, requirements: str, folder: Path) -> DownloadedWheels:
    """Download the wheels of all packages for a kind of device, and check their hashes.

    The lock of x86-64 has the hash of torch for some versions of Python alone, because its CPU builds are on an index
    of their own. For others, ``torch`` gets the hash of the wheel that pip downloads.

    Parameters
    ----------
    kind
        Kind of the device.
    torch, requirements
        Texts of ``torch.txt`` and of ``requirements.txt`` without p2pfl itself.
    folder
        Where downloaded wheels are kept; pip does not download them again.

    Raises
    ------
    InputError
        pip does not find a wheel, or there is no pip.
    """
    paths, digests, unlocked = dict[str, Path](), dict[str, str](), list[str]()
    locked = {*_HASH.findall(torch + requirements)}
    for python in kind.pythons:
        place = folder / f"{kind.machine}-{python}"
        place.mkdir(parents=True, exist_ok=True)
        known = python in locked_pythons(kind.machine)
        if torch:
            _download(torch if known else _without_hashes(torch), "torch.txt", kind.machine, python, place)
        _download(requirements, "requirements.txt", kind.machine, python, place)
        for path in sorted(place.glob("*.whl")):
            digest = _digest(path)
            if torch and not known and _is_torch(path, torch, python):
                unlocked.append(digest)
            if digest in {*locked, *unlocked}:  # others are of an earlier lock
                paths[path.name], digests[path.name] = path, digest
    lines = [line for line in torch.splitlines() if not line.startswith("--")]  # the wheels are here: no index
    lines += [f"    --hash=sha256:{each}" for each in unlocked]
    text = " \\\n".join(line.removesuffix(" \\") for line in lines) + "\n" if torch else ""
    return DownloadedWheels(paths, digests, text)


def copy_wheels(wheels: DownloadedWheels, folder: Path) -> None:
    """Put wheels into a bundle; on one file system they take their space once."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in wheels.paths.items():
        target = folder / name
        if target.exists() and target.samefile(path):
            continue
        target.unlink(missing_ok=True)
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target)
        target.chmod(0o644)


def _platforms(machine: Machine) -> Iterator[str]:
    """Yield the platforms whose wheels a device can use."""
    yield from (f"manylinux_2_{minor}_{machine}" for minor in GLIBC)
    yield from (f"{name}_{machine}" for name in ("manylinux2014", "linux"))
    if machine == "x86_64":
        yield from (f"{name}_{machine}" for name in ("manylinux2010", "manylinux1"))


def _download(text: str, name: str, machine: Machine, python: str, folder: Path) -> None:
    """Call pip for the requirements of one file."""
    file = folder / name
    file.write_text(text, "utf-8")
    hashed = ["--require-hashes"] if _HASH.search(text) else []
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", *hashed]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}", "--dest", str(folder)]
    command += [f"--platform={each}" for each in _platforms(machine)]
    command += ["--requirement", str(file)]
    pinned = {**os.environ, "PIP_CONSTRAINT": os.devnull}  # not to versions for this machine
    try:
        ended = subprocess.run(  # noqa: S603 (our own command line)
            command, check=False, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, env=pinned
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"pip could not download the packages of {file} ({error}); call deploy again") from None
    finally:
        with contextlib.suppress(OSError):
            file.unlink()
    if ended.returncode:
        raise InputError(
            f"pip found no wheel for Python {python} on {machine} of a package in {name} "
            f"({_first_error(ended.stderr)}); name the Python of the devices with --machine {machine}:VERSION, or an "
            "index or folder that has the wheel by pip's own settings"
        )


def _first_error(text: str) -> str:
    """Return the first error that pip printed, on one line."""
    errors = [line.removeprefix("ERROR: ") for line in text.splitlines() if line.startswith("ERROR: ")]
    return ascii((errors or text.splitlines() or ["it printed nothing"])[0])[1:-1][:200]


def _without_hashes(torch: str) -> str:
    """Return the requirement of torch with its version and index, and without hashes."""
    lines = [line.removesuffix(" \\") for line in torch.splitlines()]
    return "".join(f"{line}\n" for line in lines if not line.lstrip().startswith("--hash"))


def _is_torch(path: Path, torch: str, python: str) -> bool:
    """Return whether a wheel is torch, of the version that is required, for a version of Python."""
    [version] = re.findall(r"^torch==(\S+)", torch, re.MULTILINE)
    return path.name.startswith(f"torch-{version}-cp{python.replace('.', '')}-")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
