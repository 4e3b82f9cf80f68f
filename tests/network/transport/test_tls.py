"""TLS to a broker: certificates, private keys and clocks."""

import asyncio
import contextlib
import re
import socket
import ssl
import threading

import pytest

from p2pfl.core.errors import AccessError, BrokerError, TransportError
from p2pfl.network.transport.address import Address
from p2pfl.network.transport.backoff import Backoff
from p2pfl.network.transport.lasting import LastingTransport
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.network.transport.reasons import final
from refusals import refusal
from waiting import DEADLINE


async def test_tls_problems_say_what_to_do(certificates, tls_url, mosquitto_url):
    ours = {"ca": certificates.ca, "certificate": certificates.peer, "key": certificates.peer_key}
    assert "its certificate is not trusted (self-signed certificate in certificate chain)" in await refusal(
        MqttTransport(tls_url)
    )
    stranger = MqttTransport(tls_url, **{**ours, "ca": certificates.stranger})
    assert "name the CA that signed it" in await refusal(stranger)
    elsewhere = MqttTransport(tls_url.replace("127.0.0.1", "localhost"), **ours)
    assert "not valid for 'localhost'" in await refusal(elsewhere)
    assert "because it asks for a certificate; name yours" in await refusal(MqttTransport(tls_url, ca=certificates.ca))
    assert "check scheme, port" in await refusal(MqttTransport(tls_url.replace("mqtts:", "mqtt:")))
    plain = await refusal(MqttTransport(mosquitto_url.replace("mqtt:", "mqtts:"), **ours))
    assert re.search(
        "check scheme, port|check that this is its TLS port", plain
    )  # as the broker's farewell is read or not


@pytest.fixture
def strict_url(certificates, configured_broker):
    """A broker that asks for a certificate, and reads the list of revoked ones."""
    lines = [f"cafile {certificates.ca}", f"certfile {certificates.broker}", f"keyfile {certificates.broker_key}"]
    with configured_broker(*lines, "require_certificate true", f"crlfile {certificates.revoked}") as broker:
        yield broker.url.replace("mqtt://", "mqtts://")


@pytest.fixture(params=["TLSv1_2", "TLSv1_3"])
def tls_version(request, monkeypatch):
    """The version that this side proposes; with 1.3 a broker refuses certificates after the handshake."""
    create = ssl.create_default_context

    def limited(**how):
        context = create(**how)
        context.maximum_version = ssl.TLSVersion[request.param]
        return context

    monkeypatch.setattr(ssl, "create_default_context", limited)
    return request.param


@pytest.mark.parametrize(
    ("why", "sentence", "kind"),
    [
        ("revoked", "it refuses the certificate of this peer as revoked; ask the operator", AccessError),
        ("expired", "as expired; ask the operator to renew it (p2pfl deploy --renew)", BrokerError),
        ("not valid yet", "it refuses the certificate of this peer (bad certificate); ask the operator", BrokerError),
        ("of another authority", "it does not know the authority that signed the certificate of this", AccessError),
        (None, "it asks for a certificate", AccessError),
    ],
)
@pytest.mark.usefixtures("tls_version")
async def test_a_broker_that_refuses_the_certificate_of_a_peer_says_why(certificates, strict_url, why, sentence, kind):
    shown = {} if why is None else {"certificate": certificates.refused[why], "key": certificates.peer_key}
    for _ in range(5):  # the refusal is read, or its connection is gone before this side has written
        with pytest.raises(BrokerError, match=re.escape(sentence)) as error:
            async with asyncio.timeout(DEADLINE), MqttTransport(strict_url, ca=certificates.ca, **shown).join("ada"):
                pass
        assert "\n" not in str(error.value)
        assert type(error.value) is kind  # BrokerError: a clock may be wrong until a network is up


async def test_a_peer_whose_certificate_is_revoked_while_it_is_connected_ends_with_the_reason(certificates, strict_url):
    """The broker restarts with the list, so the next connection is refused, and the one after would be, too."""
    shown = {"ca": certificates.ca, "key": certificates.peer_key}
    transport = MqttTransport(strict_url, **shown, certificate=certificates.peer)
    async with asyncio.timeout(DEADLINE), LastingTransport([transport]).join("ada") as ada:
        transport._files = certificates.ca, certificates.refused["revoked"], certificates.peer_key
        ada._connection.channel.abort()
        with pytest.raises(AccessError, match="as revoked; ask the operator"):
            await anext(ada)


def test_a_socket_that_is_full_loses_nothing_of_what_has_arrived(certificates):
    """A large model on its way out fills it, while messages of others come in."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificates.broker, certificates.broker_key)
    here, there = socket.socketpair()
    arrived, done = threading.Event(), threading.Event()

    def serve():
        with theirs.wrap_socket(there, server_side=True) as broker:
            broker.sendall(b"news")
            arrived.set()
            done.wait(DEADLINE)

    here.settimeout(DEADLINE)
    there.settimeout(DEADLINE)
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        context = Address.parse("mqtts://127.0.0.1:8883").tls(certificates.ca, None, None)
        with context.wrap_socket(here, server_hostname="127.0.0.1") as peer:
            assert arrived.wait(DEADLINE)
            peer.setblocking(False)
            with contextlib.suppress(ssl.SSLWantWriteError):
                while True:
                    peer.send(bytes(2**14))
            peer.settimeout(DEADLINE)
            assert peer.recv(8) == b"news"
    finally:
        here.close()
        done.set()
        thread.join()


@pytest.mark.parametrize(
    ("reason", "ends"),
    [
        ("TLSV1_ALERT_INTERNAL_ERROR", False),  # of a broker without memory, or a proxy without a broker
        ("SSLV3_ALERT_BAD_RECORD_MAC", False),  # of a link that changes bits
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", True),
        ("TLSV1_ALERT_UNKNOWN_CA", True),
    ],
)
def test_a_peer_tries_again_after_an_alert_that_refuses_nothing_of_its_own(reason, ends):
    error = ssl.SSLError(ssl.SSL_ERROR_SSL, reason)
    error.reason = reason
    assert final(error, code=None) is ends


async def test_files_that_their_owner_replaces_count_from_the_next_connection_on(certificates, tls_url, tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificates.ca.read_bytes())
    transport = MqttTransport(tls_url, ca=ca, certificate=certificates.peer, key=certificates.peer_key)
    for path in (certificates.stranger, None, certificates.ca):
        ca.write_bytes(b"" if path is None else path.read_bytes())
        if path == certificates.ca:
            async with transport.join("ada") as ada:
                await ada.subscribe("news")
        else:
            with pytest.raises(BrokerError) as error:
                async with transport.join("ada"):
                    pass
            assert isinstance(error.value, AccessError) == (path is not None)  # who copies a file is waited for


async def test_a_clock_that_is_behind_keeps_nobody_out_of_a_broker_whose_authority_is_named(
    certificates, configured_broker
):
    with configured_broker(f"certfile {certificates.early}", f"keyfile {certificates.broker_key}") as broker:
        url = broker.url.replace("mqtt://", "mqtts://")
        async with asyncio.timeout(DEADLINE), MqttTransport(url, ca=certificates.ca).join("ada") as ada:
            await ada.subscribe("news")
            await ada.publish("news", b"hello")
            assert (await anext(ada)).data == b"hello"
        stranger = MqttTransport(url, ca=certificates.stranger)
        assert "its certificate is not trusted" in await refusal(stranger)
        elsewhere = MqttTransport(url.replace("127.0.0.1", "localhost"), ca=certificates.ca)
        assert "not valid for 'localhost'" in await refusal(elsewhere)


async def test_a_refused_login_is_named_as_such_where_the_clock_is_behind(certificates, configured_broker):
    lines = (f"certfile {certificates.early}", f"keyfile {certificates.broker_key}")
    with configured_broker(*lines, replace={"allow_anonymous true": "allow_anonymous false"}) as broker:
        transport = MqttTransport(broker.url.replace("mqtt://", "mqtts://"), ca=certificates.ca)
        assert "because it denies access" in await refusal(transport)


async def test_where_the_clock_is_behind_and_the_system_decides_the_broker_is_asked_again(
    certificates, configured_broker, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))  # the authorities of the system

    async def scenario(transport):
        said = []
        with pytest.raises(TransportError, match=r"set the clock; this peer gave up after 0.05 s"):
            async with LastingTransport([transport], backoff=Backoff(outage=0.05), notice=said.append).join("ada"):
                pass
        assert len(said) == 1

    with configured_broker(f"certfile {certificates.early}", f"keyfile {certificates.broker_key}") as broker:
        transport = MqttTransport(broker.url.replace("mqtt://", "mqtts://"))
        assert "its certificate is not valid yet by the clock of this device; set the clock" in await refusal(transport)
        await asyncio.wait_for(scenario(transport), DEADLINE)


async def test_an_expired_certificate_is_refused_and_a_clock_ahead_is_named_as_a_reason(
    certificates, configured_broker
):
    with configured_broker(f"certfile {certificates.late}", f"keyfile {certificates.broker_key}") as broker:
        url = broker.url.replace("mqtt://", "mqtts://")
        said = await refusal(MqttTransport(url, ca=certificates.ca))
        assert "its certificate has expired by the clock of this device; renew the certificate, or set" in said
        lenient = MqttTransport(url, ca=certificates.ca)
        contexts = lenient._contexts
        lenient._contexts = lambda: contexts()[1:]  # as after a certificate of another that was too early
        assert "its certificate has expired by the clock" in await refusal(lenient)


def test_certificates_that_cannot_be_used_are_named(certificates, tmp_path):
    with pytest.raises(
        BrokerError,
        match=r" cannot be used \(No such file or directory\); give PEM files, with a key that has no passphrase",
    ):
        MqttTransport("mqtts://host", ca=tmp_path / "missing.pem")
    with pytest.raises(
        BrokerError,
        match=r" and .* cannot be used \(KEY_VALUES_MISMATCH\); give PEM files, with a key that has no passphrase",
    ):
        MqttTransport("mqtts://host", certificate=certificates.peer, key=certificates.broker_key)
    with pytest.raises(BrokerError, match=r"the key .* has no certificate; name its file as well"):
        MqttTransport("mqtts://host", key=certificates.peer_key)
    with pytest.raises(
        BrokerError,
        match="mqtt://host:1883 has no TLS for the certificates; change the URL to mqtts:// or leave them out",
    ):
        MqttTransport("mqtt://host", ca=certificates.ca)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610])
@pytest.mark.parametrize("together", [False, True], ids=["in a file of its own", "in the certificate's"])
def test_a_private_key_that_others_can_read_is_refused(certificates, tmp_path, mode, together):
    path = tmp_path / "peer.pem"
    path.write_bytes(certificates.peer_key.read_bytes() + together * certificates.peer.read_bytes())
    shown = {"certificate": path} if together else {"certificate": certificates.peer, "key": path}
    path.chmod(mode)
    with pytest.raises(
        BrokerError, match=rf"other users can read this private key \(mode {mode:04o}\); run chmod 600 {path}"
    ):
        MqttTransport("mqtts://host", **shown)
    path.chmod(0o600)
    MqttTransport("mqtts://host", **shown)
