"""``python -m p2pfl`` is the command ``p2pfl``."""

from p2pfl.cli import main

raise SystemExit(main())
