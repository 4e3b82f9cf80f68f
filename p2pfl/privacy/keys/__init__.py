"""Identities of peers, keys that two peers share, and encryption of what they send."""

from p2pfl.privacy.keys.exchange import (
    EPOCH_BYTES,
    FIRST,
    KEY_BYTES,
    NONCE_BYTES,
    Announced,
    ExchangeKey,
    edge_key,
    edge_secret,
    epoch_of,
    epoch_secret,
)
from p2pfl.privacy.keys.roster import NAME, FirstUse, Roster, Trust, rotation
from p2pfl.privacy.keys.sealing import TAG_BYTES, WRAPPED_BYTES, SenderKey, unwrap, wrap
from p2pfl.privacy.keys.secrets import KeyedSource, SecretSource, SeededSource, Source
from p2pfl.privacy.keys.signing import SIGNATURE_BYTES, Identity, fingerprint, usable, verify

__all__ = [
    "EPOCH_BYTES",
    "FIRST",
    "KEY_BYTES",
    "NAME",
    "NONCE_BYTES",
    "SIGNATURE_BYTES",
    "TAG_BYTES",
    "WRAPPED_BYTES",
    "Announced",
    "ExchangeKey",
    "FirstUse",
    "Identity",
    "KeyedSource",
    "Roster",
    "SecretSource",
    "SeededSource",
    "SenderKey",
    "Source",
    "Trust",
    "edge_key",
    "edge_secret",
    "epoch_of",
    "epoch_secret",
    "fingerprint",
    "rotation",
    "unwrap",
    "usable",
    "verify",
    "wrap",
]
