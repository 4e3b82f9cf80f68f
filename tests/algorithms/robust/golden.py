"""What byzfl 0.0.11 (MIT) makes of the rows of the tests.

The numbers below were printed by

    pip install byzfl==0.0.11 && python tests/algorithms/robust/golden.py

in an environment of its own: it asks for torchvision, matplotlib and seaborn, too many for a dependency of tests. It
computes in single precision. byzfl's Krum adds up the n - f - 1 nearest others where the paper has n - f - 2, so that
its Krum of f + 1 is the paper's of f; its multi-Krum takes as many rows as ours, and the same where f rows lie far off.
"""

import math

import torch


def scattered(count, size=4):
    """Rows ``[count, size]`` without a generator."""
    places = [[size * row + column for column in range(size)] for row in range(count)]
    values = [[math.sin(1.7 * i) + 0.3 * math.cos(0.9 * i * i) for i in row] for row in places]
    return torch.tensor(values, dtype=torch.float64)


def outlying(count, size=4):
    """The same with two rows far off."""
    rows = scattered(count, size)
    rows[-1] += 25
    rows[-2] -= 40
    return rows


GOLDEN = {
    "median": [0.443975, -0.029414, -0.533784, 0.398759],
    "median of 8": [0.588783, -0.396122, -0.619111, 0.537447],
    "trimmed mean": [0.536675, -0.184619, -0.635946, 0.231122],
    "trimmed mean, scattered": [0.386714, -0.308965, -0.498019, 0.257283],
    "krum": [0.789643, -0.029414, -0.704438, 0.398759],
    "krum, scattered": [0.789643, -0.029414, -0.704438, 0.398759],
    "multi-krum": [0.490338, -0.148206, -0.559322, 0.16954],
    "self-centred clipping": [0.432493, 0.513761, -0.571879, -0.406211],
    "nearest mixed 0": [0.308755, 0.341459, -0.433524, -0.264414],
    "nearest mixed 6": [-0.12044, -0.825776, 0.112656, 0.555395],
    "nearest mixed, trimmed mean": [0.420855, -0.264348, -0.470417, 0.269674],
    "alie": [-0.785899, -1.476477, -1.354065, -0.79321],
    "ipm": [-0.106205, 0.127052, 0.127518, -0.086659],
    "sign flip": [-0.3, -1.178148, 0.524569, 0.998878],
}


def made():
    """The table, by byzfl."""
    import byzfl  # noqa: PLC0415

    x, y = outlying(9), scattered(9)
    centred = byzfl.CenteredClipping(L=1, tau=1.5)
    centred.m = x[0].float()
    found = {
        "median": byzfl.Median()(x),
        "median of 8": byzfl.Median()(x[1:]),
        "trimmed mean": byzfl.TrMean(2)(x),
        "trimmed mean, scattered": byzfl.TrMean(3)(y),
        "krum": byzfl.Krum(3)(x),
        "krum, scattered": byzfl.Krum(3)(y),
        "multi-krum": byzfl.MultiKrum(2)(x),
        "self-centred clipping": centred(x.float()),
        "nearest mixed 0": byzfl.NNM(4)(y)[0],
        "nearest mixed 6": byzfl.NNM(4)(y)[6],
        "nearest mixed, trimmed mean": byzfl.TrMean(3)(byzfl.NNM(3)(y)),
        "alie": byzfl.ALittleIsEnough(-1.5)(y),
        "ipm": byzfl.InnerProductManipulation(0.5)(y),
        "sign flip": byzfl.SignFlipping()(y[:1]),
    }
    return {name: [round(float(value), 6) for value in row] for name, row in found.items()}


if __name__ == "__main__":
    print(made())  # noqa: T201
