"""``p2pfl doctor`` names what is wrong with this device: keys, certificates, data, memory, disk and clock."""

import datetime as dt
import json
import os
import shutil
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from certificates import certificate, write
from examined import sole
from p2pfl.cli.folders import peer_started
from p2pfl.experiment import plan, read, schema
from p2pfl.plugins.operate.checks import identity_checks, machine
from p2pfl.privacy.keys import Roster


def test_keys_that_are_missing_open_or_of_another_user_are_named(site):
    trust = schema.TrustSettings(keys=str(site.folder / "keys"), roster=str(site.folder / "roster.toml"))
    found, identity = identity_checks.check_key(trust, peer="peer0")
    assert (found.status, identity.public) == ("ok", site.identity("peer0").public)
    assert (
        f"chown {os.geteuid() + 1}" in identity_checks.check_key(trust, peer="peer0", user=os.geteuid() + 1)[0].message
    )
    path = site.folder / "keys" / "peer0.pem"
    path.chmod(0o644)
    assert "other users can read" in identity_checks.check_key(trust, peer="peer0")[0].message
    path.unlink()
    missing, _ = identity_checks.check_key(trust, peer="peer0")
    assert (missing.status, "make the key with p2pfl identity peer0" in missing.message) == ("problem", True)
    assert identity_checks.check_key(schema.TrustSettings(), peer="peer0")[0].status == "warning"
    assert identity_checks.check_key(schema.TrustSettings(roster="roster.toml"), peer="peer0")[0].status == "problem"


def test_a_key_that_the_roster_does_not_list_and_peers_that_are_missing_there_are_named(site):
    path = site.folder / "roster.toml"
    trust = schema.TrustSettings(roster=str(path))
    ours = site.identity("peer0")
    judge = {"peer": "peer0", "identity": ours, "peers": ["peer0", "peer1"]}
    assert identity_checks.check_roster(trust, **judge).status == "ok"
    Roster({"peer0": ours.public}).write(path)
    assert "does not list peer1" in identity_checks.check_roster(trust, **judge).message
    Roster({"peer1": site.identity("peer1").public}).write(path)
    assert 'the roster does not contain "peer0"' in identity_checks.check_roster(trust, **judge).message
    path.unlink()
    assert "cannot be read" in identity_checks.check_roster(trust, **judge).message
    assert identity_checks.check_roster(schema.TrustSettings(), **judge).status == "warning"


def test_data_with_another_column_than_agreed_are_named(site):
    table = site.folder / "own.csv"
    table.write_text("age,ill\n" + "".join(f"{20 + number},{number % 2}\n" for number in range(40)))
    columns = '{weight = "integer", ill = ["0", "1"]}'
    declared = ["data.name=table", f'data.options={{path = "{table}", target = "ill", columns = {columns}}}']
    data = sole(site.examine(*declared, "transport.broker=mqtts://127.0.0.1:9"), "data")
    assert data.status == "problem"
    assert "weight" in data.message


def test_a_table_that_grew_while_its_peer_runs_is_named(tmp_path):
    table, lock = tmp_path / "own.csv", tmp_path / "peer.lock"
    table.write_text("age,ill\n30,1\n")
    options = f'data.options={{path = "{table}", target = "ill", columns = {{age = "integer", ill = ["0", "1"]}}}}'
    experiment = read({}, changes=["data.name=table", "data.split=iid", options])
    refreshed = read({}, changes=["data.name=table", "data.split=iid", "data.refresh=2", options])

    def status(of):
        found = machine.check_data_file(of, peer="peer0", since=peer_started(tmp_path))
        return None if found is None else found.status

    assert status(experiment) is None  # nobody runs
    lock.write_text(f"{os.getpid()}\n")
    os.utime(lock, ns=(10, 2000))
    for at, expected in ((1000, None), (3000, "warning")):
        os.utime(table, ns=(10, at))
        assert status(experiment) == expected
    assert status(refreshed) is None


def test_an_experiment_that_cannot_be_read_and_a_peer_that_it_does_not_have_are_named(site):
    assert "learning.rat" in sole(site.examine("learning.rat=1"), "experiment").message
    assert 'has no peer "eve"' in sole(site.examine(peer="eve"), "experiment").message


def test_builds_of_torch_that_are_too_old_or_for_a_gpu_that_is_not_there_are_named():
    cuda = machine.judge_torch("2.13.0", cuda="13.0", usable=False)
    assert (cuda.status, '"torch<2.11"' in cuda.message) == ("warning", True)
    assert machine.judge_torch("2.13.0", cuda="13.0", usable=True).status == "ok"
    assert machine.judge_torch("2.5.1", cuda=None, usable=False).status == "problem"
    assert machine.check_torch().status == "ok"


SMALL = {
    "topology": {"kind": "complete", "peers": 2},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu", "batch": 16},
}


def trained(*changes):
    """Return the finding about the speed of training."""
    return machine.check_training(plan(read(SMALL, changes=changes), only=["peer0"]), peer="peer0")


def test_a_training_step_is_timed_on_the_peers_own_data():
    found = trained("learning.steps=7")
    assert found.status == "ok"
    assert "; a round has 7 and takes about " in found.message
    assert f"a round has {read(SMALL).learning.epochs} and" in trained("learning.batch=all").message


def test_training_that_takes_longer_than_neighbours_wait_is_worth_a_warning():
    found = trained("transport.patience=0.000001")
    assert found.status == "warning"
    assert "longer than neighbours wait (transport.patience = 1e-06)" in found.message


def test_models_that_do_not_train_in_steps_are_not_timed():
    assert trained("model.name=boosting", "privacy.mode=none") is None


@pytest.mark.slow
def test_a_torch_that_cannot_be_imported_is_named_and_one_that_is_missing_is_no_problem(tmp_path):
    (tmp_path / "torch.py").write_text('raise ImportError("libtorch.so is missing")')
    code = "import sys; {}; from p2pfl.cli import main; sys.exit(main(['doctor', '--json']))"
    found = []
    for how in (f"sys.path.insert(0, {str(tmp_path)!r})", "sys.modules['torch'] = None"):
        done = subprocess.run([sys.executable, "-c", code.format(how)], capture_output=True, text=True, check=False)
        found.append(next(each for each in json.loads(done.stdout)["checks"] if each["check"] == "torch"))
    broken, missing = found
    assert (broken["status"], "(libtorch.so is missing)" in broken["message"]) == ("problem", True)
    assert (missing["status"], "no torch, which perceptrons" in missing["message"]) == ("ok", True)


def test_too_little_memory_is_named_and_control_groups_count(tmp_path):
    assert machine.check_memory(10**9, available=4 * 10**9).status == "problem"
    assert machine.check_memory(10**6, available=4 * 10**9).status == "ok"
    for name, text in {
        "proc/meminfo": "MemTotal: 4000000 kB\nMemAvailable: 2000000 kB\n",
        "proc/self/statm": "100 0 0 0 0 0 0\n",
        "sys/fs/cgroup/memory.max": "300000000\n",
        "sys/fs/cgroup/memory.current": "200000000\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine.available_memory(tmp_path) == 100_000_000
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert machine.available_memory(tmp_path) == 2_048_000_000
    (tmp_path / "proc/meminfo").unlink()
    assert machine.available_memory(tmp_path) is None


def test_a_disk_that_is_full_slow_or_read_only_is_named(tmp_path, monkeypatch):
    fine = machine.check_disk(tmp_path / "runs", 1000)
    assert fine.status == "ok"
    assert not [*tmp_path.iterdir()]
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    full = machine.check_disk(tmp_path / "runs", 1000)
    assert (full.status, "1.0 kB are free" in full.message) == ("problem", True)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(machine, "SLOW_FSYNC", -1.0)
    slow = machine.check_disk(tmp_path / "runs", 1000)
    assert (slow.status, "transport.checkpoint" in slow.message) == ("warning", True)
    closed = machine.check_disk(tmp_path.joinpath("/proc/self/runs"), 1000)
    assert (closed.status, "cannot be written" in closed.message) == ("problem", True)


def test_a_clock_before_the_installation_is_named():
    assert machine.check_clock({}, now=0.0).status == "warning"
    assert machine.check_clock({"a neighbour": 2e9 + 30}, now=2e9).status == "ok"


def test_a_client_certificate_of_another_is_named_at_once(tmp_path, now):
    key = ec.generate_private_key(ec.SECP256R1())
    path = write(tmp_path, "peer1.pem", certificate("peer1", key=key))
    settings = schema.TransportSettings(certificate=str(path))
    other = identity_checks.check_certificate(settings, peer="peer0", now=now)
    assert (other.status, 'the certificate of "peer1" and this peer is "peer0"' in other.message) == ("problem", True)
    assert identity_checks.check_certificate(settings, peer="peer1", now=now).status == "ok"
    soon = dt.datetime(2119, 12, 20, tzinfo=dt.UTC)
    assert identity_checks.check_certificate(settings, peer="peer1", now=soon).status == "warning"
    after = dt.datetime(2121, 1, 1, tzinfo=dt.UTC)
    assert "has expired 366 days ago" in identity_checks.check_certificate(settings, peer="peer1", now=after).message
    path.write_text("no certificate")
    assert "is not a certificate" in identity_checks.check_certificate(settings, peer="peer1", now=now).message
