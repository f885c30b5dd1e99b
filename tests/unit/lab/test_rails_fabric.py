"""What a lab of rails is made of: names, rates, commands, its state and its graph; nothing is run."""

from __future__ import annotations

import json

import pytest

from divvy.adapters.rails import fabric as plan
from divvy.errors import InputError
from divvy.planners.transfers.bound import bound
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.roads import roads


def made(rates: str = "4gbit,1gbit", hosts: int = 3, rails: int = 2, name: str = "t") -> plan.Fabric:
    return plan.read_fabric(name, hosts, rails, rates)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("400mbit", 400_000_000),
        ("4 Gbit/s", 4_000_000_000),
        ("2.5gbps", 2_500_000_000),
        ("500Kbit", 500_000),
        ("1Gb", 10**9),
    ],
)
def test_rates_are_read_as_people_write_them(text: str, rate: int) -> None:
    assert plan.parse_rate(text) == rate
    assert plan.parse_rate(plan.format_rate(rate)) == rate


@pytest.mark.parametrize(
    "text", ["", "4", "fast", "-1gbit", "0gbit", "1kbit", "200gbit", "nangbit", "4GB", "1e3mbit"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|from 100kbit"):
        plan.parse_rate(text)


def test_rates_are_given_once_or_per_host() -> None:
    assert made("4gbit,1gbit").rates == ((4 * 10**9, 10**9),) * 3
    assert made("1gbit").rates == ((10**9, 10**9),) * 3
    assert made("1gbit,2gbit/3gbit/4gbit,5gbit").rates[1] == (3 * 10**9, 3 * 10**9)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        plan.read_fabric("Bad name", 1, 9, "x", mtu=10)
    assert {f.path for f in caught.value.faults} == {"--name", "--hosts", "--rails", "--mtu", "--rates"}


@pytest.mark.parametrize("rates", ["1gbit/2gbit", "1gbit,2gbit,3gbit", "1gbit,", "/", ""])
def test_rates_that_do_not_fit_are_refused(rates: str) -> None:
    with pytest.raises(InputError) as caught:
        made(rates)
    assert caught.value.faults[0].path == "--rates"


@pytest.mark.parametrize("name", ["../x", "", "a-b", "toolongname", "a\n"])
def test_a_name_never_reaches_a_path_or_a_namespace_unchecked(name: str) -> None:
    with pytest.raises(InputError):
        plan.check_name(name)


def test_every_host_has_both_limits_on_every_rail() -> None:
    fabric = made("400mbit,100mbit")
    commands = list(plan.build(fabric))
    sent = [c for c in commands if "htb" in c and "class" in c]
    received = [c for c in commands if "tbf" in c]
    assert len(sent) == len(received) == 6
    assert sum("400000000bit" in c for c in sent) == sum("100000000bit" in c for c in received) == 3
    names = [c[3] for c in commands if c[:3] == ("ip", "netns", "add")]
    assert names == ["dvr-t-sw", "dvr-t-h0", "dvr-t-h1", "dvr-t-h2"]
    assert all(len(plan.port(63, 7)) <= 15 for _ in names)


def test_only_namespaces_of_labs_are_found() -> None:
    listing = "dvr-t-h0 (id: 3)\ndvr-t-sw\ndvr-tt-h1\nother\ndvr-t-h0x\n\n"
    assert plan.namespaces_of(listing) == {"t": ["dvr-t-h0", "dvr-t-sw"], "tt": ["dvr-tt-h1"]}


def test_the_state_survives_its_file() -> None:
    fabric = plan.with_cut(plan.with_rate(made(), 1, 0, 5 * 10**8), 2, 1, cut=True)
    assert plan.parse_state(plan.dump(fabric)) == fabric
    assert plan.with_cut(fabric, 2, 1, cut=False).cut == ()


@pytest.mark.parametrize("text", ["", "{", "{}", '{"name": "x", "rates": [], "cut": [], "mtu": 9000}', "[]"])
def test_a_damaged_state_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        plan.parse_state(text)


def test_counters_are_read_by_interface() -> None:
    entry = {"ifname": "e0", "stats64": {"tx": {"bytes": 5}, "rx": {"bytes": 7}}}
    assert plan.counters_of(json.dumps([entry])) == {"e0": (5, 7)}


def test_the_graph_has_the_rates_and_no_rail_that_is_cut() -> None:
    fabric = plan.with_cut(made("400mbit,100mbit"), 2, 0, cut=True)
    ways = roads(plan.topology_of(fabric))
    finder = Finder(ways)
    both = bound(ways, finder, [Transfer("a", "h0", "h1", 62_500_000)])
    assert both == pytest.approx(1.0, rel=0.01)
    one = bound(ways, finder, [Transfer("a", "h0", "h2", 12_500_000)])
    assert one == pytest.approx(1.0, rel=0.01)
