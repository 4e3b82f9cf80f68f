"""Draws of :mod:`p2pfl.privacy` as tensor operations, for simulations on an accelerator.

IEEE 754 or the arithmetic of integers fixes the result of every operation to the last bit, and each runs in a kernel
of its own, so no product is fused with a sum. The results equal those of the numpy code, which live peers use, bit for
bit.
"""
