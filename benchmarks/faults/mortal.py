"""A mosquitto that can be killed and started again on its port."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

from p2pfl.network.transport.broker import Broker, Program, mosquitto, run_program


class Mortal:
    """A mosquitto that can be killed and started again on its port.

    Parameters
    ----------
    folder
        Where it keeps what is retained; ``None`` to keep nothing.
    more
        Lines of its configuration, in place of the usual ones.
    host
        Where it listens.
    """

    def __init__(self, folder: Path | None = None, *, more: str = "", host: str = "127.0.0.1") -> None:
        found = mosquitto()
        if found is None:
            raise SystemExit("expected mosquitto, found none: apt install mosquitto")
        kept = f"persistence true\npersistence_location {folder}/\nautosave_interval 1\n"
        lines = (more if folder is None else kept + more).splitlines()
        said = tuple(line.split()[0] + " " for line in lines)

        def configuration(host: str, port: int) -> str:
            usual = [line for line in found.configuration(host, port).splitlines() if not line.startswith(said or "\n")]
            return "\n".join([*usual, *lines]) + "\n"

        self.program = Program(found.kind, found.command, configuration)
        self.host = host
        self.port = 0
        self._stack = ExitStack()
        self.broker: Broker | None = None

    def start(self) -> str:
        """Start it; its address stays the same."""
        self.broker = self._stack.enter_context(run_program(self.program, host=self.host, port=self.port))
        self.port = int(self.broker.url.rpartition(":")[2])
        return self.broker.url

    def stop(self, *, in_order: bool = False) -> None:
        """Kill it, or ask it to end."""
        if not in_order and self.broker is not None:
            os.kill(self.broker.pid, signal.SIGKILL)
        self._stack.close()
        self.broker = None

    def restart(self, *, in_order: bool = False) -> None:
        """Stop it and start it."""
        self.stop(in_order=in_order)
        self.start()
