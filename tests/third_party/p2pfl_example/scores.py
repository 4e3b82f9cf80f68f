"""A sink of one's own."""

from p2pfl.results import Record


def write_scores(event):
    """Append the scores of a round to ``scores.txt``."""
    if isinstance(event, Record):
        with open("scores.txt", "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(f"{event.peer} {event.round} {event.scores}\n")
