"""Speed: how fast this device trains and publishes, against what a round of the experiment needs."""

from __future__ import annotations

import asyncio
import math
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from p2pfl.core.errors import BrokerError, TransportError, foremost
from p2pfl.experiment import Plan
from p2pfl.plugins.operate.checks.finding import Finding, about, duration, ok, problem, size, warning
from p2pfl.plugins.operate.checks.round_trip import PATIENCE, Probe

SECONDS = 1.0
"""Seconds for which messages are published."""

TOGETHER = 8
"""Messages that wait for their confirmation at once, as those of a peer do."""

TRIES = 5
"""Training steps that are timed, after one that is not."""

INTEGER = 8
"""Bytes of a parameter under masks."""

Publish = Callable[[str, bytes], Awaitable[None]]
"""Function that publishes a message and returns once the broker has confirmed it."""


@dataclass(frozen=True)
class Needs:
    """Work and traffic of one round of an experiment on a device.

    Attributes
    ----------
    steps
        Training steps.
    models
        Models that are published, one for each gossip step.
    model, chunk
        Bytes of a model, and of the largest message.
    patience
        Seconds without progress after which neighbours go on without this peer.
    """

    steps: int
    models: int
    model: int
    chunk: int
    patience: float

    @classmethod
    def of(cls, plan: Plan, *, peer: str) -> Needs:
        """Return what a round asks of one peer."""
        learning, settings = plan.experiment.learning, plan.experiment.transport
        samples = len(plan.federation.train[peer])
        batches = 1 if learning.batch == "all" else math.ceil(samples / learning.batch)
        number = INTEGER if plan.protection.settings.hidden else plan.learner.dtype.itemsize
        return cls(
            learning.steps or learning.epochs * batches,
            plan.gossip.steps,
            plan.learner.layout.size * number,
            settings.chunk,
            settings.patience,
        )

    @property
    def messages(self) -> int:
        """Messages of one model."""
        return max(1, math.ceil(self.model / self.chunk))


def training(plan: Plan, *, peer: str, needs: Needs) -> Finding | None:
    """Time a training step on the peer's own data; ``None`` for models that do not train in steps.

    Parameters
    ----------
    plan
        The experiment, resolved for this peer.
    peer
        The peer.
    needs
        What a round asks of it.
    """
    if plan.asked.algorithm.additive or plan.experiment.learning.learner is not None:
        return None
    rows, taken = plan.learner.start((peer,)), []
    for step in range(TRIES + 1):
        began = time.perf_counter()
        plan.learner.gradient(rows, peers=(peer,), round=0, step=step)
        taken.append(time.perf_counter() - began)
    one = statistics.median(taken[1:])
    found = f"a training step takes {duration(one)}; a round has {needs.steps} and takes {about(one * needs.steps)}"
    if one * needs.steps > needs.patience:
        text = f"{found}, longer than neighbours wait (transport.patience = {needs.patience:g})"
        return warning("training", f"{text}; take fewer steps or a smaller model, or raise it on all devices")
    return ok("training", found)


async def publishing(probe: Probe, *, qos: int, needs: Needs | None) -> Finding:
    """Measure how many messages a second the broker takes from this peer, of the size that its models have.

    Parameters
    ----------
    probe
        How to reach the broker.
    qos
        Quality of service of the experiment.
    needs
        What a round asks of the peer; ``None`` if it is unknown.
    """
    amount = 1024 if needs is None else min(needs.model, needs.chunk)
    try:
        async with asyncio.timeout(SECONDS + 2 * PATIENCE), probe.join() as channel:
            count, seconds = await _published(channel.publish, probe.codec.topic("pub/doctor"), amount)
    except (BrokerError, TransportError, TimeoutError, ExceptionGroup) as group:
        error = foremost(group) if isinstance(group, ExceptionGroup) else group
        return problem(
            "publish rate", str(error) or "the broker confirms no messages; check the network and the broker"
        )
    rate = count / seconds
    found = f"{rate:,.0f} messages of {size(amount)} a second at QoS {qos}, {size(rate * amount)} a second"
    if needs is None:
        return ok("publish rate", found)
    one = needs.messages / rate
    text = f"{found}; a round has {needs.models * needs.messages} and takes {about(one * needs.models)}"
    if one > needs.patience:
        text = f"{text}, and those of one model longer than neighbours wait (transport.patience = {needs.patience:g})"
        return warning("publish rate", f"{text}; use a faster connection, a smaller model or compression, or raise it")
    return ok("publish rate", text)


async def _published(publish: Publish, topic: str, amount: int) -> tuple[int, float]:
    """Publish messages that nobody subscribes to; return how many were confirmed, and in how many seconds."""
    data, began = secrets.token_bytes(amount), time.perf_counter()
    count = 0

    async def one_after_another() -> None:
        nonlocal count
        while time.perf_counter() - began < SECONDS:
            await publish(topic, data)
            count += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(TOGETHER):
            tasks.create_task(one_after_another())
    return count, time.perf_counter() - began
