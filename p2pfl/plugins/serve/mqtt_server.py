""":class:`MqttServer`: the same answers over a broker, and a description that stays there."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Callable
from typing import Any

from p2pfl.core.errors import P2PFLError, TransportError, foremost
from p2pfl.network.transport import Transport
from p2pfl.network.transport.channel import Channel, Message, Will
from p2pfl.plugins.serve.answers import Answers
from p2pfl.plugins.serve.served_model import RequestError

MAX_REQUESTS = 32
"""Largest number of requests that wait or are answered at once; further ones are dropped."""

RETRY_SECONDS = 60.0
"""Seconds after which a broker that has refused something is tried again."""

TOPIC = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
"""Form of a prefix of topics."""

NUMBER = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Form of the name that a client gives its request."""


class MqttServer:
    """Answers over a broker.

    A client publishes rows to ``PREFIX/predict/ID`` and reads ``PREFIX/answer/ID``. The retained message of
    ``PREFIX/model`` describes the model, and that of ``PREFIX/state`` is ``online`` or ``offline``.

    Parameters
    ----------
    answers
        What answers requests.
    prefix
        Prefix of the topics.
    discovery
        Prefix of Home Assistant; ``None`` not to appear there.
    """

    def __init__(self, answers: Answers, *, prefix: str, discovery: str | None = None) -> None:
        self._answers, self._prefix, self._discovery = answers, prefix, discovery
        self._open = set[asyncio.Task[None]]()

    async def keep_serving(self, transport: Transport, *, notify: Callable[[str], None]) -> None:
        """Answer until it is cancelled; whatever the broker refuses is a notice and is tried again.

        Parameters
        ----------
        transport
            How to reach the broker.
        notify
            Called with a sentence for people, once for each reason.
        """
        reported = ""
        while True:
            try:
                await self.serve(transport)
            except* P2PFLError as group:
                reason = str(foremost(group))
                if reason != reported:
                    notify(f"{reason}; HTTP answers on, and the broker is tried again every {RETRY_SECONDS:g} s")
                reported = reason
            await asyncio.sleep(RETRY_SECONDS)

    async def serve(self, transport: Transport) -> None:
        """Answer until it is cancelled.

        Raises
        ------
        AccessError
            The broker denies access.
        TransportError
            The broker denies the topics.
        """
        client = f"p2pfl-serve-{secrets.token_hex(8)}"
        will = Will(f"{self._prefix}/state", b"offline")
        async with transport.join(client, will=will) as channel:
            await channel.subscribe(f"{self._prefix}/predict/+")
            await channel.publish(f"{self._prefix}/state", b"online", retain=True)
            try:
                await self._answer(channel)
            finally:
                channel.abort()  # so that the broker publishes the will

    async def _answer(self, channel: Channel) -> None:
        """Answer each request that arrives."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._announce(channel))
            async for message in channel:
                if len(self._open) < MAX_REQUESTS and not message.retained:
                    task = tasks.create_task(self._reply(channel, message))
                    self._open.add(task)
                    task.add_done_callback(self._open.discard)

    async def _announce(self, channel: Channel) -> None:
        """Publish the description of each new model."""
        newest = self._answers.newest
        while True:
            newest.changed.clear()
            if newest.current is not None:
                about = newest.current.describe()
                await channel.publish(f"{self._prefix}/model", shortened(about, limit=channel.limit), retain=True)
                for topic, content in discovery(about, prefix=self._prefix, under=self._discovery).items():
                    await channel.publish(topic, _encode(content), retain=True)
            await newest.changed.wait()

    async def _reply(self, channel: Channel, message: Message) -> None:
        name = message.topic.rpartition("/")[2]
        if NUMBER.fullmatch(name) is None:
            return
        try:
            answer = await self._answers.predict(bytes(message.data))
        except RequestError as error:
            answer = {"error": str(error)}
        data, topic = _encode(answer), f"{self._prefix}/answer/{name}"
        if len(data) > channel.limit:
            data = _encode({"error": f"the answer has {len(data)} bytes, more than {channel.limit}; send fewer rows"})
        try:
            await channel.publish(topic, data)
        except TransportError:
            return  # the client asks again


def shortened(about: dict[str, Any], *, limit: int) -> bytes:
    """Return the JSON of a description; without columns, and then without classes, if it is too long.

    Parameters
    ----------
    about
        Description.
    limit
        Largest number of bytes.

    Examples
    --------
    >>> shortened({"round": 3, "columns": ["age", "sex"], "classes": ["ill"]}, limit=50)
    b'{"round": 3, "columns": null, "classes": ["ill"]}'
    """
    data = _encode(about)
    for name in ("columns", "classes"):
        if len(data) > limit:
            about = about | {name: None}
            data = _encode(about)
    return data


def discovery(about: dict[str, Any], *, prefix: str, under: str | None) -> dict[str, dict[str, Any]]:
    """Return the messages by topic that list a model in Home Assistant as a sensor with its round.

    Parameters
    ----------
    about
        Description of the model.
    prefix
        Prefix of its topics.
    under
        Prefix of Home Assistant; without one there are no messages.

    References
    ----------
    https://www.home-assistant.io/integrations/mqtt#mqtt-discovery

    Examples
    --------
    >>> [*discovery({"peer": "ada", "model": "mlp"}, prefix="plant/ml", under="homeassistant")]
    ['homeassistant/sensor/plant_ml/round/config']
    """
    if under is None:
        return {}
    node = re.sub(r"[^A-Za-z0-9_-]", "_", prefix)
    sensor = {
        "name": "round",
        "unique_id": f"{node}_round",
        "state_topic": f"{prefix}/model",
        "value_template": "{{ value_json.round }}",
        "json_attributes_topic": f"{prefix}/model",
        "availability_topic": f"{prefix}/state",
        "device": {"identifiers": [node], "name": f"p2pfl {about['peer']}", "model": about["model"]},
    }
    return {f"{under}/sensor/{node}/round/config": sensor}


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False).encode()
