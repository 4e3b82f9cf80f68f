"""A broker of one's own: a child process on this machine, gone when its context is left.

Mosquitto if it is installed, otherwise iotcore from the Python package index. Nothing is written
to disk: mosquitto reads its configuration from a pipe, and what a broker says goes to a file without a name.
"""

import importlib.metadata
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from p2pfl.errors import BrokerError

PACKET = 2 * 1024 * 1024
"""Largest packet in bytes that an embedded broker takes."""

_QUEUE = 256 * 1024 * 1024  # bytes mosquitto keeps for one slow listener
_READY = 5.0  # seconds until it must listen
_STOP = 5.0  # seconds to end once asked
_TRIES = 5  # free ports to try where another process is quicker
_HELLO = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x05\x00\x00"  # MQTT 3.1.1, clean session, no name
_LAUNCH = Path(__file__).with_name("launch.py")
_PLACES = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"  # where packages put mosquitto, often not on PATH


@dataclass(frozen=True)
class Broker:
    """A running broker.

    Parameters
    ----------
    url
        For :class:`~p2pfl.transport.mqtt.MqttTransport`, from this machine.
    kind
        Its name and version.
    pid
        Its process.
    """

    url: str
    kind: str
    pid: int
    _process: "subprocess.Popen[bytes]" = field(repr=False)
    _log: IO[bytes] = field(repr=False)

    def wait(self) -> None:
        """Block until the broker ends, which of itself it should not.

        Raises
        ------
        BrokerError
            It has ended.
        """
        self._process.wait()
        raise BrokerError(
            f"expected {self.kind} at {self.url} to run on, but {_end(self._process, self._log)}: restart"
        )


@dataclass(frozen=True)
class Program:
    """A broker that is installed here.

    Parameters
    ----------
    kind
        Its name and version.
    command
        What to run for a host and a port, as :mod:`p2pfl.transport.launch` takes it.
    configuration
        What to write to its standard input, for a host and a port.
    """

    kind: str
    command: Callable[[str, int], list[str]]
    configuration: Callable[[str, int], str] = lambda _host, _port: ""


@contextmanager
def embedded(*, host: str = "127.0.0.1", port: int = 0, kind: str = "auto") -> Iterator[Broker]:
    """Run a broker as a child process for as long as the context lasts.

    It lets in whoever can reach it, so leave it on loopback unless the network is trusted. On Linux it
    dies with the thread that started it, even if that is killed; Ctrl+C at the terminal does not reach it.

    Parameters
    ----------
    host
        Address to listen on.
    port
        Port to listen on; 0 takes a free one.
    kind
        ``mosquitto``, ``iotcore``, or ``auto`` for the first of them that is installed.

    Raises
    ------
    BrokerError
        There is no such broker, the port is taken, or the broker does not start.
    """
    if not 0 <= port < 2**16:
        raise BrokerError(f"expected a port from 0 to 65535, got {port}: choose another, or 0 for any that is free")
    finders = {"mosquitto": mosquitto, "iotcore": iotcore}
    if kind not in ("auto", *finders):
        raise BrokerError(f"expected the broker to be auto, mosquitto or iotcore, got {kind!r}: choose one of them")
    wanted = list(finders) if kind == "auto" else [kind]
    program = next((found for name in wanted if (found := finders[name]())), None)
    if program is None:
        raise BrokerError(
            f"expected {' or '.join(wanted)} on this machine, found none: `apt install mosquitto` (or `brew install"
            " mosquitto`), or `pip install iotcore`, or name a running broker's URL"
        )
    with running(program, host=host, port=port) as broker:
        yield broker


def mosquitto() -> Program | None:
    """Find mosquitto, on PATH or where packages put it."""
    binary = shutil.which("mosquitto") or shutil.which("mosquitto", path=_PLACES)
    if binary is None:
        return None
    says = subprocess.run([binary, "-h"], capture_output=True, text=True, check=False).stdout  # noqa: S603 - found above
    return Program(
        says.partition("\n")[0].replace("version ", ""),
        lambda _host, _port: [binary, "-c", "/dev/stdin"],
        _configuration,
    )


def iotcore() -> Program | None:
    """Find iotcore, if it is installed for this Python."""
    try:
        version = importlib.metadata.version("iotcore")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Program(f"iotcore {version}", lambda host, port: ["iotcore", _shown(host), str(port), str(PACKET)])


def _configuration(host: str, port: int) -> str:
    """Mosquitto's settings; its own would drop messages early, run Nagle's algorithm and cap packets by version.

    The user matters to root alone: a process that gives up its rights also loses the kernel's promise
    to kill it with its parent.
    """
    return f"""\
user root
listener {port} {host}
allow_anonymous true
set_tcp_nodelay true
max_packet_size {PACKET}
max_queued_messages 100000
max_queued_bytes {_QUEUE}
max_inflight_messages 100
persistence false
sys_interval 0
log_dest stderr
log_type error
log_type warning
"""


@contextmanager
def running(program: Program, *, host: str, port: int) -> Iterator[Broker]:
    """Run a program as :func:`embedded` does."""
    with tempfile.TemporaryFile("a+b") as log:
        process, number = _start(program, host, port, log)
        try:
            yield Broker(f"mqtt://{_shown(_reach(host))}:{number}", program.kind, process.pid, process, log)
        finally:
            _stop(process)


def _start(program: Program, host: str, port: int, log: IO[bytes]) -> tuple["subprocess.Popen[bytes]", int]:
    """Start it, on another free port where somebody took the first one in between."""
    for remaining in reversed(range(_TRIES)):
        number = _vacant(host, port)
        process = subprocess.Popen(  # noqa: S603 - our own command line
            # -P: this room's modules must not pass for somebody else's.
            [sys.executable, "-P", str(_LAUNCH), str(os.getpid()), *program.command(host, number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # Ctrl+C is for us; peers leave before the broker does
        )
        try:
            if _listens(process, program.configuration(host, number), host, number):
                return process, number
            said = _end(process, log)
        except BaseException:
            _stop(process)
            raise
        _stop(process)
        if not remaining or port or "in use" not in said:
            break
    raise BrokerError(
        f"expected {program.kind} to listen on {host}:{number}, but {said}: mend that or name another broker"
    )


def _vacant(host: str, port: int) -> int:
    """Return the port if nobody listens there, or one of the system's choice for 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        # A name that is not known has numbers of its own.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise BrokerError(
            f"expected to listen on {host}:{port}, but that cannot be had ({reason}): choose another port, or 0 for any"
        ) from None


def _listens(process: "subprocess.Popen[bytes]", configuration: str, host: str, port: int) -> bool:
    """Configure it and wait until it listens; false if it ended or took too long."""
    if process.stdin is not None:
        with suppress(BrokenPipeError), process.stdin as pipe:  # if broken, the log says why
            pipe.write(configuration.encode())
    deadline = time.monotonic() + _READY
    while process.poll() is None and time.monotonic() < deadline:
        if _reacts(_reach(host), port):
            return process.poll() is None
        time.sleep(0.005)
    return False


def _reacts(host: str, port: int) -> bool:
    """Tell whether a broker is there; a stranger on our port would wait for more than a hello."""
    try:
        with socket.create_connection((host, port), timeout=0.2) as probe:
            probe.sendall(_HELLO)
            probe.recv(4)
    except ConnectionResetError:  # with TLS a hello is an insult
        return True
    except OSError:
        return False
    return True


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _reach(host: str) -> str:
    """Where a broker that listens everywhere is reached from here."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - if the user says so


def _shown(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def _end(process: "subprocess.Popen[bytes]", log: IO[bytes]) -> str:
    """How a process came to its end, with its last words."""
    size = os.fstat(log.fileno()).st_size
    lines = os.pread(log.fileno(), 4096, max(0, size - 4096)).decode(errors="replace").strip().splitlines()
    words = lines[-1] if lines else "it said nothing"
    status = process.poll()
    return (
        f"it did not within {_READY:.0f} s ({words})" if status is None else f"it ended with status {status} ({words})"
    )
