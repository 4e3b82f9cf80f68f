"""Fed-Heart-Disease: heart disease records of four hospitals, each of which is a peer."""

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Description
from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.sources import Private

HOSPITALS: Mapping[str, str] = {
    "cleveland": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    "hungarian": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    "switzerland": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    "va": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
}
"""SHA-256 of each hospital's records without the header line."""

NUMBERS = (0, 1, 3, 4, 5, 7, 8, 9)
"""Columns kept as numbers: age, sex, blood pressure, cholesterol, sugar, heart rate, angina, ST depression."""

LEVELS = {2: (2, 3, 4), 6: (1, 2)}
"""Columns that become one column per level: kind of chest pain, ECG at rest; the first level is left out."""

TARGET = 13

SCALED = {
    "own": "each hospital's own training part, which differ and are not in this file",
    "pooled": "the training parts of all hospitals, which are not in this file",
}
"""Source of the statistics that scale the features, in words for a reader."""


def fed_heart(data_dir: Path | None, *, scaling: str = "own") -> Private:
    """Load Fed-Heart-Disease: 740 patients of four hospitals, 13 features, heart disease or not.

    The columns slope, vessels and thal, which few hospitals recorded, are dropped, then patients with a missing
    value. 303 patients of Cleveland, 261 of Hungary, 46 of Switzerland and 130 of Long Beach remain. Each hospital
    holds out the same 34 % of its patients as the benchmark (stratified where each class has more than two). The
    sorted peers are the hospitals in the order of their names.

    The UCI files ``processed.cleveland.data`` and so on, with or without a header line, lie in ``data_dir`` or
    ``data_dir/heart``. Licence CC BY 4.0. Publications must name the investigators who collected the data:
    Andras Janosi, M.D. (Hungarian Institute of Cardiology, Budapest); William Steinbrunn, M.D. (University
    Hospital, Zurich); Matthias Pfisterer, M.D. (University Hospital, Basel); Robert Detrano, M.D., Ph.D.
    (V.A. Medical Center, Long Beach and Cleveland Clinic Foundation).

    Parameters
    ----------
    data_dir
        Folder of the files.
    scaling
        Training part whose mean and sample deviation scale the features of a hospital: its ``own``, or that of
        all hospitals ``pooled``, for which a peer needs all files.

    Returns
    -------
    Private
        Source of each hospital's data.

    Raises
    ------
    DataError
        The option is unknown; later, if the files are missing or differ from the published ones.

    References
    ----------
    Ogier du Terrail et al. FLamby: datasets and benchmarks for cross-silo federated learning in realistic
    healthcare settings. NeurIPS 2022, arXiv:2210.04620.
    """
    if scaling not in ("own", "pooled"):
        raise DataError(f'the option "scaling" is {scaling!r}; use "own" or "pooled"')
    folders = [data_dir / "heart", data_dir] if data_dir else []
    return Private(
        partial(_load, folders=folders, pooled=scaling == "pooled"),
        classes=2,
        held=partial(_held, folders=folders),
        description=Description(raw=f"the features of fed_heart, scaled by mean and deviation of {SCALED[scaling]}"),
    )


def _load(
    *, peer: str, peers: tuple[str, ...], seed: int, folders: list[Path], pooled: bool
) -> tuple[FloatArray, IntArray]:
    """Return the scaled features ``[n, 13]`` and targets ``[n]`` of one hospital."""
    del seed
    mine = _hospital(peer, peers)
    features, targets = _records(mine, folders)
    shown = [_records(name, folders) for name in (HOSPITALS if pooled else (mine,))]
    train = np.concatenate([known[_split(labels)[0]] for known, labels in shown])  # [m, 13]
    deviation = train.std(0, ddof=1)  # [13]
    # Switzerland did not record cholesterol, which is 0 for all: such a column is only centred.
    return (features - train.mean(0)) / np.where(deviation > 0, deviation, 1), targets


def _held(*, peer: str, peers: tuple[str, ...], folders: list[Path]) -> IntArray:
    """Return the positions of the patients that a hospital holds out."""
    return _split(_records(_hospital(peer, peers), folders)[1])[1]


def _hospital(peer: str, peers: tuple[str, ...]) -> str:
    if len(peers) != len(HOSPITALS):
        raise DataError(
            f"fed_heart has {len(HOSPITALS)} hospitals, but there are {len(peers)} peers; set topology.peers = 4"
        )
    return list(HOSPITALS)[sorted(peers).index(peer)]


def _records(hospital: str, folders: list[Path]) -> tuple[FloatArray, IntArray]:
    """Return unscaled features ``[n, 13]`` and targets ``[n]`` of the patients with complete records."""
    name = f"processed.{hospital}.data"
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        looked = ", ".join(map(str, folders)) or "any folder, as none is given"
        raise DataError(f'{name} of "fed_heart" is not in {looked}; set P2PFL_DATA to the folder that holds it')
    data = path.read_bytes()
    body = data.partition(b"\n")[2] if data.startswith(b"age") else data
    if hashlib.sha256(body).hexdigest() != HOSPITALS[hospital]:
        raise DataError(f"{path} differs from the published {name}; copy it again")
    cells = [line.split(",") for line in body.decode("ascii").split()]
    table = np.array([[np.nan if cell == "?" else float(cell) for cell in row] for row in cells])  # [n, 14]
    table = table[~np.isnan(table[:, [*NUMBERS, *LEVELS, TARGET]]).any(1)]
    hot = [table[:, [column]] == levels for column, levels in LEVELS.items()]
    features = np.concatenate([table[:, NUMBERS], *hot], axis=1)  # [n, 13]
    return features, (table[:, TARGET] > 0).astype(np.int64)


def _split(targets: IntArray) -> tuple[IntArray, IntArray]:
    """Return the positions for training and for test, as the benchmark draws them."""
    try:
        from sklearn.model_selection import train_test_split  # noqa: PLC0415 - no other data set needs it for training
    except ImportError:
        raise DataError(
            'scikit-learn, which splits "fed_heart" as published, is not installed; run `pip install scikit-learn`'
        ) from None
    layers = targets if np.bincount(targets, minlength=2).min() > 2 else None
    split: Any = train_test_split(np.arange(len(targets)), train_size=0.66, random_state=43, stratify=layers)
    return split[0], np.sort(split[1])
