"""Policy of a site: what may run on its data, in a file that its officer writes and its operator only reads.

The policy of a data file is ``policy.toml`` in the same folder, by the real path of the data, so that neither a link
nor another experiment file leads around it. All other data on a machine, such as a copy of the file in another folder,
have the policy that ``P2PFL_POLICY`` names. It binds every use of the data: live peers, simulations and Python alike.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from p2pfl.core.errors import InputError
from p2pfl.experiment.accounts import ENDING, data_files
from p2pfl.experiment.catalogue import MODELS, model_traits
from p2pfl.experiment.file.own_code import code_digests
from p2pfl.experiment.file.reading import convert_section, load_table, plain
from p2pfl.experiment.partitionings import columns_of_owners
from p2pfl.experiment.schema import Experiment, Number, Positive, Section
from p2pfl.privacy.keys import Roster, key_text, parse_key

FILE = "policy.toml"
"""Name of the policy beside the data."""

VARIABLE = "P2PFL_POLICY"
"""Environment variable that names the policy of data without one beside them."""

MAX_LEAST = 1000
"""Largest number of people that a policy may ask for in a cell."""


class Purpose(Section, frozen=True):
    """A purpose for which data may be used.

    Attributes
    ----------
    legal_basis
        Such as ``Art. 6(1)(e) and 9(2)(j) GDPR``.
    retention
        How long the results are kept.
    """

    legal_basis: str = ""
    retention: str = ""


class SitePolicy(Section, frozen=True):
    """Limits on what may run on the data of a site. A key that is left out sets none, except that no code may run.

    Attributes
    ----------
    officer
        Public key of whoever approves experiments, ``ed25519:...`` (``p2pfl identity``); a run needs their approval.
    purposes
        Purposes by name, each with ``legal_basis`` and ``retention``; an approval names one.
    until
        Last day of a run.
    models
        Values of ``model.name``.
    columns
        Columns that an experiment may declare.
    least
        Fewest people in a cell of an exact total; the largest number of all peers counts.
    runs
        Number of runs on the data.
    ledger
        Account, relative to the policy, that lists the runs on all data of the policy as well: it knows people by their
        rows, also in copies of a table and where the account beside the data was deleted or put back.
    epsilon
        Largest ``privacy.epsilon``; then every model needs one, except exact models that ``models`` lists.
    observers
        Public keys of those who may look at the peer.
    code
        SHA-256 of the code of each ``package.module:name`` that may run.
    """

    officer: str | None = None
    purposes: dict[str, Purpose] = msgspec.field(default_factory=dict)
    until: dt.date | None = None
    models: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    least: Annotated[int, Meta(ge=1, le=MAX_LEAST)] = 1
    runs: Number | None = None
    ledger: str | None = None
    epsilon: Positive | None = None
    observers: tuple[str, ...] | None = None
    code: dict[str, str] = msgspec.field(default_factory=dict)


def policy_paths(experiment: Experiment, peers: Iterable[str]) -> dict[str, Path]:
    """Return the file of the policy for the data of each peer that has one."""
    files, named = data_files(experiment, peers), os.environ.get(VARIABLE)
    paths = dict.fromkeys(peers, Path(named)) if named else {}
    return paths | {peer: file.parent / FILE for peer, file in files.items() if (file.parent / FILE).is_file()}


def read_policy(path: Path) -> SitePolicy:
    r"""Read the policy of a site.

    Raises
    ------
    InputError
        The file cannot be read, a key is unknown, or a value is wrong.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "policy.toml")
    ...     _ = path.write_text('models = ["glm"]\nleast = 10')
    ...     read_policy(path).least
    10
    """
    table = load_table(path)
    purposes = table.get("purposes")
    for name, each in purposes.items() if isinstance(purposes, Mapping) else ():
        if isinstance(each, Mapping):
            convert_section(each, Purpose, origin=str(path), within=f"purposes.{name}.")
    policy = convert_section(table, SitePolicy, origin=str(path))
    try:
        for key in (*([policy.officer] if policy.officer is not None else ()), *(policy.observers or ())):
            parse_key(key)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if policy.ledger is not None and not policy.ledger.endswith(ENDING):
        raise InputError(f'{path}: ledger is "{policy.ledger}"; name a file such as site{ENDING}')
    for name, purpose in policy.purposes.items():
        if not (purpose.legal_basis and purpose.retention):
            raise InputError(f"{path}: purposes.{name} needs legal_basis and retention; write both")
    return policy


def stated_least(experiment: Experiment, peer: str) -> int:
    """Return the fewest people in a cell of an exact total that the policy of a peer's data asks for; 1 without one.

    Raises
    ------
    InputError
        The policy cannot be read, or is wrong.
    """
    path = policy_paths(experiment, [peer]).get(peer)
    return 1 if path is None else read_policy(path).least


def refusals(policy: SitePolicy, experiment: Experiment, peers: Iterable[str], *, today: dt.date) -> Iterator[str]:
    """Yield what a policy does not allow of an experiment, each in a clause that ends with a remedy.

    Nothing that the experiment names is imported.

    Parameters
    ----------
    policy
        Policy of the site.
    experiment
        Resolved experiment.
    peers
        Peers whose data the policy protects.
    today
        Date of the run.
    """
    model = experiment.model.name
    if policy.until is not None and today > policy.until:
        yield f"allows runs until {policy.until}; ask the officer for a later date"
    if policy.models is not None and model not in policy.models:
        yield f'allows the models {", ".join(policy.models) or "none"}, not "{model}"; choose one of these'
    if policy.columns is not None:
        yield from _column_refusals(policy.columns, experiment, peers)
    if policy.epsilon is not None and (reason := _epsilon_refusal(policy.epsilon, experiment)) is not None:
        yield reason
    if policy.observers is not None:
        yield from _observer_refusals(policy.observers, experiment)
    for name, digest in code_digests(plain(experiment)).items():
        if name not in policy.code:
            yield f'does not list the code "{name}"; leave it out, or ask the officer to add its SHA-256'
        elif digest is None or policy.code[name] != digest:
            state = "is installed, missing or too large" if digest is None else f"has the SHA-256 {digest}"
            yield f'lists other code for "{name}", which {state}; restore the file that the officer has read'


def _column_refusals(allowed: tuple[str, ...], experiment: Experiment, peers: Iterable[str]) -> Iterator[str]:
    own = columns_of_owners(experiment, peers)
    declared = dict[str, object](pair for columns in own.values() for pair in columns.items())
    stated = declared if own else experiment.data.options.get("columns")
    if not isinstance(stated, Mapping):
        yield "names the columns that may be used, and the experiment declares none; set data.options.columns"
        return
    key = experiment.data.options.get("key")  # a column that is read without being declared
    used = {*stated, *([key] if isinstance(key, str) else [])}
    if others := sorted(used - set(allowed)):
        several = len(others) > 1
        yield f"does not allow the column{'s'[:several]} {', '.join(others)}; leave {'them' if several else 'it'} out"


def _epsilon_refusal(largest: float, experiment: Experiment) -> str | None:
    """Return why the guarantee of an experiment does not suffice; exact models have none, and ``models`` lists them."""
    model, epsilon = experiment.model.name, experiment.privacy.epsilon
    if model in MODELS and not model_traits(model).noisy:
        return None
    if epsilon is None:
        return f"asks for an epsilon of at most {largest:g}; set privacy.epsilon"
    return f"allows privacy.epsilon = {largest:g}, not {epsilon:g}; lower it" if epsilon > largest else None


def _observer_refusals(allowed: tuple[str, ...], experiment: Experiment) -> Iterator[str]:
    telemetry = experiment.telemetry
    if telemetry.share == "none" or telemetry.observers is None:
        return
    roster = Roster.read(telemetry.observers)
    if others := sorted(name for name, key in roster.peers.items() if key_text(key) not in allowed):
        yield f"does not allow the observer {others[0]}; remove them from {telemetry.observers}"
