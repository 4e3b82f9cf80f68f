""":class:`TopicStore`: the messages of a topic become rows of a table, and none is lost or stored twice."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial

from p2pfl.core.errors import P2PFLError, TransportError
from p2pfl.network.transport import Transport
from p2pfl.network.transport.channel import KeptMessage
from p2pfl.plugins.serve.stored_rows import RowError, RowStore

PAUSE_SECONDS = 5.0
"""Seconds after which a broker, or a file, that has failed is tried again."""


class TopicStore:
    """Stores the messages of a topic.

    A message is acknowledged once its rows are in the file, so the broker keeps it until then, also while nobody is
    connected, up to the broker's own limits. Retained messages, which the broker repeats for each connection, are left
    out.

    Parameters
    ----------
    store
        Where the rows go.
    topic
        Topic, or a filter of topics.
    notify
        Called with a sentence for people: once for each failure until a message is stored, and for the 1st, 10th,
        100th, ... message that is no row.
    """

    def __init__(self, store: RowStore, topic: str, *, notify: Callable[[str], None]) -> None:
        self._store, self._topic, self._notify = store, topic, notify
        self._failure = ""  # the last one, until a message is stored
        self._refused = 0
        self._began = False

    async def keep_storing(self, transports: Mapping[str, Transport]) -> None:
        """Store messages until it is cancelled; what fails is a notice and is tried again.

        Parameters
        ----------
        transports
            By name, brokers that keep sessions; the next one is tried where one fails.
        """
        for broker, transport in itertools.cycle(transports.items()):
            try:
                await self.store(broker, transport)
            except P2PFLError as error:
                failure = str(error)
            except sqlite3.Error as error:
                failure = f"{self._store.path} cannot be written ({error})"
            if failure != self._failure:
                self._notify(f"{failure}; rows of {self._topic} are not stored until a new attempt succeeds")
            self._failure = failure
            await asyncio.sleep(PAUSE_SECONDS)

    async def store(self, broker: str, transport: Transport) -> None:
        """Store the messages of one connection.

        Raises
        ------
        P2PFLError
            The broker is away, denies access or the topic, or keeps no messages; or the connection is lost.
        sqlite3.Error
            The file cannot be written.
        """
        client = await asyncio.to_thread(self._store.client)
        async with transport.join(client) as channel:
            await channel.subscribe(self._topic)
            if not self._began:
                self._notify(f"stores the rows of {self._topic} in {self._store.path}")
            self._began = True
            async for message in channel:
                if not isinstance(message, KeptMessage):
                    raise TransportError(f"{broker} does not keep messages until they are stored; use mqtt://")
                if not message.retained:
                    await self._add(broker, message)
                message.acknowledge()

    async def _add(self, broker: str, message: KeptMessage) -> None:
        store = self._store
        add = partial(store.add, bytes(message.data), topic=message.topic, broker=broker, number=message.number)
        try:
            columns = await asyncio.to_thread(add, repeated=message.repeated)
        except RowError as error:
            self._refused += 1
            if str(self._refused).rstrip("0") == "1":
                counted = "1 message" if self._refused == 1 else f"{self._refused:,} messages"
                self._notify(f"left out {counted} of {self._topic} so far, the last because {error}")
            return
        self._failure = ""
        if columns:
            self._notify(f"{store.path} has the columns of its first row: {', '.join(columns)}")
