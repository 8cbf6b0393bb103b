"""What the cases cover: `values.py` counts values of attributes, `measure.py` asks the wrong implementations.

A fact is the cases whose ids begin alike, `function/family/fact`: they differ in version, variant and type. It is needed if
it is the first in the suite's order to catch some wrong implementation of `conformance.mutants`.
"""
