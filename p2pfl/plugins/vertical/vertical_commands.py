"""The command ``p2pfl align``."""

from __future__ import annotations

from typing import Annotated

from p2pfl.cli.command import Command, Option
from p2pfl.cli.options import JsonOptions, ReviewOptions


class AlignOptions(JsonOptions, ReviewOptions):
    """Rows that parties with different columns have in common, by key, before anything is learned."""

    broker: Annotated[list[str], Option("instead of transport.broker, with --name; again to fail over", "URL")]


ALIGN = Command("plan", AlignOptions, "p2pfl.plugins.vertical.align_command:align_tables")
