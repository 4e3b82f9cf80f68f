"""A local page of a run: who is where, who waits for whom, and how learning goes; needs the extra ``watch``."""
