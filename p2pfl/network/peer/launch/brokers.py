"""Connections of the peers and observers of an experiment to its brokers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from p2pfl.experiment import Experiment
from p2pfl.network.protocol.wire.bounds import HEAD
from p2pfl.network.transport import Access, Transport, opened
from p2pfl.network.transport.backoff import Backoff
from p2pfl.network.transport.lasting import LastingTransport, Wait
from p2pfl.network.transport.login import login, overheard
from p2pfl.network.transport.topic_prefix import below
from p2pfl.results.notices.kinds import BrokerUnavailable, Notice, PasswordExposed, QualityLowered


def connect(
    experiment: Experiment,
    *,
    urls: Sequence[str],
    peer: str,
    notify: Callable[[BrokerUnavailable | QualityLowered], None] | None = None,
) -> Transport:
    """Return how one of an experiment's peers reaches the first of some brokers that lets it in.

    Connections outlast an absent or restarting broker, except an embedded one, which nobody starts again. ``notify`` is
    called with a notice when the peer has to wait for the broker, or goes on at a lower quality of service.
    """
    settings = experiment.transport

    def lowered(reason: str) -> None:
        if notify is not None:
            notify(QualityLowered(peer=peer, message=reason))

    access = replace(access_of(experiment, peer), lowered=lowered, prefix="")
    transports = [opened(url, access) for url in urls]
    if settings.broker == "embedded":
        return below(transports[0], settings.prefix)

    def notice(wait: Wait) -> None:
        if notify is not None:
            seconds = wait.seconds if math.isfinite(wait.seconds) else None
            notify(BrokerUnavailable(peer=peer, message=str(wait.error), seconds=seconds))

    lasting = LastingTransport(transports, backoff=Backoff(outage=settings.outage), notice=notice)
    return below(lasting, settings.prefix)


def access_of(experiment: Experiment, peer: str, *, environment: Mapping[str, str] | None = None) -> Access:
    """Return the settings with which a peer reaches a broker; its login may be in the environment."""
    settings = experiment.transport
    variables = os.environ if environment is None else environment
    owned = login(_path(settings.credentials), peer=peer, environment=variables)
    return Access(
        user=owned.user,
        password=owned.password,
        ca=_path(settings.ca),
        certificate=_path(settings.certificate),
        key=_path(settings.key),
        version=settings.mqtt.version,
        qos=settings.mqtt.qos,
        limit=settings.chunk + HEAD,
        prefix=settings.prefix,
    )


def password_warnings(experiment: Experiment, *, urls: Sequence[str], peer: str) -> list[Notice]:
    """Return a warning if a peer sends its password to a broker unencrypted."""
    exposed = overheard(access_of(experiment, peer).password, urls)
    return [PasswordExposed(peer=peer, brokers=exposed)] if exposed else []


def brokers(experiment: Experiment) -> tuple[str, ...]:
    """Return the URLs of its brokers."""
    named = experiment.transport.broker
    return (named,) if isinstance(named, str) else named


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
