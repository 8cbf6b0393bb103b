"""Fuzzing: random cases, compared with the reference.

`generate` makes a case, with choices of `random_draw`, and `corrupt` makes some of them invalid. `check` compares a backend
with the reference, and `shrink` minimises a failing case. `well_posed` and `perturbation` reject failures that only rounding
causes. `file` writes and reads cases. `campaign` runs many cases with the functions of `worker`, on local threads or on a
`cluster` of dask workers.
"""
