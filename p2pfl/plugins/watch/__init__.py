"""A local page of a run: where each peer is, for which peers it waits, how learning goes; needs the extra ``watch``."""
