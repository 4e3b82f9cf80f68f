"""Python without torch: environments of links to the packages of the tests, and their wheels."""

import hashlib
import re
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import p2pfl
from p2pfl.plugins.operate.bundles.packages import LOCKS


def make_environment(folder):
    """Make an environment with all packages of the tests but torch; return its Python."""
    venv.create(folder, symlinks=True)
    there = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    installed = [path for each in sys.path if Path(each).name == "site-packages" for path in Path(each).iterdir()]
    for path in (Path(p2pfl.__file__).parent, *installed):
        if not path.name.startswith("torch") and path.suffix != ".pth" and not (there / path.name).exists():
            (there / path.name).symlink_to(path)
    return folder / "bin" / "python"


def pack(name, folder):
    """Pack an installed package as a wheel; return its requirement with its hash, or an empty text without it."""
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        return ""
    written = installed.read_text("WHEEL")
    tags = re.findall(r"(?m)^Tag: (\S+)", written)
    pure = all(tag.endswith("none-any") for tag in tags)
    tag = "py3-none-any" if pure else f"cp3{sys.version_info[1]}-cp3{sys.version_info[1]}-linux_{machine()}"
    path = folder / f"{name.replace('-', '_')}-{installed.version}-{tag}.whl"
    record = [file for file in installed.files if ".." not in file.parts and file.suffix != ".pyc"]
    with zipfile.ZipFile(path, "w") as archive:
        for file in record:
            place = file.locate()
            if file.name == "WHEEL":
                archive.writestr(str(file), re.sub(r"(?m)^Tag: .*\n", "", written).rstrip() + f"\nTag: {tag}\n")
            elif file.name == "RECORD":
                archive.writestr(str(file), "".join(f"{each},,\n" for each in record))
            elif Path(place).is_file():
                archive.write(place, str(file))
    return f"{name}=={installed.version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def machine():
    """Return the architecture of this machine, as wheels name it."""
    return sysconfig.get_platform().removeprefix("linux-")


def pack_locks(locks, wheels):
    """Write locks of what is installed here for the core and ``local``, and pack the packages as wheels."""
    for name in (machine(), f"{machine()}-local"):
        text = (LOCKS / f"{name}.txt").read_text()
        pins = re.findall(r"(?m)^([a-z0-9-]+)==", text)
        head = f"# Python 3.{sys.version_info[1]} to 3.{sys.version_info[1]}\n" if name == machine() else ""
        (locks / f"{name}.txt").write_text(head + "".join(pack(pin, wheels) for pin in pins))
