import pytest

from divvy.adapters.slurm.contract import Contract, read_contract, write_contract
from divvy.adapters.slurm.settings import SlurmSettings, read_settings, settings_of
from divvy.errors import InputError
from divvy.units import HOUR, MINUTE, SECOND

DEFAULT = Contract(min_runtime=HOUR, restart=True)


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("", DEFAULT),
        ("nothing of ours, divvyup: x", DEFAULT),
        ("divvy: min_runtime=2h resumable", Contract(min_runtime=2 * HOUR, resumable=True)),
        ("DIVVY: min-runtime=90s, restart", Contract(min_runtime=90 * SECOND, restart=True)),
        ("wandb=7; divvy: free once; other=1 resumable", Contract(min_runtime=0)),
        ("divvy: min_runtime=0", Contract(min_runtime=0, restart=True)),
        (
            "divvy: interactive warn=2m signal=SIGUSR2 priority=-3 account=lab.vision",
            Contract(
                HOUR,
                restart=True,
                interactive=True,
                priority=-3,
                warn=2 * MINUTE,
                signal="USR2",
                account="lab.vision",
            ),
        ),
        ("divvy: resumable=yes restart=no", Contract(HOUR, resumable=True)),
    ],
)
def test_what_a_comment_declares(comment, expected):
    assert read_contract(comment, DEFAULT) == expected


@pytest.mark.parametrize(
    "word", ["min_runtime=2", "min_runtime=fast", "priority=x", "signal=KILL", "resumible", "a=b"]
)
def test_a_word_that_is_not_understood_changes_nothing_and_is_told(word):
    read = read_contract(f"divvy: {word} resumable", DEFAULT)
    assert read.resumable and read.min_runtime == HOUR
    assert len(read.faults) == 1 and word in read.faults[0]


@pytest.mark.parametrize(
    "contract",
    [
        Contract(2 * HOUR, resumable=True),
        Contract(0),
        Contract(90_500, restart=True, warn=MINUTE, signal="USR2", priority=4),
    ],
)
def test_what_is_written_is_read_again(contract):
    assert read_contract(write_contract(contract), DEFAULT) == contract


def test_settings_take_units_and_report_all_faults_at_once():
    good = settings_of(
        {
            "poll": "2s",
            "weights": {"h100": 3},
            "default": {"min_runtime": "15m"},
            "partition": {"debug": {"resumable": True}},
        }
    )
    assert good.poll == 2_000 and good.weight_of("h100") == 3
    assert good.contract_of("gpu") == Contract(15 * MINUTE, restart=True)
    assert good.contract_of("x,debug") == Contract(HOUR, resumable=True)
    with pytest.raises(InputError) as caught:
        settings_of(
            {"poll": 5, "pol": "1s", "api": "v9", "requeues_per_minute": 0, "default": {"resumable": 1}}
        )
    assert len(caught.value.faults) == 5


def test_an_unreadable_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_settings(str(tmp_path / "none.toml"))
    assert read_settings("") == SlurmSettings()


@pytest.mark.parametrize(
    ("model", "weight"),
    [
        ("h100", 989),
        ("H100", 989),
        ("a100-sxm4-80gb", 312),
        ("nvidia_h100_80gb_hbm3", 989),
        ("k80", 1),
        ("gpu", 1),
    ],
)
def test_types_weigh_by_the_price_list(model, weight):
    assert SlurmSettings().weight_of(model) == weight
