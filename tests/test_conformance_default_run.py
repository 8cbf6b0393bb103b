"""What a run without `--strict all` fails: all wrong implementations but those that break only a rule of this project.

The table of rules stands in docs/conformance.md, too.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from conformance.case import Basis, Case
from conformance.coverage.measure import decisive, failing
from conformance.coverage.values import ranges
from conformance.mutants import MUTANTS
from conformance.vectors import collect

DOCS = Path(__file__).parent.parent / "docs" / "conformance.md"


class Rule(NamedTuple):
    """A rule of this project that no text implies.

    pattern: found in the ids of its cases; the first rule whose pattern is found counts.
    lives: the wrong implementations that break it and nothing else.
    """

    words: str
    pattern: str
    lives: str


RULES = (
    Rule(
        "Invalid data and attributes are refused",
        r"/refusal/",
        """
        roi_align:UnknownModeIsMax roi_align:CaseOfModesIgnored roi_align:UnknownCoordinatesAreOutputHalfPixel
        roi_align:NegativeRatioIsAdaptive roi_align:EmptyOutputTaken roi_align:ScaleUnchecked
        roi_align:RoisUnchecked roi_align:NaNAloneRefused roi_align:FiveNumbersTaken
        roi_align:MoreIndicesTaken roi_align:NoPixelsTaken roi_align:XOfAnotherShapeTaken
        roi_align:NegativeIndexWraps roi_align:IndexNTaken roi_align:IndexIn32Bits
        dml_roi_align:RegionIndexSigned dml_roi_align:MapNotNeeded dml_roi_align:LimitsExchanged
        dml_roi_align:LeadingAxesOfNothingTaken dml_roi_align:NegativeRegionIndexWraps
        dml_roi_align:RegionIndexNTaken dml_roi_align:RegionIndexIn32Bits
        dml_roi_align:RegionAttributesUnchecked dml_resample:ResampleAttributesUnchecked
        dml_resample:IntegersTaken dml_resample:FloatShapeTaken dml_resample:NoPixelsAre0
        roi_align_rotated:NegativeIndexWraps roi_align_rotated:IndexNTaken roi_align_rotated:IndexIn32Bits
        roi_align_rotated:AlignedUnchecked roi_align_rotated:ClockwiseUnchecked
        roi_align_rotated:NegativeRatioIsAdaptive roi_align_rotated:LargeRatioTaken
        roi_align_rotated:RatioIn32Bits roi_align_rotated:EmptyOutputTaken roi_align_rotated:ScaleUnchecked
        roi_align_rotated:RoisUnchecked roi_align_rotated:NaNAloneRefused roi_align_rotated:AnglesUnchecked
        roi_align_rotated:FourNumbersTaken roi_align_rotated:SixNumbersTaken
        roi_align_rotated:MoreIndicesTaken roi_align_rotated:XOfAnotherShapeTaken max_roi_pool:BatchIdCut
        max_roi_pool:BatchIdRounded max_roi_pool:NegativeIdWraps max_roi_pool:IdNTaken max_roi_pool:NaNIdTaken
        max_roi_pool:AttributesUnchecked max_roi_pool:OneNumberTaken max_roi_pool:ThirdNumberIgnored
        max_roi_pool:NoScaleIsOne max_roi_pool:NegativeScaleTaken max_roi_pool:InfiniteRoisTaken
        max_roi_pool:NaNRoisTaken max_roi_pool:FourNumbersTaken max_roi_pool:IntegersTaken
        max_roi_pool:OtherTypesTaken max_roi_pool:NoPixelsAre0 max_roi_pool:NoBinsTaken
        max_roi_pool:OtherChannelsTaken max_roi_pool:OtherRoisTaken
        """,
    ),
    Rule(
        "The maximum of NaN and other numbers is NaN",
        r"/(nan|nan_before_infinity|nan_at_\d_\d|nan_in_a_sample|(several_)?nan(_among_samples)?)/",
        """
        roi_align:NaNLoses roi_align:NaNWinsIfFirst roi_align:SeveralNaNLose roi_align:LastNaNWins
        dml_roi_align:NaNLoses dml_roi_align:NaNWinsIfFirst dml_roi_align:SeveralNaNLose
        dml_roi_align:LastNaNWins max_roi_pool:LastNaNWins
        """,
    ),
    Rule(
        "The mode `max_interpolated`, which ONNX lacks",
        r"^roi_align\w*/.*max_interpolated|/max_winner_at_",
        "roi_align:InterpolatedIsMax roi_align:InterpolatedFromZero",
    ),
    Rule(
        "The first of several equal pixels or samples gets the gradient of a maximum",
        r"^(dml_)?roi_align_grad/edge/max_(\w*tie|first_)|^max_roi_pool_grad/"
        r"(edge/(tie_|all_equal|minus|zeros)|matrix/ties|values/(large|tiny|\w*subnormal|\w*everywhere))",
        """
        roi_align:TieShared roi_align:TieToTheLast roi_align:TieDownTheColumns dml_roi_align:DmlTieToTheLast
        dml_roi_align:DmlTieDownTheColumns max_roi_pool:TieToTheLast max_roi_pool:TieToTheLastColumn
        max_roi_pool:TieToTheLastRow max_roi_pool:TieDownTheColumns max_roi_pool:TiesAll
        max_roi_pool:TiesShare
        """,
    ),
    Rule(
        "The slope at the first pixel, and at a size of exactly 1, where it jumps",
        r"/(sample_at_the_first_pixel|drois_of_a_size_of_1)/",
        "roi_align:SlopeAt0Wrong roi_align_rotated:SlopeAt0Wrong",
    ),
    Rule(
        "DirectML: the border of the map, pixels with weight 0, and samples at corners with offsets",
        r"^dml_roi_align\w*/(edge/(border|past|nearest_past|corners_)|matrix/(half_out|larger|one_|no_ext|.*/corners/))"
        r"|^dml_resample\w*/edge/(one_tap|infinite_gradient_on)",
        "dml_roi_align:BordersOutside dml_resample:GradientToBothPixels",
    ),
    Rule(
        "DirectML: of two equally near pixels RoiAlign reads the later one",
        r"^dml_roi_align\w*/edge/nearest_tie",
        "dml_roi_align:TieGoesToEven",
    ),
    Rule(
        "DirectML: empty tensors are valid",
        r"^dml_roi_align\w*/empty/",
        """
        dml_roi_align:NoChannelsOfAMapRefused dml_roi_align:NoPixelsOfAMapRefused
        dml_roi_align:NoImagesOfAMapRefused
        """,
    ),
    Rule(
        "MaxRoiPool: ends at halves, swapped, beyond 2^31 pixels or scaled to one in float32",
        r"^max_roi_pool\w*/(edge/(half_|one_and|second_end|inverted|ends_|scaled_)|matrix/(halves|swapped))",
        """
        max_roi_pool:HalvesToEven max_roi_pool:HalvesTowards0 max_roi_pool:InvertedIsEmpty
        max_roi_pool:InvertedIsOrdered max_roi_pool:InvertedAtItsSecondEnd max_roi_pool:InvertedOnBothAxes
        max_roi_pool:EndsUnlimited max_roi_pool:EndsUpTo31Bits max_roi_pool:EndsWrap
        max_roi_pool:FarEndsRefused max_roi_pool:ScaleInTheTensorsType max_roi_pool:HugeRefused
        """,
    ),
    Rule(
        "MaxRoiPool: the bounds of bins are exact",
        r"^max_roi_pool\w*/(edge/(exact_start|huge)|matrix/(\d+_bins|huge))",
        "max_roi_pool:BinsInDouble",
    ),
    Rule(
        "Rotated RoIs of negative width or height are mirrored, or have no samples",
        r"^roi_align_rotated\w*/\w+/(negative|mirrored|drois_of_a_negative)",
        """
        roi_align_rotated:NegativeSizesAre0 roi_align_rotated:Ratio0OfTheAbsoluteSize
        """,
    ),
)


@functools.cache
def rule_of(case: Case) -> str | None:
    """The words of the first rule to which a case of this project's own authority belongs."""
    return next((rule.words for rule in RULES if re.search(rule.pattern, case.id)), None)


def lives() -> dict[str, str]:
    """The wrong implementations that a default run does not fail, each with the rule that it breaks."""
    return {name: rule.words for rule in RULES for name in rule.lives.split()}


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


@pytest.mark.slow
@pytest.mark.parametrize("operators", dict.fromkeys(mutant.operators for mutant in MUTANTS))
def test_a_default_run_fails_every_wrong_implementation_but_those_of_a_rule(operators: str) -> None:
    found = {}
    for mutant in MUTANTS:
        if mutant.operators == operators:
            cases = decisive(mutant, collect())
            if not any(failing(mutant.backend, [case for case in cases if case.basis is not Basis.OURS])):
                own = [case for case in cases if case.basis is Basis.OURS and rule_of(case) == lives().get(mutant.name)]
                found[mutant.name] = any(failing(mutant.backend, own))
    assert found == {name: True for name in lives() if name.startswith(f"{operators}:")}


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
