"""The coverage of the suite: `values.py` counts attribute values, `measure.py` runs the wrong implementations.

A scenario is a group of cases whose ids begin alike, `function/family/scenario`, and differ in version, variant and type.
It is needed if it is the first in the suite's order to catch some wrong implementation of `conformance.mutants`.
"""
