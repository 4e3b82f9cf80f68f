"""Record of all runs on a table, as its account lists them, for an officer to file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.core.errors import InputError
from p2pfl.experiment.account_entries import AccountEntry, Entry, RunEntry, SampleEntry
from p2pfl.experiment.accounts import ENDING, beside_file
from p2pfl.privacy.accounting.examples import SampledSteps, compose_epsilon
from p2pfl.privacy.accounting.spending import Cost, spent
from p2pfl.results.spending.account_file import AccountFile

DELTA = 1e-5
"""Delta of the epsilon that all costs of an account add up to."""


def account_of(argument: str) -> Path | None:
    """Return the account that an argument names, or that of a table; ``None`` if it names neither."""
    path = Path(argument)
    if path.name.endswith(ENDING):
        return path
    account = beside_file(path)
    return account if path.is_file() and (account.is_file() or path.suffix.lower() != ".toml") else None


def recorded(path: Path) -> dict[str, Any]:
    """Return the runs and costs of an account as values for JSON, after all of its seals have been checked.

    Raises
    ------
    InputError
        The account is missing, or its lines were changed, removed or put back from an older copy.
    """
    file = AccountFile(path)
    entries = file.read()
    if not entries:
        raise InputError(f"{path} lists no run; name a table on which one has run")
    epsilon = {"people": _sample_epsilon(entries), "peers": _peer_epsilon(entries)}
    return {
        "account": str(path),
        "lines": file.lines,
        "sealed": file.sealed,
        "seal": file.seal,
        "delta": DELTA,
        "epsilon": epsilon,
        "runs": [each.results() for each in entries if isinstance(each, RunEntry)],
    }


def show(record: Mapping[str, Any]) -> None:
    """Print the record."""
    console = terminal.console()
    for number, run in enumerate(record["runs"], 1):
        console.print(Text(_sentence(number, run)), soft_wrap=not console.is_terminal)
        for reason in run.get("accepted", ()):
            sentence = f"run {number} was accepted although {reason}"
            console.print(Text(sentence, style="yellow"), soft_wrap=not console.is_terminal)
    for unit, epsilon in record["epsilon"].items():
        if epsilon is not None:
            console.print(f"all costs add up to epsilon {epsilon:.3g} for single {unit} at delta {record['delta']:g}")
    sealed, unsealed = record["sealed"], record["lines"] - record["sealed"]
    console.print(f"lines with a seal that fits: {sealed}; the last seal is {record['seal'] or 'none'}", soft_wrap=True)
    if unsealed:
        console.print(f"lines of release 0.1, which have no seal: {unsealed}")


def _sentence(number: int, run: Mapping[str, Any]) -> str:
    """Return what a run was."""
    totals = "exact totals" if run["exact"] else f"totals with noise, epsilon {run['epsilon']:.3g}"
    parts = [
        f"run {number}, {run['date']}: {run['run']}, {run['model']} of {run['samples']} people by {totals}",
        f"peers {', '.join(run['peers'])}",
        f"columns {', '.join(run['columns'])}",
    ]
    if run.get("purpose"):
        parts.append(f"purpose {run['purpose']}")
    if run.get("approver"):
        parts.append(f"approved by {run['approver']}")
    if run.get("signer"):
        parts.append(f"signed by {run['signer']}")
    return "; ".join(parts)


def _sample_epsilon(entries: list[AccountEntry]) -> float | None:
    """Return epsilon of all costs for single samples; ``None`` without any."""
    steps = Counter(
        SampledSteps(each.noise, each.rate, each.steps) for each in entries if isinstance(each, SampleEntry)
    )
    return compose_epsilon(steps, delta=DELTA) if steps else None


def _peer_epsilon(entries: list[AccountEntry]) -> float | None:
    """Return epsilon of all costs for peers as a whole; ``None`` without any."""
    costs = Counter(Cost(each.mu, each.probability) for each in entries if isinstance(each, Entry))
    return spent(costs, delta=DELTA) if costs else None
