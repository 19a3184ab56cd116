# What others may use of hubbub.collector; each name is imported when it is first used.

from hubbub.collector.access import (
    AuthError as AuthError,
    Gate as Gate,
    Purpose as Purpose,
    Quotas as Quotas,
    generate_secret as generate_secret,
)
from hubbub.collector.cli import main as main
from hubbub.collector.cli.checking import changes as changes
from hubbub.collector.cli.stores import (
    delete as delete,
    export as export,
    import_ as import_,
    maintain as maintain,
)
from hubbub.collector.config import (
    CONFIG_VARIABLE as CONFIG_VARIABLE,
    LEAST_CHARGE as LEAST_CHARGE,
    AdminToken as AdminToken,
    ConfigError as ConfigError,
    IngestKey as IngestKey,
    Settings as Settings,
    describe as describe,
    load as load,
    to_toml as to_toml,
)
from hubbub.collector.ingest.commit import (
    MOST_ENOUGH as MOST_ENOUGH,
    Commit as Commit,
    GroupCommit as GroupCommit,
    running_group_commit as running_group_commit,
)
from hubbub.collector.ingest.reader import (
    MOST_SECTIONS_OF_SLICES as MOST_SECTIONS_OF_SLICES,
    BatchReader as BatchReader,
    CompactReader as CompactReader,
    ExpectedReports as ExpectedReports,
)
from hubbub.collector.ingest.validator import MOST_STORED as MOST_STORED, SliceLimit as SliceLimit
from hubbub.collector.operations.metrics import (
    FAMILIES as FAMILIES,
    CounterError as CounterError,
    Metrics as Metrics,
    MetricValues as MetricValues,
    forget_gauges as forget_gauges,
    share as share,
    shared_directory as shared_directory,
)
from hubbub.collector.operations.publishing import (
    Publisher as Publisher,
    RoundedCounter as RoundedCounter,
    task_statuses as task_statuses,
)
from hubbub.collector.problems import RefusalError as RefusalError, refusal as refusal
from hubbub.collector.serving.connections import (
    Connections as Connections,
    room_within as room_within,
)
from hubbub.collector.serving.service import (
    Ingest as Ingest,
    ServiceFiles as ServiceFiles,
    running_ingest as running_ingest,
)
