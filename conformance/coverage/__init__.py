"""What the cases cover: values of attributes, wrong implementations, and the facts that catch nothing new.

`values.py` counts, `measure.py` asks the wrong implementations of `conformance.wrong`, `facts.py` says which facts are
needed to catch them all, `reasons.py` why there are others.
"""
