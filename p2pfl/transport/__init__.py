"""Transports, which carry bytes between peers without knowing their meaning."""

from p2pfl.transport.channel import Channel, Message, Transport, Will
from p2pfl.transport.memory import MemoryTransport

__all__ = ["Channel", "MemoryTransport", "Message", "Transport", "Will"]
