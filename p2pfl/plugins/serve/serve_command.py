"""``p2pfl serve``."""

from __future__ import annotations

import asyncio
import math
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from p2pfl.cli import folders, terminal
from p2pfl.cli.interrupts import run_until_interrupted
from p2pfl.core.errors import InputError, foremost
from p2pfl.network.transport import Access, Transport, opened
from p2pfl.network.transport.backoff import Backoff
from p2pfl.network.transport.lasting import LastingTransport, Wait
from p2pfl.network.transport.login import login, overheard
from p2pfl.plugins.serve.answers import Answers
from p2pfl.plugins.serve.http_server import HttpServer, is_local
from p2pfl.plugins.serve.mqtt_server import TOPIC, MqttServer
from p2pfl.plugins.serve.newest_model import NewestModel, find_model
from p2pfl.plugins.serve.serve_commands import ServeOptions


def run(options: ServeOptions) -> int:
    """``p2pfl serve``."""
    if not options.broker and (options.ca, options.topic, options.discovery) != (None, None, None):
        raise InputError("--ca, --topic and --discovery are for a broker; add --broker mqtt://host:1883")
    for name in ("topic", "discovery"):
        prefix = getattr(options, name)
        if prefix is not None and TOPIC.fullmatch(prefix) is None:
            raise InputError(f"--{name} {prefix!a:.60} is not a prefix of topics; use levels such as plant/ml")
    if options.trust_model is not None:
        folders.add_present()
    run_until_interrupted(_serve(options))
    return 0


async def _serve(options: ServeOptions) -> None:
    newest = NewestModel(
        Path(options.model),
        name=options.name,
        now=partial(datetime.now, UTC),
        notify=terminal.note,
        trusted=options.trust_model,
    )
    found = find_model(newest.place, name=options.name)
    await newest.look()
    if newest.refusal and newest.current is None:
        raise InputError(newest.refusal)
    answers = Answers(newest, notify=terminal.note)
    try:
        async with HttpServer(answers, host=options.host).listening(options.port) as url, asyncio.TaskGroup() as tasks:
            tasks.create_task(newest.follow())
            if options.broker:
                prefix = options.topic or f"p2pfl-serve/{options.name or (found.stem if found else 'model')}"
                served = MqttServer(answers, prefix=prefix, discovery=options.discovery)
                tasks.create_task(served.serve(_transport(options)))
                terminal.note(f"answers over the broker on {prefix}/predict/ID")
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


def _transport(options: ServeOptions) -> Transport:
    """Return how to reach the brokers, for as long as it takes."""
    owned = login(None, peer="", environment=os.environ)
    for exposed in overheard(owned.password, options.broker):
        terminal.note(f"the password travels unencrypted to {exposed}; use mqtts://")
    access = Access(user=owned.user, password=owned.password, ca=None if options.ca is None else Path(options.ca))

    def notice(wait: Wait) -> None:
        terminal.note(f"{wait.error}; it is tried again")

    transports = [opened(url, access) for url in options.broker]
    return LastingTransport(transports, backoff=Backoff(outage=math.inf), notice=notice)
