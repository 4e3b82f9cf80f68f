"""Contract of algorithms, as checks that any implementation can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import safetensors.torch
import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, State
from p2pfl.core.draws import draw
from p2pfl.core.errors import InputError
from p2pfl.core.neighbourhood import Public, Released
from p2pfl.core.rows import Rows
from p2pfl.core.traits import Traits
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import Learner
from p2pfl.testing.contract import Contract, require
from p2pfl.testing.instrumented_run import SEED, Call, Case, Played, classifier

ALGORITHM_CHECKS: Contract[Callable[[Case], None]] = Contract()
"""Every check by name: ``check(case)``."""


def check_algorithm(
    algorithm: Algorithm,
    *,
    learner: Learner | None = None,
    topology: graphs.Topology | graphs.Schedule | None = None,
    rounds: int = 4,
    parts: Mapping[str, Any] | None = None,
) -> None:
    """Run all checks on an algorithm.

    Simulated peers, and live peers that exchange messages in memory and in virtual time, run the algorithm a few times.
    Checks of a trait depend on what the algorithm declares.

    Parameters
    ----------
    algorithm
        The algorithm; what it leaves open is filled in, as :func:`p2pfl.compose` does.
    learner
        Learner that holds the data of all peers; a small classifier in double precision by default.
    topology
        Topology; a ring of six peers by default.
    rounds
        Rounds of each run, at least 2.
    parts
        Further arguments of :func:`p2pfl.compose`, such as ``{"codec": p2pfl.Quantise()}``.

    Raises
    ------
    ContractError
        A promise is broken; the message names it.

    Examples
    --------
    >>> import p2pfl
    >>> check_algorithm(p2pfl.DPSGD(), rounds=2)
    """
    graph = graphs.ring(6) if topology is None else topology
    case = Case(algorithm, learner or classifier(graph.peers), graph, rounds, parts or {})
    require(rounds >= 2, "the checks need at least two rounds")
    ALGORITHM_CHECKS.run(case)


@ALGORITHM_CHECKS.add
def the_class_declares_its_traits(case: Case) -> None:
    traits = getattr(case.algorithm, "traits", None)
    require(isinstance(traits, Traits), f"its attribute traits is {traits!r} instead of p2pfl.Traits(...)")


@ALGORITHM_CHECKS.add
def a_round_returns_a_finite_row_for_each_peer(case: Case) -> None:
    begin, *states = case.plain.states
    peers = len(case.topology.peers)
    for state in states:
        require(isinstance(state, State), f"round() returned {type(state).__name__} instead of State")
        require(state.rows.shape == begin.rows.shape, f"rows have shape {state.rows.shape}, not {begin.rows.shape}")
        require(state.rows.dtype == begin.rows.dtype, f"rows are {state.rows.dtype}, not {begin.rows.dtype}")
        for name, value in {"rows": state.rows, **state.tensors()}.items():
            require(value.shape[:1] == (peers,), f"{name} has shape {tuple(value.shape)} for {peers} peers")
            require(bool(torch.isfinite(value).all()), f"{name} is not finite")
    require(not torch.equal(states[-1].rows, begin.rows), f"no row moved in {case.rounds} rounds of training")


@ALGORITHM_CHECKS.add
def a_round_does_not_change_the_state_that_it_is_given(case: Case) -> None:
    begin = case.plain.states[1]
    before = {name: value.clone() for name, value in _tensors(begin).items()}
    case.play(begin=begin, rounds=range(1, 2))
    _same(_tensors(begin), before, "a round changed it in place")


@ALGORITHM_CHECKS.add
def a_run_is_reproducible(case: Case) -> None:
    once, again = case.plain.states[-1], case.play().states[-1]
    _same(_tensors(again), _tensors(once), "two runs with one seed differ")


@ALGORITHM_CHECKS.add
def a_run_continues_from_a_checkpoint(case: Case) -> None:
    half = case.rounds // 2
    saved = case.plain.states[half]
    tensors = {name: value.clone().contiguous() for name, value in saved.tensors().items()}
    restored = State.restore(saved.rows.clone(), safetensors.torch.load(safetensors.torch.save(tensors)))
    resumed = case.play(begin=restored, rounds=range(half, case.rounds)).states[-1]
    last = _tensors(case.plain.states[-1])
    _same(_tensors(resumed), last, f"a run that is restored after {half} rounds ends elsewhere")


@ALGORITHM_CHECKS.add
def peers_that_do_not_train_stay_at_the_start(case: Case) -> None:
    if case.traits.additive:
        return  # what peers contribute to totals is no result of ``fit``
    begin, *_, last = case.play(change=lambda trained, rows, slope: torch.zeros_like(trained) if slope else rows).states
    for name, rows in {"rows": last.rows, "public": last.public.rows}.items():
        gap = float((rows - begin.rows).abs().max())
        require(gap <= _tolerance(rows), f"{name} moved by {gap:g} although training changed nothing")


@ALGORITHM_CHECKS.add
def live_peers_end_where_the_simulation_ends(case: Case) -> None:
    if case.traits.asynchronous:
        return  # peers that wait for nobody end where their timing says
    last = case.plain.states[-1]
    for number, (peer, state) in enumerate(case.live().items()):
        gap = float((state.rows[0] - last.rows[number]).abs().max())
        require(gap <= _tolerance(last.rows), f"{peer} ends elsewhere, by up to {gap:g}")


@ALGORITHM_CHECKS.add
def public_parameters_follow_from_releases_alone(case: Case) -> None:
    other = case.play(change=_otherwise, script=case.plain.answers)
    for before, after in zip(case.plain.states, other.states, strict=True):
        kept = {"public": before.public, **before.known}
        for name, value in {"public": after.public, **after.known}.items():
            leaks = name not in kept or not torch.equal(kept[name].rows, value.rows)
            require(not leaks, f"{name} of the state depends on training otherwise than by release or total")


@ALGORITHM_CHECKS.add
def nothing_private_leaves_a_peer_but_by_release_and_total(case: Case) -> None:
    if case.traits.no_privacy:
        return
    for call, other in _otherwise_trained(case):
        require(call.kind == other.kind, f"it calls net.{other.kind} instead of net.{call.kind} after other training")
        if call.kind != "release":
            leaks = not torch.equal(call.rows, other.rows)
            require(not leaks, f"what it passes to net.{call.kind} depends on training otherwise than by release")
        elif call.since is not None and other.since is not None:
            leaks = not torch.equal(call.since, other.since)
            require(not leaks, "since= depends on training otherwise than by release")
        leaks = call.masses is not None and other.masses is not None and not torch.equal(call.masses, other.masses)
        require(not leaks, f"the weights of net.{call.kind} depend on training")


@ALGORITHM_CHECKS.add
def gradients_are_taken_only_where_the_traits_say_so(case: Case) -> None:
    if not case.traits.needs_gradients:
        require(not case.plain.trainer.gradients, "it takes or corrects gradients; declare needs_gradients")


@ALGORITHM_CHECKS.add
def full_participation_means_that_all_peers_count_alike(case: Case) -> None:
    if case.traits.full_participation and not case.traits.weighs_neighbours:
        weighted = [call.round for call in case.plain.of("release") if call.masses is not None]
        require(not weighted, f"round {weighted[:1]} releases with weights; do not declare full_participation")


@ALGORITHM_CHECKS.add
def an_asynchronous_algorithm_never_mixes(case: Case) -> None:
    if case.traits.asynchronous:
        require(not case.plain.of("mix"), "it calls net.mix, which waits for neighbours; call net.receive")


@ALGORITHM_CHECKS.add
def a_single_step_is_one_gossip_step_in_a_round(case: Case) -> None:
    if not case.traits.single_step:
        return
    for round, calls in _by_round(case.plain):
        count = sum(call.kind in {"mix", "receive"} for call in calls)
        require(count <= 1, f"round {round} makes {count} gossip steps; do not declare single_step")


@ALGORITHM_CHECKS.add
def rounds_without_a_release_are_declared(case: Case) -> None:
    if not case.traits.silent_rounds:
        shown = {call.round for call in case.plain.calls if call.kind in {"release", "total"}}
        silent = {*range(case.rounds)} - shown
        require(not silent, f"round {sorted(silent)[:1]} releases nothing; declare silent_rounds")


@ALGORITHM_CHECKS.add
def a_linear_algorithm_releases_once_and_mixes_linearly(case: Case) -> None:
    if not case.traits.linear:
        return
    require(not case.plain.of("total"), "it takes totals, which no mixing of releases shows; do not declare linear")
    for round, calls in _by_round(case.plain):
        count = sum(call.kind == "release" for call in calls)
        require(count <= 1, f"round {round} releases {count} times")
    released = case.plain.of("release")
    if not released or case.parts.get("codec") is not None:  # what a codec sends is not linear
        return
    first, rows = released[0].released, released[0].rows
    shift = torch.from_numpy(draw(SEED, "contract shift").normal(size=tuple(rows.shape))).to(rows)
    shown = [_first_calls(case, replace(first, rows=first.rows + sign * shift)) for sign in (0.0, 1.0, -1.0)]
    for middle, up, down in zip(*shown, strict=True):
        if middle.kind == "receive":  # numbers of samples may be received
            require(
                torch.equal(up.rows, middle.rows), "it calls net.receive with what it released; it may only mix that"
            )
        gap = float(((up.rows + down.rows) / 2 - middle.rows).abs().max())
        require(gap <= 10 * _tolerance(middle.rows), "what it mixes is not linear in what it released")


@ALGORITHM_CHECKS.add
def a_convex_algorithm_shows_means_of_releases(case: Case) -> None:
    if not case.traits.convex:
        return
    for round, calls in _by_round(case.plain):
        before, after = case.plain.states[round].public, case.plain.states[round + 1].public.rows
        shown = [_remove_weights(call, before) for call in calls if call.kind == "release"]
        if any(rows.shape != after.shape for rows in shown):  # a part of each row is released
            largest = max(float(rows.abs().max()) for rows in (*shown, before.rows))
            inside = float(after.abs().max()) <= largest + _tolerance(after)
        else:
            rows = torch.cat([*shown, before.rows])  # [S, P]
            least, most = rows.amin(0) - _tolerance(after), rows.amax(0) + _tolerance(after)
            inside = bool(((after >= least) & (after <= most)).all())
        require(inside, f"the public parameters of round {round} are no mean of what was released")


@ALGORITHM_CHECKS.add
def state_for_each_edge_is_declared(case: Case) -> None:
    if case.traits.state_per_edge:
        return
    peers = case.topology.peers
    shapes = [{name: tuple(value.shape) for name, value in case.plain.states[-1].tensors().items()}]
    for build in (graphs.complete, graphs.star):
        try:
            plan = replace(case, topology=_over(case, build(len(peers)))).plan()
        except InputError:  # the algorithm does not run on this graph
            continue
        state = case.play(plan).states[-1]
        shapes.append({name: tuple(value.shape) for name, value in state.tensors().items()})
    for name, shape in shapes[0].items():
        widths = {each.get(name, shape) for each in shapes}
        require(len(widths) == 1, f"the shape of {name} depends on the neighbours ({widths}); declare state_per_edge")


@ALGORITHM_CHECKS.add
def masks_cancel_unless_the_traits_forbid_them(case: Case) -> None:
    if case.traits.no_privacy:
        return
    graph = _over(case, graphs.complete(len(case.topology.peers)))
    try:
        short = replace(case, topology=graph, rounds=1)
        plain, masked = (short.under(mode).plan() for mode in (None, Pairwise()))
    except InputError:  # masks, or this graph, do not go with other parts
        return
    gap = float((case.mean(masked) - case.mean(plain)).abs().max())
    require(gap <= 1e-3, f"the mean of all models ends elsewhere under masks, by {gap:g}; declare no_privacy")


def _over(case: Case, graph: graphs.Topology) -> graphs.Topology:
    """Return a graph with the peers of the case."""
    name = dict(zip(graph.peers, case.topology.peers, strict=True))
    return graphs.Topology(case.topology.peers, tuple((name[a], name[b]) for a, b in graph.edges))


def _otherwise(trained: Rows, rows: Rows, slope: bool) -> Rows:  # noqa: FBT001 (a callback takes no keywords)
    """Return other private results of training of the same size."""
    del rows, slope
    noise = draw(SEED, "contract training").normal(size=tuple(trained.shape))
    return trained + torch.from_numpy(noise).to(trained)


def _otherwise_trained(case: Case) -> list[tuple[Call, Call]]:
    """Return the calls of a run, each with that of a run with other training whose releases are the same."""
    other = case.play(change=_otherwise, script=case.plain.answers)
    counts = len(case.plain.calls), len(other.calls)
    require(counts[0] == counts[1], f"how often it calls net depends on training: {counts[0]} and {counts[1]} times")
    return list(zip(case.plain.calls, other.calls, strict=True))


def _by_round(played: Played) -> list[tuple[int, list[Call]]]:
    return [(round, list(calls)) for round, calls in groupby(played.calls, key=lambda call: call.round)]


def _first_calls(case: Case, released: Released) -> list[Call]:
    """Return what the first round mixes and hears if this is what it has released."""
    played = case.play(begin=case.plain.states[0], rounds=range(1), script=[released])
    return [call for call in played.calls if call.kind != "release"]


def _remove_weights(call: Call, before: Public) -> Rows:
    """Return the released models, without their weights."""
    if call.masses is None or call.released.values.shape != before.rows.shape:
        return call.released.values
    return call.released.mean(before.rows)


def _tensors(state: State) -> dict[str, torch.Tensor]:
    return {"rows": state.rows, **state.tensors()}


def _same(actual: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], subject: str) -> None:
    names = {*actual} ^ {*expected}
    require(not names, f"{subject}: only one of them has {sorted(names)}")
    for name, value in expected.items():
        require(torch.equal(actual[name], value), f"{subject}, in {name}")


def _tolerance(rows: Rows) -> float:
    """Return the rounding of a few rounds: live peers and simulations add up in another order."""
    return 1e-9 if rows.dtype == torch.float64 else 1e-4
