"""Fuzzing: random cases, compared with the reference.

`strategy` lets hypothesis draw cases, with the choices of `random_draw`, and `corrupt` makes some of them invalid. `check`
compares a backend with the reference. `well_posed` and `perturbation` reject failures that only
rounding causes. `campaign` lets hypothesis search for failures and shrink them, in child processes or on a cluster. `file`
writes and reads cases.
"""
