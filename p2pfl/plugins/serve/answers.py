""":class:`Answers`, what HTTP and MQTT share: one thread that predicts, and a deadline for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from p2pfl.plugins.serve.newest_model import NewestModel
from p2pfl.plugins.serve.served_model import RequestError

ANSWER_SECONDS = 30.0
"""Seconds after which a request is given up, the wait for those before it included."""

MAX_BODY_BYTES = 4 << 20
"""Largest body of a request."""

MAX_WAITING = 16
"""Largest number of requests that wait or are answered at once."""


class Answers:
    """Answers to requests, one after the other.

    Parameters
    ----------
    newest
        The model.
    notify
        Called with a sentence for people.
    seconds
        Deadline of a request.

    Attributes
    ----------
    waiting
        Number of requests that wait or are answered.
    """

    def __init__(self, newest: NewestModel, *, notify: Callable[[str], None], seconds: float = ANSWER_SECONDS) -> None:
        self.newest = newest
        self._notify, self._seconds = notify, seconds
        self._thread = ThreadPoolExecutor(1, "predict")
        self.waiting = 0

    def close(self) -> None:
        """Give up the requests that wait."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def describe(self) -> dict[str, Any]:
        """Return the description of the model.

        Raises
        ------
        RequestError
            There is none yet.
        """
        return self.newest.take().describe()

    async def predict(self, body: bytes) -> dict[str, Any]:
        """Return the predictions for a request.

        Raises
        ------
        RequestError
            The rows do not fit, there is no model yet, others wait already, or the deadline has passed.
        """
        model = self.newest.take()
        if len(body) > MAX_BODY_BYTES:
            raise RequestError(f"the request has more than {MAX_BODY_BYTES:,} bytes; send several requests", 413)
        if self.waiting >= MAX_WAITING:
            raise RequestError(f"{MAX_WAITING} requests wait already; ask again later", 503)
        working = asyncio.get_running_loop().run_in_executor(self._thread, model.answer, body)
        self.waiting += 1
        working.add_done_callback(self._done)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(working)
        except TimeoutError:
            working.cancel()
            raise RequestError(f"the model did not answer within {self._seconds:g} s; send fewer rows", 503) from None
        except (RequestError, asyncio.CancelledError):
            raise
        except Exception as error:  # a request must never end the service
            self._notify(f"a request failed with {type(error).__name__}: {error}; the next ones are answered")
            raise RequestError("the model failed on these rows; see what p2pfl serve printed", 500) from error

    def _done(self, working: asyncio.Future[dict[str, Any]]) -> None:
        self.waiting -= 1
        if not working.cancelled():
            working.exception()  # it was reported, or its request has been given up
