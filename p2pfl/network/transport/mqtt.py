"""Transport over an MQTT broker; the only module that imports aiomqtt and paho.

aiomqtt is the present name of the package asyncio-mqtt.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import aiomqtt

from p2pfl.core.errors import AccessError, BrokerError, BusyError, RefusedError, TransportError
from p2pfl.network.transport.address import Address, alert
from p2pfl.network.transport.channel import (
    KEEPALIVE,
    LIMIT,
    KeptMessage,
    Message,
    Payload,
    Will,
    check_filters,
    check_publish,
)
from p2pfl.network.transport.quality import SubscriptionQuality
from p2pfl.network.transport.reasons import TEMPORARY, clock_behind, final, unreachable

ANSWER = 10.0
"""Timeout in seconds of an answer of the broker, without the time on the wire."""

GOODBYE = 2.0
"""Timeout in seconds of the broker to close a connection after a goodbye."""

MIN_BANDWIDTH = 16 * 1024
"""Bytes per second below which a link counts as dead: a publish may take ``ANSWER + bytes / MIN_BANDWIDTH`` seconds.

The bytes are its own and those of all publishes before it, behind which it waits.
"""

MAX_PUBLISHES = 16
"""Largest number of publishes of one channel that wait for an acknowledgement."""

_ENVELOPE = 512  # room for the topic and the MQTT header, if a broker limits the whole packet
_UNSPECIFIED = 0x80  # code of a reason that the broker does not give
_FILTERS = 8  # hosted brokers accept no more in one packet
_NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # with Nagle's algorithm QoS 1 runs at a third of the speed
_LOGGER = logging.getLogger(__name__)
_LOGGER.setLevel(logging.CRITICAL + 1)  # important events are raised

T = TypeVar("T")


class MqttTransport:
    """Transport over an MQTT broker; each channel is one connection, with a clean session unless it is kept.

    Parameters
    ----------
    url
        ``mqtt://host:1883``, ``mqtts://host:8883``, ``ws://host:80/mqtt`` or ``wss://host:443/mqtt``; the
        port is optional, and ``user:password@`` may precede the host, percent-encoded. Messages never contain it.
    user, password
        Credentials for the broker, if the URL has none.
    ca
        PEM file of the authority that signed the broker's certificate; the system's authorities if
        absent. The broker's certificate and name are always verified. With a file, a certificate that is not valid yet
        by the clock of this device is accepted, because its signature proves that the clock is behind.
    certificate, key
        PEM files that authenticate this client, if the broker requires that; the key may be in the
        certificate's file. These files and ``ca`` are read again for each connection.
    version
        4 is MQTT 3.1.1; with 5 the broker gives reasons and limits, at a quarter less speed.
    qos
        Quality of service. With 1 the broker acknowledges each packet, so a publish waits until the broker has it, and
        with MQTT 5 learns of a refusal. With 0 a publish waits until it is written, and a broker may drop a burst.
        A broker that refuses subscriptions at 1, or leaves them without an answer on two connections, and grants them
        at 0, is used at 0 from then on, as clusters that have lost a node need it. One that has granted 1 before and
        did not answer is used at 0 for one connection only.
    limit
        Largest payload in bytes; an MQTT 5 broker may lower it.
    lowered
        Function that is called with the reason, as a sentence, when the transport goes on at quality of service 0.
    kept
        True if the broker keeps the session of each client name, so that messages wait for its return, at quality of
        service 1 alone. Messages are then a :class:`~p2pfl.network.transport.channel.KeptMessage` to acknowledge.

    Raises
    ------
    BrokerError
        The URL or a certificate cannot be used.

    Examples
    --------
    >>> MqttTransport("mqtt://ada:secret@example.org")
    MqttTransport('mqtt://example.org:1883')
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        ca: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        version: int = 4,
        qos: int = 1,
        limit: int = LIMIT,
        lowered: Callable[[str], None] | None = None,
        kept: bool = False,
    ) -> None:
        where = Address.parse(url)
        self._where = where if where.user else replace(where, user=user, password=password)
        self._limit = limit
        if version not in (4, 5):
            raise BrokerError(f"{version} is not an MQTT version; choose 4 (that is 3.1.1) or 5")
        if qos not in (0, 1):
            raise BrokerError(f"{qos} is not a quality of service that p2pfl uses; choose 1, or 0")
        if kept and (version, qos) != (4, 1):
            raise BrokerError("a session that the broker keeps needs version 4 and qos 1; leave both out")
        self._kept = kept
        self._quality = SubscriptionQuality(qos, lowered or (lambda _: None))
        self._protocol = aiomqtt.ProtocolVersion(version)
        self._files = ca, certificate, key
        self._contexts()  # files that cannot be used are refused before anything else happens

    def __repr__(self) -> str:
        """Return the URL, without user and password."""
        return f"MqttTransport({str(self._where)!r})"

    @asynccontextmanager
    async def join(self, client: str, *, will: Will | None = None) -> AsyncIterator["MqttChannel"]:
        """Connect under the name ``client``; leaving the context disconnects, which discards the will.

        Cancellation takes up to five seconds while a host does not answer, because the connecting thread
        cannot be interrupted.

        Raises
        ------
        AccessError
            The broker denies access, or is not the trusted one.
        BrokerError
            The broker cannot be reached; the message states the reason and a remedy.
        """
        try:
            context, contexts = None, self._contexts()
            for context in contexts:
                connection = _Client(
                    self._where,
                    client,
                    will,
                    qos=1 if self._kept else self._quality.qos,
                    protocol=self._protocol,
                    tls=context,
                    kept=self._kept,
                )
                try:
                    await connection.open()
                    break
                except aiomqtt.MqttError as error:
                    if context is contexts[-1] or not clock_behind(error.__context__):
                        raise
        except (aiomqtt.MqttError, UnicodeError) as error:
            cause = alert(context) or error.__context__ or error  # of the socket
            code = str(cause.rc) if isinstance(cause, aiomqtt.MqttCodeError) else None
            kind = AccessError if final(cause, code=code) else BrokerError
            raise kind(unreachable(self._where, cause, code=code)) from error
        try:
            yield MqttChannel(connection, self._limit, self._quality)
        finally:
            await connection.leave()

    def _contexts(self) -> list[ssl.SSLContext | None]:
        """Return the TLS contexts to try, from the files as they are now, which the owner may have replaced."""
        contexts = [self._where.tls(*self._files)]
        if self._files[0] is not None:  # for a clock that is behind
            contexts.append(self._where.tls(*self._files, early=True))
        return contexts


def _expire(answer: asyncio.Future[str | None]) -> None:
    """End the wait for an answer of the broker."""
    if not answer.done():
        answer.set_exception(TimeoutError())


class MqttChannel:
    """:class:`~p2pfl.network.transport.channel.Channel` of :class:`MqttTransport`."""

    away = 0.0
    lost = False
    grace = 0.0

    def __init__(self, connection: "_Client", limit: int, quality: SubscriptionQuality) -> None:
        self.limit = min(limit, connection.cap - _ENVELOPE)
        self._connection, self._quality = connection, quality
        self._turns = asyncio.Semaphore(min(MAX_PUBLISHES, connection.window))
        self._unanswered = 0  # bytes of the publishes that the broker has not acknowledged

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_publish(topic, data, limit=self.limit)
        payload = bytes(data) if isinstance(data, memoryview) else data  # paho does not accept views
        where = self._connection.where
        async with self._turns:
            self._unanswered += len(payload)
            patience = ANSWER + self._unanswered / MIN_BANDWIDTH
            try:
                refusal = await self._connection.send(topic, payload, retain=retain, patience=patience)
            except TimeoutError:
                raise TransportError(
                    f"{where} did not acknowledge {len(payload)} bytes on {topic} within {patience:.0f} s; "
                    "check the link and the load of the broker"
                ) from None
            finally:
                self._unanswered -= len(payload)
        if refusal:
            remedy = "lower transport.chunk" if "too large" in refusal else "check what this peer may publish there"
            raise RefusedError(f"{where} refused {len(payload)} bytes on {topic} ({refusal}); {remedy}")

    async def subscribe(self, *filters: str) -> None:
        """Subscribe; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_filters(filters)
        for start in range(0, len(filters), _FILTERS):
            some = filters[start : start + _FILTERS]
            try:
                await self._ask_for(some, qos=self._connection.qos)
            except BusyError as error:
                if not self._connection.qos or self._connection.kept:
                    raise
                try:
                    await self._ask_for(some, qos=0)
                except BusyError:
                    raise error from None  # so it is not the quality of service that is refused
                self._connection.qos = 0
                self._quality.lower(str(error))

    async def _ask_for(self, filters: tuple[str, ...], *, qos: int) -> None:
        """Subscribe to a few topics; a connection on which there is no answer is lost, and a later one tries QoS 0.

        The same connection would not help: a broker that waits for its cluster handles nothing else of this client.
        """
        connection = self._connection
        try:
            codes = await connection.ask(connection.subscribe([(each, qos) for each in filters]))
        except TransportError as error:
            if not connection.ended:  # it did not answer
                self._quality.note_silence(str(error))
            raise
        for pattern, code in zip(filters, codes, strict=True):
            if getattr(code, "is_failure", False):
                raise connection.refusal(pattern, code)
            if connection.kept and getattr(code, "value", qos) < qos:
                raise RefusedError(
                    f"{connection.where} grants {pattern} without acknowledgements (QoS 0), so that messages can be "
                    "lost; allow QoS 1 there"
                )
        self._quality.note_grant(qos)

    def abort(self) -> None:
        """Lose the connection as in a crash."""
        self._connection.drop("it was aborted")

    def __aiter__(self) -> Self:
        """Iterate over arriving messages."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; wait for it if necessary."""
        arrived = self._connection.arrived
        message = await arrived.get()
        if message is None:
            arrived.put_nowait(None)  # for the next caller
            raise self._connection.lost()
        return message


class _Client(aiomqtt.Client):
    """Client of aiomqtt that also reports refusals, the broker's limits, and the reason for the end of a connection.

    It uses these private names of aiomqtt 2.5: ``_client``, ``_loop``, ``_connected``, ``_disconnected`` and the
    five ``_on_...`` below; of paho ``_sock_close``. The tests of this folder fail if one of them changes.
    """

    def __init__(
        self,
        where: Address,
        client: str,
        will: Will | None,
        *,
        qos: int,
        protocol: aiomqtt.ProtocolVersion,
        tls: ssl.SSLContext | None,
        kept: bool = False,
    ) -> None:
        old = protocol < aiomqtt.ProtocolVersion.V5
        super().__init__(
            where.host,
            where.port,
            identifier=client,
            username=where.user,
            password=where.password,
            will=None if will is None else aiomqtt.Will(will.topic, will.data, qos=1, retain=True),
            transport="websockets" if where.web else "tcp",
            websocket_path=where.path if where.web else None,
            socket_options=[_NODELAY],
            timeout=ANSWER,
            max_inflight_messages=2**16 - 1,  # the channel's own limit applies
            logger=_LOGGER,
            protocol=protocol,
            clean_session=not kept if old else None,  # MQTT 5 starts clean by default
            keepalive=round(KEEPALIVE),
            tls_context=tls,
        )
        self.pending_calls_threshold = 2**16
        self._client.manual_ack_set(kept)
        self._client.disable_logger()  # it would be asked eight times in a gossip step, and emits nothing
        self.where = where
        self.qos = qos
        self.kept = kept
        self._mute = old  # a broker cannot give its reasons
        self.cap = 2**28  # largest packet of MQTT
        self.window = MAX_PUBLISHES
        self.arrived: asyncio.Queue[Message | None] = asyncio.Queue()  # None marks the end
        self._answers: dict[int, asyncio.Future[str | None]] = {}  # refusal, "" for none, None: connection lost

    async def open(self) -> None:
        """Connect; leave nothing behind on any failure."""
        opening = asyncio.ensure_future(self.__aenter__())
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._give_up("given up")
            await asyncio.wait([opening])  # the thread cannot be interrupted
            if opening.exception() is None:
                await self.leave()
            else:  # the broker may have accepted the connection already, so say goodbye
                async with self._linger():
                    self._client.disconnect()
                    self._client.loop_write()
                    self.drop("it was given up")
            raise
        except BaseException:
            self.drop("it was never open")
            raise
        raw: Any = self._client.socket()
        if raw is None:  # accepted and closed at once, which aiomqtt does not report
            self.drop("the broker or the network closed it")
        elif self.where.web:  # aiomqtt does not configure websockets
            raw._socket.setsockopt(*_NODELAY)  # noqa: SLF001 - paho's wrapper offers no other way
        self._disconnected.add_done_callback(self._note_end)

    async def leave(self) -> None:
        """Say goodbye, so that the broker publishes no will; a broker that does not react is left all the same."""
        async with self._linger():
            try:
                with contextlib.suppress(aiomqtt.MqttError):
                    await self.__aexit__(None, None, None)
            finally:
                self.drop("it was left")

    @asynccontextmanager
    async def _linger(self) -> AsyncIterator[None]:
        """Hold the connection after paho has closed it, until the broker closes it, too.

        To close a socket with something unread resets the connection, the goodbye can be lost with
        it, and then the broker publishes the will of a peer that left in order.
        """
        ours = self._client.socket()
        if ours is None:
            yield
            return
        with socket.socket(fileno=os.dup(ours.fileno())) as duplicate:
            yield
            duplicate.setblocking(False)
            with contextlib.suppress(OSError):  # a timeout is one
                duplicate.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(GOODBYE):
                    while await self._loop.sock_recv(duplicate, 2**16):
                        pass

    def drop(self, cause: str) -> None:
        """Close the socket without a goodbye."""
        if not self._disconnected.done():
            self._disconnected.set_exception(aiomqtt.MqttError(cause))
            self._disconnected.exception()  # seen; asyncio need not log it
        self._client._sock_close()  # noqa: SLF001 - disconnect() says goodbye

    async def send(self, topic: str, payload: bytes | bytearray, *, retain: bool, patience: float) -> str:
        """Publish and return the refusal of the broker, "" if there is none; it can give one at QoS 1 only.

        Raises
        ------
        TimeoutError
            There is no answer after ``patience`` seconds.
        """
        info = self._client.publish(topic, payload, qos=self.qos, retain=retain)
        if info.rc != 0:
            raise self.lost()
        if self.qos == 0 and info.is_published():
            await asyncio.sleep(0)  # let the others run
            return ""
        answer: asyncio.Future[str | None] = self._loop.create_future()
        self._answers[info.mid] = answer
        deadline = self._loop.call_later(patience, _expire, answer)  # less work than a timeout around each message
        try:
            refusal = await answer
        finally:
            deadline.cancel()
            self._answers.pop(info.mid, None)
        if refusal is None:
            raise self.lost(len(payload))
        return refusal

    async def ask(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call of aiomqtt until the connection ends."""
        asked = asyncio.ensure_future(call)
        try:
            waiting: set[asyncio.Future[Any]] = {asked, self._disconnected}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
        except aiomqtt.MqttError as error:
            if not self._disconnected.done():
                raise TransportError(
                    f"{self.where} did not answer a subscription within {ANSWER:g} s; check the link and the load of "
                    "the broker"
                ) from error
        finally:
            asked.cancel()
        raise self.lost()

    @property
    def ended(self) -> bool:
        """True once the connection is closed."""
        return self._disconnected.done()

    def lost(self, size: int = 0) -> TransportError:
        """Return the error of the lost connection with its cause; ``size`` bytes were on their way."""
        error = self._disconnected.exception() if self._disconnected.done() else None
        code = getattr(error, "rc", None)
        cause = str(code or error or "it was left")
        if getattr(code, "value", None) == _UNSPECIFIED:  # MQTT 3.1.1 does not transmit reasons
            cause = "the broker or the network closed it"
        remedy = "check the broker and whether another peer joined under the same name"
        if size > _ENVELOPE and self._mute:
            remedy = f"check the broker, and whether it accepts packets of {size} bytes"
        return TransportError(f"the connection to {self.where} is lost ({cause}); {remedy}")

    def refusal(self, pattern: str, code: Any) -> TransportError:
        """Return the error for a subscription that the broker refused with a reason code."""
        sentence = f"{self.where} refuses the subscription {pattern} ({code})"
        if code.value not in TEMPORARY:
            return RefusedError(f"{sentence}; check its access list and which subscriptions it supports")
        return BusyError(f"{sentence}: its access list forbids it, or it is busy; check its access list and its log")

    def _give_up(self, cause: str) -> None:
        if not self._connected.done():
            self._connected.set_exception(aiomqtt.MqttError(cause))
            self._connected.exception()  # seen; asyncio need not log it

    def _note_end(self, disconnected: asyncio.Future[None]) -> None:
        disconnected.exception()  # seen; asyncio need not log it
        self._client._sock_close()  # noqa: SLF001 - after a failed read aiomqtt leaves it open, and fails forever
        self.arrived.put_nowait(None)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Any = None) -> None:
        self.cap = getattr(properties, "MaximumPacketSize", self.cap)
        self.window = getattr(properties, "ReceiveMaximum", self.window)
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Any = None) -> None:
        self._give_up("it gave no answer")  # aiomqtt waits for one
        super()._on_disconnect(client, userdata, flags, reason_code, properties)

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:  # noqa: ARG002 - paho's signature
        content = message.topic, message.payload, bool(message.retain)
        if self.kept:
            acknowledge = partial(client.ack, message.mid, message.qos)
            self.arrived.put_nowait(KeptMessage(*content, message.mid, bool(message.dup), acknowledge))
        else:
            self.arrived.put_nowait(Message(*content))

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Any) -> None:  # noqa: ARG002 - paho's signature
        answer = self._answers.get(mid)
        if answer is not None and not answer.done():
            answer.set_result(str(reason_code) if reason_code.is_failure else "")

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:  # noqa: ARG002 - paho's signature
        # aiomqtt registers the socket's number later, when it may be closed or belong to another connection.
        def write() -> None:
            try:
                client.loop_write()
            except Exception as error:  # noqa: BLE001 - any error ends the connection
                self.drop(str(error))

        def register() -> None:
            if client.socket() is sock:
                write()  # at once: a small packet always fits into the buffer of the socket
            if client.socket() is sock and client.want_write():
                self._loop.add_writer(sock.fileno(), write)

        if self._connected.done():
            register()
        else:  # this may be the connecting thread
            self._loop.call_soon_threadsafe(register)
