"""Attacks on short live runs: releases around a restart, and exact sums."""
