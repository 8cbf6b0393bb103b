"""Random cases against the reference: `generate` and `hostile` make them, `check` judges, `shrink` makes them small.

`settled` keeps out what hinges on the last bit of a number, `file` writes a case down, `campaign` runs many: it hands
`tasks` to a `crew`, threads here or a `cluster`, each asks an `examiner`, a process that does the `work`, and `merge` puts
in order what comes back.
"""
