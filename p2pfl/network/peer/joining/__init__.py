"""Start of one live peer: its incarnation, its neighbours, and where it resumes."""
