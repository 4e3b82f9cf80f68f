"""Bundles with all wheels, for devices without internet."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from fleets import NOW, PLANT
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.plugins.operate.bundles import packages
from p2pfl.plugins.operate.bundles.fleet import Fleet
from p2pfl.plugins.operate.bundles.packages import DeviceKind, device_kinds, torch_requirement
from p2pfl.plugins.operate.bundles.wheels import download_wheels

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""Version of the Python of the tests."""


def tags(python, machine, *, glibc=17):
    return f"cp{python.replace('.', '')}-cp{python.replace('.', '')}-manylinux_2_{glibc}_{machine}"


def wheel(folder, name, version, tag, **files):
    """Write a small wheel; return its hash."""
    info = f"{name}-{version}.dist-info"
    files |= {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
    files |= {f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n"}
    files |= {f"{info}/RECORD": "".join(f"{file},,\n" for file in files)}
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o100755 << 16
            archive.writestr(entry, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def requirement(name, version, *digests):
    return " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{each}" for each in digests)]) + "\n"


ADAM = 'optimizer = "adam"\n'
"""Setting of the section before ``[transport]`` that needs torch."""

COMMAND = {"p2pfl-1.data/scripts/p2pfl": '#!/bin/sh\necho "p2pfl $*"; echo request >"$6"\n'}


@pytest.fixture
def index(place, monkeypatch):
    """Locks of three small packages, and a folder in place of an index, by pip's own settings.

    The lock of x86-64 has torch for Python 3.11 alone, as the real one.
    """
    folder, locks = place / "index", place / "locks"
    folder.mkdir()
    locks.mkdir()
    pure = wheel(folder, "p2pfl", "1", "py3-none-any", **COMMAND)
    for machine, local in (("aarch64", ""), ("x86_64", "+cpu")):
        pythons = packages.PYTHONS
        compiled = {each: wheel(folder, "numbers1", "2", tags(each, machine)) for each in pythons}
        torch = {each: wheel(folder, "torch", f"9{local}", tags(each, machine, glibc=28)) for each in pythons}
        whole = machine == "aarch64"
        listed = torch.values() if whole else [torch["3.11"]]
        head = "" if whole else "--index-url https://index.invalid/\n"
        (locks / f"{machine}-torch.txt").write_text(head + requirement("torch", f"9{local}", *listed))
        (locks / f"{machine}.txt").write_text(
            f"# Python 3.11 to {'3.14' if whole else '3.11'}\n"
            + requirement("numbers1", "2", *compiled.values())
            + requirement("p2pfl", "1", pure)
        )
    monkeypatch.setattr(packages, "LOCKS", locks)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    (place / "plant.toml").write_text(
        PLANT.replace('"wine"', '"synthetic"').replace("[transport]", f"{ADAM}[transport]")
    )
    return folder


def fleet(place, *machines):
    made = Fleet.open(str(place / "plant.toml"), out=place / "fleet", trust_code=True)
    wheel = place / "p2pfl_mqtt-0.3.0-py3-none-any.whl"
    made.write(brokers=["mqtts://127.0.0.1:8883"], machines=machines, wheel=wheel, now=NOW, wheels=True)
    return made.out


def names(folder):
    return sorted(path.name for path in (folder / "wheels").iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_each_device_gets_the_wheels_of_its_machine_and_python(place):
    out = fleet(place, "aarch64:3.13", "peer1=x86_64", "peer2=aarch64")
    assert names(out / "peer0") == [
        "numbers1-2-cp313-cp313-manylinux_2_17_aarch64.whl",
        "p2pfl-1-py3-none-any.whl",
        "torch-9-cp313-cp313-manylinux_2_28_aarch64.whl",
    ]
    assert names(out / "peer1") == [
        "numbers1-2-cp311-cp311-manylinux_2_17_x86_64.whl",
        "p2pfl-1-py3-none-any.whl",
        "torch-9+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
    ]
    assert len(names(out / "peer2")) == 4 + 1 + 4
    for peer, machine in (("peer0", "aarch64"), ("peer1", "x86_64"), ("peer2", "aarch64")):
        text = (out / peer / "install.sh").read_text()
        assert f'[ "$(uname -m)" = "{machine}" ]' in text
        assert "index" not in (out / peer / "torch.txt").read_text() + (out / peer / "requirements.txt").read_text()
        sums = dict(reversed(line.split("  ")) for line in (out / peer / "SHA256SUMS").read_text().splitlines())
        for name in names(out / peer):
            data = (out / peer / "wheels" / name).read_bytes()
            assert sums[f"wheels/{name}"] == hashlib.sha256(data).hexdigest()


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_bundles_of_an_experiment_without_torch_leave_it_out_and_are_for_every_python(place):
    (place / "plant.toml").write_text((place / "plant.toml").read_text().replace(ADAM, ""))
    out = fleet(place, "aarch64:3.13", "peer1=x86_64:3.14")
    for peer, wheel in (("peer0", tags("3.13", "aarch64")), ("peer1", tags("3.14", "x86_64"))):
        assert names(out / peer) == [f"numbers1-2-{wheel}.whl", "p2pfl-1-py3-none-any.whl"]
        assert (out / peer / "torch.txt").read_text() == ""


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_a_bundle_loses_the_wheels_of_an_earlier_call(place):
    out = fleet(place, "aarch64:3.13")
    fleet(place, "aarch64:3.12")
    assert all("cp313" not in name for name in names(out / "peer0"))
    made = Fleet.open(str(place / "plant.toml"), out=out, trust_code=True)
    wheel = place / "p2pfl_mqtt-0.3.0-py3-none-any.whl"
    made.write(brokers=["mqtts://127.0.0.1:8883"], wheel=wheel, now=NOW)
    assert not (out / "peer0" / "wheels").exists()


@pytest.mark.slow
def test_a_wheel_that_the_lock_has_no_hash_of_is_hashed_as_it_came_only_for_torch(index, place):
    out = fleet(place, "x86_64:3.13")
    text = (out / "peer0" / "torch.txt").read_text()
    name = "torch-9+cpu-cp313-cp313-manylinux_2_28_x86_64.whl"
    assert name in names(out / "peer0")
    assert text.endswith(f"--hash=sha256:{hashlib.sha256((index / name).read_bytes()).hexdigest()}\n")
    assert text.count("--hash") == 2
    wheel(index, "numbers1", "2", tags("3.13", "x86_64"), **{"other.py": ""})
    shutil.rmtree(out / "wheels")
    with pytest.raises(InputError, match=r"pip found no wheel for Python 3\.13 on x86_64 of a package in requirements"):
        fleet(place, "x86_64:3.13")


@pytest.mark.slow
def test_a_package_without_a_wheel_for_a_device_is_one_sentence_and_no_bundle(index, place):
    for path in index.glob("numbers1-2-cp314*"):
        path.unlink()
    with pytest.raises(InputError, match=r"no wheel for Python 3\.14 on aarch64.*--machine aarch64:VERSION"):
        fleet(place, "aarch64:3.14")
    assert not (place / "fleet" / "peer0").exists()


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        (["riscv"], '"riscv" is not a kind of device; give aarch64 or x86_64'),
        (["aarch64:3.9"], "one of 3.11, 3.12, 3.13, 3.14"),
        (["eve=aarch64"], '"eve" is not a peer'),
        (["aarch64", "x86_64"], "given twice for all devices"),
        (["ada=aarch64", "ada=x86_64"], "given twice for ada"),
    ],
)
def test_an_unknown_kind_of_device_is_refused_in_one_sentence(named, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        device_kinds(named, peers=["ada"])


def install(folder, place, **environment):
    """Call install.sh as somebody who is not root."""
    shims = place / "shims"
    shims.mkdir(exist_ok=True)
    (shims / "id").write_text('#!/bin/sh\ncase "$*" in -u) echo 1000 ;; -un) echo ada ;; *) exit 1 ;; esac\n')
    (shims / "id").chmod(0o755)
    given = {"PATH": f"{shims}:{os.environ['PATH']}", "HOME": str(place), "PYTHON": sys.executable}
    given |= {"PREFIX": str(place / "new"), "STATE": str(place / "state"), **environment}
    return subprocess.run(
        ["sh", str(folder / "install.sh")], capture_output=True, text=True, check=False, env=given, timeout=600
    )


@pytest.fixture
def machine():
    found = os.uname().machine
    if found not in packages.MACHINES or HERE not in packages.PYTHONS:
        pytest.skip(f"there are no bundles for Python {HERE} on {found}")
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_a_device_installs_from_its_bundle_alone(place, machine):
    """With the real pip, which reads no index: the folder in its place is gone."""
    folder = fleet(place, f"{machine}:{HERE}") / "peer0"
    (folder / "requirements.txt").write_text(re.sub(r"(?m)^\./.*\n", "", (folder / "requirements.txt").read_text()))
    sums = [line for line in (folder / "SHA256SUMS").read_text().splitlines() if "requirements" not in line]
    (folder / "SHA256SUMS").write_text("".join(f"{line}\n" for line in sums))
    shutil.rmtree(place / "index")
    done = install(folder, place)
    assert done.returncode == 0, done.stderr
    assert "Send " in done.stdout
    assert {"torch-9", "numbers1-2"} <= {
        path.name.partition(".dist")[0].partition("+")[0] for path in (place / "new").rglob("*.dist-info")
    }


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_a_wheel_that_does_not_fit_the_device_is_named_before_pip_starts(place, machine):
    folder = fleet(place, f"{machine}:{HERE}") / "peer0"
    [path] = (folder / "wheels").glob("numbers1-*")
    path.rename(folder / "wheels" / f"numbers1-2-{tags(HERE, machine, glibc=99)}.whl")  # for a later Debian
    sums = [line for line in (folder / "SHA256SUMS").read_text().splitlines() if "numbers1" not in line]
    (folder / "SHA256SUMS").write_text("".join(f"{line}\n" for line in sums))
    done = install(folder, place)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"install.sh: no wheel of numbers1 2 fits Python {HERE} on {machine}")
    assert "--machine peer0=" in line
    assert not [*(place / "new").rglob("torch*")]


@pytest.mark.nightly
@pytest.mark.parametrize("python", packages.PYTHONS)
def test_the_real_locks_have_wheels_for_boards(tmp_path, python):
    """Download all but torch, which is checked by its name and hash alone (200 MB each)."""
    experiment = packages.locked_requirements(_wine(), machine="aarch64")
    made = download_wheels(
        DeviceKind("aarch64", python), torch=_first_of(experiment), requirements=experiment, folder=tmp_path
    )
    assert len(made.paths) == len(re.findall(r"^[a-z0-9-]+==", experiment, re.MULTILINE))
    assert sum(path.stat().st_size for path in made.paths.values()) < 200e6
    network = read({"model": {"name": "cnn"}})
    assert re.search(r"^torch==", torch_requirement(network, machine="aarch64"), re.MULTILINE)


def _wine():
    return read({"data": {"name": "wine"}})


def _first_of(text):
    """The first requirement of a file."""
    return re.search(r"^[a-z0-9-]+==(?:.*\\\n)*.*\n", text, re.MULTILINE)[0]
