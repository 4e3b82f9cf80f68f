"""Privacy statement of an experiment: what hides the updates, what this guarantees, and what it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from p2pfl.experiment import Experiment
from p2pfl.experiment.accounts import NOT_ACCOUNTED, beside
from p2pfl.experiment.modes import Mode
from p2pfl.experiment.protection import Protection
from p2pfl.privacy.accounting.colluders import find_parted_peers

RECOMPUTABLE = "no differential privacy is claimed, because the noise can be recomputed from the seed"
"""Statement on private noise that follows from a seed, or from another source that the caller gave."""

DIFFERENCE = (
    "two such results of which one lacks a sample, or a peer, show by their difference exactly what that sample, or "
    "that peer, adds to the totals, however many others there are"
)
"""Sentence on what the exact totals of two runs show, of whatever model or statistic."""


LEDGER = "the account of the data refuses a run that shows few people, or one peer, by such a difference"
"""Sentence on what the account does about the difference."""

NO_LEDGER = "no file lists the runs on these data, so none refuses such a second one; name a file in privacy.budget"
"""Sentence on data without an account."""

STARTED = (
    "this covers nothing that the model with which it begins has learned of these data, unless one account counts both"
)
"""Sentence on a guarantee of a run that begins with a model of an earlier one."""


def promise(
    experiment: Experiment,
    protection: Protection,
    *,
    spent: float | None,
    examples: Mapping[str, Any] | None = None,
    recomputable: bool = False,
) -> dict[str, Any]:
    """Return the guarantee in the form of the summary.

    Parameters
    ----------
    experiment, protection
        Experiment, and protection of its updates.
    spent
        Epsilon so far; ``None`` before the run, for the cost of all rounds.
    examples
        Guarantee for single samples, or ``None``.
    recomputable
        True if there is private noise, of which whoever knows the seed can compute every number.
    """
    stated = _promise(protection, spent=spent, examples=examples, recomputable=recomputable)
    if len(peers := protection.graph.peers) == 1 and not protection.claimed and examples is None:
        return stated | {"statement": f"these are the data of {peers[0]} alone, which stay on this machine"}
    statement = "; ".join([stated["statement"], *_limits(experiment, protection, stated)])
    return stated | {"statement": statement}


def _limits(experiment: Experiment, protection: Protection, stated: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a guarantee does not cover: other exact totals of the run, and other runs."""
    wanted = {"data.scale": experiment.data.scale, "learning.consensus": experiment.learning.consensus}
    keys = " and ".join(key for key, set_ in wanted.items() if set_)
    if protection.totals and not protection.claimed:
        yield DIFFERENCE
        yield NO_LEDGER if beside(experiment) is None else LEDGER
    elif keys:
        yield f"the totals of {keys} are exact, and {DIFFERENCE}"
    claimed = stated["epsilon"] is not None or stated["examples"] is not None
    if claimed and experiment.model.pretrained is not None:
        yield STARTED
    if claimed and beside(experiment) is None:
        yield NOT_ACCOUNTED


def _promise(
    protection: Protection, *, spent: float | None, examples: Mapping[str, Any] | None, recomputable: bool
) -> dict[str, Any]:
    """Return the guarantee of the models, or of the totals, of this run."""
    wanted, settings = protection.wanted, protection.settings
    mode = protection.mode.effective(settings)
    if protection.totals:
        return _totals(protection, mode, spent=spent, recomputable=recomputable)
    stated: dict[str, Any] = {
        "mode": mode.name,
        "clip": settings.clip if settings.clip != float("inf") else None,
        "noise": settings.noise,
        "mask": settings.mask,
        "participation": settings.participation,
        "statement": mode.statement(claimed=False),
        "epsilon": None,
        "examples": None,
    }
    if recomputable:
        return stated | {"statement": f"{mode.statement(claimed=True)}; {RECOMPUTABLE}"}
    each, given = "", f", {protection.given}" if protection.given else ""
    if examples is not None:
        each = (
            f"({examples['epsilon']:.3g}, {wanted.delta:g})-differential privacy of each single sample inside a "
            f"peer against all other parties{given}; "
        )
        stated |= {
            "examples": examples,
            "statement": f"{each}{mode.statement(claimed=False, whose=' for a peer as a whole')}",
        }
    if not protection.claimed:
        return stated | {"statement": stated["statement"] + _bare(protection, mode)}
    if spent is None:
        spent = protection.spent(protection.planned)
    among = {0: "", 1: " and any colluding peer"}
    who = "a broker that only listens" + among.get(wanted.colluders, f" and any {wanted.colluders} colluding peers")
    promised = {"epsilon": spent, "delta": wanted.delta, "adjacency": wanted.adjacency}
    return (
        stated
        | promised
        | {
            "colluders": wanted.colluders,
            "statement": f"{each}({spent:.3g}, {wanted.delta:g})-differential privacy of each peer's data against "
            f"{who}{given}; {mode.statement(claimed=True)}",
        }
    )


def _totals(protection: Protection, mode: Mode, *, spent: float | None, recomputable: bool) -> dict[str, Any]:
    """Return what is promised where totals alone leave peers."""
    stated: dict[str, Any] = {
        "mode": mode.name,
        "clip": None,
        "noise": protection.settings.noise,
        "mask": 0.0,
        "participation": 1.0,
        "epsilon": None,
        "examples": None,
    }
    if protection.learned:  # not all peers learn the same
        return stated | {
            "statement": f"{protection.totals}; no differential privacy is claimed, because totals are exact"
        }
    hides, shown = _hides(protection, mode), f"from which the model follows: {protection.totals}"
    if not protection.claimed:
        learned = f"every peer learns the exact totals {shown}"
        return stated | {
            "statement": f"{hides}; {learned}; no differential privacy is claimed, because totals are exact",
        }
    given = f", {protection.given}" if protection.given else ""
    if recomputable:
        return stated | {"statement": f"{hides}; every peer learns the noisy totals {shown}; {RECOMPUTABLE}"}
    wanted = protection.wanted
    if spent is None:
        spent = protection.spent({protection.cost: protection.affordable})
    who = {0: "", 1: " and any colluding peer"}.get(wanted.colluders, f" and any {wanted.colluders} colluding peers")
    return stated | {
        "epsilon": spent,
        "delta": wanted.delta,
        "adjacency": wanted.adjacency,
        "colluders": wanted.colluders,
        "statement": f"({spent:.3g}, {wanted.delta:g})-differential privacy of each single sample against a broker "
        f"that only listens{who}{given}; every peer adds a part of the noise; {hides}; every peer learns the noisy "
        f"totals {shown}",
    }


def _hides(protection: Protection, mode: Mode) -> str:
    """Return what hides the contribution of a peer to a total."""
    peers, colluders = len(protection.graph.peers), protection.wanted.colluders
    if not mode.traits.masks:
        return (
            "contributions to totals are encrypted against the broker, and peers can read those that pass through them"
        )
    if peers == 2:
        return "each of the two peers learns the totals of the other, which are the totals less its own"
    who = "one colluding peer learns" if colluders == 1 else f"{colluders} colluding peers learn"
    others = f"; {who} the totals of the other {peers - colluders}" if colluders else ""
    return f"masks hide each peer's contribution to every total{others}"


def _bare(protection: Protection, mode: Mode) -> str:
    """Describe what colluders could do where masks are not guaranteed to hide; with a claim this is refused."""
    colluders = protection.wanted.colluders
    few = find_parted_peers(protection.graph, colluders=colluders) if mode.traits.masks else ()
    if not few:
        return _thin(protection) if mode.traits.masks else ""
    what = "remove all masks from a model" if len(few) == 1 else "leave only two peers to hide each other"
    if not colluders:
        return "; two peers can remove all masks from each other's models, so use more peers"
    who = "one colluding peer" if colluders == 1 else f"{colluders} colluding peers"
    return f"; {who} could {what}, so use more peers, a denser topology or privacy.mask_graph"


def _thin(protection: Protection) -> str:
    """Describe the risk of fewer mask partners than possible colluders."""
    partners = protection.partners
    if partners > protection.wanted.colluders:
        return ""
    count = "one mask partner" if partners == 1 else f"{partners} mask partners"
    who = "that partner" if partners == 1 else "these partners"
    return f"; models are sent with {count} (privacy.partners), so {who} and the broker together can read them"
