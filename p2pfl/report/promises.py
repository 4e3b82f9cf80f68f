"""What hides the updates of an experiment, what that promises, and what it does not, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p2pfl.experiment.modes import Mode
from p2pfl.experiment.protection import Protection
from p2pfl.privacy.accounting.colluders import parted


def promise(
    protection: Protection, *, spent: float | None, examples: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what is promised, as a summary says it.

    Parameters
    ----------
    protection
        Of the experiment.
    spent
        Epsilon so far; ``None`` before anything has run, for what all rounds will have spent.
    examples
        What is promised to single samples; ``None`` where nothing is.
    """
    wanted, settings = protection.wanted, protection.settings
    mode = protection.mode.effective(settings)
    said: dict[str, Any] = {
        "mode": mode.name,
        "clip": settings.clip if settings.clip != float("inf") else None,
        "noise": settings.noise,
        "mask": settings.mask,
        "participation": settings.participation,
        "statement": mode.statement(claimed=False),
        "epsilon": None,
        "examples": None,
    }
    each = ""
    if examples is not None:
        each = (
            f"({examples['epsilon']:.3g}, {wanted.delta:g})-differential privacy of each single sample inside a peer "
            "against everybody else; "
        )
        said |= {
            "examples": examples,
            "statement": f"{each}{mode.statement(claimed=False, whose=' for a peer as a whole')}",
        }
    if not protection.claimed:
        return said | {"statement": said["statement"] + _bare(protection, mode)}
    if spent is None:
        spent = protection.spent({protection.cost: protection.affordable})
    among = {0: "", 1: " and any colluding peer"}
    who = "a broker that only listens" + among.get(wanted.colluders, f" and any {wanted.colluders} colluding peers")
    promised = {"epsilon": spent, "delta": wanted.delta, "adjacency": wanted.adjacency}
    return (
        said
        | promised
        | {
            "colluders": wanted.colluders,
            "statement": f"{each}({spent:.3g}, {wanted.delta:g})-differential privacy of each peer's data against "
            f"{who}; {mode.statement(claimed=True)}",
        }
    )


def _bare(protection: Protection, mode: Mode) -> str:
    """What colluders could do, where masks are promised to nobody; with a claim it is refused."""
    colluders = protection.wanted.colluders
    few = parted(protection.graph, colluders=colluders) if mode.traits.masks else ()
    if not few:
        return _thin(protection) if mode.traits.masks else ""
    what = "take all masks off a row" if len(few) == 1 else "leave but two peers to hide each other"
    if not colluders:
        return "; two peers can take all masks off each other's rows: take more peers"
    who = "one colluding peer" if colluders == 1 else f"{colluders} colluding peers"
    return f"; {who} could {what}: take more peers, a denser topology or privacy.mask_graph"


def _thin(protection: Protection) -> str:
    """Say that fewer mask partners are enough than hide a row from those who may collude."""
    partners = protection.partners
    if partners > protection.wanted.colluders:
        return ""
    count = "one mask partner" if partners == 1 else f"{partners} mask partners"
    who = "that partner" if partners == 1 else "these partners"
    return f"; rows leave with {count} (privacy.partners), so {who} and the broker together can read them"
