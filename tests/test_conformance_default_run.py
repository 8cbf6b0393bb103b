"""Every mutant fails a case, the controls fail none, and a run without `--strict all` fails all mutants but those of a rule.

The table of rules stands in docs/conformance.md, too.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from catching_cases import candidates, recorded
from conformance.case import Basis
from conformance.coverage.measure import decisive, failing
from conformance.coverage.values import ranges
from conformance.mutants import CONTROLS, MUTANTS
from conformance.vectors import collect
from rules_of_ours import RULES, lives, rule_of
from watched_steps import Watch

DOCS = Path(__file__).parent.parent / "docs" / "conformance.md"


def test_every_case_of_this_project_alone_has_a_rule() -> None:
    assert {case.id for case in collect() if case.basis is Basis.OURS and rule_of(case) is None} == set()


def test_the_documentation_lists_the_rules_and_counts_their_cases_and_wrong_implementations() -> None:
    cases = Counter(rule_of(case) for case in collect() if case.basis is Basis.OURS)
    told = DOCS.read_text("utf-8")
    rows = [f"| {rule.words} | {cases[rule.words]} | {len(rule.lives.split())} |" for rule in RULES]
    assert [row for row in rows if row not in told] == []


def test_the_readme_counts_the_wrong_implementations_that_a_default_run_fails() -> None:
    readme = (DOCS.parent.parent / "README.md").read_text("utf-8")
    assert lives().keys() <= {mutant.name for mutant in MUTANTS}
    assert f"fails {len(MUTANTS) - len(lives())} of {len(MUTANTS)} wrong implementations" in " ".join(readme.split())


@pytest.mark.parametrize("family", CONTROLS)
def test_every_mutant_fails_a_case(family: str) -> None:
    own = [mutant for mutant in MUTANTS if mutant.operators == family]
    # A default run counts it, but for the mutants that break a rule of this project alone.
    cases = {mutant: [c for c in candidates(mutant) if c.id == recorded().get(mutant.name)] for mutant in own}
    passed = [mutant.name for mutant in own if not any(failing(mutant.backend, cases[mutant]))]
    assert passed == [], "write catching_cases.json anew: python tests/catching_cases.py"


@pytest.mark.parametrize("family", CONTROLS)
def test_a_watch_notices_a_mutant_that_fails(family: str) -> None:
    by_id = {case.id: case for case in collect()}
    overlooked = []
    for mutant in [mutant for mutant in MUTANTS if mutant.operators == family]:
        watch = Watch(CONTROLS[family], [mutant.backend])
        assert not any(failing(watch.control, [by_id[recorded()[mutant.name]]]))
        overlooked += [] if watch.differing else [mutant.name]
    assert overlooked == []


@pytest.mark.slow
@pytest.mark.parametrize("family", CONTROLS)
def test_the_control_passes_its_cases_and_a_default_run_the_mutants_of_a_rule(family: str) -> None:
    own = [case for case in collect() if case.definition.family == family]
    of_a_rule = [mutant for mutant in MUTANTS if mutant.operators == family and mutant.name in lives()]
    deciding = {mutant: frozenset(decisive(mutant, collect())) for mutant in of_a_rule}
    failed = []
    for number, case in enumerate(own):
        counts = [m for m in of_a_rule if case.basis is not Basis.OURS and case in deciding[m]]
        # Types and opsets differ in rounding and defaults: all cases of float, and every fourth one of the others.
        if counts or case.element_type == "float" or number % 4 == 0:
            watch = Watch(CONTROLS[family], [mutant.backend for mutant in counts])
            failed += [(family, case.id) for case in failing(watch.control, [case])]
            differing = [m for m in counts if m.backend in watch.differing]
            failed += [(m.name, case.id) for m in differing if any(failing(m.backend, [case]))]
    assert failed == []


RANGES = """
roi_align: output_height 1..131, output_width 1..131, sampling_ratio 0..129, spatial_scale 0.0625..8, digits 1..8,
    side -3.375..2e+09, thinnest 0.015625..2e+09, N 0..300, C 0..300, H 0..1030, W 0..1030, num_rois 0..1025, pairs
    0..66625, calls 1..5
dml_roi_align: output_height 1..131, output_width 1..131, spatial_scale_x 0.0625..8, digits 1..8, spatial_scale_y
    0.046875..8, input_pixel_offset -1.5..100.0005, output_pixel_offset -1.5..1.25, minimum_samples_per_output 1..129,
    maximum_samples_per_output 1..4.294967e+09, align_regions_to_corners 0..1, out_of_bounds_input_value -inf..inf,
    side -4..1.099512e+12, thinnest 0.015625..1.099512e+12, N 0..300, C 0..300, H 0..1030, W 0..1030, num_rois
    0..1025, pairs 0..66625, calls 1..5
dml_roi_align_grad: spatial_scale_x 0.0625..8, digits 1..8, spatial_scale_y 0.046875..8, input_pixel_offset
    -0.28125..100.0005, output_pixel_offset -0.59375..0.40625, minimum_samples_per_output 1..65,
    maximum_samples_per_output 1..4.294967e+09, align_regions_to_corners 0..1, side -3.375..60000, thinnest
    0.015625..60000, num_rois 0..4096, C 0..300, output_height 1..131, output_width 1..131, N 0..300, H 0..1030, W
    0..1030, pairs 0..66625, calls 1..5
dml_resample: scales 1.175494e-38..3.402823e+38, digits 1..8, input_pixel_offsets -1.099512e+12..1.099512e+12,
    output_pixel_offsets -1024..100.0005, N0 0..1030, N1 1..512, calls 1..4, N2 1..512, N3 1..512, output_sizes 0..9
dml_resample_grad: scales 7.888609e-31..1.267651e+30, digits 1..8, input_pixel_offsets -8192..8192,
    output_pixel_offsets -100.25..100.0005, M0 0..8192, M1 0..4096, N0 0..1030, N1 1..514, calls 1..4, M2 1..1020, M3
    1..1028, N2 1..514, N3 1..514
roi_align_grad: sampling_ratio 0..65, spatial_scale 0.0625..8, digits 1..8, side -3.375..1.073742e+09, thinnest
    0.015625..1.073742e+09, num_rois 0..4096, C 0..300, output_height 1..131, output_width 1..131, N 0..300, H
    0..1030, W 0..1030, pairs 0..66625, calls 1..5
max_roi_pool: pooled_shape 1..131, spatial_scale 0.01000005..16, digits 1..8, side -4..inf, thinnest 0.125..inf, N
    0..300, C 0..300, H 0..1025, W 0..1050, num_rois 0..1025, pairs 0..66625, calls 1..6
max_roi_pool_grad: spatial_scale 0.01000005..8, digits 1..8, side -4..2e+09, thinnest 0.125..2e+09, num_rois 0..4096,
    C 0..300, output_height 1..131, output_width 1..131, N 0..300, H 0..1025, W 0..1050, pairs 0..66625, calls 1..6
roi_align_rotated: output_height 1..29, output_width 1..129, aligned 0..1, clockwise 0..1, sampling_ratio 0..64,
    spatial_scale 0.0625..6.5, digits 1..8, side -4..1e+09, thinnest 0.015625..1e+09, N 0..299, C 0..299, H 0..1030, W
    0..1030, num_rois 0..1025, pairs 0..66625, calls 1..5
roi_align_rotated_grad: aligned 0..1, clockwise 0..1, sampling_ratio 0..64, spatial_scale 0.0625..6.5, digits 1..8,
    side -3.375..1e+09, thinnest 0.015625..125, num_rois 0..4096, C 0..299, output_height 1..29, output_width 1..129, N
    0..299, H 0..1030, W 0..1030, pairs 0..66625, calls 1..5
"""


@pytest.mark.parametrize("entry", re.split(r"\n(?! )", RANGES.strip()), ids=lambda entry: entry.split(":")[0])
def test_cases_reach_from_the_least_to_the_largest_value(entry: str) -> None:
    function, said = " ".join(entry.split()).split(": ")
    found = ranges(function, collect())
    assert said == ", ".join(f"{name} {least:.7g}..{most:.7g}" for name, (least, most) in found.items())
