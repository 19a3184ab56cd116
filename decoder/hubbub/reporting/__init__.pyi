# What others may use of hubbub.reporting; each name is imported when it is first used.

from hubbub.reporting.categories import (
    categories_estimates as categories_estimates,
    category_findings as category_findings,
    number_findings as number_findings,
    numbers_estimates as numbers_estimates,
)
from hubbub.reporting.charts import (
    Chart as Chart,
    HeatMap as HeatMap,
    IntervalChart as IntervalChart,
    Labels as Labels,
    Series as Series,
    TimeSeries as TimeSeries,
    XYChart as XYChart,
)
from hubbub.reporting.command_line import (
    STDOUT as STDOUT,
    Day as Day,
    LazyGroup as LazyGroup,
    Number as Number,
    WithHeadings as WithHeadings,
    atomic_write as atomic_write,
    cli_errors as cli_errors,
    only_files as only_files,
    pass_counter as pass_counter,
    progress_bar as progress_bar,
    refuse_place as refuse_place,
    whole_number as whole_number,
)
from hubbub.reporting.comparison import (
    comparison_estimates as comparison_estimates,
    ratio_finding as ratio_finding,
)
from hubbub.reporting.drawings import draw as draw
from hubbub.reporting.estimates import (
    CHUNK as CHUNK,
    Block as Block,
    Column as Column,
    Estimates as Estimates,
    Heading as Heading,
    Line as Line,
    Page as Page,
    Section as Section,
    Table as Table,
    Types as Types,
    as_facts as as_facts,
    as_lines as as_lines,
    headings as headings,
    table_of as table_of,
)
from hubbub.reporting.findings import (
    END_CODES as END_CODES,
    NOTHING_ASKED as NOTHING_ASKED,
    SOON_DAYS as SOON_DAYS,
    Finding as Finding,
    Level as Level,
    metric_warning as metric_warning,
    registry_ends as registry_ends,
)
from hubbub.reporting.html import write_html as write_html
from hubbub.reporting.joint import joint_estimates as joint_estimates
from hubbub.reporting.open_strings import (
    open_estimates as open_estimates,
    open_findings as open_findings,
    prefix_text as prefix_text,
)
from hubbub.reporting.strings import (
    COLUMNS as COLUMNS,
    mass_interval as mass_interval,
    string_findings as string_findings,
    strings_estimates as strings_estimates,
)
from hubbub.reporting.text import (
    columns as columns,
    shortened as shortened,
    show as show,
    stdout_console as stdout_console,
    visible as visible,
)
from hubbub.reporting.trends import (
    side_by_side as side_by_side,
    trends_estimates as trends_estimates,
)
from hubbub.reporting.wording import (
    BOOLEAN as BOOLEAN,
    Provenance as Provenance,
    Source as Source,
    anomaly_findings as anomaly_findings,
    certainty as certainty,
    counts_source as counts_source,
    days_text as days_text,
    file_source as file_source,
    misfit_findings as misfit_findings,
    overlooked_finding as overlooked_finding,
    parameters_digest as parameters_digest,
    percent as percent,
    strings_source as strings_source,
)
from hubbub.reporting.writers import (
    check_output_option as check_output_option,
    csv_cell as csv_cell,
    write_csv as write_csv,
    write_files as write_files,
    write_json as write_json,
    write_parquet as write_parquet,
    write_results as write_results,
)
