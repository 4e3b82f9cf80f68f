"""Decision trees from histograms: what peers count, and what all of them decide from the totals."""
