"""Arguments and printing; torch is imported only by the commands that need it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from p2pfl.cli.arguments import parser
from p2pfl.errors import P2PFLError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 done, 1 it failed, 2 the input was wrong."""
    options = parser().parse_args(arguments)
    from p2pfl.cli import commands  # noqa: PLC0415 (--help must not wait for torch)

    try:
        status: int = getattr(commands, options.command)(options)
    except P2PFLError as error:
        print(f"p2pfl: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("p2pfl: interrupted; what was written stays", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    return status
