"""Shapes of models: bytes of KV cache per token, layers, heads, experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from divvy.errors import InputError

_KEYS: Final = (
    "layers",
    "heads",
    "kv_heads",
    "head_dim",
    "bytes_per_value",
    "latent",
    "experts",
    "top_k",
    "hidden",
    "moe_layers",
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model matters for moving its state.

    Attributes:
        name: Name.
        layers: Transformer layers.
        heads: Query heads.
        kv_heads: Key and value heads; fewer than `heads` with grouped queries (GQA).
        head_dim: Values of a head.
        bytes_per_value: 2 for bf16.
        latent: Values per token and layer with multi-head latent attention (512 + 64), 0 without. A latent
            is not divided among tensor-parallel ranks: each holds all of it.
        experts: Routed experts per layer, 0 for a dense model.
        top_k: Experts per token.
        hidden: Width of a token between layers.
        moe_layers: Layers with experts.
    """

    name: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    bytes_per_value: int = 2
    latent: int = 0
    experts: int = 0
    top_k: int = 0
    hidden: int = 0
    moe_layers: int = 0

    @property
    def kv_bytes_per_token(self) -> int:
        """Return the bytes of KV cache that a token adds, on all ranks together (a latent counted once)."""
        return self.layers * self.layer_bytes_per_token

    @property
    def layer_bytes_per_token(self) -> int:
        """Return the bytes that one layer adds per token."""
        values = self.latent or 2 * self.kv_heads * self.head_dim
        return values * self.bytes_per_value


#: Published configurations. KiB per token in bf16: 128, 320, 504, 144, 188, 68.6.
SHAPES: Final[dict[str, Shape]] = {
    s.name: s
    for s in (
        Shape("llama-3-8b", 32, 32, 8, 128, hidden=4096),
        Shape("llama-3-70b", 80, 64, 8, 128, hidden=8192),
        Shape("llama-3-405b", 126, 128, 8, 128, hidden=16384),
        Shape("qwen3-8b", 36, 32, 8, 128, hidden=4096),
        Shape("qwen3-235b", 94, 64, 4, 128, experts=128, top_k=8, hidden=4096, moe_layers=94),
        Shape("deepseek-v3", 61, 128, 1, 576, latent=576, experts=256, top_k=8, hidden=7168, moe_layers=58),
        Shape("mixtral-8x7b", 32, 32, 8, 128, experts=8, top_k=2, hidden=4096, moe_layers=32),
    )
}


def shape_of(text: str, document: Mapping[str, Any] | None = None) -> Shape:
    """Return the shape that a name means, or numbers such as ``layers=80,kv_heads=8,head_dim=128``.

    Args:
        text: Name or numbers.
        document: The content of a JSON file of the same keys, if that was given instead.

    Raises:
        InputError: If the name is unknown or a number is missing or wrong.
    """
    key = text.strip().lower().replace("_", "-")
    if document is None and key in SHAPES:
        return SHAPES[key]
    allowed = ", ".join(SHAPES) + f"; or a JSON file or text with {', '.join(_KEYS)}"
    if document is None and "=" not in text:
        raise InputError.one(
            "model-unknown", f"no model {text!r}", path="--model", allowed=", ".join(SHAPES), fix=allowed
        )
    if document is not None and not isinstance(document, Mapping):
        raise InputError.one("model-shape", f"{text!r} holds no object", path="--model", allowed=allowed)
    pairs = (
        document
        if document is not None
        else dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    )
    try:
        numbers = {k.strip(): int(v) for k, v in pairs.items() if k.strip() in _KEYS}
        latent = numbers.get("latent", 0)
        shape = Shape(
            str(pairs.get("name", "custom")),
            numbers["layers"],
            numbers.get("heads", numbers.get("kv_heads", 1)),
            numbers.get("kv_heads", 1) if latent else numbers["kv_heads"],
            numbers.get("head_dim", latent) if latent else numbers["head_dim"],
            **{k: v for k, v in numbers.items() if k not in ("layers", "heads", "kv_heads", "head_dim")},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError.one(
            "model-shape", f"{text!r}: {error} is missing or no number", path="--model", allowed=allowed
        ) from error
    sizes = (shape.layers, shape.heads, shape.kv_heads, shape.head_dim, shape.bytes_per_value)
    if min(sizes) < 1 or min(shape.latent, shape.experts, shape.top_k, shape.hidden, shape.moe_layers) < 0:
        raise InputError.one(
            "model-shape",
            f"{text!r}: layers, heads and sizes are at least 1, the rest at least 0",
            path="--model",
            allowed=allowed,
        )
    return shape
