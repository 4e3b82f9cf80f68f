"""tests/plugins/audit/builds.py is there to be imported."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
