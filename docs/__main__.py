"""``python -m docs``: writes the generated documents and pictures again, those that have changed."""

from __future__ import annotations

from docs.generate import generated, write

for line in write(generated()):
    print(line)
