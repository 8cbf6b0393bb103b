"""The old name of `conformance.mutants`: its modules are found here too, as in `conformance.wrong.roi_align:NoHalfPixel`."""

from __future__ import annotations

import sys
import warnings

from conformance.mutants import CONTROLS, MUTANTS, Category, Mutant

__all__ = ["CONTROLS", "FAULTS", "Family", "Fault"]

FAULTS, Family, Fault = MUTANTS, Category, Mutant

# A FutureWarning, since the name is given on command lines, where Python does not show a DeprecationWarning.
warnings.warn("conformance.wrong is now conformance.mutants", FutureWarning, stacklevel=2)
for _family in CONTROLS:
    # Importing a submodule looks here once its parent is imported.
    sys.modules[f"{__name__}.{_family}"] = sys.modules[f"conformance.mutants.{_family}"]
