"""Transports, which carry bytes between peers without knowing their meaning."""

from p2pfl.network.transport.channel import Channel, Message, Transport, Will, check_filters, check_publish
from p2pfl.network.transport.memory import MemoryTransport
from p2pfl.network.transport.schemes import Access, opened, register

__all__ = [
    "Access",
    "Channel",
    "MemoryTransport",
    "Message",
    "Transport",
    "Will",
    "check_filters",
    "check_publish",
    "opened",
    "register",
]
