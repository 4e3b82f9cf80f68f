"""Arguments and printing; torch is imported only by the commands that need it."""

from __future__ import annotations

import atexit
import gc
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

from p2pfl.cli.arguments import parser
from p2pfl.cli.interrupts import STATUS, Terminated, interruptible, terminate
from p2pfl.core.errors import P2PFLError, RunError, is_out_of_memory
from p2pfl.core.texts import printable
from p2pfl.network.peer.launch import fork_server as server

GROUPS = {
    **dict.fromkeys(["run", "simulate", "peer", "repeat"], "running"),
    **dict.fromkeys(["topology", "explain", "privacy", "audit", "value"], "planning"),
    **dict.fromkeys(["identity", "broker", "deploy", "doctor"], "setup"),
    **dict.fromkeys(["sweep", "report", "watch", "schema"], "results"),
    **dict.fromkeys(["describe", "survival", "components"], "results"),
    **dict.fromkeys(["columns", "predict", "evaluate", "coefficients", "export", "card"], "results"),
}
"""Folder of each command, whose module ``commands`` has a function of its name."""

FORKING = ("run", "sweep")
"""Commands whose processes are forked."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 done, 1 it failed, 2 the input was wrong, 130 it was interrupted.

    After SIGTERM it does not return, but ends the process by that signal.
    """
    options = parser().parse_args(arguments)
    options.line = shlex.join(["p2pfl", *(sys.argv[1:] if arguments is None else arguments)])  # to repeat the command
    # Read once, when torch loads OpenMP, whose idle threads otherwise spin while they wait for work: beside two
    # busy loops on two cores, training digits' baselines took 58 s spinning and 2.9 s asleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    atexit.register(gc.freeze)  # torch's objects have many cycles; Python need not take them apart for 0.8 s at the end
    try:
        with interruptible(), ExitStack() as stack:
            if options.command in FORKING:  # what its processes need is imported while the command reads its input
                stack.enter_context(server.running(*_preloaded(options)))
            group = import_module(f"p2pfl.cli.{GROUPS[options.command]}.commands")  # --help must not wait for torch
            status: int = getattr(group, options.command)(options)
            sys.stdout.flush()
    except P2PFLError as error:
        _say(str(error), error)
        return error.status
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
    except BrokenPipeError:  # whoever read our output has had enough; Python would complain when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _preloaded(options: Namespace) -> list[str]:
    """Return the modules that forked processes need, as far as a glance at the input shows."""
    file = Path(options.experiment or "")
    texts = [*options.changes, file.read_text("utf-8", "replace") if file.is_file() else ""]
    trains = any("optimizer" in text for text in texts)
    needed = "p2pfl.plugins.study.preload" if options.command == "sweep" else server.PEERS
    return [needed, *(["p2pfl.network.peer.launch.preload_optimisers"] if trains else [])]


def _say(sentence: str, error: BaseException) -> None:
    said = "; ".join((sentence.rstrip("."), *getattr(error, "__notes__", ())))
    print(f"p2pfl: {printable(said)}", file=sys.stderr)
