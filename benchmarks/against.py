# SPDX-License-Identifier: MIT
"""Run the operators of a checkout in a process that runs this file, so that two checkouts take turns: ``--against DIR``."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click


@contextmanager
def checkout(folder: Path) -> Iterator[Any]:
    """Yield a checkout's operators as a `benchmarks.measure.Peer`. Only the call that was prepared last can be made."""
    from benchmarks import measure, models

    command = [sys.executable, __file__, str(folder.resolve())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - this file

        def ask(question: object, questions: Any = process.stdin, answers: Any = process.stdout) -> Any:
            try:
                pickle.dump(question, questions)
                questions.flush()
                return pickle.load(answers)  # noqa: S301 - of this file
            except (BrokenPipeError, EOFError):
                with suppress(BrokenPipeError):
                    questions.close()
                raise click.ClickException(f"{folder}: its process ended with status {process.wait()}") from None

        def prepare(problem: Any, threads: int) -> measure.Call:
            model = models.model(problem)
            ask((model.SerializeToString(), models.feeds(model, problem), threads))
            # The process measures the seconds, so that they do not include the pipes.
            return measure.Call(lambda: ask("arrays"), timer=lambda: float(ask("seconds")))

        yield prepare


if __name__ == "__main__":
    sys.path[0] = sys.argv[1]  # nothing is imported from this checkout
    from onnxruntime import SessionOptions

    import ortops

    with open(0, "rb") as questions, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints is no answer
        while questions.peek(1):
            question = pickle.load(questions)  # noqa: S301 - of the function above
            if isinstance(question, tuple):
                options = SessionOptions()
                options.intra_op_num_threads = question[2]
                options.add_session_config_entry("session.intra_op.allow_spinning", "0")
                session, feeds = ortops.InferenceSession(question[0], options), question[1]
            began, outputs = time.perf_counter(), session.run(None, feeds)
            pickle.dump(outputs if question == "arrays" else time.perf_counter() - began, answers)
            answers.flush()
