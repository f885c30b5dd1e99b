"""Figures per model: own planner, PARIS + ELSA, equal slices, the bound; wins and losses of every pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from divvy.cli.bench_row import row
from divvy.cli.slice_inputs import DEFAULT_BATCH, load_batches, make_request
from divvy.fleet.mig.skus import find_sku
from divvy.perf.latency import LatencyProfile
from divvy.planners.slices.registry import find_planner
from divvy.sim.queries.contest import contest_document, gather, geometric_mean, ratio
from divvy.sim.queries.study import (
    Proof,
    Study,
    best_homogeneous,
    best_paris,
    make_study,
    plan_and_prove,
)

Row = dict[str, Any]

_GPUS: Final = (1, 4, 8)
_FACTOR: Final = 1.5
#: Seeds and queries of a case, and of the table of pairs; the short ones are for a quick run.
_CASE: Final = (5, 12_000)
_QUICK_CASE: Final = (5, 1_000)
_PAIRS: Final = (5, 6_000)
_QUICK_PAIRS: Final = (1, 1_000)
_BOUND: Final = "unbatched bound"
_SETTING: Final = f"per-bucket p95, objective {_FACTOR} x batch 32 on 7g, {DEFAULT_BATCH}, Poisson"


def _study(profile: LatencyProfile, gpus: int, seeds: int, queries: int) -> Study:
    request = make_request(
        profile,
        find_sku("A100-80GB"),
        gpus,
        load_batches(DEFAULT_BATCH),
        _FACTOR,
        None,
        95.0,
        per_bucket=True,
    )
    return make_study(request, seeds, queries=queries)


def model_rows(
    profiles: Sequence[LatencyProfile], *, quick: bool, announce: Callable[[str], None]
) -> Iterator[Row]:
    """Yield the figures of every model and number of GPUs, the means, and the table of wins and losses."""
    seeds, queries = _QUICK_CASE if quick else _CASE
    cases: list[tuple[str, int, Study, Proof, Proof, Proof]] = []
    for profile in profiles:
        for gpus in _GPUS:
            announce(f"{profile.model} on {gpus} GPUs")
            study = _study(profile, gpus, seeds, queries)
            _, own = plan_and_prove(study, find_planner("divvy"), "divvy")
            equal_name, equal = best_homogeneous(study)
            paris_name, paris = best_paris(study)
            proofs = own, study.prove(equal), study.prove(paris)
            cases.append((profile.model, gpus, study, *proofs))
            yield from _case_rows(profile.model, gpus, study, proofs, (equal_name, paris_name), seeds)
    yield from _mean_rows(cases)
    yield from _direction_rows(cases)
    announce("every planner x dispatcher")
    yield from _table_rows(profiles, quick=quick)


def _row(case: str, contender: str, measure: str, value: float | None, unit: str, **more: Any) -> Row:
    return row(case, contender, measure, value, unit, **more)


def mean_rate(proof: Proof) -> float:
    """Return the mean over the fresh seeds of the largest rate that each meets."""
    return sum(proof.per_seed) / len(proof.per_seed)


def _case_rows(
    model: str,
    gpus: int,
    study: Study,
    proofs: tuple[Proof, Proof, Proof],
    names: tuple[str, str],
    seeds: int,
) -> Iterator[Row]:
    case = f"{model}, {gpus} GPU{'s' if gpus > 1 else ''}"
    contenders = (("divvy", _SETTING), ("best equal slices", names[0]), ("best PARIS + ELSA", names[1]))
    for (name, which), proof in zip(contenders, proofs, strict=True):
        rate, edges = mean_rate(proof), proof.interval
        yield _row(case, name, "rate per seed", rate, "queries/s", interval=edges, n=seeds, note=which)
        bound = study.bound_qps
        shares = (edges[0] / bound, edges[1] / bound) if bound > 0 else None
        share = rate / bound if bound > 0 else None
        yield _row(
            case, name, "rate against the bound", share, "ratio", interval=shares, n=seeds, note=_BOUND
        )
        note = "holds on every seed of search and confirmation"
        yield _row(case, name, "promised rate", proof.rate_qps, "queries/s", n=2 * seeds, note=note)
    yield from _paired_rows(case, proofs, seeds)


def _paired_rows(case: str, proofs: tuple[Proof, Proof, Proof], seeds: int) -> Iterator[Row]:
    """Yield the paired comparisons of a case; only own planner against equal slices has a target."""
    own, equal, paris = proofs
    for contender, left, right, rival in (
        ("divvy", own, equal, "the best equal slices"),
        ("divvy", own, paris, "the best PARIS + ELSA"),
        ("best PARIS + ELSA", paris, equal, "the best equal slices"),
    ):
        against, aimed = ratio(left, right), right is equal and left is own
        yield _row(
            case,
            contender,
            f"against {rival}, paired",
            None if against is None else against[0],
            "ratio",
            interval=None if against is None else against[1],
            n=seeds,
            target=0.98 if aimed else None,
            met=against[1][0] >= 0.98 if aimed and against is not None else None,
            note=(
                "fresh seeds; a target is on the lower 95% limit" if against else "the rival serves nothing"
            ),
        )


def _mean_rows(cases: Sequence[tuple[str, int, Study, Proof, Proof, Proof]]) -> Iterator[Row]:
    """Yield the geometric means that have targets."""
    above = [mean_rate(own) / mean_rate(paris) for *_, own, _, paris in cases if paris.rate_qps > 0]
    zero = [f"{model} on {gpus}" for model, gpus, _, _, _, paris in cases if paris.rate_qps <= 0]
    mean = geometric_mean(above)
    yield _row(
        "all models and GPUs",
        "divvy",
        "against the best PARIS + ELSA, geometric mean",
        mean,
        "ratio",
        n=len(above),
        target=1.25,
        met=mean >= 1.25,
        note=f"cases where PARIS + ELSA serves nothing, left out: {', '.join(zero) or 'none'}",
    )
    for counts, target in (((4, 8), 0.70), ((1,), None)):
        shares = [mean_rate(c[3]) / c[2].bound_qps for c in cases if c[1] in counts and c[2].bound_qps > 0]
        mean = geometric_mean(shares)
        yield _row(
            f"all models, {' and '.join(map(str, counts))} GPUs",
            "divvy",
            "rate against the bound, geometric mean",
            mean,
            "ratio",
            n=len(shares),
            target=target,
            met=None if target is None else mean >= target,
            note="unbatched; mean of the rates of the fresh seeds",
        )


def _direction_rows(cases: Sequence[tuple[str, int, Study, Proof, Proof, Proof]]) -> Iterator[Row]:
    """Yield, per model, whether unequal slices with slack-aware dispatch beat the best equal ones."""
    for model in dict.fromkeys(case[0] for case in cases):
        mine = [case for case in cases if case[0] == model]
        won = [gpus for _, gpus, _, _, equal, paris in mine if mean_rate(paris) > mean_rate(equal)]
        yield _row(
            model,
            "PARIS + ELSA",
            "published direction: unequal and slack-aware beats the best equal slices",
            len(won) / len(mine),
            "share of GPU counts",
            n=len(mine),
            note=f"shown on {', '.join(map(str, won)) or 'none'} of 1, 4 and 8 GPUs",
        )


def _table_rows(profiles: Sequence[LatencyProfile], *, quick: bool) -> Iterator[Row]:
    """Yield wins and losses of every planner x dispatcher against the best equal slices.

    A quick run looks at one model on 4 GPUs only; the rows are the same, `n` says how many cases they hold.
    """
    seeds, queries = _QUICK_PAIRS if quick else _PAIRS
    chosen, counts = (profiles[:1], (4,)) if quick else (profiles, _GPUS)
    stages = [partial(_study, profile, gpus, seeds, queries) for profile in chosen for gpus in counts]
    planners = ("divvy", "paris", "homogeneous", "random")
    dispatchers = ("divvy", "elsa", "fifs", "jsq", "pow2", "least-gpc")
    for one in contest_document(gather(stages, planners, dispatchers))["summary"]:
        yield _row(
            "every planner x dispatcher, all models and GPUs",
            f"{one['planner']} + {one['dispatcher']}",
            "against the best equal slices, geometric mean",
            one["geometric_mean_against_baseline"],
            "ratio",
            n=one["cases"],
            note=", ".join(f"{key} {one[key]}" for key in ("wins", "losses", "draws", "zero")),
        )
