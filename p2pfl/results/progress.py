"""Progress of a run, drawn in a terminal or in a notebook."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from p2pfl.results.records import Record, mean_scores

Observe = Callable[[list[Record]], None]
"""Function that is called with the records of each round."""


@contextlib.contextmanager
def show_progress(observe: Observe | None, *, rounds: int, wanted: bool) -> Iterator[Observe | None]:
    """Return a function that calls ``observe`` and draws the progress of the run, if it is ``wanted``.

    In a notebook the bar is a ``<progress>`` element under the cell. Elsewhere it is a line on standard error, which a
    terminal draws anew after each round; a log has its last state alone.

    Parameters
    ----------
    observe
        Function of the user.
    rounds
        Number of rounds of the run.
    wanted
        False to return ``observe`` itself.
    """
    if not wanted:
        yield observe
        return
    console = Console(stderr=True)
    with contextlib.ExitStack() as stack:
        show = _in_notebook(rounds) if console.is_jupyter else stack.enter_context(_in_terminal(console, rounds))

        def seen(records: list[Record]) -> None:
            show(records[0].round + 1, describe_scores(records))
            if observe is not None:
                observe(records)

        yield seen


def describe_scores(records: list[Record]) -> str:
    """Return the mean scores of a round as text.

    Examples
    --------
    >>> facts = {"round": 0, "distance": 0.0, "bytes_out": 0, "bytes_in": 0, "received": 2, "update": 1.0}
    >>> facts |= {"seconds_training": 0.0, "seconds_waiting": 0.0, "training_loss": 1.0, "disagreement": 0.0}
    >>> describe_scores([Record(peer="ada", scores={"loss": 0.4, "accuracy": 0.9}, **facts)])
    'loss 0.400, accuracy 0.900'
    """
    return ", ".join(f"{name} {score:.3f}" for name, score in mean_scores(records).items())


@contextlib.contextmanager
def _in_terminal(console: Console, rounds: int) -> Iterator[Callable[[int, str], None]]:
    """Draw a bar, and yield the function that takes how many rounds are done, and a text."""
    columns = "round", MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=rounds)
        yield lambda done, text: bar.update(task, completed=done, description=text)


def _in_notebook(rounds: int) -> Callable[[int, str], None]:
    """Draw a bar that needs no widgets, and return the function that takes how many rounds are done, and a text."""
    from IPython.display import HTML, display  # noqa: PLC0415 (there is a notebook)

    def drawn(done: int, text: str) -> Any:
        bar = f'<progress value="{done}" max="{rounds}" aria-label="rounds"></progress>'
        return HTML(f"{bar} round {done} of {rounds}{': ' if text else ''}{html.escape(text)}")

    shown: Any = display(drawn(0, ""), display_id=True)
    return lambda done, text: shown.update(drawn(done, text))
