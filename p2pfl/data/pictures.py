"""MNIST and Fashion-MNIST, read from their idx files."""

import gzip
import hashlib
import math
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Description
from p2pfl.data.dataset import FloatArray, IntArray
from p2pfl.data.sources import DIGITS, Central

# SHA-256 of the published training labels, unpacked. Both sets use the same file names, so only the content shows
# which of them a folder holds.
PUBLISHED = {
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5": "mnist",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9": "fashion_mnist",
}

CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
"""Class names of Fashion-MNIST, as published."""

DEBIAN = Path("/usr/share/datasets/fashion-mnist")

Bytes = npt.NDArray[np.uint8]


def mnist(data_dir: Path | None) -> Central:
    """Load MNIST: 70,000 handwritten digits, ``(1, 28, 28)`` in [0, 1], with the official 10,000 as test part.

    The four idx files, gzipped or not, lie in ``data_dir`` or ``data_dir/mnist``
    (LeCun, Cortes, Burges 1998; usually cited as CC BY-SA 3.0).

    Parameters
    ----------
    data_dir
        Folder of the files.

    Returns
    -------
    Central
        Source of the pictures.

    Raises
    ------
    DataError
        A file is missing or damaged.
    """
    return _pictures("mnist", [data_dir / "mnist", data_dir] if data_dir else [])


def fashion_mnist(data_dir: Path | None) -> Central:
    """Load Fashion-MNIST: 70,000 articles of clothing in the format of MNIST.

    The files are looked up in ``data_dir`` or its folders ``fashion_mnist`` and ``fashion-mnist``, then where the
    Debian package ``dataset-fashion-mnist`` installs them (Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747; MIT).

    Parameters
    ----------
    data_dir
        Folder of the files.

    Returns
    -------
    Central
        Source of the pictures.

    Raises
    ------
    DataError
        A file is missing or damaged.
    """
    own = [data_dir / "fashion_mnist", data_dir / "fashion-mnist", data_dir] if data_dir else []
    return _pictures("fashion_mnist", [*own, DEBIAN])


def read_idx(path: Path) -> Bytes:
    """Read an idx file of unsigned bytes, gzipped or not.

    The header has two zero bytes, the type (8 for unsigned bytes), the number of dimensions, then each of them as a
    big-endian 32-bit integer.

    Returns
    -------
    numpy.ndarray
        Bytes in the shape that the header gives.

    Raises
    ------
    DataError
        The file is damaged, of another type, or longer or shorter than its header states.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a readable idx file ({error}); copy it again") from None
    dimensions = data[3] if len(data) > 3 and data[:3] == b"\x00\x00\x08" else 0
    shape = tuple(int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))
    start = 4 + 4 * dimensions
    if not dimensions or len(data) - start != math.prod(shape):
        raise DataError(
            f"{path} with {len(data)} bytes, header {data[:4].hex()} and shape {shape} is not an idx file of "
            "unsigned bytes; copy it again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _pictures(name: str, folders: list[Path]) -> Central:
    folder = next((folder for folder in folders if _file(folder, "train-images-idx3-ubyte")), None)
    if folder is None:
        looked = ", ".join(map(str, folders)) or "any folder, as none is given"
        package = ", or `apt install dataset-fashion-mnist`" if name == "fashion_mnist" else ""
        raise DataError(
            f'train-images-idx3-ubyte.gz of "{name}" is not in {looked}; set P2PFL_DATA to the folder that '
            f"holds the four idx files{package}"
        )
    pictures, labels = _part(folder, "train")
    header = b"\x00\x00\x08\x01" + len(labels).to_bytes(4, "big")
    other = PUBLISHED.get(hashlib.sha256(header + labels.tobytes()).hexdigest(), name)
    if other != name:
        raise DataError(f'{folder} holds the labels of "{other}" in place of "{name}"; move it to {folder / other}')
    test_pictures, test_labels = _part(folder, "t10k")

    classes = CLOTHES if name == "fashion_mnist" else DIGITS
    description = Description(raw="the bytes of the pictures, from 0 to 255", deviation=255.0, classes=classes)

    def encode(_: IntArray, keep: IntArray) -> tuple[FloatArray, Description]:
        features = np.empty((len(keep), 1, 28, 28), np.float32)
        first = keep < len(pictures)
        features[first, 0], features[~first, 0] = pictures[keep[first]], test_pictures[keep[~first] - len(pictures)]
        features /= 255
        return features, description

    targets = np.concatenate([labels, test_labels])  # [n]
    return Central(targets, 10, encode, test=np.arange(len(labels), len(targets)))


def _part(folder: Path, part: str) -> tuple[Bytes, Bytes]:
    pictures, labels = (_read(folder, f"{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    if pictures.shape[1:] != (28, 28) or labels.shape != pictures.shape[:1] or labels.max(initial=0) > 9:
        raise DataError(
            f"the {part} files of {folder} hold pictures of shape {pictures.shape} and labels of shape "
            f"{labels.shape}, not 28 x 28 pictures and as many labels from 0 to 9; copy them again"
        )
    return pictures, labels


def _read(folder: Path, name: str) -> Bytes:
    path = _file(folder, name)
    if path is None:
        raise DataError(f"neither {name} nor {name}.gz is in {folder}; copy all four idx files there")
    return read_idx(path)


def _file(folder: Path, name: str) -> Path | None:
    paths = (folder / name, folder / f"{name}.gz")
    return next((path for path in paths if path.is_file()), None)
