"""Predict what an experiment reveals, and whether its budget suffices, before anything runs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

import p2pfl
from p2pfl.cli import terminal
from p2pfl.cli.core_commands import PrivacyOptions
from p2pfl.cli.experiments import experiment_of
from p2pfl.cli.planning import disclosures, run_record
from p2pfl.cli.tables import facts as print_facts
from p2pfl.cli.tables import grid
from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment
from p2pfl.experiment.accounts import beside, counting
from p2pfl.experiment.approval import consent_problems
from p2pfl.experiment.catalogue import mode_traits
from p2pfl.experiment.modes import NoPrivacy
from p2pfl.experiment.protection import Protection
from p2pfl.privacy.accounting import divergence
from p2pfl.privacy.accounting.accountant import Guarantee
from p2pfl.results.spending import observers
from p2pfl.results.spending.budget import PeerAccounts
from p2pfl.results.spending.promises import promise

if TYPE_CHECKING:
    from p2pfl.experiment import Plan
    from p2pfl.simulation.curator import CuratorComparison

POINTS = 32
"""Rounds at which epsilon is computed for the plot;"""
FEWER_POINTS = 8
"""and where participation is secret: then each takes a convolution."""

CERTAIN = 0.99
"""Share of the cases in which the best attack is right, from which on an epsilon is said to protect nothing."""

CARELESS = 1e-2
"""A delta that is too large for any number of peers."""

ADJACENCY = {
    "zero-out": "one peer's updates, or nothing in their place",
    "replace": "one peer's updates, or any others in their place",
}


def run(options: PrivacyOptions) -> int:
    """Run ``p2pfl privacy``."""
    account = run_record.account_of(options.experiment)
    if account is not None:
        return terminal.answer(options, run_record.recorded(account), run_record.show)
    plan = resolve(experiment_of(options), only=options.name)
    if plan.protection.totals:
        if options.plot:
            raise InputError("exact totals have no epsilon to draw; leave --plot out")
        return terminal.answer(options, disclosures.facts(plan), disclosures.show)
    results = facts(plan)
    if options.plot:  # first, for it may be refused
        draw(results, options.plot)
    if not options.json:
        show(results)
        sys.stdout.flush()  # the table stands while data are read and the comparison trains
    comparison = None if options.no_baselines else compare_with_curator(plan, only=options.name)
    if options.json:
        print(json.dumps(results | {"comparison": comparison}, allow_nan=False))
    elif comparison is not None:
        say(comparison)
    return 0


def resolve(experiment: Experiment, *, only: str | None = None) -> Plan:
    """Return the plan of an experiment, whose protection counts what was spent on its data before.

    Parameters
    ----------
    experiment
        Its settings.
    only
        The one peer whose data are here; all by default.
    """
    plan = p2pfl.plan(experiment, only=None if only is None else [only], unaccounted=True)
    peers = plan.topology.peers if only is None else (only,)
    spending = PeerAccounts.of(experiment, plan.protection, peers)
    if spending is None:
        return plan
    return replace(plan, protection=plan.protection.after(spending.before(peers)))


def facts(plan: Plan) -> dict[str, Any]:
    """Return the guarantee by observer, epsilon over rounds, and their inputs; infinite numbers are ``None``."""
    protection, wanted = plan.protection, plan.experiment.privacy
    graph, settings = protection.graph, protection.settings
    degrees = sorted(len(graph.neighbours(peer)) for peer in graph.peers)
    rounds = protection.affordable if protection.claimed else protection.rounds
    examples = plan.examples(rounds)
    account = beside(plan.experiment) if protection.claimed else None
    against = protection.observers()
    return {
        "name": plan.experiment.name,
        "peers": len(graph.peers),
        "mode": wanted.mode,
        "claimed": protection.claimed,
        "missing": _missing_guarantee(protection),
        "warnings": _warnings(protection, rounds),
        "statement": promise(plan.experiment, protection, spent=None, examples=examples)["statement"],
        "adjacency": wanted.adjacency,
        "colluders": wanted.colluders,
        "delta": wanted.delta,
        "budget": wanted.epsilon,
        "spent_before": protection.spent({}) if protection.claimed else None,
        "spent_after": protection.spent({protection.cost: rounds}) if protection.claimed else None,
        "budget_file": None if account is None else str(account),
        "rounds": None if plan.experiment.endless else protection.rounds,
        "affordable": rounds,
        "noise": settings.noise,
        "mask": settings.mask,
        "clip": _finite(settings.clip),
        "clip_chosen": settings.clip != wanted.clip,
        "participation": settings.participation,
        "mask_graph": {"kind": wanted.mask_graph, "edges": len(graph.edges), "degree": [degrees[0], degrees[-1]]},
        "blur": math.hypot(settings.noise, settings.mask * math.sqrt(max(0, degrees[0] - wanted.colluders))),
        "gossip_steps": plan.gossip.steps,
        "size": protection.size,
        "observers": observers.lines(protection, against),
        "curve": _curve(protection, against) if protection.claimed else None,
    }


def show(results: Mapping[str, Any]) -> None:
    """Print the facts."""
    console = terminal.console()
    lines = grid("who looks", "peer", "mu", "epsilon", "AUC", "TPR@1%", "worst set")
    lines.title, lines.title_style = f"What all rounds of {results['name']} give away", "bold"
    for each in results["observers"]:
        style = "bold" if each["promised"] else ""
        attack = each["attack"]
        numbers = (_number(each["mu"]), _number(each["epsilon"]), f"{attack['auc']:.3f}", f"{attack['tpr']:.3f}")
        lines.add_row(each["observer"], each["peer"], *numbers, each["search"], style=style)
    console.print(lines)
    console.print()
    for sentence in [*filter(None, [results["missing"]]), *results["warnings"]]:
        console.print(Text(sentence, style="yellow"), soft_wrap=not console.is_terminal)
        console.print()
    print_facts(describe(results))
    console.print()
    console.print(Text(results["statement"]), soft_wrap=not console.is_terminal)


def describe(results: Mapping[str, Any]) -> dict[str, str]:
    """Return all facts except the table, as text."""
    low, high = results["mask_graph"]["degree"]
    degree = f"{low}" if low == high else f"{low} to {high}"
    rows = {"protected": f"{ADJACENCY[results['adjacency']]} ({results['adjacency']})"}
    if results["claimed"]:
        rows["epsilon"] = f"at delta {results['delta']:g}, of the peer that is worst off"
    if results["claimed"]:
        rows["local floor"] = (
            f"epsilon {_number(results['observers'][-1]['local_epsilon'])}, even if all other peers are malicious"
        )
    rows["a broker that lies"] = "drops, delays, repeats Last Wills, isolates a peer"
    rows["a neighbour"] = "alone learns no more than with a broker that only listens"
    if not (results["claimed"] or results["mask"] or mode_traits(results["mode"]).sums):
        rows["any other peer"] = "learns what neighbours do, over several gossip steps or rounds"
    rows["AUC, TPR@1%"] = "of the best attack there can be; TPR with 1 % false alarms"
    each = " as none is given" if results["clip_chosen"] else ""
    clip = "no clip" if results["clip"] is None else f"clip {_number(results['clip'])}{each}"
    rows["noise"] = f"{results['noise']:.3g} private in each number, {clip}"
    if results["mask"]:
        peers = {0: "nobody colludes", 1: "any one peer colludes"}
        who = peers.get(results["colluders"], f"any {results['colluders']} peers collude")
        kind = "the neighbours" if results["mask_graph"]["kind"] == "same" else results["mask_graph"]["kind"]
        rows["masks"] = f"{results['mask']:.3g} in each number on each of {results['mask_graph']['edges']} edges"
        rows["mask graph"] = f"{kind}, {degree} mask neighbours a peer"
        rows["blur of a number"] = f"{results['blur']:.3g} or more if {who}"
    if mode_traits(results["mode"]).sums:
        rows["sums"] = (
            "one for each peer and gossip step, masked in a ring; only the peer that receives the sum can read it"
        )
    if results["participation"] < 1:
        rows["participation"] = (
            f"{results['participation']:g}, in secret: counted in epsilon, not in mu and the attacks"
        )
    allowed = (
        "" if results["budget"] is None else f", of which epsilon {results['budget']:g} allows {results['affordable']}"
    )
    rows["rounds"] = f"{'without an end' if results['rounds'] is None else results['rounds']}{allowed}"
    rows["gossip steps a round"] = f"{results['gossip_steps']}"
    if results["spent_before"]:
        rows["spent before"] = f"epsilon {results['spent_before']:.3g} by {results['budget_file']}"
        rows["with this run"] = f"epsilon {results['spent_after']:.3g} for the bold row; the table is of this run alone"
    return rows


def _curves(results: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return epsilon over rounds by observer, and with what was spent before, if anything was."""
    listening = observers.listening(results["observers"])
    curves = [(each["observer"], epsilon) for each, epsilon in zip(listening, results["curve"]["epsilon"], strict=True)]
    promised = 1 + next(number for number, each in enumerate(listening) if each["promised"])
    before = results["curve"]["in_all"]
    return dict([*curves[:promised], *([("with what was spent before", before)] if before else []), *curves[promised:]])


def draw(results: Mapping[str, Any], path: str) -> None:
    """Draw epsilon over rounds.

    Raises
    ------
    InputError
        No epsilon is claimed, or nothing to draw with or nowhere to put it.
    """
    from p2pfl.results.charts import Chart, Curve  # noqa: PLC0415 (the table need not wait for them)
    from p2pfl.results.plots import draw_charts  # noqa: PLC0415

    if not results["claimed"]:
        raise InputError("this experiment claims no epsilon that could be drawn; set privacy.epsilon")
    curves = [
        Curve(f"{observer}: {values[-1]:.3g}", results["curve"]["rounds"], values, style=style)
        for style, (observer, values) in enumerate(_curves(results).items())
    ]
    levels = [] if results["budget"] is None else [("budget", results["budget"])]
    y = f"epsilon at delta {results['delta']:g}"
    positive = min(curve.ys[0] for curve in curves) > 0  # very large noise costs nothing at this delta
    chart = Chart("", "", "round", y, curves, levels=levels, log=positive, whole=True)
    draw_charts([chart], title=f"{results['name']}: {results['peers']} peers", path=path)


def compare_with_curator(plan: Plan, *, only: str | None = None) -> dict[str, Any] | None:
    """Return the accuracy of a trusted curator and of peers alone, and a sentence; ``None`` without a guarantee."""
    if not plan.protection.claimed:
        return None
    if only is not None:
        return {"pays": None, "sentence": f"not compared with learning alone, for only the data of {only} are here"}
    account = counting(plan.experiment, plan.topology.peers)
    if account is not None:
        reason = f"for {account} counts what is spent of these data, and exact scores have no cost that it could count"
        return {"pays": None, "sentence": f"not compared with learning alone, {reason}"}
    if problems := consent_problems(plan.written, plan.topology.peers, today=datetime.now(UTC).date()):
        return {"pays": None, "sentence": f"not compared with learning alone, for {problems[0]}"}
    with terminal.console(stderr=True).status("training peers alone and with a trusted curator, to compare"):
        from p2pfl.simulation.curator import break_even, compare  # noqa: PLC0415 (the table need not wait for torch)

        comparison = compare(plan)
        peers, epsilon = break_even(plan, comparison) if comparison.share else (None, None)
    return {
        "metric": comparison.metric,
        "alone": comparison.alone,
        "curator": comparison.curator,
        "noiseless": comparison.noiseless,
        "pays": comparison.pays,
        "update": comparison.length,
        "peers_needed": peers,
        "epsilon_needed": epsilon,
        "sentence": _verdict(plan, comparison, peers=peers, epsilon=epsilon),
    }


def say(comparison: Mapping[str, Any]) -> None:
    """Print whether learning together can pay."""
    console = terminal.console()
    console.print()
    style = "yellow" if comparison["pays"] is False else ""
    console.print(Text(comparison["sentence"], style=style), soft_wrap=not console.is_terminal)


def _verdict(resolved: Plan, comparison: CuratorComparison, *, peers: int | None, epsilon: float | None) -> str:
    protection = resolved.protection
    spent = protection.total({protection.cost: protection.affordable or protection.rounds})
    reached = (
        "would break down"
        if comparison.curator is None
        else f"would reach {comparison.metric} {comparison.curator:.3f}"
    )
    outcome = f"even a trusted curator {reached} at epsilon {spent:.3g}, and peers alone reach {comparison.alone:.3f}"
    if comparison.pays:
        return f"learning together can pay: {outcome.removeprefix('even ')}; masks come close to the curator at best"
    if comparison.hopeless:
        still = "breaks down" if comparison.noiseless is None else f"reaches {comparison.noiseless:.3f}"
        clip = protection.settings.clip
        why = f"without any noise it {still}: the clip {clip:g}, the rounds or the learning rate are in the way"
    elif peers is None or epsilon is None:
        why = f"a 64th of the noise would still be too much, and without any it reaches {comparison.noiseless:.3f}"
    else:
        why = f"it would begin to pay with about {peers} peers of as much data each, or at epsilon {epsilon:.2g}"
    clip = protection.settings.clip
    if not comparison.hopeless and comparison.length < clip / 2:
        why += (
            f"; but updates are about {comparison.length:.2g} long, and the noise hides up to the clip {clip:g}: lower "
            "privacy.clip, or raise learning.rate or learning.epochs"
        )
    return f"learning together would not pay: {outcome}; {why}"


def _curve(protection: Protection, against: Sequence[Guarantee]) -> dict[str, Any]:
    """Return epsilon of each observer over rounds, and that of the guarantee with what was spent before."""
    last = protection.affordable or protection.rounds
    points = POINTS if protection.settings.participation == 1 else FEWER_POINTS
    rounds = sorted({round(each) for each in np.linspace(1, last, min(points, last))})
    return {
        "rounds": rounds,
        "epsilon": [[observers.epsilon(protection, each, count) for count in rounds] for each in against],
        "in_all": [protection.spent({protection.cost: count}) for count in rounds] if protection.before else None,
    }


def _warnings(protection: Protection, rounds: int) -> list[str]:
    """Return the limits of a guarantee, as sentences."""
    spent, delta, peers = (
        protection.spent({protection.cost: rounds}),
        protection.wanted.delta,
        len(protection.graph.peers),
    )
    warnings = []
    if spent is not None and delta >= min(CARELESS, 1 / peers):
        warnings.append(
            f"privacy.delta = {delta:g} lets all updates of a peer be shown as they are with that chance: set it far "
            f"below one over the {peers} peers, such as 1e-05"
        )
    right = 0.0 if spent is None else divergence.ceilings(divergence.mu(spent, delta=delta)).accuracy
    if right >= CERTAIN:
        warnings.append(
            f"epsilon {spent:.3g} protects next to nothing, for the best attack is right in {100 * right:.3g} % of the "
            "cases: lower privacy.epsilon, or raise privacy.noise"
        )
    return warnings


def _missing_guarantee(protection: Protection) -> str | None:
    """Return what a guarantee lacks, as a sentence."""
    if protection.claimed:
        return None
    if not protection.mode.traits.hides and protection.mode.name != NoPrivacy.name:
        return (
            f'what privacy.mode = "{protection.mode.name}" hides is not computed: the table shows models without it; '
            'set privacy.mode to "pairwise", and privacy.epsilon for differential privacy'
        )
    if not protection.mode.traits.hides:
        return 'nothing is hidden: set privacy.mode to "pairwise", and privacy.epsilon for differential privacy'
    settings = protection.settings
    clipped, noisy = not math.isinf(settings.clip), settings.noise > 0
    lacks, cure = "privacy.clip and privacy.noise", "set privacy.epsilon and both will be chosen"
    if noisy:
        lacks, cure = "privacy.clip", "set it"
    elif clipped:
        lacks, cure = "privacy.noise", "set privacy.epsilon and it will be chosen"
    return f"no differential privacy is claimed, for that lacks {lacks}: {cure}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> str:
    return "inf" if value is None else f"{value:.3g}"
