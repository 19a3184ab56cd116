# What others may use of hubbub.release; each name is imported when it is first used.

from hubbub.release.dataset import Dataset as Dataset
from hubbub.release.errors import (
    BudgetError as BudgetError,
    DataError as DataError,
    LedgerError as LedgerError,
    QueryError as QueryError,
    ReleaseError as ReleaseError,
)
from hubbub.release.ledger import Ledger as Ledger
