"""Runs the studio: finds a free port, starts the server and opens the browser."""

from __future__ import annotations

import errno
import platform
import socket
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from seqwise.errors import UsageError
from seqwise.studio.app import build_app
from seqwise.studio.security import Guard, is_loopback, make_token
from seqwise.studio.services import Services

DEFAULT_PORT = 8600
NUM_PORTS = 50  # that are tried, from the default one on
MAX_CONNECTIONS = 100  # at the same time: a browser has at most six
SHUTDOWN_SECONDS = 1  # for open connections, after Ctrl-C


def serve(
    folders: Sequence[Path],
    host: str,
    port: int | None,
    on_start: Callable[[str], None],
    opens_browser: bool,
    needs_token: bool = False,
) -> None:
    """Serves until Ctrl-C. `on_start` is called with the address. Beyond this machine a token is always needed."""
    import uvicorn

    listener = listen(host, port)
    port = listener.getsockname()[1]
    token = make_token() if needs_token or not is_loopback(host) else ""
    shown = platform.node() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
    app = Guard(build_app(Services.create(folders)), host, port, token)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        limit_concurrency=MAX_CONNECTIONS,
    )  # fmt: skip
    on_start(address)
    if opens_browser:
        webbrowser.open(address)
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


def listen(host: str, port: int | None) -> socket.socket:
    """Returns a listening socket; without a port, at the first free one from the default port on."""
    if port is not None and not 0 <= port < 2**16:
        raise UsageError(f"--port: expected 0 to 65535; received {port}.", fix="0 chooses a free port.")
    for candidate in range(DEFAULT_PORT, DEFAULT_PORT + NUM_PORTS) if port is None else (port,):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen()
            return listener
        except socket.gaierror as error:
            listener.close()
            fix = "127.0.0.1 is this machine alone, 0.0.0.0 all its addresses."
            raise UsageError(f"--host: there is no address of {host}: {error.strerror}.", fix=fix) from error
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or port is not None:
                raise UsageError(
                    f"cannot listen on {host}, port {candidate}: {error.strerror}.", fix="Choose another with --port."
                ) from error
    raise UsageError(f"all ports from {DEFAULT_PORT} on are in use.", fix="Choose one with --port.")
