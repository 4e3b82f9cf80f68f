"""Beginning of the evidence of a live peer: who begins, with which experiment, software and data."""

from __future__ import annotations

import hashlib

import numpy as np

import p2pfl
from p2pfl.core.tensors import torch
from p2pfl.experiment import Plan, plain
from p2pfl.experiment.approval import experiment_digest
from p2pfl.experiment.file.own_code import code_digests
from p2pfl.experiment.swarm_change import order_of
from p2pfl.learning import learner_traits
from p2pfl.network.peer.start import PeerStart
from p2pfl.privacy.keys import KEY_BYTES, key_text
from p2pfl.results.evidence import Chain, PeerBegan, Witness, data_commitment, former_chain, last_digest
from p2pfl.results.repetitions.digests import digests
from p2pfl.results.sent_rows import FOLDER, SentRow
from p2pfl.results.spending.promises import promise


def begin_evidence(start: PeerStart, plan: Plan) -> Witness | None:
    """Return the witness of a peer, which has noted that it begins; ``None`` if the peer keeps nothing.

    Raises
    ------
    StorageError
        The evidence cannot be written.
    """
    store = start.keeper.store
    if store is None:
        return None
    secret = store.evidence_key(lambda: start.source.bytes(KEY_BYTES, purpose="evidence", peer=start.name))
    samples = digests(plan.federation, peers=[start.name]).get("peers", {}).get(start.name)
    experiment, order = plan.experiment, order_of(plan.experiment)
    statement = promise(experiment, plan.protection, spent=None)["statement"]
    public = plan.asked.algorithm.additive and not learner_traits(plan.learner).private
    chain = Chain(store.evidence, start.identity, disk=store.disk)
    rows = store.folder.parent / FOLDER / start.name
    keep = (lambda row, mass: SentRow(row, mass).write(rows, disk=store.disk)) if rows.parent.is_dir() else None
    witness = Witness(chain, key=None if public else secret, keep=keep)
    witness.begin(
        PeerBegan(
            peer=start.name,
            incarnation=start.me.incarnation,
            swarm=start.swarm,
            key=key_text(start.identity.public),
            experiment=experiment_digest(plan.written),
            statement=hashlib.sha256(statement.encode()).hexdigest(),
            versions={"p2pfl": p2pfl.__version__, "torch": str(torch.__version__), "numpy": np.__version__},
            code={name: digest or "" for name, digest in code_digests(plain(experiment)).items()},
            roster=start.me.facts.get("roster", ""),
            data=None if samples is None else data_commitment(samples, secret),
            charge=repr(plan.protection.cost) if plan.claims else None,
            public=public,
            grows=experiment.data.refresh is not None,
            follows=last_digest(former_chain(experiment.model.pretrained, start.name)),
            change="" if order is None else order.change.digest.hex(),
        )
    )
    return witness
