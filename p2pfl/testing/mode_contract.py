"""Contract of privacy modes, as checks that any implementation can run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import FedAvg
from p2pfl.core.errors import P2PFLError
from p2pfl.core.neighbourhood import Neighbourhood, Public, Released, Wrapped
from p2pfl.core.rows import Rows
from p2pfl.core.traits import ModeTraits
from p2pfl.experiment import schema
from p2pfl.experiment.modes import Mode, WrapOptions
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from p2pfl.testing.contract import Contract, ContractError, require
from p2pfl.testing.instrumented_run import SEED, Case, classifier

MODE_CHECKS: Contract[Callable[[Mode, Case], None]] = Contract()
"""Every check by name: ``check(mode, case)``."""


def check_mode(mode: Mode, *, rounds: int = 2, parts: Mapping[str, Any] | None = None) -> None:
    """Run all checks on a privacy mode: FedAvg of six peers on a ring, simulated and live in memory, uses it.

    The checks do not say what a mode hides. Test by how much it changes models, and attack what it promises.

    Parameters
    ----------
    mode
        The mode, with parameters under which it has an effect.
    rounds
        Rounds of each run.
    parts
        Further arguments of :func:`p2pfl.compose`.

    Raises
    ------
    ContractError
        A promise is broken; the message names it.

    Examples
    --------
    >>> import p2pfl
    >>> check_mode(p2pfl.Pairwise(mask=2.0))
    """
    graph = graphs.ring(6)
    case = Case(FedAvg(), classifier(graph.peers), graph, rounds, {"privacy": mode, **(parts or {})})
    MODE_CHECKS.run(mode, case)


@MODE_CHECKS.add
def the_class_declares_its_traits_and_its_name(mode: Mode, case: Case) -> None:
    del case
    require(isinstance(mode.traits, ModeTraits), f"its attribute traits is {mode.traits!r} instead of ModeTraits(...)")
    require(isinstance(mode.name, str) and bool(mode.name), f"its attribute name is {mode.name!r}")


@MODE_CHECKS.add
def unused_keys_are_keys_of_the_privacy_section_and_have_a_reason(mode: Mode, case: Case) -> None:
    del case
    keys = {*schema.PrivacySettings.__struct_fields__}
    strangers = sorted({*mode.unused} - keys)
    require(not strangers, f"unused names {', '.join(strangers)}, which [privacy] does not have")
    require(all(mode.unused.values()), "unused has a key without a reason")


@MODE_CHECKS.add
def the_statement_is_one_clause_for_people(mode: Mode, case: Case) -> None:
    del case
    for claimed in (False, True):
        clause = mode.statement(claimed=claimed)
        require(isinstance(clause, str) and bool(clause.strip()), f"statement(claimed={claimed}) returned {clause!r}")
        require(
            "\n" not in clause and not clause.endswith("."), f"{clause!r} has several lines or ends with a full stop"
        )


@MODE_CHECKS.add
def a_release_keeps_the_shape_and_leaves_its_input_alone(mode: Mode, case: Case) -> None:
    watched = list[str]()
    try:
        _run(_inspect(mode, watched), case)
    finally:
        require(not watched, *watched[:1])


@MODE_CHECKS.add
def a_run_is_reproducible_from_its_source(mode: Mode, case: Case) -> None:
    once, again = _run(mode, case), _run(mode, case)
    require(torch.equal(once, again), "two runs with the same secrets differ; draw from source alone")


@MODE_CHECKS.add
def live_peers_end_where_the_simulation_ends(mode: Mode, case: Case) -> None:
    simulated, live = _run(mode, case), case.live()
    for number, (peer, state) in enumerate(live.items()):
        gap = float((state.rows[0] - simulated[number]).abs().max())
        grid = 2e-5 if mode.traits.hides else 1e-9  # live peers and simulations add up in another order
        require(gap <= grid, f"{peer} ends elsewhere, by up to {gap:g}")


class InspectedNeighbourhood(Wrapped):
    """Neighbourhood under a privacy mode that notes what is wrong with its releases.

    Parameters
    ----------
    net
        Neighbourhood that the mode returned.
    broken
        List to which each defect is appended.
    """

    def __init__(self, net: Neighbourhood, broken: list[str]) -> None:
        super().__init__(net)
        self._broken = broken

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release rows, and look at them before and after."""
        before, public = rows.clone(), since.rows.clone()
        released = await self._net.release(rows, since=since, masses=masses)
        if not (torch.equal(rows, before) and torch.equal(since.rows, public)):
            self._broken.append("release() changed the rows that it was given")
        if released.rows.shape != rows.shape:
            self._broken.append(f"release() returned shape {tuple(released.rows.shape)}, not {tuple(rows.shape)}")
        elif not bool(torch.isfinite(released.values).all()):
            self._broken.append("release() returned numbers that are not finite")
        return released


def _inspect(mode: Mode, broken: list[str]) -> Mode:
    """Return a copy of a mode whose releases are looked at."""

    def wrap(self: Mode, net: Neighbourhood, **options: Unpack[WrapOptions]) -> Neighbourhood:
        wrapped = type(mode).wrap(self, net, **options)
        return InspectedNeighbourhood(wrapped, broken)

    watched = copy.copy(mode)
    object.__setattr__(watched, "__class__", type(type(mode).__name__, (type(mode),), {"wrap": wrap}))
    return watched


def _run(mode: Mode, case: Case) -> Rows:
    """Return the models of a simulated run, ``[N, P]``."""
    try:
        run = simulate(case.under(mode).plan(), source=SeededSource(SEED), baselines=False)
    except P2PFLError as error:
        raise ContractError(f"the run stopped: {error}") from error
    models = [torch.cat([tensor.flatten() for tensor in run.models[peer].values()]) for peer in case.topology.peers]
    return torch.stack(models)
