"""``p2pfl identity`` and ``broker``: what peers need before they meet."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from p2pfl.cli.core_commands import BrokerOptions, IdentityOptions
from p2pfl.cli.experiments import trusts_code
from p2pfl.core.errors import BrokerError, InputError, RunError
from p2pfl.experiment import read


def identity(options: IdentityOptions) -> int:
    """``p2pfl identity``."""
    from p2pfl.cli import identities  # noqa: PLC0415

    roster = Path(options.roster) if options.roster else None
    if roster is None and (options.revoke is not None or options.accept is not None):
        raise InputError("the roster to change is missing; name it with --roster")
    if roster is not None and options.accept is not None:
        done = identities.accept_rotation(options.name, roster=roster, announcement=Path(options.accept))
    elif roster is not None and options.revoke is not None:
        done = identities.revoke_key(options.name, roster=roster, reason=options.revoke)
    elif not options.keys:
        raise InputError("the folder of the peer's key is missing; name it with --keys")
    else:
        change = identities.rotate_key if options.rotate else identities.show_key
        done = change(options.name, keys=Path(options.keys), roster=roster)
        if options.request is not None:
            from p2pfl.privacy.keys.key_requests import request  # noqa: PLC0415

            request(options.name, keys=Path(options.keys), to=Path(options.request))
    if options.json:
        print(json.dumps(done.results()))
        return 0
    print(done.line)
    if done.statement is not None:  # for the rosters of others
        print(f'rotation = "{done.results()["statement"]}"')
    print(done.message, file=sys.stderr)
    return 0


def broker(options: BrokerOptions) -> int:
    """``p2pfl broker``."""
    from p2pfl.network.transport.broker import embedded  # noqa: PLC0415

    if options.config is not None:
        return _configure(options, Path(options.config))
    if options.experiment:
        raise InputError(
            "an experiment has no effect without --config DIR, because the embedded broker admits everybody; add "
            "--config DIR, or leave out the experiment"
        )
    port = 1883 if options.port is None else options.port
    with embedded(host=options.host, port=port, kind=options.kind) as running:
        print(f"{running.kind} listens at {running.url} (Ctrl-C ends it)", file=sys.stderr)
        try:
            running.wait()
        except BrokerError as error:
            raise RunError(str(error)) from None
        except KeyboardInterrupt:
            pass
    return 0


def _configure(options: BrokerOptions, folder: Path) -> int:
    """``p2pfl broker --config``."""
    from p2pfl.experiment.parts.peer_graph import built  # noqa: PLC0415
    from p2pfl.network.protocol.wire.message_codec import rights  # noqa: PLC0415
    from p2pfl.network.transport.hardened import configure, find_closed_folder  # noqa: PLC0415
    from p2pfl.topology.graph import NAME  # noqa: PLC0415

    port = 8883 if options.port is None else options.port
    swarm, prefix, peers = "+", "", tuple[str, ...]()
    if options.experiment:
        trusted = trusts_code(options.experiment, agreed=options.trust_code)
        experiment = read(options.experiment, trust_code=trusted)  # neither model nor data need be here
        swarm, prefix, peers = experiment.name, experiment.transport.prefix, built(experiment).peers
    elif options.observer:
        raise InputError("--observer makes passwords, which go with those of peers; name the EXPERIMENT as well")
    for name in options.observer:
        if NAME.fullmatch(name) is None or name in peers:
            raise InputError(
                f"{name!a:.40} cannot be an observer; use 1 to 22 letters, digits, _ and -, and no name of a peer"
            )
    names = [*peers, *options.observer]
    named = configure(
        folder,
        rights=rights(swarm, prefix=prefix),
        peers=names,
        host=options.host,
        public=options.public,
        port=port,
    )
    print(f"mosquitto -c {folder / 'mosquitto.conf'}")
    print(f"its certificate is for {', '.join(named)}: name other hosts with --public", file=sys.stderr)
    if (wall := find_closed_folder(folder)) is not None:
        print(
            f"WARNING: mosquitto gives up root, and its user cannot pass through {wall}, so it will not start: name a "
            f"DIR elsewhere, or run chmod o+x {wall}",
            file=sys.stderr,
        )
    shows = f'credentials = "{folder / "credentials"}"' if peers else "certificate and key, signed by ca.pem"
    print(
        f'peers need, in [transport]: broker = "mqtts://HOST:{port}", ca = "{folder / "broker.pem"}", and {shows};'
        " give each peer its own alone",
        file=sys.stderr,
    )
    return 0
