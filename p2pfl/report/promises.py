"""What hides the updates of an experiment, what that promises, and what it does not, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p2pfl.experiment.protection import Protection
from p2pfl.privacy.accounting.colluders import parted
from p2pfl.privacy.settings import Settings


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
    mode = _hides(wanted.mode, settings)
    said: dict[str, Any] = {
        "mode": mode,
        "clip": settings.clip if settings.clip != float("inf") else None,
        "noise": settings.noise,
        "mask": settings.mask,
        "participation": settings.participation,
        "statement": _statement(mode),
        "epsilon": None,
        "examples": None,
    }
    each = ""
    if examples is not None:
        each = (
            f"({examples['epsilon']:.3g}, {wanted.delta:g})-differential privacy of each single sample inside a peer "
            "against everybody else; "
        )
        said |= {"examples": examples, "statement": f"{each}{_statement(mode, whose=' for a peer as a whole')}"}
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
            f"{who}; {_statement(mode, claimed=True)}",
        }
    )


def _bare(protection: Protection, mode: str) -> str:
    """What colluders could do, where masks are promised to nobody; with a claim it is refused."""
    colluders = protection.wanted.colluders
    few = parted(protection.graph, colluders=colluders) if mode == "pairwise" else ()
    if not few:
        return _thin(protection) if mode == "pairwise" else ""
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


def _hides(mode: str, settings: Settings) -> str:
    """What is left of a mode whose noises are zero."""
    if mode == "pairwise" and not settings.mask:
        mode = "independent"
    return "none" if mode == "independent" and not settings.noise else mode


def _statement(mode: str, *, claimed: bool = False, whose: str = "") -> str:
    left = "those shared with a peer that vanishes for good may stay in the mean, which is then said"
    hides = "masks hide each update among its honest neighbours and cancel in the mean"
    if mode == "secagg":
        left = "what hardly changes from round to round shows in many sums"
        hides = (
            "each peer is given the exact sum of its neighbours' rows and none of them; what the broker sees is under "
            "masks as secret as their keys, so that its line rests on cryptography, not on noise"
        )
    if mode == "none":
        return "rows are sealed against the broker, and every neighbour can read them"
    if claimed and mode == "secagg":
        return f"{hides}; private noise stays in the models"
    if claimed:
        return "private noise stays in the models" if mode == "independent" else f"{hides}; {left}"
    no = f"no differential privacy is claimed{whose}, for that asks for a clip and for noise"
    return f"private noise stays in the models; {no}" if mode == "independent" else f"{hides}; {no}; {left}"
