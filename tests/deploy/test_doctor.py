"""``p2pfl doctor`` names the reason of each failure, held against a real mosquitto that is broken on purpose."""

import asyncio
import datetime as dt
import json
import os
import shutil
import time

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

import p2pfl
from certificates import certificate, write
from p2pfl.cli import main
from p2pfl.deploy.checks import identities, machine, round_trip
from p2pfl.deploy.checks.finding import Finding
from p2pfl.experiment import plan, read, schema
from p2pfl.identity import Identity, Roster, SecretSource
from p2pfl.peer.launch.worker import live
from p2pfl.peer.storage.credentials import Credentials
from p2pfl.protocol.wire.codec import VERSION, encode
from p2pfl.protocol.wire.messages import Announcement
from p2pfl.transport import Access, opened
from p2pfl.transport.login import login

pytestmark = pytest.mark.slow

ROOT = "p2pfl/v1/small/peer"


def sole(findings, check):
    [finding] = [each for each in findings if each.check == check]
    return finding


def statuses(findings):
    return {each.check: each.status for each in findings if each.status != "ok"}


# ---------------------------------------------------------------------- nothing is wrong


async def beside_a_running_peer(site):
    """What the doctor of peer0 finds while peer1 waits for it."""
    experiment = read(site.folder / "small.toml", changes=[*site.changes, "transport.gather=60"])
    there = asyncio.Event()
    (site.folder / "theirs" / "peers").mkdir(parents=True)

    def tell(event):
        if getattr(event, "phase", None) == "gathering":
            there.set()

    owned = Credentials(site.identity("peer1"), Roster.read(site.folder / "roster.toml"))
    how = {"urls": [site.url], "folder": site.folder / "theirs", "owned": owned, "notify": tell}
    running = asyncio.create_task(live(plan(experiment, only=["peer1"]), "peer1", **how))
    try:
        async with asyncio.timeout(60):
            await there.wait()
            return await asyncio.to_thread(site.examine)
    finally:
        running.cancel()
        await asyncio.wait({running})


def test_nothing_is_wrong_with_a_device_whose_neighbour_waits_for_it(site, monkeypatch):
    monkeypatch.setattr("p2pfl.deploy.checks.others.SILENCE", 10.0)  # it ends with the first heartbeat
    with site.listening():
        findings = asyncio.run(beside_a_running_peer(site))
    assert statuses(findings) == {}
    assert "peer1 is up, sends, and runs the same experiment" in sole(findings, "peer peer1").message
    assert {"torch", "key", "roster", "data", "memory", "disk", "tls", "login", "topics", "clock"} <= {
        each.check for each in findings
    }


def test_the_command_ends_with_1_where_there_is_a_problem_and_prints_json(site, capsys):
    given = [f"--set={change}" for change in site.changes]
    command = ["doctor", str(site.folder / "small.toml"), "--as", "peer0", *given, "--runs", str(site.folder)]
    status = main([*command, "--broker", "mqtts://127.0.0.1:9", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (status, found["problems"]) == (1, 1)
    [port] = [each for each in found["checks"] if each["status"] == "problem"]
    assert port["check"] == "port"
    with site.listening():
        assert main([*command, "--broker", site.url]) == 0
    shown = capsys.readouterr().out
    assert "ok      login" in shown
    assert "warning peer peer1" in shown


@pytest.mark.fast
def test_without_an_experiment_the_machine_alone_is_checked(tmp_path, capsys):
    assert main(["doctor", "--runs", str(tmp_path)]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["torch", "memory", "disk", "clock"]
    assert not [*tmp_path.iterdir()]


# ---------------------------------------------------------------------- the broker


def test_a_broker_that_is_away_and_a_host_that_nobody_knows_are_named(site):
    assert "nothing listens there" in site.found("port", "transport.broker=mqtts://127.0.0.1:9").message
    assert (
        "no-such-host.invalid is not known here"
        in site.found("broker", "transport.broker=mqtts://no-such-host.invalid")[-2].message
    )
    embedded = site.found("broker", "transport.broker=embedded")
    assert (embedded.status, "only p2pfl run can use" in embedded.message) == ("problem", True)


@pytest.mark.fast
def test_a_wrong_password_is_named(site):
    path = site.broker / "credentials" / "peer0.toml"
    path.write_text('user = "peer0"\npassword = "wrong"\n')
    with site.listening():
        refused = site.found("login")
    assert refused.status == "problem"
    assert "denies access (Not authorized)" in refused.message


def test_the_login_of_another_peer_is_named(site):
    folder = site.broker / "credentials"
    (folder / "peer0.toml").write_bytes((folder / "peer1.toml").read_bytes())
    with site.listening():
        findings = site.examine()
    assert 'has the credentials of "peer1" instead of "peer0"' in sole(findings, "credentials").message
    assert sole(findings, "login").status == "problem"


@pytest.mark.parametrize(
    ("forbidden", "topic"),
    [("pattern read p2pfl/v1/small/peer/%u/in/#", "in/peer0"), ("pattern read p2pfl/v1/small/peer/+/state", "state")],
)
def test_an_access_list_that_forbids_to_read_is_named(site, forbidden, topic):
    acl = site.broker / "acl"
    assert forbidden in acl.read_text()
    acl.write_text(acl.read_text().replace(forbidden, ""))
    with site.listening():
        topics = site.found("topics")
    assert topics.status == "problem"
    assert f"{ROOT}/peer0/{topic} and delivers nothing" in topics.message
    assert "docs/brokers.md" in topics.message


@pytest.mark.parametrize("version", [4, 5])
def test_an_access_list_that_forbids_to_publish_is_named(site, version):
    acl = site.broker / "acl"
    acl.write_text(acl.read_text().replace("pattern write p2pfl/v1/small/peer/%u/pub/#", ""))
    with site.listening():
        topics = site.found("topics", f"transport.version={version}")
    assert topics.status == "problem"
    assert f"refuses to publish on {ROOT}/peer0/pub/doctor (Not authorized)" in topics.message


@pytest.mark.parametrize(
    ("forbidden", "said"),
    [
        ("pattern read p2pfl/v1/small/watch/+/to/%u", "published on p2pfl/v1/small/watch/peer0/to/peer0 and delivers"),
        (
            f"pattern write {ROOT}/%u/telemetry/+",
            f"refuses to publish on {ROOT}/peer0/telemetry/peer0 (Not authorized)",
        ),
    ],
)
def test_an_access_list_that_forbids_telemetry_alone_is_named(site, forbidden, said):
    acl = site.broker / "acl"
    assert forbidden in acl.read_text()
    acl.write_text(acl.read_text().replace(forbidden, ""))
    Roster({"ops": site.identity("peer0").public}).write(site.folder / "observers.toml")
    shared = "telemetry.share=health", f"telemetry.observers={site.folder / 'observers.toml'}"
    with site.listening():
        findings = site.examine(*shared)
        unshared = site.examine()
    assert sole(findings, "topics").status == "ok"
    found = sole(findings, "telemetry")
    assert found.status == "warning"
    assert found.message.startswith("this peer can learn, and observers cannot look at it: the broker ")
    assert said in found.message
    assert "telemetry" not in {each.check for each in unshared}


def test_a_peer_that_observers_can_reach_is_ok(site):
    Roster({"ops": site.identity("peer0").public}).write(site.folder / "observers.toml")
    with site.listening():
        found = site.found(
            "telemetry", "telemetry.share=health", f"telemetry.observers={site.folder / 'observers.toml'}"
        )
    assert found.status == "ok"


def test_a_peer_with_another_roster_is_named_by_the_digests(site):
    found = sole(judged(site, encode(announcement(site, roster="f724686f1c3ab122"))), "peer peer1")
    digest = Roster.read(site.folder / "roster.toml").digest[:12]
    assert found.message == (
        f'"peer1" has another roster (digest f724686f1c3a there, {digest} here); give all peers the same roster file'
    )


def test_a_broker_without_an_access_list_is_worth_a_warning(site):
    with site.listening(replace={f"acl_file {site.broker / 'acl'}": ""}):
        assert site.found("access list").status == "warning"


def test_a_broker_that_passes_small_messages_only_is_named_with_the_size_that_passes(site):
    with site.listening("message_size_limit 65536"):
        largest = site.found("largest message", "model.name=mlp", "model.hidden=[2000]")
        small = site.found("largest message")
    assert largest.status == "problem"
    chunk = int(largest.message.partition("transport.chunk = ")[2].split()[0])
    assert 60 * 1024 <= chunk <= 65536
    assert small.status == "ok"


def test_a_packet_limit_that_ends_the_connection_is_found_as_well(site):
    with site.listening(replace={"max_packet_size 2097152": "max_packet_size 50000"}):
        largest = site.found("largest message", "model.name=mlp", "model.hidden=[2000]")
    assert "transport.chunk = 4" in largest.message


# ---------------------------------------------------------------------- TLS


@pytest.mark.fast
def test_a_certificate_of_an_unknown_authority_is_named_with_both_authorities(site):
    ca = site.certify()
    with site.listening():
        wrong = site.found("tls")
        right = site.found("tls", f"transport.ca={ca}")
    assert wrong.status == "problem"
    assert 'is signed by "our authority" and not trusted by' in wrong.message
    assert "broker.pem, which is" in wrong.message
    assert right.status == "ok"


def test_an_expired_certificate_is_named_with_both_dates(site):
    ca = site.certify(ends=2021)
    with site.listening():
        tls = site.found("tls", f"transport.ca={ca}")
    assert tls.status == "problem"
    assert "expired on 2021-01-01 and the clock says 20" in tls.message


def test_a_certificate_that_is_not_valid_yet_shows_by_how_much_the_clock_is_behind_and_keeps_nobody_out(
    site, monkeypatch
):
    ca = site.certify(begins=2100)
    with site.listening():
        findings = site.examine(f"transport.ca={ca}")
        site.changes = [change for change in site.changes if not change.startswith("transport.ca=")]
        monkeypatch.setenv("SSL_CERT_FILE", str(ca))
        public = site.found("tls")
    assert sole(findings, "login").status == "ok"
    assert "days behind the certificate of the broker; set the clock" in sole(findings, "clock").message
    assert public.status == "problem"
    assert "is valid from 2100-01-01 00:00" in public.message


def test_a_certificate_for_other_hosts_is_named_with_its_hosts(site):
    ca = site.certify()
    with site.listening():
        url = site.url.replace("127.0.0.1", "localhost")
        tls = site.found("tls", f"transport.ca={ca}", f"transport.broker={url}")
    assert tls.status == "problem"
    assert "is for 127.0.0.1; use one of these" in tls.message


@pytest.mark.fast
def test_a_client_certificate_of_another_is_named_at_once(tmp_path, now):
    key = ec.generate_private_key(ec.SECP256R1())
    path = write(tmp_path, "peer1.pem", certificate("peer1", key=key))
    settings = schema.TransportSettings(certificate=str(path))
    other = identities.certificate(settings, peer="peer0", now=now)
    assert (other.status, 'the certificate of "peer1" and this peer is "peer0"' in other.message) == ("problem", True)
    assert identities.certificate(settings, peer="peer1", now=now).status == "ok"
    soon = dt.datetime(2119, 12, 20, tzinfo=dt.UTC)
    assert identities.certificate(settings, peer="peer1", now=soon).status == "warning"
    after = dt.datetime(2121, 1, 1, tzinfo=dt.UTC)
    assert "has expired 366 days ago" in identities.certificate(settings, peer="peer1", now=after).message
    path.write_text("no certificate")
    assert "is not a certificate" in identities.certificate(settings, peer="peer1", now=now).message


# ---------------------------------------------------------------------- the other peers


async def announce(site, data):
    """Have the broker retain an announcement of peer1."""
    shown = login(site.broker / "credentials", peer="peer1", environment={})
    access = Access(user=shown.user, password=shown.password, ca=site.broker / "broker.pem", version=5)
    async with asyncio.timeout(20), opened(site.url, access).join("peer1-announces") as channel:
        await channel.publish(f"{ROOT}/peer1/state", data, retain=True)


def announcement(site, *, incarnation=None, status="up", **changes):
    """An announcement that peer1 has signed."""
    resolved = plan(read(site.folder / "small.toml", changes=site.changes), only=["peer1"])
    facts = resolved.facts | {"roster": Roster.read(site.folder / "roster.toml").digest} | changes
    number = time.time_ns() if incarnation is None else incarnation
    said = Announcement("peer1", number, status, facts, version=p2pfl.__version__)
    return said.signed(site.identity("peer1"), swarm="small")


def judged(site, data):
    """What the doctor finds with this announcement of peer1 on the broker."""
    with site.listening():
        asyncio.run(announce(site, data))
        return site.examine()


def test_a_peer_with_another_experiment_is_named_with_the_key_that_differs(site):
    found = sole(judged(site, encode(announcement(site, rounds="7"))), "peer peer1")
    assert found.status == "problem"
    assert '"peer1" runs another experiment (rounds = 7 there and 2 here)' in found.message


def test_a_peer_with_another_wire_format_is_named(site):
    found = sole(judged(site, bytes([VERSION + 1]) + encode(announcement(site))[1:]), "peer peer1")
    assert found.status == "problem"
    assert f"uses version {VERSION + 1} of the wire format, and this peer uses version {VERSION}" in found.message


def test_a_peer_that_is_announced_and_silent_is_named(site):
    found = sole(judged(site, encode(announcement(site))), "peer peer1")
    assert found.status == "warning"
    assert "is announced as up and sent nothing" in found.message


@pytest.mark.parametrize(("status", "how"), [("left", "said goodbye"), ("dead", "lost its connection")])
def test_a_peer_that_is_gone_is_named(site, status, how):
    found = sole(judged(site, encode(announcement(site, status=status))), "peer peer1")
    assert (found.status, how in found.message) == ("warning", True)


def test_a_peer_with_another_key_than_the_roster_is_named(site):
    other = Identity.generate(SecretSource(), peer="peer1")
    forged = announcement(site).signed(other, swarm="small")
    found = sole(judged(site, encode(forged)), "peer peer1")
    assert found.status == "problem"
    assert f'"peer1" presents the key {other.fingerprint} instead of' in found.message


def test_an_announcement_that_nobody_signed_is_named(site):
    found = sole(judged(site, encode(Announcement("peer1", 1, "up"))), "peer peer1")
    assert "is not signed by it" in found.message


def test_a_clock_an_hour_behind_that_of_a_neighbour_is_named(site):
    late = announcement(site, incarnation=time.time_ns() + 3600 * 10**9)
    clock = sole(judged(site, encode(late)), "clock")
    assert clock.status == "warning"
    assert "is at least 60 min behind the last start of peer1" in clock.message


# ---------------------------------------------------------------------- this device


@pytest.mark.fast
def test_keys_that_are_missing_open_or_of_another_user_are_named(site):
    trust = schema.TrustSettings(keys=str(site.folder / "keys"), roster=str(site.folder / "roster.toml"))
    found, identity = identities.key(trust, peer="peer0")
    assert (found.status, identity.public) == ("ok", site.identity("peer0").public)
    assert f"chown {os.geteuid() + 1}" in identities.key(trust, peer="peer0", user=os.geteuid() + 1)[0].message
    path = site.folder / "keys" / "peer0.pem"
    path.chmod(0o644)
    assert "other users can read" in identities.key(trust, peer="peer0")[0].message
    path.unlink()
    missing, _ = identities.key(trust, peer="peer0")
    assert (missing.status, "make the key with p2pfl identity peer0" in missing.message) == ("problem", True)
    assert identities.key(schema.TrustSettings(), peer="peer0")[0].status == "warning"
    assert identities.key(schema.TrustSettings(roster="roster.toml"), peer="peer0")[0].status == "problem"


@pytest.mark.fast
def test_a_key_that_the_roster_does_not_list_and_peers_that_are_missing_there_are_named(site):
    path = site.folder / "roster.toml"
    trust = schema.TrustSettings(roster=str(path))
    ours = site.identity("peer0")
    judge = {"peer": "peer0", "identity": ours, "peers": ["peer0", "peer1"]}
    assert identities.roster(trust, **judge).status == "ok"
    Roster({"peer0": ours.public}).write(path)
    assert "does not list peer1" in identities.roster(trust, **judge).message
    Roster({"peer1": site.identity("peer1").public}).write(path)
    assert 'the roster does not contain "peer0"' in identities.roster(trust, **judge).message
    path.unlink()
    assert "cannot be read" in identities.roster(trust, **judge).message
    assert identities.roster(schema.TrustSettings(), **judge).status == "warning"


@pytest.mark.fast
def test_data_with_another_column_than_agreed_are_named(site):
    table = site.folder / "own.csv"
    table.write_text("age,ill\n" + "".join(f"{20 + number},{number % 2}\n" for number in range(40)))
    columns = '{weight = "integer", ill = ["0", "1"]}'
    declared = ["data.name=table", f'data.options={{path = "{table}", target = "ill", columns = {columns}}}']
    data = sole(site.examine(*declared, "transport.broker=mqtts://127.0.0.1:9"), "data")
    assert data.status == "problem"
    assert "weight" in data.message


@pytest.mark.fast
def test_an_experiment_that_cannot_be_read_and_a_peer_that_it_does_not_have_are_named(site):
    assert "learning.rat" in sole(site.examine("learning.rat=1"), "experiment").message
    assert 'has no peer "eve"' in sole(site.examine(peer="eve"), "experiment").message


@pytest.mark.fast
def test_builds_of_torch_that_are_too_old_or_for_a_gpu_that_is_not_there_are_named():
    facts = {"version": "2.13.0", "cuda": "13.0", "usable": False, "machine": "aarch64"}
    cuda = machine.build(facts)
    assert (cuda.status, '"torch<2.11"' in cuda.message) == ("warning", True)
    assert machine.build(facts | {"usable": True}).status == "ok"
    assert machine.build(facts | {"version": "2.5.1", "cuda": None}).status == "problem"
    assert machine.builds().status == "ok"


@pytest.mark.fast
def test_too_little_memory_is_named_and_control_groups_count(tmp_path):
    assert machine.memory(10**9, available=4 * 10**9).status == "problem"
    assert machine.memory(10**6, available=4 * 10**9).status == "ok"
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


@pytest.mark.fast
def test_a_disk_that_is_full_slow_or_read_only_is_named(tmp_path, monkeypatch):
    [fine] = machine.disk(tmp_path / "runs", 1000)
    assert fine.status == "ok"
    assert not [*tmp_path.iterdir()]
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    [full] = machine.disk(tmp_path / "runs", 1000)
    assert (full.status, "1.0 kB are free" in full.message) == ("problem", True)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(machine, "SLOW_FSYNC", -1.0)
    [slow] = machine.disk(tmp_path / "runs", 1000)
    assert (slow.status, "transport.checkpoint" in slow.message) == ("warning", True)
    [closed] = machine.disk(tmp_path.joinpath("/proc/self/runs"), 1000)
    assert (closed.status, "cannot be written" in closed.message) == ("problem", True)


@pytest.mark.fast
def test_a_clock_before_the_installation_is_named():
    assert machine.clock(now=0.0).status == "warning"
    assert machine.clock(now=2e9, latest={"a neighbour": 2e9 + 30}).status == "ok"


def test_a_slow_way_is_worth_a_warning(site, monkeypatch):
    monkeypatch.setattr(round_trip, "SLOW", -1.0)
    with site.listening():
        trip = site.found("round trip")
    assert isinstance(trip, Finding)
    assert (trip.status, "use a broker that is nearer" in trip.message) == ("warning", True)
