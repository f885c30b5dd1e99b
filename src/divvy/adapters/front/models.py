"""The models of one router: each has its own desk and objective; what is told of all is joined here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from divvy.adapters.front.config import Setup
from divvy.adapters.front.router import Router
from divvy.errors import InputError
from divvy.planners.queries.desk import UP

#: Figures of the process, not of a model: every router tells the same.
_SHARED: Final = "divvy_serve_charges_"


class Model(NamedTuple):
    """A model's router, and the objective of queries that name none."""

    router: Router
    slo_us: int


class Models:
    """All models of the process.

    Args:
        models: By name; at least one.
    """

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models = dict(models)

    @property
    def routers(self) -> list[Router]:
        """Return the router of every model."""
        return [one.router for one in self._models.values()]

    @property
    def all(self) -> list[Model]:
        """Return every model's router and objective."""
        return list(self._models.values())

    @property
    def ready(self) -> bool:
        """Return whether a slice of some model is up."""
        return any(is_ready(router) for router in self.routers)

    @property
    def waiting(self) -> int:
        """Return how many queries wait."""
        return sum(router.desk.waiting for router in self.routers)

    @property
    def open(self) -> int:
        """Return how many queries are in the process."""
        return sum(router.open for router in self.routers)

    def find(self, name: str) -> Model | None:
        """Return the model of a name; None where it is not served here."""
        return self._models.get(name)

    def unknown(self, name: str) -> str:
        """Return what to say of a model that is not served here."""
        return f"no model {name[:80]!r}: this is {', '.join(map(repr, self._models))}"

    def replace(self, setup: Setup) -> None:
        """Serve on a document's slices from now on; a model that it leaves out keeps none.

        Raises:
            InputError: If there is a model that was not there at the start, or a size without a profile; then
                nothing changes.
        """
        said = {one.model: one for one in setup.all}
        new = [name for name in said if name not in self._models]
        if new:
            allowed = ", ".join(self._models)
            raise InputError.one("serve-models", f"new: {', '.join(new)}", path="models", allowed=allowed)
        for name, one in said.items():
            self._models[name].router.check(one)
        for router in self.routers:
            router.declare(said[router.model].slices if router.model in said else {})

    def of_slice(self, name: str) -> Router | None:
        """Return the router that a slice belongs to."""
        return next((router for router in self.routers if name in router.desk.posts), None)

    def slices(self) -> list[str]:
        """Return the names of all slices."""
        return [name for router in self.routers for name in router.desk.posts]

    def backends(self) -> list[dict[str, Any]]:
        """Return what every slice does, as ``divvy.serve.status/1`` lists them."""
        return [{**row, "model": router.model} for router in self.routers for row in router.backends()]

    def metrics(self) -> str:
        """Return the figures for Prometheus; with several models each has a label of its own."""
        if len(self._models) == 1:
            return self.routers[0].metrics()
        return joined({name: one.router.metrics() for name, one in self._models.items()})


def is_ready(router: Router) -> bool:
    """Return whether a slice of a model is up."""
    return any(post.state == UP for post in router.desk.posts.values())


def joined(texts: Mapping[str, str]) -> str:
    """Return expositions of several models as one: a family stays together, samples get the label ``model``.

    Args:
        texts: Exposition by model; comments come before the samples of their family.
    """
    comments: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for model, text in texts.items():
        quoted = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for line in text.splitlines():
            if line.startswith("#"):
                said = comments.setdefault(line.split(" ", 3)[2], [])
                said += [line] if line not in said else []
                continue
            before, _, value = line.rpartition(" ")
            name, brace, labels = before.partition("{")
            found = samples.setdefault(name, [])
            if name.startswith(_SHARED):
                found[:] = [line]
            else:
                found.append(f'{name}{{model="{quoted}"{"," + labels if brace else "}"} {value}')
    lines = [line for name, said in comments.items() for line in (*said, *samples.get(name, ()))]
    return "".join(f"{line}\n" for line in lines)
