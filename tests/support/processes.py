"""Questions about processes that may end by themselves at any moment."""

import psutil


def command_line(process):
    """The words of its command; none of one that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # psutil.ZombieProcess is one
        return ""


def has_ended(process):
    """Whether it has ended; an orphan that nobody has reaped yet has."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
