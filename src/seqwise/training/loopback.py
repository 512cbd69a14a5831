"""Keeps the sockets of the processes of one machine on its loopback interface, which no other machine can reach."""

from __future__ import annotations

import fcntl
import re
import socket
import struct
import sys
from contextlib import suppress

import torch.distributed as dist

ADDRESS = "127.0.0.1"
GET_FLAGS = 0xC0206911 if sys.platform == "darwin" else 0x8913  # SIOCGIFFLAGS
IS_LOOPBACK = 0x8  # IFF_LOOPBACK
NAME_BYTES = 16  # of an interface, in `struct ifreq`


def open_store() -> dist.TCPStore:
    """Returns a store of torch.distributed; a store that opens its socket itself listens on all interfaces."""
    with socket.socket() as listener:
        listener.bind((ADDRESS, 0))
        listener.listen()
        port = listener.getsockname()[1]
        # The store closes the descriptor.
        return dist.TCPStore(ADDRESS, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def get_interface_variables() -> dict[str, str]:
    """Returns the environment variables that make gloo and nccl use the loopback interface."""
    name = find_interface()
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"} if name else {}  # =: not lo1 beside lo


def find_interface() -> str | None:
    """Returns the name of the loopback interface, `lo` on Linux and `lo0` on macOS; None if there is none."""
    names = [name for _, name in socket.if_nameindex()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name in names:
            with suppress(OSError):
                request = struct.pack("256s", name.encode())
                (flags,) = struct.unpack_from("H", fcntl.ioctl(probe, GET_FLAGS, request), NAME_BYTES)
                if flags & IS_LOOPBACK:
                    return name
    return next((name for name in names if re.fullmatch(r"lo\d*", name)), None)
