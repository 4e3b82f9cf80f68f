"""``p2pfl doctor``: what keeps a peer from learning."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from p2pfl.plugins.operate.checks.finding import Finding, Status, problem
from p2pfl.plugins.operate.operate_commands import DoctorOptions

STYLES: dict[Status, str] = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(options: DoctorOptions) -> int:
    """Run the checks; return 1 if there is a problem."""
    findings = _examine(options)
    if options.json:
        counts = {f"{kind}s": sum(each.status == kind for each in findings) for kind in ("problem", "warning")}
        print(json.dumps({"checks": [asdict(each) for each in findings], **counts}))
    else:
        _show(findings)
    return 1 if any(each.status == "problem" for each in findings) else 0


def _examine(options: DoctorOptions) -> list[Finding]:
    try:
        from p2pfl.plugins.operate.doctor import examine  # noqa: PLC0415 (it imports torch, which may be what is wrong)
    except (ImportError, OSError) as error:
        return [problem("torch", f"p2pfl cannot be imported ({error}); install torch as docs/install.md says")]
    changes = list(options.changes)
    if options.broker:
        changes.append(f"transport.broker={json.dumps(options.broker)}")
    examined = examine(
        options.experiment or None,
        changes=changes,
        peer=options.peer,
        runs=Path(options.runs),
        environment=os.environ,
        trust_code=options.trust_code,
    )
    return asyncio.run(examined)


def _show(findings: Sequence[Finding]) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    width = max(len(each.check) for each in findings)
    for each in findings:
        line = Text.assemble((f"{each.status:8}", STYLES[each.status]), f"{each.check:{width}}  {each.message}")
        console.print(line, soft_wrap=True)
