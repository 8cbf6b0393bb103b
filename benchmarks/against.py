"""The operators of a checkout in a process of its own, so that those of two checkouts take turns: ``--against DIR``.

The process runs this file as a program, which imports `ortops` from the folder and nothing of this checkout.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


@contextmanager
def checkout(folder: Path) -> Iterator[Any]:
    """Give the operators of a folder as a `benchmarks.measure.Peer`, of which the last call that was prepared counts."""
    import click

    from benchmarks import measure, models

    command = [sys.executable, __file__, str(folder.resolve())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - this file

        def ask(question: object, questions: Any = process.stdin) -> Any:
            try:
                pickle.dump(question, questions)
                questions.flush()
                return pickle.load(process.stdout)  # type: ignore[arg-type] # noqa: S301 - of this file
            except (BrokenPipeError, EOFError):
                with suppress(BrokenPipeError):
                    questions.close()
                raise click.ClickException(f"{folder}: its process ended with status {process.wait()}") from None

        def prepare(problem: Any, threads: int) -> measure.Call:
            made = models.model(problem)
            ask((made.SerializeToString(), models.feeds(made, problem), threads))
            # The process measures its own seconds, without those of the pipes.
            return measure.Call(lambda: ask("arrays"), timer=lambda: float(ask("seconds")))

        yield prepare


def main(questions: Any, answers: IO[bytes]) -> None:
    """Answer a model, its feeds and a number of threads with None, "arrays" with its outputs, "seconds" with its time."""
    from onnxruntime import SessionOptions

    import ortops

    session: Any = None
    feeds: Any = None
    while questions.peek(1):
        question, answer, began = pickle.load(questions), None, time.perf_counter()  # noqa: S301 - of this file
        if isinstance(question, tuple):
            options = SessionOptions()
            options.intra_op_num_threads = question[2]
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            session, feeds = ortops.InferenceSession(question[0], options), question[1]
        else:
            outputs = session.run(None, feeds)
            answer = outputs if question == "arrays" else time.perf_counter() - began
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    sys.path[0] = sys.argv[1]
    with os.fdopen(os.dup(1), "wb") as stream:
        os.dup2(2, 1)  # what a library prints is no answer
        main(sys.stdin.buffer, stream)
