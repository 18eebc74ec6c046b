"""Push mode: a scheduler starts rounds, and each job comes back as a delivery."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from evervec.model.jobs import Status
from evervec.server.answers import answer
from evervec.server.credentials import check_scheduler, public_url, read_delivery
from evervec.server.problems import documented
from evervec.server.requests import CheckedRoute, read_json
from evervec.server.schemas.base import Shown
from evervec.server.service import Service

router = APIRouter(prefix="/internal", tags=["push"], route_class=CheckedRoute)

Limit = Annotated[int, Query(ge=1, le=1000, description="Jobs handed out at most.")]


class DispatchedOut(Shown):
    """What became of a round."""

    claimed: int
    published: int
    released: int = Field(description="given back at once, because nobody took them")


class DeliveryIn(BaseModel):
    """One claimed job."""

    model_config = ConfigDict(extra="forbid")

    job_id: int = Field(ge=0, lt=1 << 63)
    token: str = Field(min_length=1, max_length=200)


class DeliveredOut(Shown):
    """What became of a delivery."""

    status: Status | None = Field(
        description="null: nothing to do, because the token is no longer good or the same "
        "delivery is at work; pending: the record failed, and will be tried again"
    )
    error: str | None = Field(description="why the record failed, if it did")


@router.post(
    "/dispatch",
    summary="Hand out due jobs",
    responses={200: {"model": DispatchedOut}, **documented()},
)
async def dispatch(request: Request, limit: Limit = 10) -> Response:
    """For a scheduler: claims jobs and hands each to the worker endpoint, through QStash or by a
    plain request. Takes `CRON_SECRET`."""
    service: Service = request.app.state.service
    settings = service.ev.settings
    await check_scheduler(request, service)
    # in a thread of its own: plain requests come back to this service, and need its threads
    done = await asyncio.to_thread(
        service.ev.dispatcher.dispatch, limit, public_url(request, settings)
    )
    return answer(DispatchedOut, done)


@router.post(
    "/worker",
    summary="Do a job that was handed out",
    responses={200: {"model": DeliveredOut}, **documented()},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": DeliveryIn.model_json_schema()}},
        }
    },
)
async def worker(request: Request) -> Response:
    """For QStash or the dispatcher itself, with a signature or `WORKER_SECRET`. 200: done, or
    nothing to do, or the record's own failure; 503: something is away, deliver it again."""
    service: Service = request.app.state.service
    settings = service.ev.settings
    body = await read_delivery(request, service)
    try:
        given = DeliveryIn.model_validate(read_json(body, settings))
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None
    done = await service.run_job(service.ev.dispatcher.deliver, given.job_id, given.token)
    return answer(DeliveredOut, done)
