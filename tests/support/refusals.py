"""Refusals of connections by brokers."""

import asyncio

import pytest

from p2pfl.core.errors import BrokerError
from waiting import DEADLINE


async def refusal(transport):
    """The sentence with which joining fails."""

    async def scenario():
        async with transport.join("ada"):
            pass

    with pytest.raises(BrokerError) as caught:
        await asyncio.wait_for(scenario(), DEADLINE)
    assert "\n" not in str(caught.value)
    return str(caught.value)
