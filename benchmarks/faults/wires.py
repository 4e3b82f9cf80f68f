"""Hosts in network namespaces on two sides of a cable that can be cut; needs root and iproute2."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

SIDES = ("near", "far")


def possible() -> bool:
    """Whether this machine lets us."""
    if os.geteuid() or shutil.which("ip") is None:
        return False
    tag = f"p2pfl{os.getpid()}-try"
    try:
        _ip("netns", "add", tag)
    except subprocess.CalledProcessError:
        return False
    _ip("netns", "delete", tag)
    return True


class Wires:
    """A switch on each side, every host on one of them by a cable of its own, and one cable between the two.

    Parameters
    ----------
    near, far
        The hosts' names.
    """

    def __init__(self, *, near: Sequence[str], far: Sequence[str]) -> None:
        self.tag = f"p2pfl{os.getpid()}"
        self.sides = {"near": tuple(near), "far": tuple(far)}
        self.address = {host: f"10.77.0.{number}" for number, host in enumerate([*near, *far], start=1)}

    def inside(self, host: str) -> str:
        """The namespace of a host."""
        return f"{self.tag}-{host}"

    def __enter__(self) -> Self:
        """Lay them."""
        try:
            self._lay()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _lay(self) -> None:
        switches = self.inside("switches")
        _ip("netns", "add", switches)
        for side in SIDES:
            _ip("-n", switches, "link", "add", side, "type", "bridge")
            _ip("-n", switches, "link", "set", side, "up")
        _ip("-n", switches, "link", "add", "to-far", "type", "veth", "peer", "name", "to-near")
        for side, end in (("near", "to-far"), ("far", "to-near")):
            _ip("-n", switches, "link", "set", end, "master", side, "up")
        for side, hosts in self.sides.items():
            for host in hosts:
                own = self.inside(host)
                _ip("netns", "add", own)
                _ip("link", "add", host, "netns", switches, "type", "veth", "peer", "name", "eth0", "netns", own)
                _ip("-n", switches, "link", "set", host, "master", side, "up")
                _ip("-n", own, "address", "add", f"{self.address[host]}/24", "dev", "eth0")
                _ip("-n", own, "link", "set", "eth0", "up")
                _ip("-n", own, "link", "set", "lo", "up")

    def __exit__(self, *_: object) -> None:
        """Take them away."""
        for host in ("switches", *self.address):
            with suppress(subprocess.CalledProcessError):  # it may not have come so far
                _ip("netns", "delete", self.inside(host))

    def cut(self) -> None:
        """Let nothing pass from side to side, without a notice to anybody."""
        _ip("-n", self.inside("switches"), "link", "set", "to-far", "down")

    def heal(self) -> None:
        """Let everything pass again."""
        _ip("-n", self.inside("switches"), "link", "set", "to-far", "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)  # noqa: S603, S607 - as PATH has it
