"""The addresses on which processes listen, as Linux lists them in /proc."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LISTEN = "0A"  # state of a socket in /proc/net/tcp


def list_descendants(pid: int) -> set[int]:
    """Returns a process and all processes that it or they have started."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name, in parentheses, may contain blanks; the parent is the second field after it.
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while new := {child for child, parent in parents.items() if parent in found} - found:
        found |= new
    return found


def list_listeners(pids: Iterable[int]) -> dict[str, set[int]]:
    """Returns address:port → processes, for every TCP socket on which one of these processes listens."""
    owners: dict[str, set[int]] = {}  # by inode of the socket
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                target = os.readlink(descriptor)
                if target.startswith("socket:["):
                    owners.setdefault(target[8:-1], set()).add(pid)
    listeners: dict[str, set[int]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in owners:
                listeners.setdefault(_decode(fields[1]), set()).update(owners[fields[9]])
    return listeners


def find_public(listeners: dict[str, set[int]]) -> dict[str, set[int]]:
    """Returns those listeners that another machine can reach."""
    return {
        name: pids
        for name, pids in listeners.items()
        if not _is_loopback(ipaddress.ip_address(name.rpartition(":")[0].strip("[]")))
    }


def _decode(field: str) -> str:
    """Returns `127.0.0.1:8080` for `0100007F:1F90`: 32-bit words in the byte order of the machine, then the port."""
    words, _, port = field.partition(":")
    address = b"".join(bytes.fromhex(words[index : index + 8])[::-1] for index in range(0, len(words), 8))
    return f"[{ipaddress.ip_address(address)}]:{int(port, 16)}"


def _is_loopback(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
