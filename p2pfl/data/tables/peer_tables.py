"""Tables that peers own, as a source of data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p2pfl.core.errors import DataError
from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.sources import Private
from p2pfl.data.tables.declaration import Table

PEER = "{peer}"
"""Part of a path that stands for the name of a peer."""


def table(
    data_dir: Path | None, *, path: str, target: str, columns: Mapping[str, Any], event: str | None = None
) -> Private:
    """Read the table of each peer: a CSV file, or a Parquet file.

    Parameters
    ----------
    data_dir
        Folder in which to look up a relative ``path`` that does not exist as it stands.
    path
        Path of the file, in which ``{peer}`` stands for the name of a peer.
    target, columns
        Declaration that all peers agree on, see :class:`~p2pfl.data.tables.declaration.Table`.
    event
        Column that says by its second level, or by 1, whether the event happened at the time that the target is; the
        time of a sample without the event becomes negative.

    Returns
    -------
    Private
        Source that reads the table of each local peer.

    Raises
    ------
    DataError
        An option is invalid; later, if a file is missing or does not fit the declaration.
    """
    if not isinstance(path, str | Path):
        raise DataError(f'the option "path" must be the name of a file, but it is {path!r}; change it')
    declared = Table(columns, target=target, event=event)
    read = dict[Path, str]()

    def load(*, peer: str, peers: tuple[str, ...], seed: int) -> tuple[FloatArray, FloatArray | IntArray]:
        del peers, seed
        file = locate_file(str(path).replace(PEER, peer), data_dir)
        if read.setdefault(file, peer) != peer:
            raise DataError(
                f'peers "{read[file]}" and "{peer}" would both own {file}; write {PEER} in `path` for the name of the '
                'peer, or use the data set "csv", which shares out one table'
            )
        return declared.read(file)

    return declared.source(load)


def locate_file(path: str | Path, data_dir: Path | None) -> Path:
    """Return the path of a file as it stands, or in the data folder.

    Raises
    ------
    DataError
        There is no such file.
    """
    candidates = dict.fromkeys((Path(path), *([data_dir / path] if data_dir else [])))  # one, if the path is absolute
    file = next((file for file in candidates if file.is_file()), None)
    if file is None:
        raise DataError(f"no table at {' or '.join(map(str, candidates))}; correct `path`")
    return file
