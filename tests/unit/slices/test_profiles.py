"""Latency profiles: reading, interpolation, what is odd, fits; batch distributions."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.errors import InputError, NotFoundError
from divvy.perf.fitted import expand, fit, fitted_models, fitted_profile
from divvy.perf.latency import INFEASIBLE, oddities
from divvy.perf.profile_csv import read_profile
from divvy.perf.traffic import from_weights, lognormal, parse_batches, read_batches

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "profiles" / "parvagpu-a100-80gb"

PUBLISHED = """\
Mig instance,Batch size,Workload Number,Throughput,Latency
1,1,1,100,0.010
1,2,1,125,0.016
1,4,1,0,0
3,1,1,200,0.005
3,2,1,250,0.008
3,4,1,400,0.010
3,4,2,210,0.019
"""
OWN = (
    "# measured here\nslice,batch,latency_ms,utilisation\n1g.10gb,1,10,0.5\n1g.10gb,2,16,85\n3g.40gb,4,10,\n"
)


def test_published_columns():
    profile = read_profile(PUBLISHED, "m")
    assert profile.sizes == (1, 3)
    assert profile.latency_us(1, 2) == 16_000
    assert profile.latency_us(1, 4) == INFEASIBLE
    assert profile.latency_us(1, 3) == INFEASIBLE, (
        "nothing fits between a batch that fits and one that does not"
    )
    assert profile.latency_us(3, 3) == 9_000, "linear between measured batches"
    assert profile.latency_us(3, 5) == INFEASIBLE
    assert profile.latency_us(3, 4, 2) == 19_000
    assert profile.processes(3) == (1, 2)
    assert profile.batches(1) == (1, 2)
    assert profile.throughput(3, 4, 2) == pytest.approx(8 / 0.019)


def test_own_columns():
    profile = read_profile(OWN, "m")
    assert profile.latency_us(1, 1) == 10_000
    assert profile.utilisation(1, 2) == 0.85
    assert profile.utilisation(3, 4) is None
    assert profile.has_utilisation


def test_columns_with_units_in_brackets_and_a_missing_latency():
    text = (
        "Mig instance[GPCs],Batch size,Workload Number[MPS procs],Throughput[img/s],Latency[s]\n7,8,1,400,0\n"
    )
    assert read_profile(text, "m").latency_us(7, 8) == 20_000, "taken from the throughput"


def test_every_fault_of_a_profile_is_reported():
    bad = PUBLISHED + "x,1,1,1,1\n1,0,1,1,1\n1,8,1,1,nan\n1,1,1,5,0.5\n1,1\n1,2.5,1,1,1\n"
    with pytest.raises(InputError) as caught:
        read_profile(bad, "m", "p.csv")
    assert [fault.path for fault in caught.value.faults] == [f"p.csv:{n}" for n in range(9, 15)]
    for text in ("", "# only\n", "a,b\n1,2\n", "slice,batch,latency_s\n1,1,0\n"):
        with pytest.raises(InputError):
            read_profile(text, "m")


def test_oddities_are_named():
    text = (
        "slice,batch,processes,throughput,latency_seconds\n"
        "1,1,1,100,0.010\n1,2,1,250,0.008\n1,4,1,0,0\n1,8,1,100,0.080\n"
        "2,1,1,50,0.020\n2,2,1,50,0.040\n2,2,2,50,0.040\n2,4,1,100,0.010\n"
    )
    codes = {(o.code, o.gpcs, o.batch) for o in oddities(read_profile(text, "m"))}
    assert {
        ("non-monotone-batch", 1, 2),
        ("hole", 1, 4),
        ("non-monotone-slice", 2, 1),
        ("repeated", 2, 2),
        ("mismatch", 2, 4),
        ("outlier", 2, 2),
    } <= codes
    smooth = "slice,batch,latency_ms\n" + "".join(
        f"{g},{b},{10 * b / g + 5}\n" for g in (1, 2) for b in (1, 2, 4)
    )
    assert oddities(read_profile(smooth, "m")) == ()


def test_a_fit_recovers_its_own_model_and_says_its_error():
    rows = "".join(f"2,{b},{max(12.0, 4 + 2.0 * b)}\n" for b in (1, 2, 4, 8, 16, 32))
    (one,) = fit(read_profile(f"slice,batch,latency_ms\n{rows}", "m"))
    assert one.error < 1e-6
    assert [one.latency_us(b) for b in (1, 4, 8, 32, 33)] == [12_000, 12_000, 20_000, 68_000, INFEASIBLE]
    assert expand("m", (one,), "s").latency_us(2, 32) == 68_000


def test_shipped_fits_are_usable_and_named():
    assert "resnet50" in fitted_models()
    profile = fitted_profile("resnet50")
    assert profile.sizes == (1, 2, 3, 4, 7)
    assert profile.latency_us(7, 32) == pytest.approx(13_000, rel=0.05)
    with pytest.raises(NotFoundError, match="alexnet"):
        fitted_profile("alexnet")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published profiles are not beside this checkout")
def test_published_profiles_are_read_and_the_shipped_fits_are_theirs():
    for path in sorted(SHARED.glob("*.csv")):
        profile = read_profile(path.read_text(), path.stem, str(path))
        assert profile.sizes == (1, 2, 3, 4, 7)
        assert any(o.code == "out-of-memory" for o in oddities(profile))
        for one in fit(profile):
            assert one.error < 0.09
            for batch in (1, 8, 32):
                here = fitted_profile(path.stem).latency_us(one.gpcs, batch)
                assert here == INFEASIBLE or abs(here - one.latency_us(batch)) <= 1_000


def test_lognormal_is_whole_and_clipped():
    made = lognormal(4, 0.9, 32)
    assert sum(weight for _, weight in made.weights) == pytest.approx(1)
    assert made.largest == 32
    below = sum(weight for batch, weight in made.weights if batch <= 4)
    assert below == pytest.approx(0.5517, abs=0.001)  # Phi((ln 4.5 - ln 4) / 0.9)
    assert made.buckets() == ((1, 4), (5, 8), (9, 16), (17, 32))
    assert lognormal(4, 0, 32).weights == ((4, 1.0),)


def test_texts_and_files_of_distributions():
    assert parse_batches("fixed:8").weights == ((8, 1.0),)
    assert parse_batches("uniform:3-4").weights == ((3, 0.5), (4, 0.5))
    assert parse_batches("weights:1=3,64=1").buckets() == ((1, 4), (33, 64))
    assert parse_batches("some.csv") is None
    assert read_batches("batch,weight\n1,3\n2,1\n").weights == ((1, 0.75), (2, 0.25))
    assert read_batches("4\n4\n8\n4\n").weights == ((4, 0.75), (8, 0.25))
    assert read_batches('{"1": 1, "2": 1}').weights == ((1, 0.5), (2, 0.5))
    for text in (
        "lognormal:sigma=1",
        "lognormal:median=4,max=0",
        "lognormal:mean=3",
        "fixed:x",
        "weights:0=1",
    ):
        with pytest.raises(InputError):
            parse_batches(text)
    for text in ("", "1\nx\n", '{"a": 1}'):
        with pytest.raises(InputError):
            read_batches(text)
    with pytest.raises(InputError):
        from_weights({1: -1.0})
