# What others may use of hubbub.planning; each name is imported when it is first used.

from hubbub.planning.amplification import (
    amplified_epsilon as amplified_epsilon,
    blanket_delta as blanket_delta,
    blanket_epsilon as blanket_epsilon,
    central_epsilon as central_epsilon,
    mean_positive_part as mean_positive_part,
)
from hubbub.planning.catalogue import INDEX as INDEX, pages as pages
from hubbub.planning.categories import (
    MOST_CELLS as MOST_CELLS,
    CategoriesGoal as CategoriesGoal,
    categories_goal as categories_goal,
    table_goal as table_goal,
)
from hubbub.planning.differences import PlannedComparison as PlannedComparison
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
    most_periods as most_periods,
    permanent_known as permanent_known,
    reports_to_know as reports_to_know,
    same_times_epsilon as same_times_epsilon,
    share_of_ones as share_of_ones,
    value_ratio as value_ratio,
)
from hubbub.planning.limits import (
    DetectionTest as DetectionTest,
    cells_error as cells_error,
    coin_variance as coin_variance,
    corrected as corrected,
    detection_limit as detection_limit,
    detection_power as detection_power,
    fewest_cohorts as fewest_cohorts,
    string_errors as string_errors,
)
from hubbub.planning.noise import (
    Budget as Budget,
    NoiseRates as NoiseRates,
    common_rates as common_rates,
    exact_chance as exact_chance,
    exact_params as exact_params,
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
    open_test as open_test,
)
