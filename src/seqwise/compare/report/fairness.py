"""Describes under which conditions a comparison was made, sentence by sentence; not which family is better."""

from __future__ import annotations

from pathlib import Path

from seqwise.budget import Budget
from seqwise.compare.plan.plan import Plan, get_rate_factors
from seqwise.compare.report.formatting import join_names
from seqwise.compare.report.schema import Family, Rules, Waiting
from seqwise.compare.run.jobs import Job, load_training_results
from seqwise.compare.statistics.scales import is_optimal
from seqwise.metrics.evaluation import SCORES_FILE

MIN_WAITING_SHARE = 0.1  # of the time, from which a machine is called busy; an idle one has about 1 %


def describe_rules(folder: Path, plan: Plan, families: tuple[Family, ...]) -> Rules:
    """Returns the rules of the report; `families` are those of the report."""
    budgets = plan.budgets
    return Rules(
        budget=format_budget(budgets.total, plan.unit),
        match=plan.match,
        parameters=plan.target_parameters,
        seeds=budgets.seeds,
        lr_trials=budgets.lr_trials,
        lr_trial_budget=format_budget(budgets.lr_trial, plan.unit) if budgets.lr_trials > 1 else None,
        training_budget=format_budget(budgets.training, plan.unit),
        sentences=tuple(_write_sentences(folder, plan, families)),
        tested=_describe_test(folder, plan),
    )


def format_budget(text: str, unit: str) -> str:
    """Formats a budget: "2 min", "5,000 tokens"; `unit` is what the task counts as tokens."""
    budget = Budget.parse(text)
    return f"{budget.amount:,.10g} {unit}" if budget.unit == "tokens" else str(budget)


def describe_waiting(training: list[float | None], latency: float | None) -> Waiting:
    """Returns how long processes waited for cores, with a warning if that was long; `training` is one share per run."""
    shares = [share for share in training if share is not None]
    mean = sum(shares) / len(shares) if shares else None
    shares_by_name = {"training time": mean, "latency measurement": latency}
    busy = {name: share for name, share in shares_by_name.items() if share is not None and share >= MIN_WAITING_SHARE}
    texts = [f"{100 * share:.0f} % of the {name}" for name, share in busy.items()]
    waiting = f"waiting for processor cores took {join_names(texts)}"
    text = f"The machine was busy: {waiting}. On an idle machine these times are shorter."
    return Waiting(mean, latency, text if busy else "")


def _write_sentences(folder: Path, plan: Plan, families: tuple[Family, ...]) -> list[str]:
    """Returns how the comparison was made fair."""
    return [
        "All families have the same vocabulary, the same split of the data and the same evaluation.",
        *_describe_sizes(plan, families),
        *(sentence if sentence.endswith(".") else f"{sentence}." for sentence in plan.notes),
        _describe_search(plan),
        *_list_edge_rates(plan.metric, families),
        *_describe_training_runs(folder, plan),
        "The weights of the best validation were kept.",
        _describe_test(folder, plan),
    ]


def _describe_sizes(plan: Plan, families: tuple[Family, ...]) -> list[str]:
    counts = [family.parameters for family in families if family.parameters and not family.is_baseline]
    if plan.target_parameters is not None and counts:
        excess = max(counts) / min(counts) - 1
        return [
            f"Widths that were not set were chosen for about {plan.target_parameters:,} parameters; the largest family "
            f"has {excess:.1%} more than the smallest."
        ]
    if plan.match != "parameters":
        equal = plan.unit if plan.match == "tokens" else plan.match
        return [f"Each family has its default size, or the size that was set, and spends equal {equal}."]
    return []


def _describe_search(plan: Plan) -> str:
    count = plan.budgets.lr_trials
    if count == 1:
        return "There was no learning-rate search: each family has its default rate, or the rate that was set."
    subject = "Each family" if all(map(plan.has_gradients, plan.families)) else "Each family that has a learning rate"
    factors = [f"{factor:g}" for factor in get_rate_factors(count)]
    return (
        f"{subject} was trained with {count} learning rates for {format_budget(plan.budgets.lr_trial, plan.unit)} "
        f"each, {join_names(factors)} times its default; the one with the lowest validation objective was used, of "
        "equally good ones the nearest to the default." + _describe_added_rates(plan)
    )


def _describe_added_rates(plan: Plan) -> str:
    """Names the families with a longer search, which is not part of their budget."""
    added = [f"{name} by {join_names([f'{rate:g}' for rate in rates])}" for name, rates in plan.added_rates.items()]
    if not added:
        return ""
    beyond = "beyond the budget, because the best rate was the lowest or the highest"
    return f" The search was extended {beyond}: {join_names(added)}."


def _list_edge_rates(metric: str, families: tuple[Family, ...]) -> list[str]:
    """Names the families whose learning rate is the lowest or highest of the search, where a better one is possible."""
    edges = []
    for family in families:
        validations = {trial.rate: trial.validation for trial in family.lr_trials if trial.rate is not None}
        rate, rates = family.learning_rate, list(validations)
        if rate is None or len(rates) < 2 or is_optimal(metric, validations.get(rate)):
            continue
        if rate in (min(rates), max(rates)):
            edges.append(f"{family.name} ({'lowest' if rate == min(rates) else 'highest'})")
    if not edges:
        return []
    return [f"At the edge of the searched learning rates, beyond which a better one may exist: {join_names(edges)}."]


def _describe_training_runs(folder: Path, plan: Plan) -> list[str]:
    """Describes the length of the training runs and how many ran at the same time."""
    ngram_models = [name for name in plan.families if not plan.has_gradients(name)]
    sentences = []
    if len(ngram_models) < len(plan.families):
        seeds = len(plan.budgets.seeds)
        times = "once" if seeds == 1 else f"with {seeds} seeds"
        subject = f"each family except {join_names(ngram_models)}" if ngram_models else "each"
        length, sharing = format_budget(plan.budgets.training, plan.unit), _describe_sharing(folder, plan)
        if plan.token_budgets:
            sentences = [
                f"Then {subject} was trained {times}, {length} each, validation included, {sharing}.",
                _describe_token_budgets(plan),
            ]
        elif plan.budgets.is_timed:  # by version 0.1, which did not convert the time into tokens
            sentences = [f"Then {subject} was trained {times}, {length} each, validation included, {sharing}."]
        else:
            sentences = [f"Then {subject} was trained {times}, on exactly {length} each."]
            if not sharing.startswith("one after another"):
                sentences.append(f"Trials ran {sharing}, so that speeds are not those of a trial by itself.")
    if ngram_models:
        verb = "was" if len(ngram_models) == 1 else "were"
        sentences.append(
            f"{join_names(ngram_models)} {verb} fitted by counting: the whole training split was read once, whatever "
            "the budget."
        )
    return sentences


def _describe_token_budgets(plan: Plan) -> str:
    budgets = [
        f"{name} {each.training:,} ({each.tokens_per_second:,.0f}/s)" for name, each in plan.token_budgets.items()
    ]
    method = "in short training runs" if plan.nproc > 1 else "in turns, the fastest of several rounds"
    return (
        f"The time was converted into {plan.unit} by the speed of each family, measured before training, {method}, "
        f"so that every seed of a family is trained on the same number: {join_names(budgets)}."
    )


def _describe_sharing(folder: Path, plan: Plan) -> str:
    """Describes whether trials ran at the same time, shared devices, or ran on several machines."""
    results = load_training_results(folder, plan.list_trials())
    device_workers = max((result.device_workers for result in results), default=1)
    workers = max((result.workers for result in results), default=1)
    nodes = {result.node for result in results}
    where = "on the same machine" if len(nodes) < 2 else f"on {len(nodes)} machines"
    if max(device_workers, workers) == 1:
        return f"one after another {where}"
    if device_workers == 1:
        return f"{workers} at a time, each with a device of its own, {where}"
    if device_workers >= workers:
        return f"{device_workers} at a time sharing a device {where}"
    return f"{workers} at a time, up to {device_workers} of them sharing a device, {where}"


def _describe_test(folder: Path, plan: Plan) -> str:
    """Describes on which split and when the models were evaluated.

    A comparison that was resumed after a failure may have trained again after some tests. The function compares the
    times of the last files of training and testing; a copy that does not keep them may mislead.
    """
    if not plan.test:
        return (
            "The models were evaluated on the validation split, which also selects their weights and learning rates; "
            "the test split was not used (--no-test)."
        )
    training, tests = ([Job(kind, trial.name) for trial in plan.list_trials()] for kind in ("train", "test"))
    trained = _get_modification_times([job.get_run_folder(folder) / "metrics.jsonl" for job in training])
    tested = _get_modification_times([job.get_scores_folder(folder) / SCORES_FILE for job in tests])
    if trained and tested and max(trained) > min(tested):
        return "The test split was read after training. Some trials were repeated after others had been tested."
    return "The model of each training run was evaluated once on the test split, after all training."


def _get_modification_times(paths: list[Path]) -> list[float]:
    return [path.stat().st_mtime for path in paths if path.exists()]
