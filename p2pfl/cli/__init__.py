"""Arguments and printing; torch is imported only by the commands that need it."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence

from p2pfl.cli.command import Options
from p2pfl.cli.command_catalogue import find, parse
from p2pfl.cli.interrupts import STATUS, Terminated, interruptible, terminate
from p2pfl.core.errors import InputError, MissingTableError, P2PFLError, RunError, is_out_of_memory
from p2pfl.core.registry import resolve
from p2pfl.core.texts import printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 done, 1 it failed, 2 the input was wrong, 130 it was interrupted.

    After SIGTERM it does not return, but ends the process by that signal.
    """
    line = sys.argv[1:] if arguments is None else [*arguments]
    # Read once, when torch loads OpenMP, whose idle threads otherwise spin while they wait for work: beside two
    # busy loops on two cores, training digits' baselines took 58 s spinning and 2.9 s asleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    atexit.register(gc.freeze)  # torch's objects have many cycles; Python need not take them apart for 0.8 s at the end
    try:
        with interruptible():
            options = parse(line)
            status: int = _function(options.command)(options)
            sys.stdout.flush()
    except MissingTableError as error:
        _say(f"{error}, or {options.one_table}", error)
        return error.status
    except P2PFLError as error:
        _say(str(error), error)
        return error.status
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        remedy = "run pip install torch, or call the command on a computer that has it"
        _say(f"p2pfl {options.command} needs torch, which is not installed here; {remedy}", error)
        return InputError.status
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _say("memory ran out; take fewer peers, fewer samples or a smaller model", error)
        return RunError.status
    except Terminated as termination:
        _say("terminated", termination)
        return terminate()
    except KeyboardInterrupt as interrupt:
        _say("interrupted", interrupt)
        return STATUS
    except BrokenPipeError:  # the reader closed the pipe; avoid the warning of the interpreter at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _function(command: str) -> Callable[[Options], int]:
    """Return the function of a command; on a device without torch, raise what Python says of it."""
    try:
        function: Callable[[Options], int] = resolve(find(command).function)
    except InputError as error:
        if isinstance(error.__cause__, ModuleNotFoundError) and error.__cause__.name == "torch":
            raise error.__cause__ from None
        raise
    return function


def _say(sentence: str, error: BaseException) -> None:
    message = "; ".join((sentence.rstrip("."), *getattr(error, "__notes__", ())))
    print(f"p2pfl: {printable(message)}", file=sys.stderr)
