"""Random cases against the reference: `generate` and `hostile` make them, `check` judges, `shrink` makes them small.

`settled` keeps out what hinges on the last bit of a number, `file` writes a case down. `campaign` runs many: it hands what
`examine` does to an executor, threads here or a `cluster` of dask.
"""
