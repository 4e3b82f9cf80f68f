"""Statistics of the data of all peers from exact totals: descriptions, principal components, survival curves."""
