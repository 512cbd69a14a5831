"""What protects the studio: which requests are answered at all, and what a page may load.

A page of another site must not reach the server through the user's browser. So the Host header must name this server
(a name that is made to point to 127.0.0.1 does not), a request that changes something must come from the studio's own
page, and every answer forbids scripts, styles and connections from elsewhere. Beyond this machine a token is needed.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import platform
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from seqwise.studio.limits import BusyError, ClientTimeout, RequestTooLarge

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

COOKIE = "seqwise_token"
REQUEST_HEADER = b"x-seqwise"  # the page sets it; a form or an image of another site cannot
MAX_BODY_BYTES = 32 << 20
MAX_SEND_SECONDS = 60.0  # until a client has read a part of an answer
MAX_TOTAL_BYTES = 128 << 20  # of all requests at the same time
SAFE_METHODS = ("GET", "HEAD")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'none'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


def make_token() -> str:
    """Returns a random token for a server that other machines can reach."""
    return secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach a server at the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_host(value: str, host: str, port: int) -> bool:
    """Returns whether the Host header of a request names the server at an address.

    A server on all interfaces has several addresses and the name of its machine. Any other name may be one that its
    owner makes point to this machine.
    """
    name, _, number = value.rpartition(":")
    if not number.isdecimal():
        name, number = value, "80"
    if number != str(port):
        return False
    name = name.removeprefix("[").removesuffix("]")
    if host in ("0.0.0.0", "::"):
        return name in ("localhost", platform.node().lower()) or is_address(name)
    return name == host.lower() or (is_loopback(host) and name in ("127.0.0.1", "localhost", "::1"))


def is_address(name: str) -> bool:
    """Returns whether a host is an IP address rather than a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Answers a request that is not allowed with an error; passes the others on to `app`, with safe headers."""

    def __init__(self, app: App, host: str, port: int, token: str = "", max_body_bytes: int = MAX_BODY_BYTES):
        self.app, self.host, self.port, self.token, self.max_body_bytes = app, host, port, token, max_body_bytes
        self.max_send_seconds = MAX_SEND_SECONDS
        self._total_bytes = 0  # of the bodies of requests that are not answered yet

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        headers = dict(scope["headers"])
        query = scope.get("query_string", b"")
        status, problem = self.find_problem(scope["method"], headers, query)
        if problem:
            return await _refuse(send, status, problem)
        if self.token and scope["path"] == "/" and query:
            return await self._keep_token(send)
        received, has_started = 0, False

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            size = len(message.get("body", b""))
            received += size
            self._total_bytes += size
            if self._total_bytes > MAX_TOTAL_BYTES:
                raise BusyError("the server receives too many files at once.", fix="Wait, then try again.")
            if received > self.max_body_bytes:
                raise RequestTooLarge(self._explain_size())
            return message

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                names = {name.lower() for name, _ in HEADERS}
                own = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in names]
                message = {**message, "headers": [*own, *HEADERS]}
            try:
                async with asyncio.timeout(self.max_send_seconds):
                    await send(message)
            except TimeoutError:
                raise ClientTimeout from None  # ends the computation whose answer is not read

        try:
            await self.app(scope, receive_limited, send_with_headers)
        except ClientTimeout:
            pass
        except RequestTooLarge as error:
            if not has_started:
                await _refuse(send, 413, str(error))
        finally:
            self._total_bytes -= received

    def find_problem(self, method: str, headers: dict[bytes, bytes], query: bytes = b"") -> tuple[int, str]:
        """Returns the HTTP status and the reason to refuse a request; no reason if it is allowed."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not is_own_host(host, self.host, self.port):
            return 421, "this server has another name."
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() != f"http://{host}":
            return 403, "requests of other sites are not answered."
        # A page of another site may link to the studio, but neither embed nor fetch anything of it.
        is_navigation = headers.get(b"sec-fetch-mode") == b"navigate" and method == "GET"
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin") and not is_navigation:
            return 403, "requests of other sites are not answered."
        if method not in SAFE_METHODS and (origin is None or REQUEST_HEADER not in headers):
            return 403, "a change must be requested by the page of the studio."
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self.max_body_bytes:
            return 413, self._explain_size()
        if self.token and not self._has_token(headers, query):
            return 401, "a token is needed: open the address that seqwise studio has printed."
        return 200, ""

    def _explain_size(self) -> str:
        return f"the request is larger than {self.max_body_bytes:,} bytes."

    async def _keep_token(self, send: Send) -> None:
        """Moves the token from the address, which the browser's history keeps, to a cookie."""
        cookie = f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/".encode()
        own = [(b"location", b"/"), (b"set-cookie", cookie), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": [*own, *HEADERS]})
        await send({"type": "http.response.body", "body": b""})

    def _has_token(self, headers: dict[bytes, bytes], query: bytes) -> bool:
        candidates = [
            value for name, _, value in (part.partition(b"=") for part in query.split(b"&")) if name == b"token"
        ]
        try:
            cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
        except CookieError:
            cookie = None
        candidates += [cookie.value.encode()] if cookie is not None else []
        return any(hmac.compare_digest(each, self.token.encode()) for each in candidates)


async def _refuse(send: Send, status: int, problem: str) -> None:
    body = f"{problem}\n".encode()
    own = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *HEADERS]})
    await send({"type": "http.response.body", "body": body})
