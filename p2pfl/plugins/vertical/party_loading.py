"""Tables of parties, loaded one after the other, and columns of a shared data set dealt out to parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Description, Field
from p2pfl.data.federation import Federation, no_data
from p2pfl.data.parties import CommonRows, Parties, Party
from p2pfl.data.sources import Central, Private, nearest
from p2pfl.plugins.vertical.party_roles import LEAST_ROWS

COLUMNS = "columns"
"""Name of the split that deals out columns."""

ROW = "row:exact"
"""Name of the key of dealt rows, their number in the data set."""


@dataclass(frozen=True)
class PartySource:
    """Source of data whose owners have different columns of the same people.

    Parameters
    ----------
    load
        Function that returns the table of a party; it is called for local parties alone.
    label, helper, keys, least, rows, sizes
        As of :class:`Parties`.
    """

    load: Callable[[str], Party]
    label: str
    helper: str | None
    keys: tuple[str, ...]
    least: int = LEAST_ROWS
    rows: CommonRows = "common"
    sizes: Mapping[str, int] = field(default_factory=dict)


def load_parties(source: PartySource, peers: Sequence[str], local: Sequence[str]) -> Federation:
    """Load the table of each local party.

    Raises
    ------
    DataError
        A role belongs to no peer of the run, or a table is missing, does not fit, or has another number of rows than
        agreed.
    """
    names = _parties(peers, source.label, source.helper)
    for name in source.sizes:
        if name not in names:
            raise DataError(f'`sizes` names "{name}", which is no party; {nearest(name, names)}')
    own = {peer: replace(source.load(peer), name=peer) for peer in local if peer in names}
    for peer, party in own.items():
        agreed = source.sizes.get(peer, len(party))
        if agreed != len(party):
            raise DataError(
                f'the table of "{peer}" has {len(party):,} rows, but {agreed:,} are agreed; correct `sizes`, or use '
                "the table that was agreed on"
            )
    parties = Parties(
        names,
        source.label,
        source.helper,
        source.keys,
        own,
        source.least,
        source.rows,
        source.sizes,
    )
    return replace(no_data(local), parties=parties, notes={peer: party.notes for peer, party in own.items()})


def deal_columns(
    source: Central | Private,
    peers: Sequence[str],
    local: Sequence[str],
    *,
    label: str | None,
    helper: str | None,
    seed: int,
) -> Federation:
    """Deal out the columns of a data set that everybody has, so that each party has its own order of the rows.

    The label holder has the first columns, and the other parties those after it, as evenly as possible.

    Parameters
    ----------
    source
        The data set.
    peers, local
        Names of all peers, and of the local ones.
    label
        The label holder; the first peer by default.
    helper
        The peer without columns; the last one by default, if there are three peers or more.
    seed
        Seed of the order of rows.

    Raises
    ------
    DataError
        Peers own the data already, a role belongs to no peer of the run, or there are fewer columns than parties.
    """
    if isinstance(source, Private):
        raise DataError('each peer owns its data, so that no columns are dealt out; use data.name = "vertical"')
    helper = [each for each in sorted(peers) if each != label][-1] if helper is None and len(peers) > 2 else helper
    label = next(each for each in sorted(peers) if each != helper) if label is None else label
    names = _parties(peers, label, helper)
    everything = np.arange(len(source.targets))
    features, description = source.encode(everything, everything)
    features = features.reshape(len(features), -1)  # [n, F]
    raw = features * description.deviation + description.mean
    fields = description.columns or tuple(Field(f"x{position}") for position in range(features.shape[1]))
    if len(fields) < len(names):
        raise DataError(f"the data set has {len(fields)} columns for {len(names)} parties; use fewer peers")
    widths = [1 if each.levels is None else len(each.levels) for each in fields]
    ends = np.cumsum([0, *widths])
    dealt = np.array_split(np.arange(len(fields)), len(names))
    own = {}
    for position, peer in enumerate([label, *(each for each in names if each != label)]):
        if peer not in local:
            continue
        first, last = int(dealt[position][0]), int(dealt[position][-1]) + 1
        order = draw(seed, COLUMNS, peer).permutation(len(raw))
        meaning = Description(description.raw, fields[first:last])
        if peer == label:
            meaning = replace(meaning, classes=description.classes, target=description.target or "target")
        own[peer] = Party(
            raw[order, ends[first] : ends[last]],
            (tuple(map(str, order.tolist())),),
            meaning,
            source.targets[order] if peer == label else None,
            name=peer,
        )
    return replace(no_data(local), parties=Parties(names, label, helper, (ROW,), own, LEAST_ROWS))


def _parties(peers: Sequence[str], label: str, helper: str | None) -> tuple[str, ...]:
    """Return the names of the parties."""
    for role, peer in (("label", label), ("helper", helper)):
        if peer is not None and peer not in peers:
            raise DataError(f'`{role}` is "{peer}", which is no peer of the run; {nearest(peer, peers)}')
    if label == helper:
        raise DataError(f'"{label}" is both the label holder and the helper, which has no data; name another `helper`')
    names = tuple(sorted(peer for peer in peers if peer != helper))
    if len(names) < 2:
        raise DataError(f"there is the one party {names[0]}; different columns of the same people need two or more")
    return names
