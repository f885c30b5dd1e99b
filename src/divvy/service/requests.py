"""What the HTTP API accepts, bounded in every dimension before anything else looks at it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

MAX_BODY_BYTES: Final = 1 << 20
MAX_HEADER_BYTES: Final = 32 << 10
MAX_ARGV: Final = 4_096
MAX_ARGV_BYTES: Final = 128 << 10
MAX_ENV: Final = 1_024
MAX_ENV_BYTES: Final = 256 << 10
MAX_PAGE: Final = 1_000
MAX_BLOCKS: Final = 65_536
JOB_ID: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"

_Text = Annotated[str, Field(max_length=1_000)]
_Word = Annotated[str, Field(max_length=200)]


class Asked(BaseModel):
    """A request body; unknown members are refused, types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class JobRequest(Asked):
    """A job and its contract. Durations are text with a unit (``"15m"``), or ``"0"``."""

    account: _Word = Field(examples=["lab.vision"])
    gpus: int = Field(ge=1, le=1_000_000, examples=[2])
    or_accounts: list[_Word] = Field(
        default_factory=list,
        max_length=16,
        description="Further accounts, in order: the first that is under-served pays.",
    )
    argv: list[str] = Field(min_length=1, max_length=MAX_ARGV, examples=[["python", "train.py"]])
    cwd: str = Field(default="", max_length=4_096, description="Absolute; empty: the home of the user.")
    env: dict[str, str] = Field(default_factory=dict, max_length=MAX_ENV)
    min_runtime: _Word = Field(default="0", description="Declared minimum runtime; 0 is unallocated.")
    resumable: bool = False
    restart: bool = Field(
        default=False, description="Starts again from zero when preempted, if not resumable."
    )
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    kind: Literal["batch", "interactive"] = "batch"
    model: _Word = ""
    per_node: int = Field(default=0, ge=0, le=1_000_000)
    clusters: list[_Word] = Field(
        default_factory=list, max_length=64, description="Where it may run; none: anywhere."
    )
    time_limit: _Word = Field(default="0", description="Longest runtime of one attempt; 0 is none.")
    name: _Word = ""
    id: str | None = Field(default=None, pattern=f"^{JOB_ID}$", description="Makes a retry harmless.")
    warn_signal: str = Field(default="SIGUSR1", pattern=r"^SIG[A-Z0-9]{2,10}$")
    warn: _Word = Field(
        default="", description="Between the warning and TERM; empty: 5s, of interactive jobs 60s."
    )
    resume_argv: list[str] = Field(
        default_factory=list,
        max_length=MAX_ARGV,
        description="Runs instead of argv after a preemption; makes the job resumable.",
    )
    grace: _Word = Field(default="10s", description="Between TERM and KILL.")
    memory_bytes: int = Field(
        default=0, ge=0, le=1 << 50, description="Limit where the machine permits one; 0 is none."
    )


class PairPlaceRequest(Asked):
    """A candidate of a pair."""

    place: _Word
    free_seconds: float = Field(
        default=0, ge=0, le=1e6, allow_inf_nan=False, description="From now until it can begin."
    )
    cached: list[_Word] = Field(
        default_factory=list, max_length=MAX_BLOCKS, description="Hashes of blocks that it holds."
    )


_Candidates = Annotated[list[_Word | PairPlaceRequest], Field(min_length=1, max_length=256)]


class PairRequest(Asked):
    """Candidates for a request's prefill and decode, and the KV cache that goes from one to the other."""

    prefill: _Candidates = Field(
        validation_alias=AliasChoices("prefill", "prefill_candidates"),
        description="Ids of the topology, or objects; the preferred first.",
    )
    decode: _Candidates = Field(validation_alias=AliasChoices("decode", "decode_candidates"))
    kv_bytes: int = Field(ge=1, le=1 << 60, description="Size of the whole cache.")
    deadline_seconds: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        validation_alias=AliasChoices("deadline_seconds", "deadline_s", "deadline"),
        description="From now, such as what is left of a time to first token.",
    )
    descriptors: int = Field(default=1, ge=1, le=1 << 30, description="Pieces that the cache lies in.")
    hash_ids: list[_Word | int] = Field(
        default_factory=list, max_length=MAX_BLOCKS, description="Hashes of its blocks, in order."
    )
    cached: dict[_Word, list[_Word | int]] = Field(
        default_factory=dict, max_length=256, description="Hashes of blocks that each decode place holds."
    )
    reserve: bool = Field(default=True, description="Count it as on the way for the next answers.")


class BudgetRequest(Asked):
    """A whole budget document, in the nested form of the TOML file."""

    document: dict[str, Any]
    reason: _Text
    version: int = Field(ge=0, description="The version that the change was made from.")


class ShareRequest(Asked):
    """A new share of one account."""

    share: float = Field(allow_inf_nan=False, description="Percent of the parent.")
    reason: _Text
    version: int = Field(ge=0)


_LAST_INSTANT: Final = 32_503_680_000.0  # the year 3000


class DrainRequest(Asked):
    """Why a node is taken out of service, and from when to when; without times: now, until it is undone."""

    reason: _Text
    from_at: float | None = Field(default=None, ge=0, le=_LAST_INSTANT, description="Unix seconds.")
    until_at: float | None = Field(default=None, ge=0, le=_LAST_INSTANT, description="Unix seconds.")


class FaultRequest(Asked):
    """A fault that node health found."""

    code: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$", examples=["xid-79", "ecc"])
    fatal: bool | None = Field(
        default=None,
        description="Whether what runs there must leave at once; null: as known of its XID, else not.",
    )


class SliceTimeRequest(Asked):
    """How long slices of one size worked."""

    model: _Word = Field(examples=["A100-80GB.3g"], description="Of the device, with the slice's size.")
    microseconds: int = Field(ge=0, le=10**15)


class SlicesRequest(Asked):
    """What slices behind a router worked for an account."""

    id: str = Field(pattern=f"^{JOB_ID}$", description="Makes a repetition harmless.")
    account: _Word
    until_at: float = Field(ge=0, le=_LAST_INSTANT, description="Unix seconds: when the last work ended.")
    slices: list[SliceTimeRequest] = Field(min_length=1, max_length=64)


class TokenRequest(Asked):
    """A new token."""

    user: _Word
    role: Literal["viewer", "submitter", "owner", "admin"]
    accounts: list[_Word] = Field(default_factory=list, max_length=100)
    label: _Word = ""
    expires_in: _Word | None = Field(default=None, description='Such as "90d"; none: it does not expire.')


class ShownRequest(Asked):
    """A document for the page: what a verb printed with --json."""

    document: dict[str, Any]
    command: _Text = Field(default="", description="The command that printed it.")
    example: bool = Field(default=False, description="Whether it was made from example inputs.")


class WhatIfRequest(Asked):
    """Other shares, another policy, or both; nothing given asks how well the replay repeats what was."""

    shares: dict[str, Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]] = Field(
        default_factory=dict,
        max_length=200,
        description="Percent of the parent, by account path.",
        examples=[{"lab.vision": 50, "lab.language": 50}],
    )
    policy: _Word = Field(default="", description="Empty: the present one.")
    hours: float = Field(
        default=24, gt=0, le=768, allow_inf_nan=False, description="How far back jobs are taken."
    )
