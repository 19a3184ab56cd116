# What others may use of hubbub.simulations; each name is imported when it is first used.

from hubbub.simulations.cli import main as main, run as run
from hubbub.simulations.demo import METRICS as METRICS
from hubbub.simulations.experiments.collecting import (
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
from hubbub.simulations.experiments.experiment import (
    CollectedCounts as CollectedCounts,
    Experiment as Experiment,
    Scenario as Scenario,
    collect as collect,
    make_scenario as make_scenario,
    run_in_memory as run_in_memory,
)
from hubbub.simulations.experiments.result import (
    SimulationResult as SimulationResult,
    cell as cell,
    estimates_chart as estimates_chart,
    simulation_result as simulation_result,
)
from hubbub.simulations.experiments.scoring import (
    Coverage as Coverage,
    DecodedShares as DecodedShares,
    JointScore as JointScore,
    Score as Score,
    bands as bands,
    held_shares as held_shares,
    p_values_below as p_values_below,
    score as score,
    score_decoding as score_decoding,
    score_joint as score_joint,
    true_strength as true_strength,
)
from hubbub.simulations.experiments.tables import (
    PARTNERS as PARTNERS,
    CategoryExperiment as CategoryExperiment,
    JointExperiment as JointExperiment,
    JointOutcome as JointOutcome,
    judge_table as judge_table,
    run_categories as run_categories,
    run_joint as run_joint,
)
from hubbub.simulations.populations import (
    HASHED as HASHED,
    LISTS as LISTS,
    FieldSize as FieldSize,
    JointPopulation as JointPopulation,
    Population as Population,
    PopulationError as PopulationError,
    census_first_names as census_first_names,
    census_names as census_names,
    census_surnames as census_surnames,
    domain_names as domain_names,
    family_shares as family_shares,
    joint_population as joint_population,
    made_up as made_up,
    parse_sizes as parse_sizes,
    population_of_file as population_of_file,
)
from hubbub.simulations.simulated_clients.bernoulli import (
    TrueBits as TrueBits,
    bernoulli_bytes as bernoulli_bytes,
    bernoulli_words as bernoulli_words,
    digit_codes as digit_codes,
    keyed_bernoulli_words as keyed_bernoulli_words,
    packed_filters as packed_filters,
    true_bits as true_bits,
)
from hubbub.simulations.simulated_clients.clients import (
    Attack as Attack,
    AttackError as AttackError,
    AttackKind as AttackKind,
    Audit as Audit,
    LongitudinalClients as LongitudinalClients,
    SimulatedClients as SimulatedClients,
    as_records as as_records,
    audit_epsilon as audit_epsilon,
    choose_targets as choose_targets,
    forge as forge,
    parse_attack as parse_attack,
    reported_chances as reported_chances,
)
from hubbub.simulations.simulated_clients.population_sampler import (
    CHUNK as CHUNK,
    PopulationSample as PopulationSample,
    Reporter as Reporter,
    ReportingPlan as ReportingPlan,
    chunks as chunks,
    draw_cell_counts as draw_cell_counts,
    sample_population as sample_population,
)
from hubbub.simulations.watched import BROKEN as BROKEN, run_watched_release as run_watched_release
