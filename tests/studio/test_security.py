"""What the studio must not do, whatever it is sent: leave its folders, obey other sites, run out of memory, fail."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from async_calls import run_async
from hostile_requests import SCRIPT, HostileRequest, answer, get_json, list_hostile_requests
from starlette.responses import StreamingResponse
from studio_server import StudioServer, StudioTab

from seqwise.errors import UsageError
from seqwise.studio.app import build_app
from seqwise.studio.functions import get_functions
from seqwise.studio.security import COOKIE, HEADERS, Guard, is_loopback
from seqwise.studio.server import listen
from seqwise.studio.services import Services

HOST = {b"host": b"127.0.0.1:8600"}
OWN = {**HOST, b"origin": b"http://127.0.0.1:8600", b"x-seqwise": b"1"}
SECRET = "a secret that no answer may contain"


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("127.0.0.1", 99_999, "--port: expected 0 to 65535; received 99999."),
        ("127.0.0.1", -1, "--port: expected 0 to 65535; received -1."),
        ("nowhere", 0, "--host: there is no address of nowhere: Name or service not known."),
    ],
)
def test_a_wrong_port_and_a_wrong_host_are_named(host: str, port: int, message: str, monkeypatch):
    def find_no_address(listener, address):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket.socket, "bind", find_no_address)
    with pytest.raises(UsageError) as caught:
        listen(host, port)
    assert str(caught.value).startswith(message)


@pytest.fixture
def guard() -> Guard:
    async def app(scope, receive, send):
        message = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    return Guard(app, "127.0.0.1", 8600, max_body_bytes=100)


def test_a_client_that_does_not_read_its_answer_is_left_after_a_while():
    ended = []

    async def stream():
        try:
            while True:
                yield b"x"
        finally:
            ended.append(True)

    async def app(scope, receive, send):
        await StreamingResponse(stream())(scope, receive, send)

    async def call() -> None:
        async def receive():
            await asyncio.Event().wait()

        async def send(message):
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()  # as when the buffers of the connection are full

        guard = Guard(app, "127.0.0.1", 8600)
        guard.max_send_seconds = 0.05
        scope = {"type": "http", "method": "GET", "path": "/", "headers": list(HOST.items()), "query_string": b""}
        async with asyncio.timeout(5):
            await guard(scope, receive, send)
        gc.collect()
        await asyncio.sleep(0)

    run_async(call())
    assert ended == [True]


def request(guard: Guard, bodies: list[bytes]) -> int:
    """Returns the status for a request whose body arrives in parts, without a content length."""
    parts = [{"type": "http.request", "body": body, "more_body": True} for body in bodies]
    parts.append({"type": "http.request", "body": b"", "more_body": False})
    sent = []

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": list(OWN.items()), "query_string": b""}
    run_async(guard(scope, receive, send))
    return sent[0]["status"]


def test_a_body_that_grows_is_refused_at_the_limit(guard):
    assert request(guard, [b"x" * 50] * 2) == 200
    assert request(guard, [b"x" * 50] * 3) == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (HOST, 200),
        ({b"host": b"localhost:8600"}, 200),
        ({b"host": b"127.0.0.1:8601"}, 421),
        ({b"host": b"example.org:8600"}, 421),
        ({}, 421),
        ({**HOST, b"origin": b"http://example.org"}, 403),
        ({**HOST, b"sec-fetch-site": b"cross-site"}, 403),
        ({**HOST, b"sec-fetch-site": b"same-site"}, 403),
        ({**HOST, b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"navigate"}, 200),
    ],
)
def test_host_and_origin_are_checked(guard, headers, status):
    assert guard.find_problem("GET", headers)[0] == status


def test_a_change_must_come_from_the_page(guard):
    assert guard.find_problem("POST", OWN)[0] == 200
    for missing in (b"origin", b"x-seqwise"):
        assert guard.find_problem("POST", {name: value for name, value in OWN.items() if name != missing})[0] == 403


def test_beyond_this_machine_a_token_is_needed():
    guard = Guard(None, "10.0.0.5", 8600, token="abc")  # type: ignore[arg-type]
    host = {b"host": b"10.0.0.5:8600"}
    assert guard.find_problem("GET", host)[0] == 401
    assert guard.find_problem("GET", host, b"token=abd")[0] == 401
    assert guard.find_problem("GET", host, b"token=abc")[0] == 200
    assert guard.find_problem("GET", {**host, b"cookie": f"{COOKIE}=abc".encode()})[0] == 200
    assert guard.find_problem("GET", {**host, b"cookie": b"\xff=;;" + COOKIE.encode()})[0] == 401


@pytest.mark.parametrize(("host", "status"), [("10.0.0.5:8600", 200), ("evil.example:8600", 421), ("10.0.0.5:1", 421)])
def test_a_server_on_all_interfaces_answers_to_addresses_but_not_to_names(host, status):
    guard = Guard(None, "0.0.0.0", 8600, token="abc")  # type: ignore[arg-type]
    assert guard.find_problem("GET", {b"host": host.encode()}, b"token=abc")[0] == status


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("a.b", False)])
def test_loopback_addresses_are_known(host, expected):
    assert is_loopback(host) is expected


def list_routes(tmp_path: Path) -> tuple[list[str], list[str]]:
    """Returns the addresses that take a body, and those that read a run."""
    routes = build_app(Services.create([tmp_path])).openapi()["paths"]
    posts = [path for path, methods in routes.items() if "post" in methods and "{" not in path]
    posts += [f"/api/call/{name}" for name in get_functions()]
    gets = [
        path
        for path, methods in routes.items()
        if any(parameter["name"] == "id" for parameter in methods.get("get", {}).get("parameters", ()))
    ]
    assert len(gets) >= 4, "routes that take the id of a run"
    return posts, gets


@pytest.fixture(scope="module")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory, runs_folder: Path) -> Path:
    """Runs with script in their names and data, links that lead out, and a secret beside them."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "secret").mkdir()
    shutil.copytree(runs_folder / "book-lstm", folder / "secret/inner")
    (folder / "secret/inner/README.md").write_text(SECRET)
    (folder / "secret/inner/config.yaml").write_text(f"task: {SECRET}\n")
    shutil.copytree(runs_folder / "book-lstm", folder / "runs/book-lstm")
    shutil.copytree(runs_folder / "labels-gru", folder / "runs" / SCRIPT.replace("/", "∕"))
    os.symlink(folder / "secret", folder / "runs/link")
    os.symlink("/etc/passwd", folder / "runs/book-lstm/notes.json")
    broken = folder / "runs/broken"
    broken.mkdir()
    (broken / "config.yaml").write_text(json.dumps({"task": SCRIPT, "model": [SCRIPT], "run": {"data": SCRIPT}}))
    (broken / "metrics.jsonl").write_text(f'{{"step": "x", "notes": "{SCRIPT}"}}\n[]\nnull\n{{"step": 1e999}}\n')
    (broken / "summary.json").write_text(f'{{"validation": {{"loss": NaN, "perplexity": "{SCRIPT}"}}}}')
    return folder / "runs"


@pytest.mark.slow
def test_hostile_requests_have_no_effect(hostile_folder, tmp_path):
    before = sorted(path for path in hostile_folder.parent.rglob("*") if path.name != ".lock")
    posts, gets = list_routes(tmp_path)
    with StudioServer(hostile_folder) as server:
        requests = list(list_hostile_requests(server.address, posts, gets))
        assert len(requests) >= 200
        for each in requests:
            status, body, headers = answer(server.address, each)
            assert status in each.statuses, (each.name, status, body[:200])
            assert SECRET.encode() not in body, each.name
            assert b"root:" not in body, each.name
            assert b"Traceback" not in body, each.name
            if status != 400 or "content-security-policy" in headers:  # uvicorn itself answers what is not HTTP
                assert headers["content-security-policy"] == dict(HEADERS)[b"content-security-policy"].decode()
        names = {row["name"] for row in get_json(server.address, "/api/runs")}
        assert {"book-lstm", "broken"} <= names
        assert "inner" not in names
    assert sorted(path for path in hostile_folder.parent.rglob("*") if path.name != ".lock") == before


@pytest.mark.slow
def test_script_in_names_and_data_is_shown_as_text(hostile_folder, chromium):
    with StudioServer(hostile_folder) as server:
        tab = StudioTab(chromium, server.address)
        dialogs = []
        tab.tab.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        for page in ("runs", "use", "inside", "compare"):
            tab.open(page)
            assert tab.tab.locator("main img[src=x]").count() == 0
        for row in get_json(server.address, "/api/runs"):
            tab.tab.goto("about:blank")
            tab.tab.goto(f"{server.address}#/run?id={row['id'].replace('<', '%3C')}")
            tab.tab.wait_for_selector("html[data-ready=run]")
            assert tab.tab.locator("main img[src=x]").count() == 0
        assert dialogs == []
        tab.close()


@pytest.mark.slow
def test_another_machine_needs_the_token(runs_folder):
    with StudioServer(runs_folder, options=["--token"]) as local:
        assert answer(local.address.partition("?")[0], HostileRequest("", "GET", "/api/runs"))[0] == 401
    with StudioServer(runs_folder, options=["--host", "0.0.0.0"]) as server:
        port = urlsplit(server.address).port
        address, token = f"http://127.0.0.1:{port}/", urlsplit(server.address).query
        host = {"Host": f"127.0.0.1:{port}"}
        assert answer(address, HostileRequest("", "GET", "/api/runs", host))[0] == 401
        status, _, headers = answer(address, HostileRequest("", "GET", f"/?{token}", host))
        assert status == 303
        cookie = headers["set-cookie"].partition(";")[0]
        assert answer(address, HostileRequest("", "GET", "/api/runs", {**host, "Cookie": cookie}))[0] == 200
