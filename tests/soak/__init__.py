"""Calls without end, each answer checked, and memory watched: ``python -m tests.soak``.

`cases` makes the problems, and `pool` their answers, once. `ways` are the ways to call a session, `live` the sessions that
are there at a time, a `worker` is a thread that calls, and `tally` counts. `memory` judges how much of it the process has,
`soak` runs it all and `report` says what came of it.

Modules import each other by relative names: here the package is `tests.soak`, for the tests beside it, `soak`.
"""
