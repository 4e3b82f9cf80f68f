"""Embedded broker: a child process on this machine that ends with its context.

It is mosquitto if installed, otherwise iotcore from the Python package index. Nothing is written
to disk: mosquitto reads its configuration from a pipe, and the log of a broker goes to an unnamed file.
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

from p2pfl.core.errors import BrokerError

PACKET = 2 * 1024 * 1024
"""Largest packet in bytes that an embedded broker accepts."""

_QUEUE = 256 * 1024 * 1024  # bytes mosquitto queues for one slow receiver
_READY = 30.0  # timeout in seconds until it listens
_STOP = 5.0  # timeout in seconds for it to end
_TRIES = 5  # number of free ports to try if other processes take them first
_HELLO = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x05\x00\x00"  # MQTT 3.1.1, clean session, no name
_LAUNCH = Path(__file__).with_name("launch.py")
_PLACES = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"  # where packages put mosquitto, often not on PATH


@dataclass(frozen=True)
class Broker:
    """Running broker.

    Parameters
    ----------
    url
        URL for :class:`~p2pfl.network.transport.mqtt.MqttTransport` on this machine.
    kind
        Name and version of the broker.
    pid
        Process ID.
    """

    url: str
    kind: str
    pid: int
    _process: "subprocess.Popen[bytes]" = field(repr=False)
    _log: IO[bytes] = field(repr=False)

    def wait(self) -> None:
        """Block until the broker ends, which it does only by accident.

        Raises
        ------
        BrokerError
            The broker has ended.
        """
        self._process.wait()
        raise BrokerError(f"{self.kind} at {self.url} stopped, as {_end(self._process, self._log)}; restart it")


@dataclass(frozen=True)
class Program:
    """Installed broker program.

    Parameters
    ----------
    kind
        Name and version.
    command
        Command for a host and a port, as arguments of :mod:`p2pfl.network.transport.launch`.
    configuration
        Text for its standard input, for a host and a port.
    """

    kind: str
    command: Callable[[str, int], list[str]]
    configuration: Callable[[str, int], str] = lambda _host, _port: ""


@contextmanager
def embedded(*, host: str = "127.0.0.1", port: int = 0, kind: str = "auto") -> Iterator[Broker]:
    """Run a broker as a child process for as long as the context lasts.

    It accepts all clients that can reach it, so leave it on loopback unless the network is trusted. On Linux it
    ends with the thread that started it, even if that is killed; Ctrl+C at the terminal does not reach it.

    Parameters
    ----------
    host
        Address to listen on.
    port
        Port to listen on; 0 chooses a free one.
    kind
        ``mosquitto``, ``iotcore``, or ``auto`` for the first of them that is installed.

    Yields
    ------
    Broker
        The running broker.

    Raises
    ------
    BrokerError
        No such broker is installed, the port is in use, or the broker does not start.
    """
    if not 0 <= port < 2**16:
        raise BrokerError(f"{port} is not a port from 0 to 65535; choose another, or 0 for any free one")
    finders = {"mosquitto": mosquitto, "iotcore": iotcore}
    if kind not in ("auto", *finders):
        raise BrokerError(f"the broker {kind!r} is unknown; choose auto, mosquitto or iotcore")
    wanted = list(finders) if kind == "auto" else [kind]
    program = next((candidate for name in wanted if (candidate := finders[name]())), None)
    if program is None:
        raise BrokerError(
            f"{' and '.join(wanted)} {'are' if len(wanted) > 1 else 'is'} not installed; run `apt install "
            "mosquitto` (or `brew install mosquitto`) or `pip install iotcore`, or give the URL of a running "
            "broker"
        )
    with run_program(program, host=host, port=port) as broker:
        yield broker


def mosquitto() -> Program | None:
    """Find mosquitto on PATH or where packages install it."""
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
    """Find iotcore if it is installed for this Python."""
    try:
        version = importlib.metadata.version("iotcore")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Program(f"iotcore {version}", lambda host, port: ["iotcore", _bracket(host), str(port), str(PACKET)])


def _configuration(host: str, port: int) -> str:
    """Return mosquitto's settings; its defaults drop messages early, use Nagle's algorithm and cap packets by version.

    The user matters to root only: a process that drops its privileges also loses the guarantee of the kernel
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
def run_program(program: Program, *, host: str, port: int) -> Iterator[Broker]:
    """Run a program as :func:`embedded` does."""
    with tempfile.TemporaryFile("a+b") as log:
        process, number = _start(program, host, port, log)
        try:
            yield Broker(f"mqtt://{_bracket(_reach(host))}:{number}", program.kind, process.pid, process, log)
        finally:
            _stop(process)


def _start(program: Program, host: str, port: int, log: IO[bytes]) -> tuple["subprocess.Popen[bytes]", int]:
    """Start a program, on another free port if another process takes the first one."""
    for remaining in reversed(range(_TRIES)):
        number = _vacant(host, port)
        process = subprocess.Popen(  # noqa: S603 - our own command line
            # -P: modules of this folder must not shadow other packages.
            [sys.executable, "-P", str(_LAUNCH), str(os.getpid()), *program.command(host, number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # Ctrl+C reaches the parent only; peers leave before the broker ends
        )
        try:
            if _listens(process, program.configuration(host, number), host, number):
                return process, number
            reason = _end(process, log)
        except BaseException:
            _stop(process)
            raise
        _stop(process)
        if not remaining or port or "in use" not in reason:
            break
    raise BrokerError(
        f"{program.kind} does not listen on {host}:{number}, as {reason}; fix that or name another broker"
    )


def _vacant(host: str, port: int) -> int:
    """Return the port if it is free, or one chosen by the system for 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        # An unknown host name has its own error numbers.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise BrokerError(f"{host}:{port} is not available ({reason}); choose another port, or 0 for any") from None


def _listens(process: "subprocess.Popen[bytes]", configuration: str, host: str, port: int) -> bool:
    """Configure the process and wait until it listens; return false if it ended or timed out."""
    if process.stdin is not None:
        with suppress(BrokenPipeError), process.stdin as pipe:  # if broken, the log states the reason
            pipe.write(configuration.encode())
    deadline = time.monotonic() + _READY
    while process.poll() is None and time.monotonic() < deadline:
        if _owns(process, port) and _reacts(_reach(host), port):
            return process.poll() is None
        time.sleep(0.005)
    return False


def _owns(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Return whether the process listens on the port; true where the system does not tell.

    The broker of another process may have taken the port since it was free, and would answer in its place.
    """
    if sys.platform != "linux":
        return True
    tables = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
    lines = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    here = [each for each in lines if each[3] == "0A" and int(each[1].split(":")[1], 16) == port]  # 0A: it listens
    sockets = {f"socket:[{each[9]}]" for each in here}
    try:
        return any(str(each.readlink()) in sockets for each in Path(f"/proc/{process.pid}/fd").iterdir())
    except OSError:  # a descriptor was closed, or the process ended, meanwhile
        return False


def _reacts(host: str, port: int) -> bool:
    """Return whether a broker answers there; another server on the port would wait for more than a CONNECT."""
    try:
        with socket.create_connection((host, port), timeout=0.2) as probe:
            probe.sendall(_HELLO)
            probe.recv(4)
    except ConnectionResetError:  # a broker with TLS resets plain connections
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
    """Return the address at which a broker that listens on all interfaces is reached from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - if the user wants it


def _bracket(host: str) -> str:
    """Return a host in the form in which it precedes a port."""
    return f"[{host}]" if ":" in host else host


def _end(process: "subprocess.Popen[bytes]", log: IO[bytes]) -> str:
    """Describe the end of a process, with the last line of its log."""
    size = os.fstat(log.fileno()).st_size
    lines = os.pread(log.fileno(), 4096, max(0, size - 4096)).decode(errors="replace").strip().splitlines()
    words = lines[-1] if lines else "it logged nothing"
    status = process.poll()
    return (
        f"it did not start within {_READY:.0f} s ({words})"
        if status is None
        else f"it ended with status {status} ({words})"
    )
