"""What it takes to repeat a run elsewhere: own modules, digests of data, and the comparison of a repetition."""
