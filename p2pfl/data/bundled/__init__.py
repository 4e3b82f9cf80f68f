"""The tables that come inside scikit-learn, read from its files without importing it.

Importing scikit-learn imports scipy.stats and, where they are installed, pandas and pyarrow: more than a second of
processor time in every process that learns from a table of a hundred kilobytes.
"""

from p2pfl.data.bundled.columns import COLUMNS
from p2pfl.data.bundled.scikit_learn_files import Bundled, read_bundled

__all__ = ["COLUMNS", "Bundled", "read_bundled"]
