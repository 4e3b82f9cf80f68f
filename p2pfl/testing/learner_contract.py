"""Contract of learners, as checks that any implementation can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from p2pfl.learning import Learner
from p2pfl.testing.contract import Contract, equal, require

LEARNER_CHECKS: Contract[Callable[[Learner, Sequence[str]], None]] = Contract()
"""Every check by name: ``check(learner, peers)``."""


def check_learner(learner: Learner, peers: Sequence[str]) -> None:
    """Run all checks on a learner that holds the data of at least two peers.

    Rows may differ by float rounding between training one peer alone and many peers together; everything else is
    exact.

    Parameters
    ----------
    learner
        The learner.
    peers
        Names of at least two peers whose data the learner holds.

    Raises
    ------
    ContractError
        A promise is broken; the message names it.

    Examples
    --------
    >>> from p2pfl.learning import ExternalLearner
    >>> def halve(row, *, peer, round):
    ...     return row / 2
    >>> learner = ExternalLearner(halve, start=torch.ones(2), samples={"ada": 3, "bob": 5})
    >>> check_learner(learner, ["ada", "bob"])
    """
    require(len(peers) >= 2, "the checks need at least two peers")
    LEARNER_CHECKS.run(learner, list(peers))


@LEARNER_CHECKS.add
def all_peers_start_from_the_same_parameters(learner: Learner, peers: Sequence[str]) -> None:
    rows = learner.start(peers)
    equal(tuple(rows.shape), (len(peers), learner.layout.size))
    equal(rows.dtype, learner.dtype)
    require(bool((rows == rows[0]).all()), "the rows of start() differ")
    require(bool(torch.isfinite(rows).all()), "start() is not finite")


@LEARNER_CHECKS.add
def every_peer_has_a_positive_number_of_samples(learner: Learner, peers: Sequence[str]) -> None:
    samples = learner.samples(peers)
    equal(tuple(samples.shape), (len(peers),))
    equal(samples.dtype, torch.int64)
    require(bool((samples > 0).all()), f"samples() returned {samples.tolist()}")


@LEARNER_CHECKS.add
def training_returns_finite_parameters_and_leaves_its_input_alone(learner: Learner, peers: Sequence[str]) -> None:
    rows = learner.start(peers)
    before = rows.clone()
    fitted = learner.fit(rows, peers=peers, round=0)
    require(torch.equal(rows, before), "fit() changed the rows that it was given")
    equal(tuple(fitted.rows.shape), tuple(rows.shape))
    equal(fitted.rows.dtype, rows.dtype)
    require(bool(torch.isfinite(fitted.rows).all()), "fit() returned rows that are not finite")
    require(not torch.equal(fitted.rows, rows), "fit() changed no parameter")


@LEARNER_CHECKS.add
def training_is_reproducible(learner: Learner, peers: Sequence[str]) -> None:
    rows = learner.start(peers)
    once, again = (learner.fit(rows, peers=peers, round=3).rows for _ in range(2))
    require(torch.equal(once, again), "two calls of fit() with the same arguments returned different rows")


@LEARNER_CHECKS.add
def idle_peers_do_not_move(learner: Learner, peers: Sequence[str]) -> None:
    rows = learner.start(peers)
    active = torch.tensor([number % 2 == 0 for number in range(len(peers))])
    fitted = learner.fit(rows, peers=peers, round=0, active=active)
    require(torch.equal(fitted.rows[~active], rows[~active]), "fit() moved rows that are not active")
    require(bool((fitted.report.steps[~active] == 0).all()), "fit() reported steps of rows that are not active")


@LEARNER_CHECKS.add
def a_peer_trains_alone_as_it_trains_among_others(learner: Learner, peers: Sequence[str]) -> None:
    rows = learner.start(peers)
    together = learner.fit(rows, peers=peers, round=1).rows
    for number, peer in enumerate(peers):
        alone = learner.fit(rows[number : number + 1], peers=[peer], round=1).rows
        require(
            torch.allclose(alone[0], together[number], rtol=1e-3, atol=1e-5),
            f"{peer} ends elsewhere when it is trained alone, by up to {(alone[0] - together[number]).abs().max():g}",
        )


@LEARNER_CHECKS.add
def the_order_of_peers_does_not_matter(learner: Learner, peers: Sequence[str]) -> None:
    rows = learner.start(peers)
    forward = learner.fit(rows, peers=peers, round=1).rows
    backward = learner.fit(rows, peers=peers[::-1], round=1).rows.flip(0)
    require(torch.allclose(forward, backward, rtol=1e-3, atol=1e-5), "fit() depends on the order of the peers")


@LEARNER_CHECKS.add
def rows_that_share_memory_are_trained_as_others(learner: Learner, peers: Sequence[str]) -> None:
    shared = learner.start(peers[:1]).expand(len(peers), -1)
    apart = shared.clone()
    trained, others = (learner.fit(rows, peers=peers, round=2).rows for rows in (shared, apart))
    require(torch.equal(shared, apart), "fit() changed the rows that it was given")
    require(
        torch.allclose(trained, others, rtol=1e-3, atol=1e-5),
        "fit() trains rows that share memory to other parameters; clone rows before writing into them",
    )


@LEARNER_CHECKS.add
def scores_are_one_number_per_peer(learner: Learner, peers: Sequence[str]) -> None:
    for name, scores in learner.evaluate(learner.start(peers), peers=peers).items():
        require(tuple(scores.shape) == (len(peers),), f"evaluate() returned {name} of shape {tuple(scores.shape)}")
        require(scores.dtype == torch.float64, f"evaluate() returned {name} as {scores.dtype} instead of float64")


@LEARNER_CHECKS.add
def the_state_dict_holds_all_parameters(learner: Learner, peers: Sequence[str]) -> None:
    row = learner.start(peers)[0]
    state = learner.state_dict(row)
    missing = set(learner.layout.names) - set(state)
    require(not missing, f"state_dict() lacks {sorted(missing)}")
    for name, part in learner.layout.split(row.unsqueeze(0)).items():
        require(torch.equal(state[name], part[0]), f"state_dict() returned other numbers for {name}")
