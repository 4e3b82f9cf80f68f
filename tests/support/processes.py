"""Questions about processes that may end by themselves at any moment."""

import psutil


def command_line(process):
    """Return the command line of a process, empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # psutil.ZombieProcess is one
        return ""


def has_ended(process):
    """Return whether a process has ended; an orphan that nobody has reaped yet counts as ended."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
