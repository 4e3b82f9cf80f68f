"""Federations whose training samples are loaded in the rounds in which their clients train."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.core.tensors import torch
from p2pfl.data.dataset import Dataset, IntArray
from p2pfl.data.federation import Federation, PartName
from p2pfl.data.samples import tensors
from p2pfl.data.sources import nearest

LoadClient = Callable[[int], tuple[Any, Any]]
"""Function that returns the features and targets of a client, given its number, and the same at every call."""


@dataclass(frozen=True, eq=False)
class Clients:
    """Clients whose samples a function loads.

    Parameters
    ----------
    peers
        Their names, sorted.
    numbers
        Number of each, which the function takes, ``[N]``.
    sizes
        Number of training samples of each, ``[N]``.
    load
        The function.
    """

    peers: tuple[str, ...]
    numbers: IntArray
    sizes: IntArray
    load: LoadClient
    places: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", {peer: place for place, peer in enumerate(self.peers)})

    def samples(self, peer: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Load the features and targets of a client.

        Raises
        ------
        DataError
            There are more or fewer samples than was stated.
        """
        place = self.places[peer]
        features, targets = tensors(self.load(int(self.numbers[place])), giver=f'client "{peer}" has')
        if len(targets) != self.sizes[place]:
            raise DataError(
                f'client "{peer}" has {len(targets)} samples, and its size is stated as {self.sizes[place]}; state the '
                "sizes that the function returns"
            )
        return features, targets


class ClientPart(Mapping[str, IntArray]):
    """Positions of the training samples of each client, beyond those of a data set that holds none of them.

    Parameters
    ----------
    clients
        The clients.
    first
        Position of the first sample of the first client.
    """

    def __init__(self, clients: Clients, first: int) -> None:
        self.clients, self._ends = clients, first + np.concatenate([[0], np.cumsum(clients.sizes)])

    def __getitem__(self, peer: str) -> IntArray:
        place = self.clients.places[peer]
        return np.arange(self._ends[place], self._ends[place + 1])

    def __contains__(self, peer: object) -> bool:
        return peer in self.clients.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.clients.peers)

    def __len__(self) -> int:
        return len(self.clients.peers)


class SharedPart(ClientPart):
    """Positions that all clients have in common.

    Parameters
    ----------
    clients
        The clients.
    positions
        The positions.
    """

    def __init__(self, clients: Clients, positions: IntArray) -> None:
        super().__init__(replace(clients, sizes=np.zeros(0, np.int64)), 0)
        self.positions = positions

    def __getitem__(self, peer: str) -> IntArray:
        return self.positions


@dataclass(frozen=True, eq=False)
class LazyFederation(Federation):
    """Clients whose training samples are in memory only while they train.

    :meth:`over` makes one from a function, and :meth:`stored` from files.

    Parameters
    ----------
    clients
        The clients.

    Examples
    --------
    >>> def load(number):
    ...     return np.full((2, 3), float(number), np.float32), np.array([0, 1])
    >>> federation = LazyFederation.over(["ada", "bob"], load, sizes=[2, 2], classes=2)
    >>> federation.samples(["bob"]).tolist(), federation.gathered(["bob"]).dataset.features[0].tolist()
    ([2], [1.0, 1.0, 1.0])
    """

    lazy: ClassVar[bool] = True
    clients: Clients = field(kw_only=True)

    @classmethod
    def over(
        cls,
        peers: Sequence[str],
        load: LoadClient,
        *,
        sizes: Sequence[int] | IntArray,
        classes: int | None = None,
        test: tuple[Any, Any] | None = None,
    ) -> Self:
        """Return the federation of clients whose samples follow from their number.

        Parameters
        ----------
        peers
            Names of the clients, such as ``p2pfl.topology.complete(1000).peers``.
        load
            Function that returns the features and targets of a client, given its number in ``peers``.
        sizes
            Number of samples of each client.
        classes
            Number of classes; ``None`` for regression.
        test
            Features and targets on which all clients are scored; none by default.

        Raises
        ------
        DataError
            There are no clients, a size is negative, names and sizes do not match, or two clients have one name.
        """
        counts = np.asarray(sizes, np.int64)
        if len(peers) != len(counts) or not len(counts) or counts.min() < 0 or not counts.any():
            raise DataError(
                f"there are {len(peers)} names of clients and {len(counts)} sizes; give each client a size of at least "
                "0, and some client a sample"
            )
        order = np.array(sorted(range(len(peers)), key=peers.__getitem__), np.int64)
        clients = Clients(tuple(peers[number] for number in order.tolist()), order, counts[order], load)
        if len(clients.places) != len(peers):
            raise DataError("two clients have the same name; give each a name of its own")
        scored = test is not None
        first = clients.peers[int(np.flatnonzero(clients.sizes)[0])]
        given = tensors(test, giver="the test part has") if test is not None else clients.samples(first)
        return cls._of(Dataset(*given, classes), clients, scored=scored)

    @classmethod
    def stored(cls, folder: str | Path, peers: Sequence[str], *, classes: int | None = None) -> Self:
        """Return the federation of clients whose samples :func:`store_clients` has written.

        Parameters
        ----------
        folder
            Folder with ``features.npy``, ``targets.npy`` and ``offsets.npy``, which are mapped into memory and read
            where a client trains; with ``test_features.npy`` and ``test_targets.npy`` clients are scored.
        peers, classes
            Arguments of :meth:`over`.

        Raises
        ------
        DataError
            A file is missing or is no array.
        """
        place = Path(folder)
        try:
            features, targets = (np.load(place / f"{name}.npy", mmap_mode="r") for name in ("features", "targets"))
            offsets = np.load(place / "offsets.npy")
            test = None
            if (place / "test_features.npy").exists():
                test = np.load(place / "test_features.npy"), np.load(place / "test_targets.npy")
        except (OSError, ValueError) as error:
            raise DataError(
                f"{place} has no readable clients ({error}); write them with p2pfl.data.store_clients"
            ) from None

        def load(number: int) -> tuple[Any, Any]:
            own = slice(offsets[number], offsets[number + 1])
            return features[own], targets[own]

        return cls.over(peers, load, sizes=np.diff(offsets), classes=classes, test=test)

    @classmethod
    def _of(cls, dataset: Dataset, clients: Clients, *, scored: bool) -> Self:
        """Return the federation of some clients, with a data set that all are scored on, or that shows what one has."""
        none, every = np.zeros(0, np.int64), np.arange(len(dataset))
        parts = (SharedPart(clients, none), SharedPart(clients, every if scored else none))
        return cls(dataset, ClientPart(clients, len(dataset)), *parts, clients=clients)

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the clients, sorted."""
        return self.clients.peers

    @property
    def validates(self) -> bool:
        """False: clients have no validation part."""
        return False

    @property
    def tests(self) -> bool:
        """True if clients are scored."""
        return bool(len(self.test[self.peers[0]]))

    @property
    def common(self) -> bool:
        """True: all clients are scored on the same samples."""
        return True

    @property
    def largest(self) -> int:
        """Largest number of training samples of a client."""
        return int(self.clients.sizes.max())

    def counts(self, part: PartName, peers: Sequence[str]) -> IntArray:
        """Return the number of samples of each of these clients in a part, ``[R]``."""
        if part != "train":
            return np.full(len(peers), len(getattr(self, part)[self.peers[0]]))
        if peers is self.peers:
            return self.clients.sizes.copy()
        return self.clients.sizes[np.fromiter(map(self.clients.places.__getitem__, peers), np.int64, len(peers))]

    def of(self, *peers: str) -> Self:
        """Return the federation of only these clients."""
        if peers == self.peers:
            return self
        for peer in peers:
            if peer not in self.clients.places:
                raise DataError(f'peer "{peer}" has no data; {nearest(peer, self.clients.places)}')
        few = sorted(peers)
        places = [self.clients.places[peer] for peer in few]
        clients = replace(
            self.clients, peers=tuple(few), numbers=self.clients.numbers[places], sizes=self.clients.sizes[places]
        )
        return self._of(self.dataset, clients, scored=self.tests)

    def pooled(self, name: str = "pooled") -> Federation:
        """Return a federation of one peer with the test part, without the samples of clients."""
        none, test = np.zeros(0, np.int64), self.test[self.peers[0]]
        return Federation(self.dataset, {name: none}, {name: none}, {name: test})

    def gathered(self, peers: Iterable[str], idle: Iterable[str] = ()) -> Federation:
        """Return a federation in memory of some clients with their samples, and of others without.

        Parameters
        ----------
        peers
            Clients whose samples are loaded.
        idle
            Clients that have no samples in it.
        """
        train, loaded, first = dict.fromkeys(idle, np.zeros(0, np.int64)), [], 0
        for peer in peers:
            loaded.append(self.clients.samples(peer))
            train[peer] = np.arange(first, first + len(loaded[-1][1]))
            first += len(loaded[-1][1])
        dataset = self.dataset
        if loaded:
            try:
                features, targets = (torch.cat(each) for each in zip(*loaded, strict=True))
            except RuntimeError as error:
                raise DataError(f"clients have samples of different shapes ({error}); give all the same") from None
            if features.shape[1:] != dataset.features.shape[1:]:
                raise DataError(
                    f"samples of clients have the shape {tuple(features.shape[1:])}, and those of the test part "
                    f"{dataset.shape}; give all the same"
                )
            dataset = Dataset(features, targets, dataset.classes, {}, dataset.description)
        none = dict.fromkeys(train, np.zeros(0, np.int64))
        return Federation(dataset, train, none, none)


def store_clients(
    folder: str | Path, clients: Iterable[tuple[Any, Any]], *, test: tuple[Any, Any] | None = None
) -> None:
    """Write the samples of clients, one after the other, for :meth:`LazyFederation.stored`.

    One client at a time is in memory.

    Parameters
    ----------
    folder
        Folder that is made.
    clients
        Features and targets of each client.
    test
        Features and targets on which all are scored.

    Raises
    ------
    DataError
        There are no clients, or two have samples of different shapes or types.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.mkdtemp()
    >>> store_clients(place, ((np.ones((number, 2), np.float32), np.zeros(number, np.int64)) for number in (1, 3)))
    >>> LazyFederation.stored(place, ["ada", "bob"], classes=1).samples(["ada", "bob"]).tolist()
    [1, 3]
    """
    place, ends, kinds = Path(folder), [0], set[tuple[Any, ...]]()
    place.mkdir(parents=True, exist_ok=True)
    raw = [place / f"{name}.raw" for name in ("features", "targets")]
    with raw[0].open("wb") as features, raw[1].open("wb") as targets:
        for number, given in enumerate(clients):
            x, y = (each.numpy() for each in tensors(given, giver=f"client {number} has"))
            kinds.add((x.shape[1:], x.dtype, y.shape[1:], y.dtype))
            if len(kinds) > 1:
                raise DataError(f"client {number} has samples of another shape or type; give all clients the same")
            x.tofile(features)
            y.tofile(targets)
            ends.append(ends[-1] + len(y))
    if not kinds:
        raise DataError("there are no clients to store; give at least one")
    ((x_shape, x_type, y_shape, y_type),) = kinds
    for path, name, shape, kind in (
        (raw[0], "features", x_shape, x_type),
        (raw[1], "targets", y_shape, y_type),
    ):
        _headed(path, place / f"{name}.npy", (ends[-1], *shape), kind)
    np.save(place / "offsets.npy", np.array(ends, np.int64))
    for name, part in zip(("test_features", "test_targets"), test or (), strict=False):
        np.save(place / f"{name}.npy", np.asarray(part))


def _headed(raw: Path, path: Path, shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
    """Write raw numbers as a file of numpy, block by block, and remove them."""
    with raw.open("rb") as source, path.open("wb") as target:
        header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(target, header)
        while block := source.read(2**24):
            target.write(block)
    raw.unlink()
