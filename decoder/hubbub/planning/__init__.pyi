# What others may use of hubbub.planning; each name is imported when it is first used.

from hubbub.planning.amplification import (
    amplify as amplify,
    blanket_delta as blanket_delta,
    blanket_epsilon as blanket_epsilon,
    central_epsilon as central_epsilon,
    clone_delta as clone_delta,
    mean_positive_part as mean_positive_part,
    smallest_epsilon as smallest_epsilon,
)
from hubbub.planning.catalogue import INDEX as INDEX, pages as pages
from hubbub.planning.categories import (
    MOST_CELLS as MOST_CELLS,
    CategoriesGoal as CategoriesGoal,
    categories_goal as categories_goal,
    table_goal as table_goal,
)
from hubbub.planning.cells import (
    TEST_LEVEL as TEST_LEVEL,
    CellErrors as CellErrors,
    expected_total_variation as expected_total_variation,
    partner_table as partner_table,
    typical_table as typical_table,
)
from hubbub.planning.differences import (
    DifferenceGoal as DifferenceGoal,
    difference_goal as difference_goal,
)
from hubbub.planning.goals import (
    Goal as Goal,
    Plan as Plan,
    PlanSearch as PlanSearch,
    Schedule as Schedule,
    entry_text as entry_text,
)
from hubbub.planning.histories import (
    LifetimeBudget as LifetimeBudget,
    any_history_epsilon as any_history_epsilon,
    constant_epsilon as constant_epsilon,
    link_information as link_information,
    linked_clients as linked_clients,
    logsums as logsums,
    most_periods as most_periods,
    permanent_known as permanent_known,
    reports_to_know as reports_to_know,
    right_links as right_links,
    same_times_epsilon as same_times_epsilon,
    share_of_ones as share_of_ones,
    value_ratio as value_ratio,
)
from hubbub.planning.limits import (
    DetectionMethod as DetectionMethod,
    DetectionTest as DetectionTest,
    Information as Information,
    coin_variance as coin_variance,
    corrected as corrected,
    detection_limit as detection_limit,
    detection_power as detection_power,
    fewest_cohorts as fewest_cohorts,
    reports_needed as reports_needed,
    string_errors as string_errors,
)
from hubbub.planning.noise import (
    Budget as Budget,
    NoiseRates as NoiseRates,
    common_rates as common_rates,
    count_variance as count_variance,
    exact_chance as exact_chance,
    exact_params as exact_params,
    hybrid_variance as hybrid_variance,
    oue_variance as oue_variance,
    paper_within as paper_within,
    params_within as params_within,
    rare_rate as rare_rate,
    subset_of as subset_of,
    subset_params as subset_params,
    subset_variance as subset_variance,
    subset_within as subset_within,
    widest_variance as widest_variance,
    window_of as window_of,
    window_params as window_params,
    window_within as window_within,
    worst_variance as worst_variance,
)
from hubbub.planning.privacy import (
    PlanAssumptions as PlanAssumptions,
    PrivacyFigure as PrivacyFigure,
    group_figures as group_figures,
    metric_figures as metric_figures,
    registry_figures as registry_figures,
)
from hubbub.planning.search import (
    against_epsilon as against_epsilon,
    against_reports as against_reports,
    evaluate as evaluate,
    make_plan as make_plan,
    plan as plan,
    reports_for as reports_for,
)
from hubbub.planning.strings import (
    PLAIN as PLAIN,
    UNKNOWN_LENGTH as UNKNOWN_LENGTH,
    Letters as Letters,
    OpenGoal as OpenGoal,
    StringsGoal as StringsGoal,
    choose_steps as choose_steps,
    of_corpus as of_corpus,
    open_test as open_test,
)
