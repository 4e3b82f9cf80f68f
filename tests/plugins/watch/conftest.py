"""Run directories that grow line by line, a server in a thread, and a browser."""

import asyncio
import contextlib
import threading

import pytest

from browser import CHROMIUM, Browser
from growing import Growing
from p2pfl.plugins.watch.feed import Feed
from p2pfl.plugins.watch.web_server import serve

DEADLINE = 300.0


@pytest.fixture
def growing(tmp_path):
    return Growing(tmp_path / "run")


@pytest.fixture
def browser(tmp_path):
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    opened = Browser(tmp_path / "browser")
    yield opened
    opened.close()


@contextlib.contextmanager
def _served(growing, replay):
    ready, running = threading.Event(), {}

    async def body():
        running["loop"], running["task"] = asyncio.get_running_loop(), asyncio.current_task()

        def begun(address):
            running["address"] = address
            ready.set()

        with Feed(growing.folder, now=growing.now) as feed, contextlib.suppress(asyncio.CancelledError):
            await serve(feed, port=0, token=None, replay=replay, ready=begun)

    thread = threading.Thread(target=asyncio.run, args=(body(),))
    thread.start()
    assert ready.wait(DEADLINE)
    try:
        yield running["address"]
    finally:
        running["loop"].call_soon_threadsafe(running["task"].cancel)
        thread.join(DEADLINE)


@pytest.fixture
def address(growing):
    """Return the address of a page, whose server ends with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda replay=None: stack.enter_context(_served(growing, replay))
