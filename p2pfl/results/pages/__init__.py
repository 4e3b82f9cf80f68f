"""Reports as pages: one HTML file without scripts, which needs no other file and no network."""
