# SPDX-License-Identifier: MIT
"""A tokenizer as an operator: strings in, and out as many tokens as they contain.

$ python -m examples.operators.word_pieces
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import onnx
from numpy.typing import NDArray

import ortops

VOCABULARY = ["[UNK]", "un", "##aff", "##able", "run", "##ning"]


@ortops.operator(domain="examples", name="WordPieces")
def word_pieces(
    text: Annotated[NDArray[np.str_], ("lines",)], *, vocabulary: NDArray[np.str_]
) -> tuple[Annotated[NDArray[np.int64], ("tokens",)], Annotated[NDArray[np.int64], ("lines",)]]:
    """The token ids of all lines, and how many of them each line has. A word is cut greedily, as BERT does."""
    ids = {piece: i for i, piece in enumerate(vocabulary)}
    lines = [[i for word in line.lower().split() for i in pieces(word, ids)] for line in text]
    return np.array([i for line in lines for i in line], np.int64), np.array([len(line) for line in lines], np.int64)


def pieces(word: str, ids: dict[str, int]) -> list[int]:
    """The ids of the longest pieces of a word from left to right; [0] if a part of the word is not in the vocabulary."""
    tokens, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        end = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in ids), None)
        if end is None:
            return [0]
        tokens.append(ids[prefix + word[start:end]])
        start = end
    return tokens


def main() -> None:
    """Tokenize two lines in a session."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 16, "examples" : 1]>
        tokenizer (string[lines] text) => (int64[tokens] ids, int64[lines] counts) {
            ids, counts = examples.WordPieces(text)
        }""")
    vocabulary = onnx.numpy_helper.from_array(np.array(VOCABULARY, object))
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("vocabulary", vocabulary))
    session = ortops.InferenceSession(model.SerializeToString(), operators=[word_pieces])
    ids, counts = session.run(None, {"text": np.array(["Unaffable", "running unß"], object)})
    print(ids, counts)


if __name__ == "__main__":
    main()
