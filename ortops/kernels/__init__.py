"""The kernels, compiled by numba when first called and cached on disk. One file per family.

A convention (`sampling.py`) turns a RoI into evenly spaced samples on each axis. `tables.py` merges them: into weights of
pixels for the average, which `average.py` applies forwards and transposed, and into the few samples that can win a
maximum, among which `maximum.py` finds the winner. Those three know nothing of any one operator.
"""
