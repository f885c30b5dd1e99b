"""The fake speaks the API's language: every answer is held to the models of `divvy.service.schemas`."""

from __future__ import annotations

import pytest
from fake_fleet import FakeFleet
from pydantic import BaseModel

from divvy.service import schemas

fleet = FakeFleet()
token = {"user": "bo", "role": "viewer", "accounts": ["lab"], "label": ""}
ANSWERS: list[tuple[type[BaseModel], dict]] = [
    (schemas.Status, fleet.status()),
    (schemas.Queue, fleet.queue()),
    (schemas.Jobs, fleet.list_jobs()),
    (schemas.Job, fleet.job("j00001")),
    (schemas.Explanation, fleet.explain("j00013")),
    (schemas.BudgetView, fleet.budget()),
    (schemas.BudgetHistory, fleet.history()),
    (schemas.Statement, fleet.statement()),
    (schemas.Statement, fleet.statement(hours=True)),
    (schemas.TokenCreated, fleet.create_token(token)),
    (schemas.Tokens, fleet.list_tokens()),
    (schemas.Drain, fleet.drain("gpu-001", "fan", undo=False)),
    (schemas.BudgetAccepted, fleet.set_share("lab.vision", {"share": 40.0, "version": 3, "reason": "less"})),
    (schemas.Cancelled, fleet.cancel("j00013")),
]


@pytest.mark.parametrize(("model", "answer"), ANSWERS, ids=[model.__name__ for model, _ in ANSWERS])
def test_answers_follow_the_models(model, answer):
    model.model_validate(answer)
