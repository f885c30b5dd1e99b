import pytest

from divvy.cli.submit_slurm import command_of
from divvy.errors import InputError

BODY = {
    "account": "vis", "name": "", "priority": 0, "min_runtime": "2h", "resumable": True, "restart": False,
    "kind": "batch", "gpus": 4, "model": "", "per_node": 0, "time_limit": "0", "argv": ["train"], "cwd": "/w",
    "env": {"A": "1"},
}  # fmt: skip


def test_the_contract_goes_into_the_comment():
    command = command_of(BODY, inherit=True, wait=False)
    assert command == [
        "sbatch", "--parsable", "--comment=divvy: min_runtime=7200s resumable", "--chdir=/w", "--gpus=4",
        "--account=vis", "--requeue",
    ]  # fmt: skip


def test_a_path_is_an_account_of_divvy_and_shapes_are_slurms():
    body = BODY | {
        "account": "lab.vision",
        "model": "h100",
        "per_node": 2,
        "time_limit": "90s",
        "name": "x",
        "priority": 3,
    }
    command = command_of(body, inherit=False, wait=True)
    assert "--comment=divvy: min_runtime=7200s resumable priority=3 account=lab.vision" in command
    assert {"--nodes=2", "--gres=gpu:h100:2", "--time=2", "--job-name=x", "--export=A", "--wait"} <= set(
        command
    )
    assert not any(word.startswith("--account") for word in command)


@pytest.mark.parametrize("wrong", [{"id": "7"}, {"min_runtime": "2"}, {"per_node": 3}])
def test_what_slurm_cannot_take_is_refused(wrong):
    with pytest.raises(InputError):
        command_of(BODY | wrong, inherit=True, wait=False)
