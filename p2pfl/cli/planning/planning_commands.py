"""``p2pfl topology``, ``explain`` and ``privacy``: what an experiment costs and protects, before it runs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import p2pfl
from p2pfl.cli import folders, tables
from p2pfl.cli.core_commands import ExplainOptions, PrivacyOptions, TopologyOptions
from p2pfl.cli.experiments import experiment_of
from p2pfl.core.errors import InputError

if TYPE_CHECKING:  # it imports torch
    from p2pfl.experiment import Plan


def topology(options: TopologyOptions) -> int:
    """``p2pfl topology``."""
    from p2pfl.cli.planning import topologies  # noqa: PLC0415
    from p2pfl.results import plots  # noqa: PLC0415

    given = {key: getattr(options, key) for key in ("peers", "degree", "seed", "clusters", "every", "period")}
    folders.add_present()
    found = topologies.find(options.topology, **given)
    facts = topologies.facts(found)
    if options.plot:
        plots.keep(plots.graph(found.union, side=6), options.plot)
    if options.json:
        print(json.dumps(facts))
    else:
        tables.facts(topologies.described(facts))
    return 0


def explain(options: ExplainOptions) -> int:
    """``p2pfl explain``."""
    from p2pfl.cli.planning import explain as explaining  # noqa: PLC0415

    found = explaining.explained(p2pfl.plan(experiment_of(options), unaccounted=True))
    if options.json:
        print(json.dumps(found, allow_nan=False))
    else:
        explaining.show(found)
    return 0


def privacy(options: PrivacyOptions) -> int:
    """``p2pfl privacy``."""
    from p2pfl.cli.planning import privacy as guarantees  # noqa: PLC0415

    experiment = experiment_of(options)
    plan = guarantees.resolve(experiment, only=options.name)
    if plan.protection.totals:
        return _totals(plan, options)
    found = guarantees.facts(plan)
    if options.plot:  # first, for it may be refused
        guarantees.draw(found, options.plot)
    if not options.json:
        guarantees.show(found)
        sys.stdout.flush()  # the table stands while data are read and the comparison trains
    comparison = None if options.no_baselines else guarantees.compared(plan, only=options.name)
    if options.json:
        print(json.dumps(found | {"comparison": comparison}, allow_nan=False))
    elif comparison is not None:
        guarantees.say(comparison)
    return 0


def _totals(plan: Plan, options: PrivacyOptions) -> int:
    """Print what exact totals show; there is no guarantee to draw or to compare."""
    from p2pfl.cli.planning import disclosures  # noqa: PLC0415

    if options.plot:
        raise InputError("exact totals have no epsilon to draw; leave --plot out")
    found = disclosures.facts(plan)
    if options.json:
        print(json.dumps(found, allow_nan=False))
    else:
        disclosures.show(found)
    return 0
