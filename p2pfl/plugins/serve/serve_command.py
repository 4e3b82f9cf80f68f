"""``p2pfl serve``."""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from p2pfl.cli import folders, terminal
from p2pfl.cli.interrupts import run_until_interrupted
from p2pfl.core.errors import InputError, TransportError, foremost
from p2pfl.data.tables.file_format import SQLITE
from p2pfl.network.transport import Access, Transport, check_filters, opened
from p2pfl.network.transport.backoff import Backoff
from p2pfl.network.transport.lasting import LastingTransport, Wait
from p2pfl.network.transport.login import login, overheard
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.plugins.serve.answers import Answers
from p2pfl.plugins.serve.http_server import HttpServer, is_local
from p2pfl.plugins.serve.mqtt_server import TOPIC, MqttServer
from p2pfl.plugins.serve.newest_model import SUFFIX, NewestModel, find_model
from p2pfl.plugins.serve.serve_commands import ServeOptions

PEER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Form of the name of a peer or of a copy of its model, which is a level of a topic."""


def run(options: ServeOptions) -> int:
    """``p2pfl serve``."""
    if not options.broker and {options.ca, options.topic, options.discovery, options.store} != {None}:
        raise InputError("--ca, --topic, --discovery and --store are for a broker; add --broker mqtt://host:1883")
    for name in ("topic", "discovery"):
        prefix = getattr(options, name)
        if prefix is not None and TOPIC.fullmatch(prefix) is None:
            raise InputError(f"--{name} {prefix!a:.60} is not a prefix of topics; use levels such as plant/ml")
    if options.name is not None and PEER.fullmatch(options.name) is None:
        raise InputError(f"--name {options.name!a:.60} is not the name of a peer; use letters, digits, _ and -")
    if options.trust_model is not None:
        folders.accept_present(options.trust_model)
    run_until_interrupted(_serve(options))
    return 0


def default_topic(place: Path, *, name: str | None) -> str:
    """Return the prefix of topics for a peer or a place, which is the same before and after the first model.

    Examples
    --------
    >>> default_topic(Path("runs"), name="pi-hall"), default_topic(Path("plant 2/runs"), name=None)
    ('p2pfl-serve/pi-hall', 'p2pfl-serve/runs')
    """
    place = place.absolute()
    stem = name or (place.stem if place.suffix == SUFFIX else place.name) or "model"
    return f"p2pfl-serve/{re.sub(r'[^A-Za-z0-9_.-]', '_', stem)}"


async def _serve(options: ServeOptions) -> None:
    access = _access(options)
    storing = _storing(options, access) if options.store is not None else None
    newest = NewestModel(
        Path(options.model),
        name=options.name,
        now=partial(datetime.now, UTC),
        notify=terminal.note,
        trusted=options.trust_model,
    )
    find_model(newest.place, name=options.name)  # what is wrong with the arguments ends the command
    await newest.look()
    if newest.refusal and newest.current is None:
        raise InputError(newest.refusal)
    answers = Answers(newest, notify=terminal.note)
    try:
        async with HttpServer(answers, host=options.host).listening(options.port) as url, asyncio.TaskGroup() as tasks:
            tasks.create_task(newest.follow())
            if options.broker:
                prefix = options.topic or default_topic(newest.place, name=options.name)
                served = MqttServer(answers, prefix=prefix, discovery=options.discovery)
                tasks.create_task(served.keep_serving(_transport(options, access), notify=terminal.note))
                terminal.note(f"answers over the broker on {prefix}/predict/ID")
            if storing is not None:
                tasks.create_task(storing())
            if not is_local(options.host):
                terminal.note(
                    f"everybody who reaches {options.host} can ask; use --host 127.0.0.1 for this machine alone"
                )
            if newest.current is None:
                terminal.note(f"{options.model} has no model yet; it answers after the first round")
            terminal.note(f"serves {url} (Ctrl-C ends it)")
    except BaseExceptionGroup as group:
        raise foremost(group) from None
    finally:
        answers.close()


def _access(options: ServeOptions) -> Access:
    """Return what the command may use of a broker."""
    owned = login(None, peer="", environment=os.environ)
    for exposed in overheard(owned.password, options.broker):
        terminal.note(f"the password travels unencrypted to {exposed}; use mqtts://")
    return Access(user=owned.user, password=owned.password, ca=None if options.ca is None else Path(options.ca))


def _storing(options: ServeOptions, access: Access) -> Callable[[], Coroutine[None, None, None]]:
    """Return what stores the rows of a topic.

    Raises
    ------
    InputError
        ``--store`` names no table or no topic, or the table cannot be written.
    """
    import sqlite3  # noqa: PLC0415 (Python of some boards has none, nor need of it)

    from p2pfl.plugins.serve.stored_rows import RowStore  # noqa: PLC0415 (SQLite)
    from p2pfl.plugins.serve.topic_store import TopicStore  # noqa: PLC0415 (SQLite)

    file, _, topic = (options.store or "").partition("=")
    store = RowStore(Path(file))
    if store.path.suffix.lower() not in SQLITE:
        raise InputError(f"--store {options.store!a:.60} is not a table and a topic; use readings.sqlite=plant/hall")
    try:
        check_filters((topic,))
        store.client()
    except TransportError as error:
        raise InputError(f"--store: {error}") from None
    except sqlite3.Error as error:
        raise InputError(f"{file} cannot be written ({error}); name a SQLite file in a folder that exists") from None
    transports = {
        url: MqttTransport(url, user=access.user, password=access.password, ca=access.ca, kept=True)
        for url in options.broker
    }
    return partial(TopicStore(store, topic, notify=terminal.note).keep_storing, transports)


def _transport(options: ServeOptions, access: Access) -> Transport:
    """Return how to reach the brokers, for as long as it takes."""

    def notice(wait: Wait) -> None:
        terminal.note(f"{wait.error}; it is tried again")

    transports = [opened(url, access) for url in options.broker]
    return LastingTransport(transports, backoff=Backoff(outage=math.inf), notice=notice)
