"""The schema. The journal (`base`, `blob`, `journal`) is the truth; the other tables follow from it.

Times are integer ms since the Unix epoch, documents are canonical JSON text. Two processes write: the API
process inserts into `intake` and what belongs to a submission (`launch`, a `job` row in phase ACCEPTED)
or to a posted charge (`posted`), and keeps `token`;
the loop process writes everything else, always in the transaction of a journal entry.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)

metadata: Final = MetaData()

#: SQLite numbers rows by itself only where the type is exactly INTEGER.
_Id: Final = BigInteger().with_variant(Integer(), "sqlite")

#: Phase of a job that the API has stored and the loop has not yet seen.
ACCEPTED: Final = -1

# -- the journal ---------------------------------------------------------------------------------------

blob: Final = Table(
    "blob",
    metadata,
    Column("sha", String(64), primary_key=True),  # SHA-256 of the canonical bytes
    Column("size", BigInteger, nullable=False),  # of the canonical bytes
    Column("body", LargeBinary, nullable=False),  # zlib
)

#: A whole state, from which the entries after `seq` lead on.
base: Final = Table(
    "base",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("sha", String(64), nullable=False),
)

journal: Final = Table(
    "journal",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),  # of the state after the entry
    Column("planner", String(64), nullable=False),  # empty where no plan was made
    Column("seed", BigInteger, nullable=False),
    Column("events", Integer, nullable=False),
    Column("starts", Integer, nullable=False),
    Column("preemptions", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),  # zlib of {"happened", "plan", "carried_out"}
    Index(
        "journal_decisions",
        "seq",
        sqlite_where=text("starts + preemptions > 0"),
        postgresql_where=text("starts + preemptions > 0"),
    ),
)

#: One row: who may append. A loop that finds another term here has been superseded.
fence: Final = Table(
    "fence",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("term", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("boot", String(64), nullable=False),  # the boot in which `uptime` was read
    Column("uptime", BigInteger, nullable=False),
)

# -- what people asked for -----------------------------------------------------------------------------

intake: Final = Table(
    "intake",
    metadata,
    Column("seq", _Id, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),  # see adapters/store/intake.py
    Column("actor", String(200), nullable=False),
    Column("document", Text, nullable=False),
    Column("consumed", BigInteger),  # when the loop took it; NULL: waiting
    Column("fault", Text),  # RFC 9457 document where it was refused
    Column("result", Text),  # what came of it, such as the new budget version
    sqlite_autoincrement=True,
)
Index(
    "intake_waiting",
    intake.c.seq,
    sqlite_where=intake.c.consumed.is_(None),
    postgresql_where=intake.c.consumed.is_(None),
)

#: Charges that routers have posted: one that comes twice is charged once.
posted: Final = Table(
    "posted",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("account", String(512), nullable=False),
    Column("charge", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),  # of the request in `intake`
    Index("posted_at", "at"),
)

#: What a job runs: `control.launch.LaunchSpec` as JSON.
launch: Final = Table(
    "launch",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("document", Text, nullable=False),
)

counter: Final = Table(
    "counter",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# -- what readers look at ------------------------------------------------------------------------------

job: Final = Table(
    "job",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),  # in order of submission; pages count down on it
    Column("name", String(200), nullable=False),
    Column("account", String(512), nullable=False),
    Column("author", String(200), nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("min_runtime", BigInteger, nullable=False),
    Column("resumable", Boolean, nullable=False),
    Column("restart", Boolean, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    Column("model", String(200), nullable=False),
    Column("per_node", Integer, nullable=False),
    Column("time_limit", BigInteger, nullable=False),
    Column("budgets", Text, nullable=False, server_default="[]"),  # JSON lists of names
    Column("clusters", Text, nullable=False, server_default="[]"),
    Column("debug", Boolean, nullable=False),
    Column("phase", SmallInteger, nullable=False),  # fleet.job.Phase, or ACCEPTED
    Column("submitted", BigInteger, nullable=False),
    Column("queued", BigInteger, nullable=False),
    Column("started", BigInteger),
    Column("stopped", BigInteger),
    Column("protected_until", BigInteger, nullable=False),
    Column("placement", Text, nullable=False),  # [[node, devices], ...]
    Column("preemptions", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rate", BigInteger, nullable=False),  # charge per ms of the present run
    Column("stop_cause", SmallInteger),  # fleet.job.StopCause of the present or last end
    Column("exit_code", Integer),
    Column("note", Text, nullable=False),  # why it was refused, or what the engine said at its end
    Column("changed", BigInteger, nullable=False),  # journal entry that changed it last; 0: none yet
    Index("job_number", "number", unique=True),
    Index("job_phase", "phase", "number"),
    Index("job_account", "account", "number"),
    Index("job_author", "author", "number"),
    Index("job_stopped", "stopped"),
    Index("job_changed", "changed"),
)

#: What happened to a job, for people: one row per event of the job.
history: Final = Table(
    "history",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("job", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("event", String(32), nullable=False),
    Column("detail", Text, nullable=False),  # JSON: the event's own fields, and those of the decision
    Column("seq", BigInteger, nullable=False),  # journal entry
    Index("history_job", "job", "id"),
    Index("history_at", "at"),
)

ledger: Final = Table(
    "ledger",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("seq", BigInteger, nullable=False),  # journal entry
    Column("account", String(512), nullable=False),
    Column("author", String(200), nullable=False),
    Column("job", String(64), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("ended", BigInteger, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("weight", BigInteger, nullable=False),
    Column("charge", BigInteger, nullable=False),
    Column("allocated", Boolean, nullable=False),
    Column("cause", String(200), nullable=False),
    Index("ledger_account", "account", "ended"),
    Index("ledger_ended", "ended"),
)
#: A run is charged once, ever.
Index(
    "ledger_run",
    ledger.c.job,
    ledger.c.attempt,
    unique=True,
    sqlite_where=ledger.c.cause == "occupancy",
    postgresql_where=ledger.c.cause == "occupancy",
)

#: Healthy devices of the fleet, their charge rate and how many of each model (JSON), a row per change.
capacity: Final = Table(
    "capacity",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("rate", BigInteger, nullable=False),
    Column("models", Text, nullable=False, server_default="{}"),
    Index("capacity_at", "at"),
)

budget_version: Final = Table(
    "budget_version",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("author", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("changes", Text, nullable=False),  # [{"path", "from", "to"}, ...]
)

#: One row: the fleet as the last pass left it (see adapters/store/publisher.py).
published: Final = Table(
    "published",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
)

# -- identity ------------------------------------------------------------------------------------------

token: Final = Table(
    "token",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("hash", String(128), nullable=False, unique=True),
    Column("user", String(200), nullable=False),
    Column("role", String(16), nullable=False),
    Column("accounts", Text, nullable=False),  # JSON list of paths
    Column("label", String(200), nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("created_by", String(200), nullable=False),
    Column("expires", BigInteger),
    Column("revoked", BigInteger),
    Column("last_used", BigInteger),
)
