"""Live peers over brokers of several kinds, one node of which is killed in the middle of the run.

    python -m benchmarks.brokers [mosquitto] [bridge] [nats] [nats-cluster] [rabbitmq] [rabbitmq-cluster]

Four peers learn digits on a ring, each in a process of its own (``p2pfl peer``). Where a broker has several nodes, each
peer begins its list of them with another one. Once a peer ends round 10, ``kill -9`` ends the first node; a broker of
one node is started again. Needs Debian's packages mosquitto, nats-server and rabbitmq-server.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROUNDS = 30
KILLED_AFTER = 10
PEERS = 4
LONGEST = 400.0
"""Seconds within which all peers must end."""

SBIN = ":/usr/sbin:/usr/lib/rabbitmq/bin"
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one on PATH refuses to run as another user

EXPERIMENT = f"""
name = "brokers"
seed = 7
rounds = {ROUNDS}
[topology]
kind = "ring"
peers = {PEERS}
[data]
name = "digits"
[model]
name = "mlp"
hidden = [32]
[gossip]
steps = 4
[transport]
patience = 120
gather = 300
"""


def free() -> int:
    """Return a port that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@dataclass
class Node:
    """One broker process.

    Parameters
    ----------
    command, environment
        How it is started.
    port
        Where it accepts clients.
    after
        Process that must answer before this one starts.
    mqtt
        False if its clients do not speak MQTT.
    """

    command: list[str]
    port: int
    environment: dict[str, str] = field(default_factory=dict)
    after: "Node | None" = None
    mqtt: bool = True
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start it in a session of its own, once the process that it needs answers."""
        if self.after is not None:
            within(120, self.after.listens, "the broker to answer")
        environment = {**os.environ, "PATH": os.environ["PATH"] + SBIN, **self.environment}
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(  # noqa: S603 (a program of the table below)
            self.command, env=environment, start_new_session=True, stdin=quiet, stdout=quiet, stderr=quiet
        )

    def kill(self) -> None:
        """``kill -9`` it, with what it started."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def listens(self) -> bool:
        """Return whether it answers a client."""
        name = f"{time.monotonic_ns():020d}".encode()  # a cluster delays a second client of one name
        hello = b"\x10\x20\x00\x04MQTT\x04\x02\x00\x0a\x00\x14" + name
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as one:
                if not self.mqtt:
                    return True
                one.sendall(hello)
                accepted = one.recv(4) == b"\x20\x02\x00\x00"
                one.sendall(b"\xe0\x00")
                return accepted
        except OSError:
            return False


def mosquittos(folder: Path, *, nodes: int) -> list[Node]:
    """Mosquitto; of two, the second is bridged to the first."""
    ports = [free() for _ in range(nodes)]
    made = []
    for number, port in enumerate(ports):
        lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "set_tcp_nodelay true"]
        lines += ["max_queued_messages 100000"]
        if number:
            lines += ["connection hub", f"address 127.0.0.1:{ports[0]}", "topic p2pfl/v1/# both 1"]
            lines += ["keepalive_interval 10", "restart_timeout 1 5"]
        (folder / f"{number}.conf").write_text("\n".join(lines) + "\n")
        made.append(Node(["mosquitto", "-c", str(folder / f"{number}.conf")], port))
    return made


def nats(folder: Path, *, nodes: int) -> list[Node]:
    """``nats-server``; several form a cluster that replicates its streams."""
    routes = [free() for _ in range(nodes)]
    made = []
    for number in range(nodes):
        port = free()
        text = f"server_name: n{number}\nlisten: 127.0.0.1:{free()}\nmqtt {{ listen: 127.0.0.1:{port} }}\n"
        text += f'jetstream {{ store_dir: "{folder}/{number}" }}\n'
        if nodes > 1:
            others = ", ".join(f"nats://127.0.0.1:{each}" for each in routes)
            text += f"cluster {{ name: c, listen: 127.0.0.1:{routes[number]}, routes: [{others}] }}\n"
        (folder / f"{number}.conf").write_text(text)
        made.append(Node(["nats-server", "-c", str(folder / f"{number}.conf")], port))
    return made


def rabbits(folder: Path, *, nodes: int) -> list[Node]:
    """RabbitMQ with its MQTT plugin; several form a cluster, and first comes the process that knows their ports.

    Nodes start one after another. If they start together, some never join the group that knows which clients are
    connected, and refuse all clients.
    """
    names = [f"p2pfl{number}_{os.getpid()}@localhost" for number in range(nodes)]
    (folder / "plugins").write_text("[rabbitmq_mqtt].\n")
    (folder / ".erlang.cookie").write_text("COOKIEOFP2PFLBENCH")
    (folder / ".erlang.cookie").chmod(0o400)
    mapper = free()
    made = [Node(["epmd", "-address", "127.0.0.1", "-port", str(mapper)], mapper, mqtt=False)]
    for number, name in enumerate(names):
        port = free()
        lines = [f"mqtt.listeners.tcp.1 = 127.0.0.1:{port}", "mqtt.allow_anonymous = true", "loopback_users = none"]
        if nodes > 1:
            lines += ["cluster_formation.peer_discovery_backend = classic_config"]
            lines += [f"cluster_formation.classic_config.nodes.{at + 1} = {each}" for at, each in enumerate(names)]
        (folder / f"{number}.conf").write_text("\n".join(lines) + "\n")
        environment = {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": name,
            "RABBITMQ_NODE_PORT": str(free()),
            "RABBITMQ_DIST_PORT": str(free()),
            "RABBITMQ_CONFIG_FILE": str(folder / f"{number}.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
        }
        made.append(Node([RABBITMQ], port, environment, after=made[-1]))
    return made


KINDS: dict[str, tuple[str, str, int, Callable[..., list[Node]], tuple[str, ...]]] = {
    "mosquitto": ("mosquitto", "mosquitto", 1, mosquittos, ()),
    "bridge": ("two bridged mosquittos", "mosquitto", 2, mosquittos, ()),
    "nats": ("nats-server", "nats-server", 1, nats, ()),
    "nats-cluster": ("three nats-servers", "nats-server", 3, nats, ("transport.mqtt.qos=0",)),
    "rabbitmq": ("RabbitMQ", RABBITMQ, 1, rabbits, ()),
    "rabbitmq-cluster": ("three RabbitMQ", RABBITMQ, 3, rabbits, ("transport.mqtt.qos=0",)),
}
"""What each kind is called, the program it needs, its nodes, what makes them, and settings of the experiment."""


@contextmanager
def running(nodes: Sequence[Node]) -> Iterator[None]:
    """Run all processes of a broker, from when they answer."""
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.kill)
            node.start()
        within(120, lambda: all(node.listens() for node in nodes), "the broker to answer")
        yield


def within(seconds: float, done: Callable[[], bool], what: str) -> float:
    """Wait for something; return after how many seconds it was there."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)
    return time.monotonic() - began


def peers(nodes: Sequence[Node], folder: Path, *, changes: Sequence[str], stack: ExitStack) -> dict[str, Path]:
    """Start the peers; return where each writes."""
    (folder / "brokers.toml").write_text(EXPERIMENT)
    outputs = {}
    for number in range(PEERS):
        name = f"peer{number}"
        first = number % len(nodes)
        urls = [f"mqtt://127.0.0.1:{node.port}" for node in (*nodes[first:], *nodes[:first])]
        command = [sys.executable, "-m", "p2pfl", "peer", "brokers.toml", "--name", name, "--runs", f"runs-{name}"]
        command += [part for url in urls for part in ("--broker", url)]
        command += [part for change in changes for part in ("--set", change)]
        outputs[name] = folder / f"{name}.txt"
        with outputs[name].open("wb") as file:
            process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT)  # noqa: S603 (ours)
        stack.callback(process.wait)
        stack.callback(process.kill)  # which is called first
    return outputs


def reached(output: Path) -> int:
    """Return the last round that a peer has printed."""
    rounds = re.findall(r"^round (\d+)/", output.read_text(), re.MULTILINE)
    return int(rounds[-1]) if rounds else 0


def row(kind: str, folder: Path) -> str:
    """Return the line of one kind of broker."""
    title, program, number, made, changes = KINDS[kind]
    if shutil.which(program, path=os.environ["PATH"] + SBIN) is None:
        return f"| {title} | not installed | | | |"
    processes = made(folder, nodes=number)
    nodes = processes[-number:]
    with running(processes), ExitStack() as stack:
        outputs = peers(nodes, folder, changes=changes, stack=stack)
        start = within(LONGEST, lambda: min(map(reached, outputs.values())) > 0, "the first round")
        before = within(LONGEST, lambda: max(map(reached, outputs.values())) >= KILLED_AFTER, "the round of the kill")
        nodes[0].kill()
        if number == 1:
            nodes[0].start()
        after = within(LONGEST, lambda: min(map(reached, outputs.values())) >= ROUNDS, "the last round")
    scores = [
        float(found)
        for each in outputs.values()
        for found in re.findall(r"^round 30/.*accuracy ([\d.]+)", each.read_text(), re.MULTILINE)
    ]
    left = ", ".join(changes) or "-"
    seconds = " | ".join(f"{each:.0f} s" for each in (start, before, after))
    return f"| {title} | {left} | {seconds} | {min(scores):.3f} to {max(scores):.3f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all by default")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the brokers as well
    unknown = set(options.kinds) - set(KINDS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))} is no kind of broker; choose from {', '.join(KINDS)}")
    columns = ["broker", "settings", "until round 1", f"rounds 2 to {KILLED_AFTER}"]
    columns += [f"{ROUNDS - KILLED_AFTER} rounds from the kill", "accuracy"]
    print(f"| {' | '.join(columns)} |\n| --- | --- | ---: | ---: | ---: | --- |", flush=True)
    for kind in options.kinds or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(row(kind, Path(folder)), flush=True)
            except TimeoutError as error:
                print(f"| {KINDS[kind][0]} | failed: {error} | | | | |", flush=True)
                for name in sorted(Path(folder).glob("peer*.txt")):
                    print(name.name, *name.read_text().splitlines()[-4:], sep="\n    ", file=sys.stderr)


if __name__ == "__main__":
    main()
