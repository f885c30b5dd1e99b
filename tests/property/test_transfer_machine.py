"""A sender and a receiver over a network that loses, delays, doubles, reorders and damages chunks and answers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from divvy.transfer.machine.rails import Rail
from divvy.transfer.machine.receiving import LEASE_US, Receiving
from divvy.transfer.machine.sending import DEAD_US, Answer, Sending, Verdict

RAILS = ("r0", "r1", "r2")
LIMIT_US = 60_000_000
STEP = st.integers(1, 400_000)
PICK = st.integers(0, 10_000)


class Network(RuleBasedStateMachine):
    """Bytes of a chunk are written in two halves, so that a late attempt can come between them."""

    @initialize(sizes=st.lists(st.integers(1, 5_000_000), min_size=1, max_size=8), rate=st.integers(1, 5000))
    def begin(self, sizes, rate):
        self.now, self.epoch = 1_000, 1
        self.sizes = sizes
        self.rails = {name: Rail(name, rate=rate * (i + 1), up=True) for i, name in enumerate(RAILS)}
        self.sender = Sending(sizes, self.rails, self.now, self.now + LIMIT_US)
        self.receiver = Receiving(sizes, self.epoch, self.now + LIMIT_US + 1, self.now)
        self.buffer = [["", ""] for _ in sizes]
        self.flying, self.begun, self.answers, self.accounted = [], [], [], []
        self.reused = False

    def pick(self, items, number):
        return items.pop(number % len(items))

    @rule(name=st.sampled_from(RAILS))
    def take(self, name):
        attempt = self.sender.take(name, self.now)
        if attempt is not None:
            assert not self.sender._done[attempt.chunk]
            self.flying.append(attempt)

    @precondition(lambda self: self.flying)
    @rule(number=PICK)
    def lose(self, number):
        self.pick(self.flying, number)

    @precondition(lambda self: self.flying)
    @rule(number=PICK)
    def double(self, number):
        self.flying.append(self.flying[number % len(self.flying)])

    @precondition(lambda self: self.flying)
    @rule(number=PICK, is_stale=st.booleans())
    def head_arrives(self, number, is_stale):
        attempt = self.pick(self.flying, number)
        refused = self.receiver.claim(attempt.chunk, attempt.number, self.epoch - is_stale, self.now)
        if is_stale:
            assert refused is Answer.STALE
        elif refused is None:
            self.write(attempt, 0, "good")
            self.begun.append(attempt)
        else:
            self.answers.append((attempt, refused))

    def write(self, attempt, half, what):
        if self.receiver.may_write(attempt.chunk, attempt.number):
            assert not self.reused
            self.buffer[attempt.chunk][half] = what

    @precondition(lambda self: self.begun)
    @rule(number=PICK, what=st.sampled_from(["good", "good", "good", "bad"]), half=st.integers(0, 1))
    def rest_arrives(self, number, what, half):
        attempt = self.pick(self.begun, number)
        self.write(attempt, 1, "good")
        self.write(attempt, half, what)
        before = self.receiver.accounted
        intact = self.buffer[attempt.chunk] == ["good", "good"]
        answer = self.receiver.arrived(attempt.chunk, attempt.number, attempt.rail, self.now, intact=intact)
        if self.receiver.accounted > before:
            assert intact
            self.accounted.append(attempt.chunk)
        self.answers.append((attempt, answer))

    @precondition(lambda self: self.answers)
    @rule(number=PICK, keep=st.booleans())
    def answer_arrives(self, number, keep):
        attempt, answer = self.answers[number % len(self.answers)]
        if not keep:
            self.answers.remove((attempt, answer))
        self.sender.answered(attempt.chunk, attempt.number, answer, self.now)

    @precondition(lambda self: self.answers)
    @rule(number=PICK)
    def answer_is_lost(self, number):
        self.pick(self.answers, number)

    @rule(
        chunk=st.integers(-3, 20),
        number=st.integers(-3, 20),
        answer=st.sampled_from([Answer.OLD, Answer.CORRUPT]),
    )
    def nonsense_arrives(self, chunk, number, answer):
        done = bytes(self.sender._done)
        self.sender.answered(chunk, number, answer, self.now)
        assert bytes(self.sender._done) == done

    @rule(step=STEP)
    def time_passes(self, step):
        self.now += step
        for rail in self.rails.values():
            if rail.overdue(self.now):
                rail.slowed(self.now)
                rail.suspect = True
                self.sender.dropped(rail.name, self.now)
        self.sender.tick(self.now)
        self.receiver.tick(self.now)

    @rule(name=st.sampled_from(RAILS))
    def rail_breaks(self, name):
        self.rails[name].up = False
        self.sender.dropped(name, self.now)

    @rule(name=st.sampled_from(RAILS))
    def rail_comes_back(self, name):
        self.rails[name].up, self.rails[name].suspect = True, False

    @rule()
    def buffer_is_reused(self):
        self.receiver.fail("reused")
        self.reused = self.receiver.verdict is Verdict.FAILED

    @invariant()
    def every_chunk_is_accounted_once(self):
        assert len(set(self.accounted)) == len(self.accounted)
        assert self.receiver.accounted == sum(self.sizes[c] for c in self.accounted)
        assert self.sender.accounted <= self.receiver.accounted
        assert set(self.sender.moved) <= set(RAILS)

    @invariant()
    def what_is_accounted_is_whole_and_stays_so(self):
        assert all(self.buffer[chunk] == ["good", "good"] for chunk in self.accounted)

    @invariant()
    def a_sender_is_done_only_where_the_receiver_is(self):
        if self.sender.verdict is Verdict.DONE:
            assert self.receiver.verdict is Verdict.DONE
            assert self.sender.left == 0

    @invariant()
    def nothing_on_the_way_is_negative(self):
        assert all(rail.inflight >= 0 for rail in self.rails.values())

    def teardown(self):
        """Whatever has happened: both sides have a verdict in bounded time, and on a healed network it is done."""
        if not hasattr(self, "sender"):
            return
        self.heal()
        end = self.now + LIMIT_US + LEASE_US + DEAD_US
        self.sender.tick(end)
        self.receiver.tick(end)
        assert self.sender.verdict is not None
        assert self.receiver.verdict is not None

    def heal(self):
        could = self.sender.verdict is None and self.receiver.verdict in (None, Verdict.DONE)
        limit = self.sender.limit_us
        for name, rail in self.rails.items():
            self.sender.dropped(name, self.now)
            rail.up, rail.suspect, rail.inflight = True, False, 0
        for _ in range(20 * len(self.sizes)):
            for name in RAILS:
                attempt = self.sender.take(name, self.now)
                if attempt is None:
                    continue
                answer = self.receiver.claim(attempt.chunk, attempt.number, self.epoch, self.now)
                if answer is None:
                    answer = self.receiver.arrived(attempt.chunk, attempt.number, name, self.now, intact=True)
                self.sender.answered(attempt.chunk, attempt.number, answer, self.now)
        if could and self.now < limit:
            assert self.sender.verdict is Verdict.DONE


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
