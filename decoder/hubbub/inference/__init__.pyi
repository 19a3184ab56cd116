# What others may use of hubbub.inference; each name is imported when it is first used.

from hubbub.inference.anomalies import (
    AnomalyDetector as AnomalyDetector,
    AnomalyReport as AnomalyReport,
    Misfit as Misfit,
    misfit as misfit,
    overlooked as overlooked,
)
from hubbub.inference.arrays import (
    BoolArray as BoolArray,
    ByteArray as ByteArray,
    FloatArray as FloatArray,
    IntArray as IntArray,
    PositionArray as PositionArray,
    WordArray as WordArray,
)
from hubbub.inference.binomial import at_most as at_most, more_than as more_than
from hubbub.inference.candidates import (
    SHORT as SHORT,
    Candidates as Candidates,
    Design as Design,
    StringTable as StringTable,
    bit_numbers as bit_numbers,
    bit_positions as bit_positions,
    canonical_forms as canonical_forms,
    distinct_positions as distinct_positions,
    first_numbers as first_numbers,
    hash_words as hash_words,
    hashed as hashed,
    joined as joined,
    make_design as make_design,
    mapped as mapped,
    of_words as of_words,
    pack_strings as pack_strings,
    positions_in as positions_in,
    repeated as repeated,
    short_hash_words as short_hash_words,
    string_offsets as string_offsets,
    words_of as words_of,
)
from hubbub.inference.categories.decoding import (
    CategoryDecoding as CategoryDecoding,
    KnownRates as KnownRates,
    OrdinalEstimates as OrdinalEstimates,
    Quantile as Quantile,
    decode_categories as decode_categories,
    estimate_ordinal as estimate_ordinal,
    known_rates as known_rates,
)
from hubbub.inference.categories.shares import (
    CategoryEstimates as CategoryEstimates,
    SubsetNoise as SubsetNoise,
    estimate_categories as estimate_categories,
    instantaneous_variance as instantaneous_variance,
    nearest_distribution as nearest_distribution,
    noise_variance as noise_variance,
    rate_covariance as rate_covariance,
)
from hubbub.inference.comparison import (
    AlwaysValid as AlwaysValid,
    Comparison as Comparison,
    FixedSample as FixedSample,
    Groups as Groups,
    ReportGroup as ReportGroup,
    SampleRatio as SampleRatio,
    SequentialTest as SequentialTest,
    ShareEstimates as ShareEstimates,
    after_marking as after_marking,
    compare_categories as compare_categories,
    compare_numbers as compare_numbers,
    compare_strings as compare_strings,
    number_scale as number_scale,
    ratio_interval as ratio_interval,
    sample_ratio as sample_ratio,
    scale_of as scale_of,
    share_scale as share_scale,
)
from hubbub.inference.counts import (
    BitEstimates as BitEstimates,
    DecodingParams as DecodingParams,
    PackedReports as PackedReports,
    ReportBlock as ReportBlock,
    check_whole as check_whole,
    count_records as count_records,
    estimate_bits as estimate_bits,
    pack as pack,
    variance_of_one as variance_of_one,
)
from hubbub.inference.decoding import (
    LIKELIHOOD as LIKELIHOOD,
    Decoding as Decoding,
    Summary as Summary,
    decode as decode,
)
from hubbub.inference.errors import (
    CandidateError as CandidateError,
    DecoderError as DecoderError,
    InputError as InputError,
    PlanError as PlanError,
    UndecodableError as UndecodableError,
)
from hubbub.inference.joint.decoding import (
    CellEstimates as CellEstimates,
    JointDecoding as JointDecoding,
    Margin as Margin,
    TableAnalysis as TableAnalysis,
    analyse_table as analyse_table,
    decode_joint as decode_joint,
    one_hot_estimates as one_hot_estimates,
    tuple_candidates as tuple_candidates,
)
from hubbub.inference.joint.table import (
    Conditional as Conditional,
    FieldLabels as FieldLabels,
    Independence as Independence,
    JointEstimates as JointEstimates,
    assess_independence as assess_independence,
    conditional as conditional,
    cramers_v as cramers_v,
    product_of as product_of,
    residuals as residuals,
    shrunk_cells as shrunk_cells,
)
from hubbub.inference.likelihood.choice import (
    FEW_DECIDE as FEW_DECIDE,
    NO_SHARE as NO_SHARE,
    TOO_LITTLE as TOO_LITTLE,
    Choice as Choice,
    Method as Method,
    expected_seconds as expected_seconds,
    is_worthwhile as is_worthwhile,
    lower_error as lower_error,
    variance_gain as variance_gain,
)
from hubbub.inference.likelihood.decoding import (
    Likelihood as Likelihood,
    decode_reports as decode_reports,
    fit_reports as fit_reports,
)
from hubbub.inference.likelihood.inference import (
    EXACT_FROM_Z as EXACT_FROM_Z,
    MOST_MEMBERS as MOST_MEMBERS,
    CellTables as CellTables,
    make_cells as make_cells,
    require_tabulable as require_tabulable,
    tabulate as tabulate,
    totals as totals,
)
from hubbub.inference.likelihood.mixture import (
    DOUBLE as DOUBLE,
    SINGLE as SINGLE,
    ReportMixture as ReportMixture,
    densities as densities,
    maximise as maximise,
    ratio_rows as ratio_rows,
    unknown_density as unknown_density,
)
from hubbub.inference.numbers import (
    NumberDecoding as NumberDecoding,
    NumberEstimates as NumberEstimates,
    NumberSummary as NumberSummary,
    cell_chances as cell_chances,
    cell_weights as cell_weights,
    decode_numbers as decode_numbers,
    estimate_numbers as estimate_numbers,
    least_second_moments as least_second_moments,
)
from hubbub.inference.open_strings.decoding import (
    FamilyDecoder as FamilyDecoder,
    OpenDecoding as OpenDecoding,
    StringTests as StringTests,
    decode_open_strings as decode_open_strings,
    family_of as family_of,
    string_tests as string_tests,
    whole_in as whole_in,
)
from hubbub.inference.open_strings.extension import Extensions as Extensions, extend as extend
from hubbub.inference.open_strings.letters import (
    END as END,
    LEAST_END as LEAST_END,
    AlphabetModel as AlphabetModel,
    alphabets as alphabets,
    contexts_at as contexts_at,
    state_after as state_after,
)
from hubbub.inference.open_strings.mixture import Mixture as Mixture, UniformModel as UniformModel
from hubbub.inference.open_strings.prefixes import (
    Prefixes as Prefixes,
    all_beginnings as all_beginnings,
)
from hubbub.inference.open_strings.search import (
    LONGEST_END as LONGEST_END,
    ROOM_A_STEP as ROOM_A_STEP,
    FoundPrefixes as FoundPrefixes,
    Proposals as Proposals,
    propose as propose,
)
from hubbub.inference.open_strings.steps import (
    RetainedPrefixes as RetainedPrefixes,
    StepReports as StepReports,
    offset_words as offset_words,
    step_reports as step_reports,
)
from hubbub.inference.parallel import cores as cores, one_thread as one_thread
from hubbub.inference.ratios import (
    Ratios as Ratios,
    bit_ratios as bit_ratios,
    cell_ratios as cell_ratios,
    filter_ratios as filter_ratios,
)
from hubbub.inference.regression.estimates import (
    CandidateEstimates as CandidateEstimates,
    PresenceTests as PresenceTests,
    constrained_shares as constrained_shares,
    correlated_bits as correlated_bits,
    estimate_all as estimate_all,
    largest_shift as largest_shift,
    limit_of_detection as limit_of_detection,
    pair_probability as pair_probability,
    threshold_z as threshold_z,
    total_share as total_share,
)
from hubbub.inference.regression.model import (
    Effects as Effects,
    Fit as Fit,
    ModelTerms as ModelTerms,
    best_of_quadratic as best_of_quadratic,
    best_without as best_without,
    estimate_excess_variance as estimate_excess_variance,
    fit_members as fit_members,
    fit_selected as fit_selected,
    unknown_column as unknown_column,
)
from hubbub.inference.regression.search import (
    SEARCHED as SEARCHED,
    Search as Search,
    SearchResult as SearchResult,
    is_short as is_short,
)
from hubbub.inference.repeated_reports import (
    ONCE as ONCE,
    ONCE_OF_REPORTS as ONCE_OF_REPORTS,
    AbsentBit as AbsentBit,
    Estimand as Estimand,
    RepeatedReports as RepeatedReports,
    RepeatSource as RepeatSource,
    most_repeats as most_repeats,
    repeats_of as repeats_of,
)
from hubbub.inference.scanning import (
    NO_GROUPS as NO_GROUPS,
    CollisionGroups as CollisionGroups,
    indistinguishable as indistinguishable,
    scan as scan,
)
from hubbub.inference.testing.hash_null import HashNull as HashNull, score_totals as score_totals
from hubbub.inference.testing.multiple_testing import (
    CONFIDENCE as CONFIDENCE,
    Z_CONFIDENCE as Z_CONFIDENCE,
    Correction as Correction,
    ErrorDistribution as ErrorDistribution,
    after_selection as after_selection,
    counted_tests as counted_tests,
    local_false_rates as local_false_rates,
    log_cutoff as log_cutoff,
    log_q_values as log_q_values,
    selection_bias as selection_bias,
    share_interval as share_interval,
    z_scores as z_scores,
)
from hubbub.inference.trends.changes import (
    LEAST_DAYS as LEAST_DAYS,
    Change as Change,
    SeriesFit as SeriesFit,
    change_log_p as change_log_p,
    fit_changes as fit_changes,
    log_exceedance_bound as log_exceedance_bound,
)
from hubbub.inference.trends.decoding import (
    DayEstimates as DayEstimates,
    Trends as Trends,
    compare_days as compare_days,
    days_with_enough as days_with_enough,
    decode_category_days as decode_category_days,
    decode_days as decode_days,
    decode_number_days as decode_number_days,
    decode_whole_days as decode_whole_days,
    follow as follow,
)
