"""`divvy route experts|tiers|overlap|layout`: plans for serving models, beside bound and baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from divvy.cli.render import Output, Span
from divvy.cli.route_view import seconds, size
from divvy.cli.topo_input import load, read_text
from divvy.errors import InputError
from divvy.units import BYTES_HELP, parse_bytes, parse_duration

Topo = Annotated[
    list[Path], typer.Option("--topo", metavar="FILE", help="Topology input; several are merged.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Model = Annotated[
    str, typer.Option("--model", metavar="SHAPE", help="A known model, numbers, or a JSON file.")
]


def experts(
    topo: Topo,
    model: Model,
    traffic: Annotated[Path | None, typer.Option("--traffic", help="JSON: tokens by GPU and expert.")] = None,
    tokens: Annotated[
        int, typer.Option("--tokens", min=1, help="Tokens per GPU and layer without --traffic.")
    ] = 4096,
    seed: Annotated[int, typer.Option("--seed", help="Of the assumed traffic.")] = 1,
    as_json: Json = False,
) -> None:
    """Place MoE experts by NVLink domain."""
    from divvy.planners.transfers.experts import default_traffic, plan_experts, read_traffic  # noqa: PLC0415 - numpy
    from divvy.planners.transfers.places import fleet_of  # noqa: PLC0415 - same

    shape = _shape(model)
    if not shape.experts:
        raise InputError.one(
            "model-dense",
            f"{shape.name} has no experts",
            path="--model",
            allowed="deepseek-v3, qwen3-235b, mixtral-8x7b, or experts=...",
        )
    fleet = fleet_of(load(topo))
    if traffic is not None:
        table = read_traffic(_json(traffic), fleet.gpus, shape.experts)
        if table is None:
            raise InputError.one(
                "traffic",
                f"{traffic} does not fit {len(fleet.gpus)} GPUs and {shape.experts} experts",
                path="--traffic",
                allowed="a list of rows (one per GPU, one number per expert), an object by GPU id, "
                "or one row",
            )
    else:
        table = default_traffic(shape.experts, fleet.domain, tokens, max(1, shape.top_k), seed)
    token_bytes = float(max(1, shape.hidden) * shape.bytes_per_value)
    document = plan_experts(fleet, table, token_bytes, shape.name)
    document["traffic"] = (
        str(traffic) if traffic else f"assumed: Zipf 0.6, domains lean, {tokens} tokens per GPU, seed {seed}"
    )
    _show(
        document,
        as_json,
        "dispatch_s",
        f"{document['experts']} experts on {document['gpus']} GPUs in {len(fleet.names)} domains",
    )


def tiers(
    topo: Topo,
    working_set: Annotated[str, typer.Option("--working-set", help=BYTES_HELP)],
    access: Annotated[
        Path, typer.Option("--access", help="JSON or JSON lines: ids with reads, ids in order, or hash_ids.")
    ],
    hbm: Annotated[str, typer.Option("--hbm", help="Room in HBM of one GPU for this set.")] = "40GB",
    host: Annotated[str, typer.Option("--host", help="Room in host memory.")] = "256GB",
    cxl: Annotated[
        str, typer.Option("--cxl", help="Room in CXL memory; without it what the topology shows.")
    ] = "",
    nvme: Annotated[str, typer.Option("--nvme", help="Room on NVMe; 0B for none.")] = "4TB",
    as_json: Json = False,
) -> None:
    """Place a working set on HBM, host memory, CXL and NVMe."""
    from divvy.planners.transfers.places import tiers_of  # noqa: PLC0415 - numpy
    from divvy.planners.transfers.tiers import plan_tiers, read_access  # noqa: PLC0415 - same

    room = {
        name: _bytes(text, f"--{name}") if text else -1
        for name, text in (("hbm", hbm), ("host", host), ("cxl", cxl), ("nvme", nvme))
    }
    entries = read_access(access.name, _lines(access), float(_bytes(working_set, "--working-set")))
    document = plan_tiers(tiers_of(load(topo), room), entries)
    _show(
        document,
        as_json,
        "mean_read_s",
        f"{size(document['working_set_bytes'])} on {len(document['tiers'])} tiers",
    )


def overlap(
    topo: Topo,
    model: Model,
    prompt: Annotated[int, typer.Option("--prompt", min=1, help="Tokens of the prompt.")],
    prefill_ms: Annotated[str, typer.Option("--prefill-ms", help="Time of the prefill, milliseconds.")],
    tp: Annotated[
        int, typer.Option("--tp", min=0, help="Ranks on each side; 0: half of the GPUs, at most 4.")
    ] = 0,
    streams: Annotated[
        int, typer.Option("--streams", min=1, help="Other transfers of the same kind at the same time.")
    ] = 1,
    source: Annotated[str, typer.Option("--from", help="First GPU of the prefill side.")] = "",
    target: Annotated[str, typer.Option("--to", help="First GPU of the decode side.")] = "",
    as_json: Json = False,
) -> None:
    """Send the KV cache layer by layer during the prefill; how much is really hidden."""
    from divvy.planners.transfers.overlap import plan_overlap  # noqa: PLC0415 - numpy
    from divvy.planners.transfers.places import pipe_of  # noqa: PLC0415 - same

    shape = _shape(model)
    try:
        prefill = (
            float(prefill_ms) / 1000.0
            if prefill_ms.replace(".", "", 1).isdigit()
            else parse_duration(prefill_ms) / 1000.0
        )
    except ValueError as error:
        raise InputError.one("prefill", str(error), path="--prefill-ms", allowed="milliseconds") from error
    pipe = pipe_of(load(topo), shape, prompt, tp, streams, source, target)
    document = plan_overlap(shape, prompt, prefill, pipe)
    document["streams"] = streams
    _show(
        document,
        as_json,
        "exposed_s",
        f"{size(document['kv_bytes'])} of KV cache in a prefill of {seconds(prefill)}",
    )


def layout(
    model: Model,
    source: Annotated[str, typer.Option("--from", help="Layout now, such as tp=4.")],
    target: Annotated[str, typer.Option("--to", help="Layout then, such as tp=8.")],
    descriptor_budget: Annotated[
        int | None, typer.Option("--descriptor-budget", min=1, help="Most descriptors of a rank.")
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Tokens of the cache.")] = 8192,
    block: Annotated[int, typer.Option("--block", min=1, help="Tokens of a page.")] = 16,
    nhd: Annotated[
        bool, typer.Option("--nhd", help="Pages hold token by token (NHD), not head by head (HND).")
    ] = False,
    rate: Annotated[float, typer.Option("--gb-per-s", min=0.001, help="Rate of each rank.")] = 50.0,
    kind: Annotated[
        str, typer.Option("--kind", help="Kind of route, for the cost of a descriptor.")
    ] = "rdma-affine",
    as_json: Json = False,
) -> None:
    """Plan a change of tensor-parallel layout within a descriptor budget."""
    from divvy.perf.transfer import KINDS  # noqa: PLC0415 - numpy
    from divvy.planners.transfers.layout import plan_layout  # noqa: PLC0415 - same

    if kind not in KINDS:
        raise InputError.one("kind-unknown", f"no kind {kind!r}", path="--kind", allowed=", ".join(KINDS))
    document = plan_layout(
        _shape(model),
        _tp(source, "--from"),
        _tp(target, "--to"),
        tokens=tokens,
        block_tokens=block,
        heads_first=not nhd,
        budget=descriptor_budget,
        gb_per_s=rate,
        kind=kind,
    )
    _show(
        document,
        as_json,
        "seconds",
        f"{document['model']}: tp={document['from']['tp']} to tp={document['to']['tp']}, "
        f"{document['plan']['says']}",
    )


def pair(
    topo: Topo,
    requests: Annotated[
        Path, typer.Option("--requests", help="JSON: requests, targets, what each target has.")
    ],
    as_json: Json = False,
) -> None:
    """Choose a decode place for each prefill by the predicted end of its transfer, not by equal labels."""
    from divvy.planners.transfers.candidates import Finder  # noqa: PLC0415 - numpy
    from divvy.planners.transfers.pairing import pairing_document, read_requests  # noqa: PLC0415 - same
    from divvy.planners.transfers.roads import roads  # noqa: PLC0415 - same

    ways = roads(load(topo))
    work = read_requests(requests.name, _json(requests), ways)
    document = pairing_document(ways, Finder(ways), work)
    out = Output(as_json=as_json, quiet=False)
    if out.machine(document, []):
        return
    for row in document["pairs"]:
        found = f"{row['cached_blocks']} blocks there, {size(row['sent_bytes'])} to send"
        out.screen.line(
            Span(f"{row['request']} -> {row['target']}", "bold"), f"  {seconds(row['predicted_s'])}; {found}"
        )
    own, base = document["figure"]["last_s"], document["baseline"]["last_s"]
    out.screen.line(f"last cache there after {seconds(own)}; {document['baseline']['name']}: {seconds(base)}")


def _shape(text: str) -> Any:
    """Return the model of a name, numbers, or a file."""
    from divvy.planners.transfers.models import shape_of  # noqa: PLC0415 - numpy

    path = Path(text)
    if text.endswith(".json") or ("=" not in text and path.is_file()):
        return shape_of(text, _json(path))
    return shape_of(text)


def _tp(text: str, option: str) -> int:
    """Return the ranks of ``tp=4``."""
    number = text.strip().lower().removeprefix("tp=")
    if not number.isdigit() or not 1 <= int(number) <= 4096:
        raise InputError.one(
            "layout", f"{text!r} is not a layout", path=option, allowed="tp=N, N from 1 to 4096"
        )
    return int(number)


def _bytes(text: str, option: str) -> int:
    """Return the bytes of an option."""
    try:
        return int(text) if text.isdigit() else parse_bytes(text)
    except ValueError as error:
        raise InputError.one("bytes", str(error), path=option, allowed=BYTES_HELP) from error


def _json(path: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError.one(
            "unreadable", f"{path} is not JSON: {error.msg}", path=f"{path}:{error.lineno}"
        ) from error


def _lines(path: Path) -> list[Any]:
    """Return the entries of a JSON file (a list, or an object with one) or of JSON lines."""
    text = read_text(path)
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        out = []
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                try:
                    out.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise InputError.one(
                        "unreadable", f"{path} is not JSON: {error.msg}", path=f"{path}:{number}"
                    ) from error
        return out
    if isinstance(document, dict):
        lists = [value for value in document.values() if isinstance(value, list)]
        return lists[0] if lists else [document]
    return document if isinstance(document, list) else []


def _show(document: dict[str, Any], as_json: bool, key: str, title: str) -> None:
    """Print a plan: JSON, or its figure beside bound and baseline."""
    out = Output(as_json=as_json, quiet=False)
    if out.machine(document, []):
        return
    write = out.screen.line
    figure, bound, base = (document[part][key] for part in ("figure", "bound", "baseline"))
    write(Span(title, "bold"))
    write(Span(f"plan      {seconds(figure)}", "green"), f"  {_words(document['plan'])}")
    write(f"bound     {seconds(bound)}", Span(f"  {document['bound']['why']}", "dim"))
    write(f"baseline  {seconds(base)}", Span(f"  {document['baseline']['name']}", "dim"))
    for name in ("hidden_fraction", "between_domains_fraction", "descriptors"):
        if name in document["figure"]:
            write(
                f"{name.replace('_', ' ')}: {document['figure'][name]:.4g} (baseline "
                f"{document['baseline'][name]:.4g})"
            )
    claim = document["topkv_claim"]
    if claim:
        write(
            Span("TopKV claims " + ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in claim.items()), "dim")
        )


def _words(plan: dict[str, Any]) -> str:
    """Return the short facts of a plan."""
    return ", ".join(
        f"{k.replace('_', ' ')} {v}"
        for k, v in plan.items()
        if isinstance(v, str | int | float) and k != "says"
    )
