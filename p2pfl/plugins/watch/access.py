"""Access to the page: a token, the names of this host, and a policy that loads nothing from elsewhere."""

from __future__ import annotations

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Final

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy: scripts and styles of this server alone, and no other host at all."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Headers of every response."""

METHODS: Final = frozenset({"GET", "HEAD"})
"""Methods of requests; nothing can be changed."""


def new_token() -> str:
    """Return a token of 128 bits."""
    return secrets.token_urlsafe(16)


class Guard:
    """Middleware that refuses requests without the token, and those of pages of other hosts.

    The token arrives in the printed address and is exchanged for a cookie, so that it stays neither in the address bar
    nor in the history; tools send it as ``Authorization: Bearer``.

    Parameters
    ----------
    app
        Application behind the guard.
    token
        The token.
    port
        Port of the server.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._session = secrets.token_urlsafe(32)
        self._cookie = f"p2pfl_watch_{port}"  # a browser shares the cookies of a host between its ports
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not passed on; ``None`` for one that is."""
        headers = Headers(scope=scope)
        if headers.getlist("host") != [headers.get("host", "")] or headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse("this host is not served here; use the address that p2pfl printed\n", 400)
        if scope["method"] not in METHODS:
            return PlainTextResponse("this page can only be read\n", 405, headers={"Allow": "GET, HEAD"})
        token = QueryParams(scope.get("query_string", b"")).get("token")
        if scope["path"] == "/" and token is not None and _equal(token, self._token):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
            return answer
        if self._is_known(headers):
            return None
        return PlainTextResponse("the token is missing or wrong; use the address that p2pfl printed\n", 403)

    def _is_known(self, headers: Headers) -> bool:
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _equal(credentials.strip(), self._token):
            return True
        try:
            jar = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return self._cookie in jar and _equal(jar[self._cookie].value, self._session)


def _equal(text: str, secret: str) -> bool:
    """Compare in a time that does not depend on where the two differ."""
    return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), secret.encode())
