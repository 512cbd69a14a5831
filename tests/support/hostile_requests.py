"""Requests that must have no effect: other hosts and origins, paths out of the folders, malformed and huge bodies."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

SCRIPT = "<img src=x onerror=alert(1)><script>alert(1)</script>"
OUTSIDE = (
    "..", "../secret", "runs/..", "runs/../secret", "runs/../../etc/passwd", "/etc/passwd", "runs//etc/passwd",
    "runs/%2e%2e/secret", "runs/..%2fsecret", "runs\\..\\secret", "runs/link", "runs/link/inner", "runs/./book-lstm/..",
    "runs/book-lstm/../../secret", "file:///etc/passwd", "~/.ssh/id_rsa", "runs/book-lstm\x00", "runs/\u202esecret",
    "", " ", "runs", "runs/.trash", "runs/.studio", "x" * 999, "x" * 100_000, SCRIPT, "runs/book-lstm/checkpoints",
    "C:\\Windows\\win.ini", "//127.0.0.1/share", "runs/book-lstm/.lock",
)  # fmt: skip
STATIC_PATHS = (
    "/static/../pyproject.toml", "/static/%2e%2e/%2e%2e/pyproject.toml", "/static/studio/static/../app.py",
    "/static/studio/app.py", "/static/..%2f..%2fetc/passwd", "/static//etc/passwd", "/static/page/html.py",
    "/static/studio/static/pages/../../security.py", "/static/studio", "/static/", "/../../etc/passwd", "/%00",
    "/static/%00", "/.git/config", "/docs", "/redoc", "/openapi.json", "/api", "/api/", "/runs",
    "/static/studio/static/index.html%00.js",
)  # fmt: skip
BODIES = (
    b"", b"null", b"[]", b"1", b'"text"', b"{", b"{]", b"\xff\xfe", b"{}" * 1000, b"[" * 200_000, b'{"a":' * 50_000,
    b'{"run": null}', b'{"run": 1}', b'{"run": ["runs/book-lstm"]}', b'{"run": {"$ne": 1}}',
    b'{"run": "runs/book-lstm"}',
    b'{"run": "runs/book-lstm", "text": 5}', b'{"run": "runs/book-lstm", "text": "a", "extra": 1}',
    b'{"run": "runs/book-lstm", "text": NaN}', b'{"text": "a"}', b'{"run": "../secret", "text": "a"}',
    b'{"run": "runs/book-lstm", "text": "' + b"a" * 200_000 + b'"}', b'{"__proto__": {"a": 1}}', b"\x00" * 100,
)  # fmt: skip
HOSTS = (
    "evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "localhost.evil.example:{port}",
    "127.0.0.1", "127.0.0.1:1", "localhost", "0.0.0.0:{port}",
    "127.0.0.1:{port}@evil.example", "127.0.0.1:{port}, evil.example",
    "LOCALHOST.:{port}", "[::ffff:127.0.0.1]:{port}", "127.1:{port}", "2130706433:{port}", "", "\t", "*", "null",
)  # fmt: skip
ORIGINS = (
    "http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1", "http://127.0.0.1:1",
    "http://127.0.0.1:{port}.evil.example", "http://evil.example:{port}", "file://", "chrome-extension://abc", "",
)  # fmt: skip


@dataclass(frozen=True)
class HostileRequest:
    """A request, and the statuses that are allowed as an answer."""

    name: str
    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    statuses: tuple[int, ...] = (400, 401, 403, 404, 405, 413, 414, 421, 422, 431)


def list_hostile_requests(address: str, posts: list[str], gets: list[str]) -> Iterator[HostileRequest]:
    """Yields hostile requests to a server.

    posts, gets: all addresses of the server that take a body, and those that take the id of a run
    """
    port = urlsplit(address).port
    own = {"Origin": address.rstrip("/"), "X-Seqwise": "1", "Content-Type": "application/json"}
    for host in HOSTS:
        yield HostileRequest(f"Host {host}", "GET", "/api/runs", {"Host": host.format(port=port)}, statuses=(400, 421))
    for origin in ORIGINS:
        for path in posts[:3]:
            headers = {**own, "Origin": origin.format(port=port)}
            yield HostileRequest(f"Origin {origin} {path}", "POST", path, headers, b"{}", (403,))
        cross = {"Origin": origin.format(port=port)}
        yield HostileRequest(f"Origin {origin} reads", "GET", "/api/runs", cross, statuses=(403,))
    for path in posts:
        yield HostileRequest(f"no origin {path}", "POST", path, {"X-Seqwise": "1"}, b"{}", (403,))
        yield HostileRequest(f"no header {path}", "POST", path, {"Origin": own["Origin"]}, b"{}", (403,))
        site = {**own, "Sec-Fetch-Site": "cross-site"}
        yield HostileRequest(f"cross-site {path}", "POST", path, site, b"{}", (403,))
        huge = {**own, "Content-Length": str(10**12)}
        yield HostileRequest(f"a body of a terabyte {path}", "POST", path, huge, b"{}", (413,))
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            yield HostileRequest(f"{method} {path}", method, path, own)
        for body in BODIES:
            # An object that is complete and harmless may be answered.
            yield HostileRequest(f"body {body[:40]!r} {path}", "POST", path, own, body, (200, 400, 403, 404, 413, 422))
        for identifier in OUTSIDE:
            for values in ({"id": identifier}, {"ids": [identifier]}, {"run": identifier}):
                body = json.dumps(values).encode()
                yield HostileRequest(f"{body[:40]!r} {path}", "POST", path, own, body, (200, 400, 403, 404, 413, 422))
    for path in STATIC_PATHS:
        yield HostileRequest(f"path {path}", "GET", path)
    for path in gets:
        for identifier in OUTSIDE:
            separator = "&" if "?" in path else "?"
            yield HostileRequest(f"id {identifier[:40]!r} {path}", "GET", f"{path}{separator}id={quote(identifier)}")


def answer(address: str, request: HostileRequest) -> tuple[int, bytes, dict[str, str]]:
    """Returns the status, the body and the headers of the answer."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.putrequest(
            request.method, request.path, skip_host="Host" in request.headers, skip_accept_encoding=True
        )
        for name, value in request.headers.items():
            connection.putheader(name, value.encode("latin-1", "replace"))
        if "Content-Length" not in request.headers and (request.body or request.method == "POST"):
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders()
        if request.body and int(request.headers.get("Content-Length", "0")) <= len(request.body):
            connection.send(request.body)
        response = connection.getresponse()
        return response.status, response.read(200_000), {key.lower(): value for key, value in response.getheaders()}
    finally:
        connection.close()


def get_json(address: str, path: str) -> Any:
    """Returns what the server answers to a harmless request."""
    status, body, _ = answer(address, HostileRequest("", "GET", path))
    assert status == 200, body
    return json.loads(body)
