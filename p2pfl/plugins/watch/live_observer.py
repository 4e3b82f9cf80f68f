"""An observer of a live swarm, from the arguments of ``p2pfl watch``."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from p2pfl.cli.experiments import experiment_of
from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment
from p2pfl.network.peer.launch.brokers import brokers, connect
from p2pfl.network.protocol.membership.observer_client import ObserverClient
from p2pfl.plugins.watch.feed import graph_of
from p2pfl.plugins.watch.live_swarm import LiveFeed, SwarmObserver
from p2pfl.plugins.watch.watch_commands import WatchOptions
from p2pfl.privacy.keys import NAME, FirstUse, Identity, Roster, SecretSource, Trust
from p2pfl.results.notices.kinds import Notice
from p2pfl.results.swarm.state import Entry


def observe_swarm(
    options: WatchOptions, *, name: str, sink: Callable[[Entry], None] | None
) -> tuple[LiveFeed, Callable[[], Coroutine[Any, Any, None]]]:
    """Return the state of a live swarm, and the function that looks at the swarm until it is cancelled.

    Parameters
    ----------
    options
        Arguments of the command.
    name
        Name of the observer.
    sink
        Called with each record and notice.

    Raises
    ------
    InputError
        The experiment cannot be used, or the observer has no identity.
    """
    experiment = experiment_of(options, broker=options.broker)
    urls = brokers(experiment)
    if "embedded" in urls:
        raise InputError(
            'transport.broker = "embedded" does not work for an observer, because its run alone reaches that broker; '
            "give the address with --broker mqtt://host:1883, or name the run directory without --name"
        )
    identity, trust = _identity(experiment, name)
    setting, coordinates = graph_of(experiment)
    feed = LiveFeed(setting, coordinates, sink=sink)

    def complain(notice: Notice) -> None:
        print(f"p2pfl: {notice}", file=sys.stderr)

    transport = connect(experiment, urls=urls, peer=name, notify=complain)
    client = f"{experiment.name}-watch-{name}-{secrets.token_hex(8)}"

    async def look() -> None:
        who: dict[str, Any] = {"name": name, "identity": identity, "source": SecretSource(), "trust": trust}
        link = ObserverClient(experiment.name, **who, peers=setting.peers)
        observer = SwarmObserver(link, swarm=experiment.name, name=name, feed=feed)
        await observer.look(transport, client=client)

    return feed, look


def _identity(experiment: Experiment, name: str) -> tuple[Identity, Trust]:
    """Return the identity of an observer, and what decides which key belongs to which peer."""
    if NAME.fullmatch(name) is None:
        raise InputError(f"{name!a:.40} is no name of an observer; use 1 to 22 letters, digits, _ and -")
    keys, roster = experiment.trust.keys, experiment.trust.roster
    if keys is None:
        raise InputError(f"the observer {name} has no identity; name the folder of its key with --set trust.keys=DIR")
    path = Path(keys) / f"{name}.pem"
    if not path.is_file():
        raise InputError(
            f"{path} does not exist; make the key with: p2pfl identity {name} --keys {keys} --roster observers.toml"
        )
    return Identity.load(path), FirstUse() if roster is None else Roster.read(roster)
