"""One file for each section of the experiment file, and the part of a run that it becomes."""
