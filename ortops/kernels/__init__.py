"""The kernels, compiled by numba when first called and cached on disk. One file per family of operators.

A family checks its data (`regions.py`) and places samples by its convention (`sampling.py`). The rest knows nothing of any
operator: `tables.py` merges the samples of an axis, into weights of pixels for the average and into the few that can win a
maximum; `average.py` applies the weights forwards and transposed, `maximum.py` finds the winners; `pooling.py` cuts both
into tasks, `panels.py` lays channels side by side for them, and `parallel.py` runs them.
"""
