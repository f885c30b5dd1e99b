"""The window formula against a direct sum over milliseconds."""

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.fleet.usage import ChargeHistory

CHANGES = st.lists(st.tuples(st.integers(0, 15), st.integers(-5, 9), st.integers(0, 20)), max_size=12)


def weight(age, lookback, taper):
    """Integral of the taper over the millisecond that ends `age` before now."""

    def area(x):  # integral of the weight over ages 0..x
        flat = lookback - taper
        if x <= flat:
            return x
        x = min(x, lookback)
        return flat + ((lookback - flat) ** 2 - (lookback - x) ** 2) / (2 * taper) if taper else flat

    return area(age + 1) - area(age)


@settings(max_examples=1000)
@given(CHANGES, st.integers(0, 60), st.integers(1, 40), st.data())
def test_windowed_is_the_tapered_sum(changes, ahead, lookback, data):
    taper = data.draw(st.integers(0, lookback))
    history = ChargeHistory()
    now, rate = 0, 0
    per_ms: list[int] = []
    for gap, step, _ in changes:
        now += gap
        per_ms += [rate] * gap
        history.add(now, step)
        rate += step
    per_ms += [rate] * ahead
    at = now + ahead
    assert history.total(at) == sum(per_ms)
    expected = sum(r * weight(at - 1 - i, lookback, taper) for i, r in enumerate(per_ms))
    assert abs(history.windowed(at, lookback, taper) - expected) < 1e-6 * (1 + abs(expected))
    cut = data.draw(st.integers(0, at))
    parts = history.windowed_part(at, lookback, taper, -1000, cut) + history.windowed_part(
        at, lookback, taper, cut, at
    )
    assert abs(parts - expected) < 1e-6 * (1 + abs(expected))
    history.forget(at - lookback)
    assert abs(history.windowed(at, lookback, taper) - expected) < 1e-6 * (1 + abs(expected))
    assert history.total(at) == sum(per_ms)


@settings(max_examples=300)
@given(
    CHANGES,
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4)), min_size=1, max_size=5),
    st.data(),
)
def test_weighted_is_the_sum_under_any_line_of_weights(changes, ahead, steps, data):
    knots, age = [(0, 4.0)], 0
    for step, height in steps:
        age += step
        knots.append((age, float(height)))
    history, now, rate = ChargeHistory(), 0, 0
    per_ms: list[int] = []
    jumps: list[tuple[int, int]] = []
    for gap, step, charge in changes:
        now += gap
        per_ms += [rate] * gap
        if gap:
            jumps.append((now, charge))
        history.add(now, step, charge if gap else 0)
        rate += step
    per_ms += [rate] * ahead
    at = now + ahead

    def line(old):  # weight at an age, linear in between
        for (young, near), (far, least) in pairwise(knots):
            if young <= old <= far:
                return near + (least - near) * (old - young) / (far - young)
        return 0.0

    # Over a millisecond without a knot inside, the mean of a line is its value in the middle.
    expected = sum(r * line(at - i - 0.5) for i, r in enumerate(per_ms) if at - i <= age)
    found = history.weighted(at, knots, at - age, at)
    inside = [charge * line(at - when) for when, charge in jumps if 0 < at - when < age]
    edge = any(at - when in {0, *(each for each, _ in knots)} for when, charge in jumps if charge)
    if not edge:  # a jump just at a knot of a broken line may fall on either side
        assert abs(found - expected - sum(inside)) < 1e-6 * (1 + abs(expected))
    cut = data.draw(st.integers(at - age, at)) if age else at
    parts = history.weighted(at, knots, at - age, cut) + history.weighted(at, knots, cut, at)
    assert abs(parts - found) < 1e-6 * (1 + abs(found))


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9))
def test_a_late_report_leaves_totals_exact(end, late, rate):
    history = ChargeHistory()
    history.add(0, rate)
    history.add(end + late, 1)
    history.add(end, -rate)
    assert history.total(end + late + 10) == rate * end + 10


@given(CHANGES, st.integers(0, 30), st.integers(1, 40))
def test_a_history_survives_its_document_and_goes_on_alike(changes, cut, lookback):
    history, now = ChargeHistory(), 0
    for gap, step, charge in changes:
        now += gap
        history.add(now - (gap % 3), step, charge)  # now and then a late report
    history.forget(cut)
    again = ChargeHistory.from_document(json.loads(json.dumps(history.to_document())))
    for each in (history, again):
        each.add(now + 5, 2)
    assert again.to_document() == history.to_document()
    assert again.rate == history.rate
    for at in (now + 5, now + 17):
        assert again.total(at) == history.total(at)
        assert again.windowed(at, lookback, lookback // 2) == history.windowed(at, lookback, lookback // 2)
