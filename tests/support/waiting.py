"""Waits of tests for what no event announces: each has a deadline and a name."""

import asyncio
import time

DEADLINE = 120.0
"""Seconds of the clock on the wall, also where the loop's own time is virtual."""


async def wait_until(condition, name, *, within=DEADLINE, every=0.0):
    """Let other tasks run until a condition holds; ``every`` spares the processor where another process works."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"waited {within:g} s in vain: {name}"
        await asyncio.sleep(every)


async def pass_turns(count=1):
    """Let each task of the loop that is ready run so often."""
    for _ in range(count):
        await asyncio.sleep(0)
