"""A headless Chromium over its debugging protocol: enough to open a page, look at it and use it."""

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium")
DEADLINE = 60.0
"""Seconds in which anything that a test waits for must have happened."""


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
            stderr=subprocess.DEVNULL,
        )
        place = folder / "DevToolsActivePort"
        self._until(lambda: place.exists() and place.read_text().count("\n") > 0)
        port = place.read_text().split()[0]
        self._until(lambda: self._pages(port))
        self._socket = connect(self._pages(port)[0], max_size=2**28)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **given):
        """Call a method of the protocol and return its result."""
        number = next(self._number)
        self._socket.send(json.dumps({"id": number, "method": method, "params": given}))
        while True:
            message = json.loads(self._socket.recv(timeout=DEADLINE))
            if message.get("id") == number:
                assert "error" not in message, message
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
        return self._until(lambda: self.run(script), what=script)

    def picture(self, path, *, whole=True):
        """Write what the window shows, or the whole page, as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        given = {"captureBeyondViewport": True, "clip": clip} if whole else {}
        data = self.call("Page.captureScreenshot", format="png", **given)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self._socket.close()
        self._process.kill()
        self._process.wait(DEADLINE)

    def _pages(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=DEADLINE) as answer:
            return [each["webSocketDebuggerUrl"] for each in json.load(answer) if each["type"] == "page"]

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

    @staticmethod
    def _until(found, what="the browser"):
        deadline = time.monotonic() + DEADLINE
        while not (value := found()):
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.05)
        return value
