"""Which slice answers each query: ELSA and the other dispatch rules, one file each.

A rule is a function over plain arrays, in the part of Python that numba compiles, so that the replay runs the
very same source as the plain twin and the live router.
"""
