"""``python -m p2pfl`` is the command ``p2pfl``."""

from p2pfl.cli import main

status = main()
# Ctrl-C while Python executes a string, as for the methods of a dataclass, marks the process as interrupted, although
# `main` handles it: with `-m`, Python would then end by SIGINT and not with the status. Another string lifts the mark.
exec("")  # noqa: S102  # nosec B102
raise SystemExit(status)
