# SPDX-License-Identifier: MIT
"""The rules of this project that no text implies, and the mutants that break nothing else: a default run passes them.

`docs/conformance.md` has them as a table.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import NamedTuple

from conformance.case import Basis, Case
from conformance.cases import collect
from conformance.families import all_mutants, families


class Rule(NamedTuple):
    """A rule of this project that no text implies.

    pattern: found in the ids of its cases; the first rule whose pattern is found counts.
    lives: the mutants that break it and nothing else.
    """

    words: str
    pattern: str
    lives: str


RULES = (
    Rule(
        "Invalid data and attributes are refused",
        r"/refusal/",
        """
        roi_align:AttributesUnchecked roi_align:CaseOfModesIgnored
        roi_align:UnknownCoordinatesAreOutputHalfPixel roi_align:NegativeRatioIsAdaptive
        roi_align:EmptyOutputTaken roi_align:ScaleUnchecked roi_align:RoisUnchecked
        roi_align:NumberTooManyTaken roi_align:MoreIndicesTaken roi_align:NoPixelsAre0
        roi_align:NegativeIndexWraps roi_align:IndexNTaken roi_align:IndexIn32Bits
        dml_roi_align:RegionIndexSigned dml_roi_align:MapNotNeeded dml_roi_align:LimitsExchanged
        dml_roi_align:NegativeIndexWraps dml_roi_align:NoPixelsAre0 dml_roi_align:ScaleUnchecked
        roi_align_rotated:AttributesUnchecked max_roi_pool:ScaleUnchecked dml_roi_align:IndexNTaken
        dml_roi_align:IndexIn32Bits dml_roi_align:AttributesUnchecked
        dml_resample:AttributesUnchecked dml_resample:IntegersTaken dml_resample:FloatShapeTaken
        dml_resample:NoPixelsAre0 roi_align_rotated:NegativeIndexWraps roi_align_rotated:IndexNTaken
        roi_align_rotated:NoPixelsAre0 roi_align_rotated:IndexIn32Bits roi_align_rotated:AlignedUnchecked
        roi_align_rotated:NegativeRatioIsAdaptive roi_align_rotated:EmptyOutputTaken
        roi_align_rotated:ScaleUnchecked roi_align_rotated:RoisUnchecked
        roi_align_rotated:AnglesUnchecked roi_align_rotated:FourNumbersTaken
        roi_align_rotated:NumberTooManyTaken roi_align_rotated:MoreIndicesTaken
        max_roi_pool:BatchIdCut max_roi_pool:NegativeIndexWraps max_roi_pool:IndexNTaken
        max_roi_pool:NaNIdTaken max_roi_pool:AttributesUnchecked max_roi_pool:OneNumberTaken
        max_roi_pool:InfiniteRoisTaken max_roi_pool:FourNumbersTaken max_roi_pool:IntegersTaken
        max_roi_pool:OtherTypesTaken max_roi_pool:NoPixelsAre0 max_roi_pool:NoBinsTaken
        ps_roi_align:RemainderIgnored ms_deform_attn:SizesUnchecked ms_deform_attn:LevelsUnchecked
        ms_deform_attn:RestIgnored ms_deform_attn:WrappedSizes ms_deform_attn:OverlapsNotCounted ms_deform_attn:LevelsCounted
        grid_sample:AttributesUnchecked grid_sample:OneGridForAll
        grid_sample:NoPixelsAre0
        """,
    ),
    Rule(
        "The maximum of NaN and other numbers is NaN",
        r"/(nan|nan_before_infinity|nan_at_\d_\d|nan_in_a_sample|(several_)?nan(_among_samples)?)/",
        """
        roi_align:NaNLoses roi_align:NaNWinsIfFirst dml_roi_align:NaNLoses
        dml_roi_align:NaNWinsIfFirst max_roi_pool:LastNaNWins
        """,
    ),
    Rule(
        "The mode `max_interpolated`, which ONNX lacks",
        r"^roi_align\w*/.*max_interpolated|/max_winner_at_",
        "roi_align:InterpolatedIsMax",
    ),
    Rule(
        "The first of several equal pixels or samples gets the gradient of a maximum",
        r"^(dml_)?roi_align_grad/edge/max_(\w*tie|first_)|^max_roi_pool_grad/"
        r"(edge/(tie_|all_equal|minus|zeros)|matrix/ties|values/(large|tiny|\w*subnormal|\w*everywhere))",
        """
        roi_align:TieToTheLast dml_roi_align:TieToTheLast max_roi_pool:TieToTheLast max_roi_pool:TiesShare
        roi_align:OutsideLosesTies dml_roi_align:OutsideLosesTies
        """,
    ),
    Rule(
        "The slope at the first pixel, and at a size of exactly 1, where it jumps",
        r"/(sample_at_the_first_pixel|drois_of_a_size_of_1)/",
        "roi_align:SlopeAt0Wrong roi_align_rotated:SlopeAt0Wrong",
    ),
    Rule(
        "An average is in range although the sum of its samples is beyond float32",
        r"/(negative_)?sum_overflows/",
        "roi_align:SumsOverflowFloat dml_roi_align:SumsOverflowFloat roi_align_rotated:SumsOverflowFloat",
    ),
    Rule(
        "Two threads may run one session at once",
        r"/session/two_threads/",
        """
        roi_align:InputsOfAnotherThread dml_roi_align:InputsOfAnotherThread max_roi_pool:InputsOfAnotherThread
        roi_align_rotated:InputsOfAnotherThread dml_resample:InputsOfAnotherThread
        ms_deform_attn:InputsOfAnotherThread grid_sample:InputsOfAnotherThread
        """,
    ),
    Rule(
        "DirectML: the border of the map, pixels with weight 0, and samples at corners with offsets",
        r"^dml_roi_align\w*/(edge/(border|past|nearest_past|corners_)|matrix/(half_out|larger|one_|no_ext|.*/corners/))"
        r"|^dml_resample\w*/edge/(one_tap|infinite_gradient_on)",
        "dml_roi_align:LengthOutside dml_resample:GradientToBothPixels",
    ),
    Rule(
        "DirectML: of two equally near pixels RoiAlign reads the later one",
        r"^dml_roi_align\w*/edge/nearest_tie",
        "dml_roi_align:TieGoesToEven",
    ),
    Rule(
        "DirectML: empty tensors are valid",
        r"^dml_roi_align\w*/empty/",
        "dml_roi_align:NoChannelsRefused",
    ),
    Rule(
        "MaxRoiPool: ends at halves, swapped, beyond 2^31 pixels or scaled to one in float32",
        r"^max_roi_pool\w*/(edge/(half_|one_and|second_end|inverted|ends_|scaled_)|matrix/(halves|swapped))",
        """
        max_roi_pool:HalvesToEven max_roi_pool:InvertedIsEmpty max_roi_pool:EndsOrdered
        max_roi_pool:EndsWrap max_roi_pool:FarEndsRefused max_roi_pool:ScaleInTheTensorsType
        max_roi_pool:HugeRefused
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
        "roi_align_rotated:NegativeSizesAre0 roi_align_rotated:Ratio0OfTheAbsoluteSize",
    ),
    Rule(
        "GridSample: border moves each pixel of a cubic location, and not the location",
        r"^grid_sample\w*/(edge/cubic_border_beyond|matrix/cubic_border)",
        "grid_sample:CubicBorderOfLocations",
    ),
    Rule(
        "GridSample: a coordinate that is NaN is off the map, and all pixels off a map of one pixel are that pixel",
        r"^grid_sample\w*/edge/(nan_location|one_pixel_reflected)",
        "",
    ),
    Rule(
        "Deformable attention: weights that are infinite or NaN multiply samples, also off the map, and not pixels",
        r"^ms_deform_attn/published/(infinite_weight|nan_weight_off)",
        "ms_deform_attn:WeightsOnPixels ms_deform_attn:OffTheMapSkipped",
    ),
)


@functools.cache
def rule_of(case: Case) -> str | None:
    """The words of the first rule to which a case of this project's own authority belongs."""
    return next((rule.words for rule in RULES if re.search(rule.pattern, case.id)), None)


@functools.cache
def lives() -> dict[str, str]:
    """The mutants that a default run does not fail, each with the rule that it breaks; those by analogy follow."""
    named = {name: rule.words for rule in RULES for name in rule.lives.split()}
    others = {
        mutant.name: f"{family.like}:{mutant.short_name}" for family in families() for mutant in family.mutants.values()
    }
    return named | {name: named[other] for name, other in others.items() if other in named}


def counted(text: str) -> str:
    """A document with the numbers of cases and mutants as they are: in its sentences and in the table of rules."""
    every = collect()
    cases = Counter(rule_of(case) for case in every if case.basis is Basis.OURS)
    text = re.sub(r"(suite\s+of|asks it) \d+ ((small )?cases)", rf"\1 {len(every)} \2", text)
    count = len(all_mutants())
    share = f"{count - len(lives())} of {count}"
    text = re.sub(r"\b(rejects|fails) \d+ of \d+( deliberately| wrong)", rf"\1 {share}\2", text)
    text = re.sub(r"has \d+ \*wrong implementations\*", f"has {count} *wrong implementations*", text)
    broken = Counter(lives().values())
    rows = [f"| {rule.words} | {cases[rule.words]} | {broken[rule.words]} |" for rule in RULES]
    table = re.compile(r"(\| rule \| cases \| .*\n\| .*\n)(?:\|.*\n)+")
    return table.sub(lambda match: match[1] + "\n".join(rows) + "\n", text)
