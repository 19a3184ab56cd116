# What others may use of hubbub.protocol; each name is imported when it is first used.

from collections.abc import Callable

from hubbub.protocol.checks import (
    NAME_PATTERN as NAME_PATTERN,
    ascending_integers as ascending_integers,
    is_metric_name as is_metric_name,
    metric_name as metric_name,
)
from hubbub.protocol.commands import (
    begin_command as begin_command,
    explain_missing_packages as explain_missing_packages,
)
from hubbub.protocol.dimensions import (
    LONGEST_SLICE as LONGEST_SLICE,
    MIN_REPORTS as MIN_REPORTS,
    MOST_SLICES as MOST_SLICES,
    OTHER as OTHER,
    Dimension as Dimension,
    is_slice as is_slice,
    longest_slice as longest_slice,
    parse_slice as parse_slice,
    pooled as pooled,
    read_dimensions as read_dimensions,
    slice_of as slice_of,
)
from hubbub.protocol.errors import (
    CompactError as CompactError,
    EncodingError as EncodingError,
    ForgottenError as ForgottenError,
    HubbubError as HubbubError,
    MetricError as MetricError,
    Option as Option,
    OptionError as OptionError,
    OtherApplicationError as OtherApplicationError,
    ParameterError as ParameterError,
    RecordsError as RecordsError,
    StateError as StateError,
    SwitchError as SwitchError,
    TooManyReportsError as TooManyReportsError,
    UnavailableError as UnavailableError,
    UnknownCategoryError as UnknownCategoryError,
    UnknownMetricError as UnknownMetricError,
    counted as counted,
)
from hubbub.protocol.keys import (
    ADDRESS as ADDRESS,
    MOST_VERSION as MOST_VERSION,
    REQUIRED as REQUIRED,
)
from hubbub.protocol.metric_types import METRIC_TYPES as METRIC_TYPES
from hubbub.protocol.metric_types.base import (
    ListedValues as ListedValues,
    MetricType as MetricType,
    Value as Value,
    normal_form as normal_form,
)
from hubbub.protocol.metric_types.joint import (
    FEWEST_FIELDS as FEWEST_FIELDS,
    MOST_FIELDS as MOST_FIELDS,
    RESULT_COLUMNS as RESULT_COLUMNS,
    Field as Field,
    FieldType as FieldType,
    JointType as JointType,
    number_of_values as number_of_values,
)
from hubbub.protocol.metric_types.one_hot import (
    BooleanType as BooleanType,
    EnumType as EnumType,
    NumberType as NumberType,
    OrdinalType as OrdinalType,
    bucket_bounds as bucket_bounds,
    bucket_label as bucket_label,
)
from hubbub.protocol.metric_types.strings import (
    LONGEST_STEP as LONGEST_STEP,
    MAX_VALUE_BYTES as MAX_VALUE_BYTES,
    MOST_STEPS as MOST_STEPS,
    TERMINATOR as TERMINATOR,
    OpenStringType as OpenStringType,
    StringType as StringType,
    bit_positions as bit_positions,
    bloom_bits as bloom_bits,
    byte_positions as byte_positions,
    canonical_bytes as canonical_bytes,
    hash_words as hash_words,
)
from hubbub.protocol.metrics import (
    MAX_PERIODS as MAX_PERIODS,
    MAX_VALUES as MAX_VALUES,
    SECONDS_A_DAY as SECONDS_A_DAY,
    UNARY as UNARY,
    Memory as Memory,
    Metric as Metric,
    Mode as Mode,
    Response as Response,
    Subset as Subset,
    Window as Window,
    most_answers as most_answers,
    response_of as response_of,
)
from hubbub.protocol.params import (
    COHORT_BYTES as COHORT_BYTES,
    MOST_BITS as MOST_BITS,
    MOST_COHORTS as MOST_COHORTS,
    RapporParams as RapporParams,
    chance_bound as chance_bound,
)
from hubbub.protocol.poisoning import (
    CohortSpread as CohortSpread,
    Repeats as Repeats,
    SetBits as SetBits,
    chance_of_repeat as chance_of_repeat,
    cohort_balance as cohort_balance,
    improbable as improbable,
    log_binomial_tails as log_binomial_tails,
    plausible_set_bits as plausible_set_bits,
    repeat_keys as repeat_keys,
    repeats_among as repeats_among,
    sample_step as sample_step,
    set_bits_distribution as set_bits_distribution,
)
from hubbub.protocol.records import (
    CohortCounts as CohortCounts,
    Columns as Columns,
    KeptCounts as KeptCounts,
    Records as Records,
    check_counts as check_counts,
    column as column,
    columns as columns,
    empty_counts as empty_counts,
    interleaved as interleaved,
    joined as joined,
    keep_columns as keep_columns,
    keep_counts as keep_counts,
    keep_none as keep_none,
    pack_counts as pack_counts,
    record_width as record_width,
    set_bits as set_bits,
    shuffled as shuffled,
    table as table,
    unpack_counts as unpack_counts,
)
from hubbub.protocol.registry import (
    Group as Group,
    Registry as Registry,
    check_compatible as check_compatible,
    describe_changes as describe_changes,
    main as main,
    registry_json as registry_json,
)
from hubbub.protocol.switch import (
    CLOCK_SKEW as CLOCK_SKEW,
    LEAST_RATE as LEAST_RATE,
    MOST_BYTES as MOST_BYTES,
    Rate as Rate,
    SigningKey as SigningKey,
    SwitchDocument as SwitchDocument,
    SwitchFile as SwitchFile,
    VerifyKey as VerifyKey,
    check_rate as check_rate,
    parse_document as parse_document,
)
from hubbub.protocol.wire import (
    COUNT_BYTES as COUNT_BYTES,
    EMPTY_BODY_BYTES as EMPTY_BODY_BYTES,
    FIXED_HEAD_BYTES as FIXED_HEAD_BYTES,
    FORMAT as FORMAT,
    HEAD_BYTES as HEAD_BYTES,
    ID_BYTES as ID_BYTES,
    LONGEST_NAME as LONGEST_NAME,
    MEDIA_TYPE as MEDIA_TYPE,
    MOST as MOST,
    MOST_BYTES_OF_BITS as MOST_BYTES_OF_BITS,
    SEPARATOR as SEPARATOR,
    Batch as Batch,
    Report as Report,
    batch_to_compact as batch_to_compact,
    batch_to_json as batch_to_json,
    json_size as json_size,
    new_batch_id as new_batch_id,
    section_head as section_head,
    section_name as section_name,
)

def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]]]: ...
