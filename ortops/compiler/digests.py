"""Digests of modules: each covers the module and all modules of this package that it imports, however far away."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The folder of the package."""

_IMPORT = re.compile(rb"(?m)^ *(?:from|import) ortops\.([\w.]+)(?: import (\([^)]*\)|.*))?")


def digest_of(module: str) -> str:
    """The digest of a module below `ortops`; "" if its source cannot be read."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in ROOT.rglob("*.py")
    }
    if module not in modules:
        return ""
    sources = {module: modules[module].read_bytes()}
    left = [module]
    while left:
        for path, names in _IMPORT.findall(sources[left.pop()]):
            imported = path.decode()
            for name in (imported, *(f"{imported}.{name.decode()}" for name in re.findall(rb"\w+", names))):
                if name in modules and name not in sources:
                    sources[name] = modules[name].read_bytes()
                    left.append(name)
    parts = (part for name in sorted(sources) for part in (name.encode(), sources[name]))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
