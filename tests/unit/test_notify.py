import hashlib
import hmac
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from divvy.control.view import AccountSight
from divvy.errors import InputError
from divvy.service.notify.courier import Courier
from divvy.service.notify.deliver import deliver
from divvy.service.notify.notices import of_budgets
from divvy.service.notify.receivers import Receiver, read_receivers


def row(number, event="stopped", account="lab.vision", **detail):
    return SimpleNamespace(
        id=number, at=number * 1000, event=event, detail=detail, job=f"j{number}", name="train", account=account,
        author="ada", gpus=4,
    )  # fmt: skip


class World:
    """A history, an account, and a receiver that can be away."""

    def __init__(self, path):
        self.path = path
        self.rows = []
        self.balance = 0.0
        self.taken = []
        self.away = False

    def courier(self, receiver=None):
        def take(_receiver, name, body):
            if self.away:
                return "away"
            self.taken.append((name, json.loads(body)))
            return ""

        return Courier(
            receiver or Receiver("chat", url="http://x/"),
            self.path / "chat.json",
            lambda after, limit: [one for one in self.rows if one.id > after][:limit],
            lambda: max((one.id for one in self.rows), default=0),
            lambda: (5_000, [sight(self.balance)]),
            take,
        )


def sight(balance, path="lab.vision"):
    return AccountSight(path, 0, balance, 1.0, 4, 0, 2, 8, 100.0, balance * 100, 0.0)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def names(world):
    return [name for name, _ in world.taken]


def test_what_happened_is_told_once_and_in_order(world):
    world.rows = [row(1, cause="finished")]
    courier = world.courier()
    world.rows += [
        row(2, "stopping", cause="preempted", reason="preempted_reclaim", by="j9"),
        row(3, requeue=True, cause="preempted"),
        row(4, "started"),
        row(5, cause="finished", exit_code=0),
        row(6, "stopping", cause="cancelled"),
    ]
    courier.work(0)
    courier.work(1)
    assert names(world) == ["preemption-2", "finished-5"], "what was before the receiver is not told"
    warned, ended = (body for _, body in world.taken)
    assert (warned["job"], warned["detail"]["by"], warned["schema"]) == ("j2", "j9", "divvy.notice/1")
    assert ended["detail"]["exit_code"] == 0


def test_nothing_is_lost_while_the_receiver_is_away_or_over_a_restart(world):
    courier = world.courier()
    world.away = True
    world.rows = [row(n, cause="finished") for n in range(1, 4)]
    courier.work(0)
    courier.work(500)
    world.away = False
    courier.work(900)
    assert not world.taken, "it waits a second before it tries again"
    world.courier().work(0)
    assert names(world) == ["finished-1", "finished-2", "finished-3"]
    world.courier().work(0)
    assert len(world.taken) == 3


def test_a_notice_that_was_taken_but_not_noted_comes_again_with_the_same_id(world):
    courier = world.courier()
    before = (world.path / "chat.json").read_text()
    world.rows = [row(1, cause="finished")]
    courier.work(0)
    (world.path / "chat.json").write_text(before)
    world.courier().work(0)
    assert names(world) == ["finished-1", "finished-1"]


def test_pauses_grow_and_what_is_refused_for_a_day_is_given_up(world):
    courier = world.courier()
    world.away = True
    world.rows = [row(1, cause="finished"), row(2, cause="finished")]
    tries = 0
    now = 0
    while now < 90_000_000 and courier._cursor < 1:
        before = courier._failures
        courier.work(now)
        tries += courier._failures != before
        now += 10_000
    assert courier._cursor == 1
    assert 250 < tries < 330, "one, two, four ... seconds, then every five minutes"
    world.away = False
    courier.work(now + 400_000)
    assert names(world) == ["finished-2"]


def test_a_damaged_memory_begins_at_the_present(world):
    (world.path / "chat.json").write_text("{half")
    world.rows = [row(1, cause="finished")]
    courier = world.courier()
    world.rows.append(row(2, cause="finished"))
    courier.work(0)
    assert names(world) == ["finished-2"]


def test_budgets_are_told_of_once_per_threshold_and_survive_a_restart(world):
    courier = world.courier()
    for balance in (0.5, 0.81, 0.85, 0.79, 0.81, 1.02):
        world.balance = balance
        courier.work(0)
    assert [body["threshold_percent"] for _, body in world.taken] == [80, 100]
    world.balance = 1.3
    world.courier().work(0)
    assert len(world.taken) == 2
    world.away, world.balance = True, 0.2
    again = world.courier()
    again.work(0)
    world.balance = 0.9
    again.work(0)
    world.away = False
    world.courier().work(0)
    assert [body["threshold_percent"] for _, body in world.taken] == [80, 100, 80]


def test_a_receiver_is_told_only_of_what_concerns_it(world):
    only = Receiver("chat", url="http://x/", events=("finished",), accounts=("ops",))
    courier = world.courier(only)
    world.rows = [
        row(1, account="ops.night", cause="finished"),
        row(2, account="opsy", cause="finished"),
        row(3, "stopping", account="ops", reason="preempted_swap"),
    ]
    world.balance = 2.0
    courier.work(0)
    assert names(world) == ["finished-1"]


def test_an_account_that_is_owed_nothing_has_no_threshold():
    assert not list(of_budgets([sight(-1.0)], Receiver("x", url="http://x/"), {}, 0))


def test_a_command_gets_the_notice_without_a_shell(tmp_path):
    out = tmp_path / "out; touch oops"
    code = "import sys,os;open(sys.argv[1],'w').write(os.environ['DIVVY_NOTICE_ID']+sys.stdin.read())"
    receiver = Receiver("c", command=(sys.executable, "-c", code, str(out)))
    assert deliver(receiver, "n-1", b'{"a":1}') == ""
    assert out.read_text() == 'n-1{"a":1}'
    bad = Receiver("c", command=(sys.executable, "-c", "import sys;sys.exit('no room')"))
    assert deliver(bad, "n", b"") == "exit code 1: no room"
    assert "cannot run" in deliver(Receiver("c", command=("/no/such",)), "n", b"")
    slow = Receiver("c", command=(sys.executable, "-c", "import time;time.sleep(60)"), timeout=300)
    assert deliver(slow, "n", b"") == "not done within 0.3 s"


@pytest.mark.e2e
def test_a_webhook_is_signed_and_its_answer_counts():
    seen = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204 if len(seen) == 1 else 500)
            self.end_headers()

        def log_message(self, *_args):
            """Keep quiet."""

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        receiver = Receiver("w", url=f"http://127.0.0.1:{server.server_port}/a?b=c", secret="s3")  # noqa: S106 - of this test
        assert deliver(receiver, "n-1", b'{"a":1}') == ""
        assert deliver(receiver, "n-1", b'{"a":1}') == "answered 500"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    headers, body = seen[0]
    expected = hmac.new(b"s3", headers["Divvy-Timestamp"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["Divvy-Signature"] == f"sha256={expected}"
    assert headers["Divvy-Notice"] == "n-1"
    assert deliver(receiver, "n-1", b"{}") != "", "nobody is there any more"


def test_all_faults_of_the_file_come_at_once(tmp_path):
    path = tmp_path / "notify.toml"
    path.write_text(
        """
wrong = 1
[[receiver]]
name = "a b"
command = "rm -rf /"
[[receiver]]
name = "x"
url = "ftp://x"
events = ["all"]
thresholds = [0, 80.5]
timeout = "2h"
secret_file = "nope"
colour = "red"
[[receiver]]
name = "x"
url = "http://h/"
command = ["true"]
"""
    )
    with pytest.raises(InputError) as refused:
        read_receivers(path)
    text = str(refused.value)
    for part in (
        "notify.toml.wrong", "'a b' is no name", "'rm -rf /'", "'ftp://x'", "['all']", "[0, 80.5]", "'2h'",
        "secret_file: cannot be read", "colour", "two receivers are called 'x'", "or both",
    ):  # fmt: skip
        assert part in text, part
    for content in ("", "[[receiver", "receiver = 3"):
        path.write_text(content)
        with pytest.raises(InputError):
            read_receivers(path)


def test_a_sound_file(tmp_path):
    path = tmp_path / "notify.toml"
    (tmp_path / "key").write_text("hush\n")
    path.write_text(
        '[[receiver]]\nname = "w"\nurl = "https://h:8/x"\nsecret_file = "key"\nthresholds = [90, 50]\n'
    )
    (one,) = read_receivers(path)
    assert (one.secret, one.thresholds, one.timeout) == ("hush", (50, 90), 10_000)
    assert "hush" not in repr(one)
