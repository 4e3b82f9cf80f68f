"""The command, in its own process or in this one."""

from commands import fork, gone, p2pfl, place, start  # noqa: F401 (fixtures)
