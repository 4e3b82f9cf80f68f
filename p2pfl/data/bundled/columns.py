"""Names of the columns of scikit-learn's tables, which its files do not contain."""

MEASURES = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)
"""Measurements of each cell nucleus of a tumour."""

COLUMNS = {
    "breast_cancer": (
        *(f"mean {measure}" for measure in MEASURES),
        *(f"{measure} error" for measure in MEASURES),
        *(f"worst {measure}" for measure in MEASURES),
    ),
    "diabetes": ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"),
    "digits": tuple(f"pixel_{line}_{column}" for line in range(8) for column in range(8)),
    "wine": (
        "alcohol",
        "malic_acid",
        "ash",
        "alcalinity_of_ash",
        "magnesium",
        "total_phenols",
        "flavanoids",
        "nonflavanoid_phenols",
        "proanthocyanins",
        "color_intensity",
        "hue",
        "od280/od315_of_diluted_wines",
        "proline",
    ),
}
"""Names of the columns of each table, in the order of its file."""
