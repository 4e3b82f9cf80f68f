"""What goes with peers that wait for nobody, and what only with them."""

from __future__ import annotations

from p2pfl.algorithms import Algorithm
from p2pfl.errors import ExperimentError
from p2pfl.experiment.schema import Experiment


def asynchronous(algorithm: Algorithm) -> bool:
    """Whether the peers of an algorithm are in cycles of their own."""
    return bool(getattr(algorithm, "asynchronous", False))


def check_waiting(experiment: Experiment, *, asynchronous: bool) -> None:
    """Refuse what expects all peers in the same round, or what expects that they are not.

    Raises
    ------
    ExperimentError
        With the key, and why.

    Examples
    --------
    >>> from p2pfl.experiment.schema import Learning
    >>> check_waiting(Experiment(learning=Learning(algorithm="gossip_learning", stop=0.1)), asynchronous=True)
    Traceback (most recent call last):
    p2pfl.errors.ExperimentError: learning.stop: expected none with gossip_learning, whose peers, each in a cycle of \
its own, take no decision together, got 0.1: leave it out, or take an algorithm whose peers wait for each other
    """
    name, simulation = experiment.learning.algorithm, experiment.simulation
    if experiment.transport.hurry < 1 and (why := _patient(experiment, asynchronous=asynchronous)):
        raise ExperimentError(
            f"transport.hurry: expected 1 {why}, got {experiment.transport.hurry:g}: leave out one of the two"
        )
    if not asynchronous:
        late = [key for key in ("delay", "slow") if getattr(simulation, key)]
        if late:
            raise ExperimentError(
                f"simulation.{late[0]}: expected 0 with {name}, whose peers wait for each other, got "
                f"{getattr(simulation, late[0]):g}: leave it out, or take gossip_learning"
            )
        return
    if why := _together(experiment):
        raise ExperimentError(f"{why}: leave it out, or take an algorithm whose peers wait for each other")


def _patient(experiment: Experiment, *, asynchronous: bool) -> str:
    """Why no slow neighbour may be left behind; empty if it may."""
    if asynchronous:
        return f"with {experiment.learning.algorithm}, whose peers wait for nobody"
    if experiment.privacy.mode in {"pairwise", "secagg"}:
        return f"with privacy.mode = {experiment.privacy.mode}, where a neighbour that is missing hides nobody"
    if experiment.learning.stop is not None:
        return "with learning.stop, which all decide together"
    return ""


def _together(experiment: Experiment) -> str:
    """What of an experiment expects all peers in one round, and why; empty if nothing does."""
    name, learning = experiment.learning.algorithm, experiment.learning
    mode, sped, codec = experiment.privacy.mode, experiment.gossip.acceleration, experiment.compression.name
    if mode in {"pairwise", "secagg"}:
        return (
            f'privacy.mode: expected "none" or "independent" with {name}, whose peers merge rows of different cycles, '
            f'in which masks do not cancel, got "{mode}"'
        )
    if sped != "none":
        return f'gossip.acceleration: expected "none" with {name}, which merges by age and mixes nothing, got "{sped}"'
    if experiment.gossip.steps is not None:
        return (
            f"gossip.steps: expected none with {name}, whose peers send once a cycle and wait for nobody, got "
            f"{experiment.gossip.steps}"
        )
    if learning.stop is not None:
        return (
            f"learning.stop: expected none with {name}, whose peers, each in a cycle of its own, take no decision "
            f"together, got {learning.stop:g}"
        )
    if learning.consensus or experiment.data.scale:
        key = "data.scale" if experiment.data.scale else "learning.consensus"
        return f"{key}: expected false with {name}, whose peers come and go in cycles of their own, got true"
    for key, value in (("robustness.rule", experiment.robustness.rule), ("attack.name", experiment.attack.name)):
        if value not in {"none", "label_flip"}:
            return f'{key}: expected "none" with {name}, which merges rows of different cycles by age, got "{value}"'
    if codec != "none":
        return (
            f'compression.name: expected "none" with {name}, whose peers miss rows by design, got "{codec}", of which '
            "each needs the one before"
        )
    return ""
