# What others may use of hubbub.simulations; each name is imported when it is first used.

from hubbub.simulations.bernoulli import (
    TrueBits as TrueBits,
    bernoulli_bytes as bernoulli_bytes,
    bernoulli_words as bernoulli_words,
    digit_codes as digit_codes,
    keyed_bernoulli_words as keyed_bernoulli_words,
    packed_filters as packed_filters,
    true_bits as true_bits,
)
from hubbub.simulations.cli import main as main
from hubbub.simulations.clients import (
    LongitudinalClients as LongitudinalClients,
    SimulatedClients as SimulatedClients,
    as_records as as_records,
    forge as forge,
    reported_chances as reported_chances,
)
from hubbub.simulations.collecting import (
    Collector as Collector,
    FolderError as FolderError,
    ProcessError as ProcessError,
    UploadError as UploadError,
    listening as listening,
    report_through_clients as report_through_clients,
    running_collector as running_collector,
    serve_arguments as serve_arguments,
    start_afresh as start_afresh,
    upload_reports as upload_reports,
)
from hubbub.simulations.demo import METRICS as METRICS
from hubbub.simulations.experiment import (
    DecodedShares as DecodedShares,
    Experiment as Experiment,
    Scenario as Scenario,
    Score as Score,
    held_shares as held_shares,
    make_scenario as make_scenario,
    run_experiment as run_experiment,
    score as score,
)
from hubbub.simulations.population_sampler import (
    CHUNK as CHUNK,
    PopulationSample as PopulationSample,
    Reporter as Reporter,
    ReportingPlan as ReportingPlan,
    chunks as chunks,
    draw_cell_counts as draw_cell_counts,
    sample_population as sample_population,
)
from hubbub.simulations.populations import (
    LISTS as LISTS,
    Population as Population,
    PopulationError as PopulationError,
    census_first_names as census_first_names,
    census_names as census_names,
    census_surnames as census_surnames,
    domain_names as domain_names,
    family_shares as family_shares,
    made_up as made_up,
    population_of_file as population_of_file,
)
from hubbub.simulations.watched import BROKEN as BROKEN, run_watched_release as run_watched_release
