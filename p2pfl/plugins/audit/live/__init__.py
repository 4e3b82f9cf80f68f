"""Attacks on short live runs: releases around a restart, settled masks and exact sums."""
