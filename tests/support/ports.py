"""Ports that tests name before anything listens there."""

import contextlib
import socket


@contextlib.contextmanager
def reserved_port():
    """Keep a port of this machine for whoever binds it by its number.

    A socket holds it that is bound and never listens: connections are refused, nobody who asks for any free port gets
    it, and a server that sets SO_REUSEADDR, as all of them do, can listen there meanwhile.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
