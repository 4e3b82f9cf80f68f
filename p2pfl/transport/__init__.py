"""Bytes from one peer to others; nothing here knows what they mean."""

from p2pfl.transport.channel import Channel, Message, Transport, Will
from p2pfl.transport.memory import MemoryTransport
from p2pfl.transport.schemes import Access, opened, register

__all__ = ["Access", "Channel", "MemoryTransport", "Message", "Transport", "Will", "opened", "register"]
