"""The configuration that ``p2pfl broker --config`` writes, held against the real mosquitto."""

import asyncio
import base64
import os
import stat
import subprocess
from pathlib import Path

import pytest

from certificates import reachable
from p2pfl.core.errors import AccessError, BrokerError, InputError, RefusedError
from p2pfl.network.protocol.wire.message_codec import inbox, outlet, rights
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from p2pfl.network.transport.channel import Message, Will
from p2pfl.network.transport.hardened import acl, configure, hash_password
from p2pfl.network.transport.lasting import LastingTransport
from p2pfl.network.transport.login import PASSWORD, USER, Login, login, overheard
from p2pfl.network.transport.mqtt import MqttTransport
from waiting import DEADLINE

ROOT = "p2pfl/v1/clinic/peer"


def started(folder):
    """The mosquitto of a configuration that listens on a free port."""
    found = mosquitto() or pytest.skip("mosquitto is not installed")

    def configuration(host, port):
        lines = (folder / "mosquitto.conf").read_text().splitlines()
        return "\n".join(f"listener {port} {host}" if each.startswith("listener") else each for each in lines) + "\n"

    return run_program(Program(found.kind, found.command, configuration), host="127.0.0.1", port=0)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broker") / "clinic"
    configure(folder, rights=rights("clinic"), peers=["ada", "bob"], host="127.0.0.1", port=8883)
    reachable(folder)
    return folder


@pytest.fixture(scope="module")
def url(place):
    with started(place) as broker:
        yield broker.url.replace("mqtt:", "mqtts:")


@pytest.fixture
def join(place, url):
    def joined(peer, *, version=5, **options):
        shown = login(place / "credentials", peer=peer, environment={})
        options = {"user": shown.user, "password": shown.password, "ca": place / "broker.pem"} | options
        return MqttTransport(url, version=version, **options)

    return joined


def test_mosquitto_warns_of_nothing_but_what_all_may_read_as_the_page_says(place, tmp_path):
    def warnings(folder):
        with started(folder) as broker:
            printed = os.pread(broker._log.fileno(), 2**16, 0).decode()
        return [line.partition(": ")[2] for line in printed.splitlines() if "Warning" in line]

    assert warnings(place) == []
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "ca.pem").write_bytes((place / "broker.pem").read_bytes())
    configure(folder, rights=rights("clinic"), peers=[], host="127.0.0.1", port=8883)
    reachable(folder)
    for_all = [line for line in (folder / "acl").read_text().splitlines() if "%u" not in line]
    assert {line.split()[1] for line in for_all} == {"read"}
    said = [f"Warning: ACL pattern '{line.split()[2]}' does not contain '%c' or '%u'." for line in for_all]
    assert warnings(folder) == said
    page = (Path(__file__).parents[3] / "docs" / "brokers.md").read_text("utf-8")
    assert f"prints {['no', 'one', 'two', 'three', 'four', 'five'][len(said)]} warnings" in page
    assert said[0] in page


async def test_a_peer_of_one_swarm_reads_and_writes_nothing_of_another_on_the_same_broker(tmp_path):
    folder = tmp_path / "broker"
    for swarm, peers in (("alpha", ["ada", "bob"]), ("beta", ["bob", "cat"]), ("alpha", ["ada"])):
        configure(folder, rights=rights(swarm), peers=peers, host="127.0.0.1", port=8883)
    reachable(folder)
    beta = "p2pfl/v1/beta/peer"

    async def scenario(url):
        def joined(peer):
            shown = login(folder / "credentials", peer=peer, environment={})
            with_password = {"user": shown.user, "password": shown.password, "ca": folder / "broker.pem"}
            return MqttTransport(url, version=5, **with_password).join(f"{peer}-1")

        async with joined("ada") as ada, joined("bob") as bob, joined("cat") as cat:
            await ada.subscribe(f"{beta}/+/state", "p2pfl/v1/alpha/peer/bob/state")
            await cat.subscribe(f"{beta}/cat/in/+", f"{beta}/bob/state")
            for topic in (
                f"{beta}/cat/in/ada",
                f"{beta}/ada/state",
                f"{beta}/ada/pub/0",
                "p2pfl/v1/beta/watch/ada/to/cat",
            ):
                with pytest.raises(RefusedError, match="Not authorized"):
                    await ada.publish(topic, b"from another swarm")
            await cat.publish(f"{beta}/cat/state", b"not for ada")
            await bob.publish(f"{beta}/bob/state", b"of both")
            await bob.publish(f"{beta}/cat/in/bob", b"hello")
            assert {(await anext(cat)).data for _ in range(2)} == {b"of both", b"hello"}
            await bob.publish("p2pfl/v1/alpha/peer/bob/state", b"of both")  # the third call has not named it
            assert (await anext(ada)).topic == "p2pfl/v1/alpha/peer/bob/state"

    with started(folder) as broker:
        await asyncio.wait_for(scenario(broker.url.replace("mqtt:", "mqtts:")), DEADLINE)


async def test_a_peer_publishes_as_itself_and_into_inboxes_and_as_nobody_else(join):
    async with (
        asyncio.timeout(DEADLINE),
        join("ada").join("clinic-ada-1") as ada,
        join("bob").join("clinic-bob-1") as bob,
    ):
        await bob.subscribe(f"{ROOT}/ada/state", f"{ROOT}/ada/pub/0", f"{ROOT}/ada/account", f"{ROOT}/bob/in/+")
        for place in ("ada/state", "ada/pub/0", "ada/account", "bob/in/ada"):
            await ada.publish(f"{ROOT}/{place}", place.encode())
        heard = {(await anext(bob)).data for _ in range(4)}
        assert heard == {b"ada/state", b"ada/pub/0", b"ada/account", b"bob/in/ada"}
        for place in ("bob/state", "bob/pub/0", "bob/account", "ada/in/bob", "bob/in/bob", "eve/state"):
            with pytest.raises(RefusedError, match="Not authorized"):
                await ada.publish(f"{ROOT}/{place}", b"forged")
        with pytest.raises(RefusedError):
            await ada.publish("p2pfl/v1/another/peer/ada/state", b"elsewhere")


async def test_nobody_hears_what_is_in_anothers_inbox_and_a_forged_will_is_not_published(join):
    async with asyncio.timeout(DEADLINE):
        will = Will(f"{ROOT}/bob/state", b"dead")
        async with join("bob", version=4).join("clinic-bob-1") as bob:
            await bob.subscribe(f"{ROOT}/bob/state", f"{ROOT}/bob/in/+")
            async with join("ada", version=4).join("clinic-ada-1", will=will) as ada:
                await ada.subscribe("#")
                await bob.publish(f"{ROOT}/ada/in/bob", b"for ada")
                assert (await anext(ada)).data == b"for ada"
                async with join("bob", version=4).join("clinic-bob-2") as other:
                    await other.publish(f"{ROOT}/bob/in/bob", b"for bob alone")
                    await other.publish(f"{ROOT}/bob/state", b"up")
                assert await anext(ada) == Message(f"{ROOT}/bob/state", b"up", retained=False)
                ada.abort()
            async with join("ada", version=4).join("clinic-ada-2") as ada:
                await ada.publish(f"{ROOT}/bob/in/ada", b"last")
            heard = [(await anext(bob)).data]
            while heard[-1] != b"last":
                heard.append((await anext(bob)).data)
            assert sorted(heard) == [b"for bob alone", b"last", b"up"]


@pytest.mark.parametrize("shown", [{"user": None, "password": None}, {"password": "wrong"}], ids=["nobody", "wrong"])
@pytest.mark.parametrize("version", [4, 5])
async def test_who_does_not_know_the_password_is_kept_out_at_once(join, shown, version):
    async def scenario():
        async with LastingTransport([join("ada", version=version, **shown)]).join("clinic-ada-1"):
            pass

    with pytest.raises(
        AccessError,
        match=(
            r"cannot connect to an MQTT broker at mqtts://127\.0\.0\.1:\d+ because it denies access \(Not "
            r"authorized\); set or correct P2PFL_BROKER_USER and P2PFL_BROKER_PASSWORD, or the file "
            r"transport\.credentials, or give a certificate"
        ),
    ):
        await asyncio.wait_for(scenario(), DEADLINE)


def test_older_tls_is_refused_at_both_ends(url, place):
    host, port = url.removeprefix("mqtts://").split(":")
    for version, lets_in in (("-tls1", False), ("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)):
        command = ["openssl", "s_client", version, "-cipher", "ALL:@SECLEVEL=0", "-connect", f"{host}:{port}"]
        said = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert ("Cipher is (NONE)" not in said.stdout) == lets_in, version
    for context in MqttTransport(url, ca=place / "broker.pem")._contexts():
        assert context.minimum_version.name == "TLSv1_2"
        assert context.check_hostname
        assert context.verify_mode.name == "CERT_REQUIRED"


def test_a_second_call_keeps_passwords_and_certificate_and_admits_who_is_new(tmp_path):
    configure(tmp_path, rights=rights("clinic"), peers=["ada"], host="127.0.0.1", port=8883)
    files = ("broker.pem", "broker.key", "credentials/ada.toml", "passwords")
    before = {name: (tmp_path / name).read_text() for name in files}
    configure(tmp_path, rights=rights("clinic"), peers=["ada", "bob"], host="127.0.0.1", port=8883)
    after = {name: (tmp_path / name).read_text() for name in files}
    assert after.pop("passwords").startswith(before.pop("passwords"))
    assert after == before
    assert (tmp_path / "credentials" / "bob.toml").exists()


def test_a_second_call_with_a_host_that_the_certificate_does_not_name_is_refused(tmp_path):
    configure(tmp_path, rights=rights("clinic"), peers=["ada"], host="127.0.0.1", port=8883)
    made = (tmp_path / "broker.pem").read_text()
    for host in ("::", "localhost"):  # everywhere, and what it names
        configure(tmp_path, rights=rights("clinic"), peers=["ada"], host=host, port=8883)
    for host in ("192.0.2.7", "broker.example"):
        with pytest.raises(InputError, match=rf"broker\.pem does not name the host {host}; leave the host out, or"):
            configure(tmp_path, rights=rights("clinic"), peers=["ada"], host=host, port=8883)
    assert (tmp_path / "broker.pem").read_text() == made


def test_a_certificate_is_for_the_hosts_by_which_peers_reach_it(tmp_path):
    settings = {"rights": rights("clinic"), "peers": ["ada"], "host": "::", "port": 8883}
    named = configure(tmp_path, public=["broker.example", "192.0.2.7", "bröker.example"], **settings)
    assert {"localhost", "broker.example", "192.0.2.7", "bröker.example"} <= {*named}
    again = configure(tmp_path, public=["broker.example"], **settings)
    assert {"localhost", "broker.example", "192.0.2.7", "xn--brker-kua.example"} <= {*again}
    with pytest.raises(
        InputError,
        match=(
            '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" is neither an address nor a '
            "host name; correct it"
        ),
    ):
        configure(tmp_path, public=["a" * 70], **settings)
    with pytest.raises(InputError, match="0 is not a port from 1 to 65535; choose another"):
        configure(tmp_path, **settings | {"port": 0})


@pytest.mark.parametrize(("there", "lacks"), [("broker.pem", "broker.key"), ("broker.key", "broker.pem")])
def test_half_a_certificate_of_ones_own_is_not_written_over(tmp_path, there, lacks):
    (tmp_path / there).write_text("mine")
    with pytest.raises(InputError, match=f"{there} has no {lacks} beside it; put it there, or remove {there}"):
        configure(tmp_path, rights=rights("clinic"), peers=["ada"], host="::", port=8883)
    assert (tmp_path / there).read_text() == "mine"


def test_what_is_secret_can_be_read_by_its_owner_alone_and_no_password_is_in_clear_but_the_peers_own(place):
    secret = ["broker.key", "passwords", "credentials/ada.toml", "credentials/bob.toml"]
    assert all(stat.S_IMODE((place / name).stat().st_mode) == 0o600 for name in secret)
    password = login(place / "credentials", peer="ada", environment={}).password
    assert len(password) == 32
    others = ("mosquitto.conf", "acl", "passwords", "credentials/bob.toml")
    assert not any(password in (place / name).read_text() for name in others)


def test_passwords_are_hashed_as_mosquitto_does(tmp_path):
    file = tmp_path / "passwords"
    if subprocess.run(["mosquitto_passwd", "-c", "-b", file, "ada", "p@ss"], check=False).returncode:
        pytest.skip("mosquitto_passwd does not run")
    line = file.read_text().strip()
    salt = base64.b64decode(line.split("$")[3])
    assert line == f"ada:{hash_password('p@ss', salt=salt)}"


async def test_without_peers_certificates_say_who_is_who(tmp_path, certificates):
    with pytest.raises(
        InputError,
        match=(
            r"neither an experiment, whose peers get passwords, nor .*, which signs their certificates, is given; "
            "name the one, or copy the other there"
        ),
    ):
        configure(tmp_path / "a", rights=rights("+"), peers=[], host="127.0.0.1", port=8883)
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "ca.pem").write_bytes(certificates.ca.read_bytes())
    configure(folder, rights=rights("+"), peers=[], host="127.0.0.1", port=8883)
    reachable(folder)

    async def scenario(url):
        shown = {"ca": folder / "broker.pem", "certificate": certificates.peer, "key": certificates.peer_key}
        async with MqttTransport(url, version=5, **shown).join("clinic-peer-1") as peer:  # its certificate says "peer"
            await peer.publish(f"{ROOT}/peer/state", b"up")
            with pytest.raises(RefusedError):
                await peer.publish(f"{ROOT}/ada/state", b"up")
        with pytest.raises(BrokerError, match="certificate"):
            async with MqttTransport(url, ca=folder / "broker.pem").join("clinic-ada-1"):
                pass

    with started(folder) as broker:
        await asyncio.wait_for(scenario(broker.url.replace("mqtt:", "mqtts:")), DEADLINE)


async def test_an_observer_asks_in_its_own_name_and_reads_what_is_for_it_alone(join):
    async with (
        asyncio.timeout(DEADLINE),
        join("ada").join("clinic-ada-1") as ada,
        join("bob").join("clinic-bob-1") as bob,
    ):
        await ada.subscribe(inbox("clinic", peer="ada"))
        await bob.subscribe(outlet("clinic", observer="bob"))
        await bob.publish(inbox("clinic", peer="ada", observer="bob"), b"request")
        assert (await anext(ada)).data == b"request"
        await ada.publish(outlet("clinic", peer="ada", observer="bob"), b"frame")
        assert (await anext(bob)).data == b"frame"
        for topic in (
            inbox("clinic", peer="ada", observer="ops"),
            outlet("clinic", peer="ada", observer="bob"),
            outlet("clinic", peer="eve", observer="ops"),
        ):
            with pytest.raises(RefusedError, match="Not authorized"):
                await bob.publish(topic, b"forged")
        for topic in (outlet("clinic", observer="ada"), inbox("clinic", peer="ada")):
            await bob.subscribe(topic)
        await bob.publish(inbox("clinic", peer="ada", observer="bob"), b"again")
        await ada.publish(outlet("clinic", peer="ada", observer="ada"), b"not for bob")
        await ada.publish(outlet("clinic", peer="ada", observer="bob"), b"last")
        assert (await anext(bob)).data == b"last"


def test_the_access_list_has_patterns_for_clients_without_names_and_topics_for_others():
    lines = acl(rights("clinic")).splitlines()
    assert all(line.startswith(("pattern read ", "pattern write ")) for line in lines)
    assert f"pattern write {ROOT}/%u/state" in lines
    assert all("%u" in line for line in lines if "write" in line)
    named = acl(rights("clinic"), names=["ada"], before=acl(rights("ward"), names=["bob", "ada"])).splitlines()
    assert [line for line in named if not line.startswith(("topic read p2pfl/v1/", "topic write p2pfl/v1/"))] == [
        "user ada",
        "user bob",
    ]
    assert not [line for line in named[named.index("user bob") :] if "clinic" in line]
    again = acl(rights("ward"), names=["bob"], before="\n".join(named))
    assert again.splitlines() == named


def test_a_login_comes_from_a_file_or_the_environment(tmp_path):
    assert login(None, peer="ada", environment={}) == Login()
    assert login(None, peer="ada", environment={USER: "u", PASSWORD: "p"}) == Login("u", "p")
    file = tmp_path / "ada.toml"
    file.write_text('user = "ada"\npassword = "secret"\n')
    file.chmod(0o600)
    for place in (file, tmp_path):
        assert login(place, peer="ada", environment={USER: "u", PASSWORD: "p"}) == Login("ada", "secret")
    assert "secret" not in repr(login(file, peer="ada", environment={}))


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ('user = "ada"', 0o644, "other users can read the credentials"),
        ('password = "secret"', 0o600, 'does not hold user = "..."'),
        ('user = "ada"\npasword = "secret"', 0o600, 'does not hold user = "..."'),
        ('user = "ada"\npassword = secret', 0o600, 'does not hold user = "..."'),
        ('user = "ada"\npassword = 5', 0o600, 'does not hold user = "..."'),
    ],
)
def test_a_file_of_credentials_that_cannot_be_used_is_named_without_the_password(tmp_path, text, mode, why):
    file = tmp_path / "login.toml"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(BrokerError, match=why) as caught:
        login(file, peer="ada", environment={})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("mqtt://broker.example", True),
        ("ws://192.0.2.7", True),
        ("mqtt://[2001:db8::1]", True),
        ("mqtts://broker.example", False),
        ("wss://broker.example", False),
        ("mqtt://localhost", False),
        ("mqtt://127.0.0.2", False),
        ("ws://[::1]", False),
    ],
)
def test_a_password_that_others_can_overhear_is_warned_of_and_one_that_nobody_can_is_not(url, clear):
    found = overheard("s3cret", ["mqtts://first.example", url])
    assert len(found) == clear
    assert all(each.startswith(url) for each in found)
    assert overheard(None, [url]) == ()  # a name alone is none


def test_credentials_that_were_swapped_are_told_before_anybody_joins(tmp_path):
    """A broker that speaks MQTT 3.1.1 drops what is said in another's name without a word."""
    for name, user in (("ada", "bob"), ("bob", "ada"), ("cy", "device-17")):
        (tmp_path / f"{name}.toml").write_text(f'user = "{user}"\npassword = "secret"\n')
        (tmp_path / f"{name}.toml").chmod(0o600)
    with pytest.raises(
        BrokerError,
        match=' has the credentials of "bob" instead of "ada", although that peer has its own file; swap the files',
    ):
        login(tmp_path, peer="ada", environment={})
    assert login(tmp_path, peer="cy", environment={}).user == "device-17"  # who is no peer
    assert login(tmp_path / "ada.toml", peer="cy", environment={}).user == "bob"  # all may share a user


def test_a_missing_file_or_half_a_login_is_said(tmp_path):
    with pytest.raises(
        BrokerError,
        match=r"the credentials .* cannot be read \(No such file or directory\); correct transport\.credentials",
    ):
        login(tmp_path, peer="bob", environment={})
    with pytest.raises(BrokerError, match="P2PFL_BROKER_PASSWORD is set without P2PFL_BROKER_USER; set both"):
        login(None, peer="bob", environment={PASSWORD: "secret"})
