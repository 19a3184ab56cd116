# What others may use of hubbub.storage; each name is imported when it is first used.

from hubbub.storage.database import (
    DayTable as DayTable,
    id_table as id_table,
    segment_row as segment_row,
)
from hubbub.storage.errors import (
    MissingFileError as MissingFileError,
    ReportFileError as ReportFileError,
    StorageError as StorageError,
    StoreError as StoreError,
    mask as mask,
    mask_address as mask_address,
)
from hubbub.storage.exports import (
    MANIFEST as MANIFEST,
    SCHEME as SCHEME,
    ParquetReader as ParquetReader,
    Partition as Partition,
    ReportFile as ReportFile,
    check_made_so as check_made_so,
    commit as commit,
    deleted_meanwhile as deleted_meanwhile,
    export_partitions as export_partitions,
    plan_export as plan_export,
    report_file as report_file,
    report_files as report_files,
    require_reports as require_reports,
    write_day as write_day,
)
from hubbub.storage.importing import (
    CHUNK_BYTES as CHUNK_BYTES,
    Imported as Imported,
    find_sources as find_sources,
    import_file as import_file,
)
from hubbub.storage.locations import (
    SCHEMES as SCHEMES,
    Address as Address,
    Location as Location,
    open_unpacked as open_unpacked,
    resolve as resolve,
    storage_errors as storage_errors,
)
from hubbub.storage.maintenance import (
    JUMP as JUMP,
    STEPS as STEPS,
    Maintenance as Maintenance,
    running_maintenance as running_maintenance,
)
from hubbub.storage.parquet import (
    open_parquet as open_parquet,
    read_columns as read_columns,
    read_counts_file as read_counts_file,
    read_records as read_records,
    require_pyarrow as require_pyarrow,
    row_groups as row_groups,
    write_records as write_records,
)
from hubbub.storage.postgresql import LOCK_ALL_DAYS as LOCK_ALL_DAYS
from hubbub.storage.reading import (
    SCHEMA_VERSION as SCHEMA_VERSION,
    Reader as Reader,
    read_sqlite as read_sqlite,
)
from hubbub.storage.reports import (
    Cell as Cell,
    DayCount as DayCount,
    Declared as Declared,
    MetricVersion as MetricVersion,
    NewBatch as NewBatch,
    SliceSizes as SliceSizes,
    StoredCounts as StoredCounts,
    StoredRecords as StoredRecords,
    Where as Where,
    pools as pools,
    values_of as values_of,
)
from hubbub.storage.shuffling import BulkShuffle as BulkShuffle
from hubbub.storage.sqlite import LOG_BYTES as LOG_BYTES
from hubbub.storage.store import (
    DATABASES as DATABASES,
    Store as Store,
    backup_store as backup_store,
    open_store as open_store,
    why_to_wait as why_to_wait,
)
