"""The series of a collector that has just started, and what makes each alert fire."""

from deploy_files import series_in
from factories import make_metric, make_registry
from hubbub.collector import Metrics, Publisher
from hubbub.reporting import END_CODES
from hubbub.storage import STEPS

REQUESTS = 'hubbub_requests_total{reason="%s",status="%s"}'
REPORTS = 'hubbub_reports_total{metric="homepage",version="1"}'
SUCCESS = 'hubbub_upkeep_last_success_timestamp_seconds{task="%s"}'
EXPIRY = 'hubbub_expiry_timestamp_seconds{name="main",type="%s"}'
BUILD = 'hubbub_build_info{registry="%s",schema="1",version="1"}'
GROWING = {
    REQUESTS % ("stored", 201): 100,
    REPORTS: 1000,
    SUCCESS % "merge": 300,
    SUCCESS % "mix": 300,
}
"""What grows in five minutes while all is well; these tests' clock begins at 0, as upkeeps do."""
FACTS: dict[tuple[str, ...], float] = {
    ("build_info", "1", "1", "a"): 1.0,
    ("expiry_timestamp_seconds", "ingest_key", "main"): 1e9,
    ("store_size_bytes",): 1e9,
    ("store_free_bytes",): 1e12,
    ("unmixed_days",): 0.0,
    ("slices", "homepage", "1"): 0.0,
    **{("registry_findings", code): 0.0 for code in END_CODES},
}
FAULTS: dict[str, dict[str, float | str]] = {
    "HubbubDown": {'up{job="hubbub-collector"}': 0},
    "HubbubFailing": {REQUESTS % ("store", 503): "0+5x"},
    "HubbubShedding": {'hubbub_shed_total{reason="shed_bytes"}': "0+600x"},
    "HubbubRefusing": {REQUESTS % ("key_expired", 401): "0+50x"},
    "HubbubKeyRefused": {'hubbub_key_refusals_total{key="a",reason="quota"}': "0+10x"},
    "HubbubCommitsSlow": {'hubbub_commit_seconds_bucket{le="+Inf"}': "0+9x"},
    "HubbubAnswersSlow": {'hubbub_request_seconds_bucket{le="+Inf"}': "0+9x"},
    "HubbubUpkeepStuck": {SUCCESS % "merge": 0},
    "HubbubUpkeepFailing": {'hubbub_upkeep_runs_total{result="failed",task="merge"}': "0+1x"},
    "HubbubIdsNotForgotten": {SUCCESS % "mix": 0},
    "HubbubDaysNotMixed": {"hubbub_unmixed_days": 2},
    "HubbubKeyEnds": {EXPIRY % "ingest_key": 20 * 86_400},
    "HubbubMetricEnds": {'hubbub_registry_findings{code="metric_expires_soon"}': 1},
    "HubbubVersionsDiffer": {BUILD % "b": 1},
    "HubbubReloadFailed": {"hubbub_reload_failing": 1},
    "HubbubReportsImprobable": {'hubbub_improbable_reports_total{metric="homepage"}': "0+2x"},
    "HubbubManyDuplicates": {REQUESTS % ("duplicate", 200): "0+50x"},
    "HubbubNothingArrives": dict.fromkeys((REQUESTS % ("stored", 201), REPORTS), 0),
    "HubbubUnknownMetrics": {REQUESTS % ("unregistered", 422): "0+1x"},
    "HubbubManySlices": {'hubbub_slices{metric="homepage",version="1"}': 300},
    "HubbubStoreLarge": {"hubbub_store_size_bytes": 60e9},
    "HubbubDiskFull": {"hubbub_store_free_bytes": 1e9},
}
"""What makes each alert fire, and no other."""


def published():
    """Return the series of a collector that has just started."""
    metrics = Metrics()
    metrics.begin(make_registry(make_metric(name="homepage")), ["a"], STEPS)
    publisher = Publisher(metrics)
    publisher.facts = FACTS
    return series_in(publisher.exposition()[0].decode())
