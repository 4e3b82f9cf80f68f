"""``p2pfl doctor`` names what is wrong with the broker, held against a real mosquitto that is broken on purpose."""

import asyncio
import datetime as dt
import json

import pytest

from examined import sole
from p2pfl.cli import main
from p2pfl.experiment import plan, read
from p2pfl.network.peer.launch.worker import live
from p2pfl.network.peer.storage.credentials import Credentials
from p2pfl.network.protocol.wire.message_codec import rights
from p2pfl.network.transport.hardened import acl
from p2pfl.plugins.operate.checks import round_trip
from p2pfl.plugins.operate.checks.broker_address import check_address
from p2pfl.plugins.operate.checks.finding import Finding, Report
from p2pfl.privacy.keys import Roster

pytestmark = pytest.mark.slow

ROOT = "p2pfl/v1/small/peer"


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
    monkeypatch.setattr(
        "p2pfl.plugins.operate.checks.neighbours.SILENCE_SECONDS", 10.0
    )  # it ends with the first heartbeat
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
    assert refused.message.endswith(f"; this peer uses {path}")


def test_the_login_of_another_peer_is_named(site):
    folder = site.broker / "credentials"
    (folder / "peer0.toml").write_bytes((folder / "peer1.toml").read_bytes())
    with site.listening():
        findings = site.examine()
    assert 'has the credentials of "peer1" instead of "peer0"' in sole(findings, "credentials").message
    assert sole(findings, "login").status == "problem"


@pytest.mark.parametrize(
    ("forbidden", "topic"),
    [("topic read p2pfl/v1/small/peer/peer0/in/#", "in/peer0"), ("topic read p2pfl/v1/small/peer/+/state", "state")],
)
def test_an_access_list_that_forbids_to_read_is_named(site, forbidden, topic):
    acl = site.broker / "acl"
    assert forbidden in acl.read_text()
    acl.write_text(acl.read_text().replace(forbidden, ""))
    with site.listening():
        topics = site.found("topics")
    assert topics.status == "problem"
    assert f"{ROOT}/peer0/{topic} and delivers nothing" in topics.message
    assert f'"{forbidden}"' in topics.message
    assert "docs/" not in topics.message


@pytest.mark.parametrize(("version", "rest", "topic"), [(4, "pub/#", "pub/doctor"), (5, "account", "account")])
def test_an_access_list_that_forbids_to_publish_is_named(site, version, rest, topic):
    acl = site.broker / "acl"
    forbidden = f"topic write p2pfl/v1/small/peer/peer0/{rest}\n"
    assert forbidden in acl.read_text()
    acl.write_text(acl.read_text().replace(forbidden, ""))
    with site.listening():
        topics = site.found("topics", f"transport.mqtt.version={version}")
    assert topics.status == "problem"
    assert f"refuses to publish on {ROOT}/peer0/{topic} (Not authorized)" in topics.message


@pytest.mark.parametrize(
    ("forbidden", "said"),
    [
        ("topic read p2pfl/v1/small/watch/+/to/peer0", "published on p2pfl/v1/small/watch/peer0/to/peer0 and delivers"),
        (
            f"topic write {ROOT}/peer0/telemetry/+",
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


def test_an_authority_that_ends_before_what_it_signed_is_named_a_month_before(site):
    ca = site.certify(ends=2130)
    settings = read(site.folder / "small.toml", changes=[f"transport.ca={ca}"]).transport
    with site.listening():
        for day, status in ((1, "ok"), (5, "warning")):
            report = Report()
            check_address(report, site.url, settings, now=dt.datetime(2119, 12, day, tzinfo=dt.UTC))
            assert sole(report.findings, "tls").status == status
    assert f"all certificates in {ca} expire within 27 days; renew the authority" in report.findings[-1].message


def test_a_certificate_for_other_hosts_is_named_with_its_hosts(site):
    ca = site.certify()
    with site.listening():
        url = site.url.replace("127.0.0.1", "localhost")
        tls = site.found("tls", f"transport.ca={ca}", f"transport.broker={url}")
    assert tls.status == "problem"
    assert "is for 127.0.0.1; use one of these" in tls.message


def test_a_slow_way_is_worth_a_warning(site, monkeypatch):
    monkeypatch.setattr(round_trip, "SLOW_ROUND_TRIP", -1.0)
    with site.listening():
        trip = site.found("round trip")
    assert isinstance(trip, Finding)
    assert (trip.status, "use a broker that is nearer" in trip.message) == ("warning", True)


# ---------------------------------------------------------------------- a broker that permits one prefix


@pytest.mark.parametrize("version", [4, 5])
def test_on_a_broker_that_permits_one_prefix_the_doctor_names_the_key_to_set(site, version):
    Roster({"ops": site.identity("peer0").public}).write(site.folder / "observers.toml")
    shared = "telemetry.share=health", f"telemetry.observers={site.folder / 'observers.toml'}"
    (site.broker / "acl").write_text(acl(rights("small", prefix="plant7/"), names=["peer0", "peer1"]))
    fixed = f"transport.mqtt.version={version}"
    with site.listening():
        without = site.examine(fixed)
        other = site.examine(fixed, "transport.prefix=plant8/")
        findings = site.examine(fixed, "transport.prefix=plant7/", *shared)
    for refused, begin in ((without, ""), (other, "plant8/")):
        topics = [each for each in refused if each.check == "topics"]
        assert {each.status for each in topics} == {"problem"}
        assert {f"{ROOT}/peer0/{place}" for place in ("state", "account", "pub/doctor", "in/peer0")} == {
            each.message.split(" on ")[1].split()[0].removeprefix(begin) for each in topics
        }
        assert all("or set transport.prefix to the prefix" in each.message for each in topics)
    assert sole(findings, "topics").message == f"this peer may publish and read below plant7/{ROOT}/peer0"
    assert {sole(findings, check).status for check in ("topics", "telemetry", "round trip")} == {"ok"}
