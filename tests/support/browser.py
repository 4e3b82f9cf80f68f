"""A headless Chromium over its debugging protocol: enough to open a page, look at it and use it."""

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium")
DEADLINE = 60.0
"""Seconds in which anything that a test waits for must have happened."""


LOOK = """new Promise((done) => {
  const end = performance.now() + 1000;
  const look = () => {
    const value = (() => { try { return %s } catch { return false } })();
    if (value || performance.now() > end) done(value); else setTimeout(look, 30);
  };
  look();
})"""
"""Waits for an expression inside of the page."""


class ProtocolError(Exception):
    """The browser cannot do what it was asked."""


class Browser:
    """A page in a Chromium of its own.

    Attributes
    ----------
    messages
        What the page wrote to its console, with errors and violations of its policy.
    requests
        Addresses that it asked for.
    """

    def __init__(self, folder: Path):
        self.messages, self.requests = [], []
        self._number = itertools.count(1)
        self._stack = contextlib.ExitStack()
        self._process = subprocess.Popen(
            [
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--force-prefers-reduced-motion",
                "--hide-scrollbars",
                "--remote-debugging-port=0",
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(self._end)
        address = next(line.split()[-1] for line in self._process.stderr if "DevTools listening on" in line)
        threading.Thread(target=self._process.stderr.read, daemon=True).start()  # so that the pipe never fills up
        self._socket = self._stack.enter_context(connect(_page(urlsplit(address).netloc), max_size=2**28))
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **given):
        """Call a method of the protocol and return its result."""
        number = next(self._number)
        self._socket.send(json.dumps({"id": number, "method": method, "params": given}))
        while True:
            message = json.loads(self._socket.recv(timeout=DEADLINE))
            if message.get("id") == number:
                if "error" in message:
                    raise ProtocolError(message["error"]["message"])
                return message["result"]
            self._note(message)

    def open(self, address, *, width=1280, height=800, dark=False):
        """Open an address in a window."""
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=address)

    def resize(self, width, height):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def run(self, script):
        """Return the value of an expression; promises are awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script):
        """Wait until an expression is true and return its value."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            with contextlib.suppress(ProtocolError):  # the page is left while it is asked
                if value := self.run(LOOK % script):
                    return value
        raise AssertionError(f"waited in vain for {script}")

    def picture(self, path, *, whole=True):
        """Write what the window shows, or the whole page, as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        given = {"captureBeyondViewport": True, "clip": clip} if whole else {}
        data = self.call("Page.captureScreenshot", format="png", **given)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self._stack.close()

    def _end(self):
        self._process.kill()
        self._process.wait(DEADLINE)
        self._process.stderr.close()

    def _note(self, message):
        given = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])
            case "Log.entryAdded":
                self.messages.append(f"{given['entry']['level']}: {given['entry']['text']} {given['entry'].get('url')}")
            case "Runtime.consoleAPICalled":
                self.messages.append(f"{given['type']}: {given['args']}")
            case "Runtime.exceptionThrown":
                self.messages.append(f"exception: {given['exceptionDetails']}")


def _page(host):
    """Open a page and return the address of its debugger."""
    answer = httpx.put(f"http://{host}/json/new?about:blank", timeout=DEADLINE, trust_env=False)
    return answer.json()["webSocketDebuggerUrl"]
