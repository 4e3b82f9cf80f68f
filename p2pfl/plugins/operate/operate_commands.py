"""The commands ``p2pfl deploy`` and ``p2pfl doctor``."""

from __future__ import annotations

from typing import Annotated

from p2pfl.cli.command import Argument, Command, Option
from p2pfl.cli.options import EXPERIMENT, ExperimentOptions, JsonOptions, OutputOptions, TrustOptions, count


class DeployOptions(JsonOptions, TrustOptions):
    """Bundles that install the peers on devices, and their broker."""

    experiment: Annotated[str, Argument("a TOML file", "EXPERIMENT")]
    out: Annotated[str, Option("folder of the fleet, kept by the operator", "DIR")]
    broker: Annotated[
        list[str], Option("at which devices reach the broker, mqtts://host:8883; again to fail over", "URL")
    ]
    wheel: Annotated[str | None, Option("the wheel of p2pfl to install", "FILE")] = None
    machine: Annotated[
        list[str],
        Option(
            "aarch64 (default) or x86_64, :3.13 after it for one Python, PEER= before it for one device; again",
            "KIND",
        ),
    ]
    wheels: Annotated[bool, Option("put all wheels into the bundles, for devices without internet")] = False
    added: Annotated[
        list[str],
        Option(
            "a file beside the experiment for all bundles (repeatable)",
            "FILE",
            flag="--with",
        ),
    ]
    collect: Annotated[
        list[str] | None, Option("sign the requests of devices, and write their roster", "FILE", nargs="+")
    ] = None
    yes: Annotated[bool, Option("do not ask: fingerprints were compared, or bundles installed")] = False
    observer: Annotated[list[str], Option("who may watch the swarm (repeatable)", "NAME")]
    revoke: Annotated[
        list[str] | None,
        Option("revoke devices, observers, or the former authority", "NAME", nargs="+"),
    ] = None
    renew: Annotated[
        list[str] | None,
        Option("replace certificates of devices, broker or authority", "NAME", nargs="+"),
    ] = None
    reason: Annotated[str, Option("with --revoke: why, in one line")] = "revoked by the operator"
    apply: Annotated[bool, Option("change rounds, [learning], [topology] and roster of the running swarm")] = False
    after: Annotated[int | None, Option("with --apply: end the present run after this round", "ROUND", count)] = None
    dry_run: Annotated[bool, Option("with --apply: only print what would change")] = False


class DoctorOptions(OutputOptions, ExperimentOptions):
    """Check this device, the broker and the other peers, and name the reason."""

    experiment: Annotated[str, EXPERIMENT] = ""
    peer: Annotated[str | None, Option("the peer of this device", "PEER", flag="--as")] = None
    broker: Annotated[list[str], Option("instead of transport.broker (repeatable)", "URL")]


DEPLOY = Command("operate", DeployOptions, "p2pfl.plugins.operate.deploy_command:deploy")
DOCTOR = Command("operate", DoctorOptions, "p2pfl.plugins.operate.doctor_command:doctor")
