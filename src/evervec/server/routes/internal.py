"""Push mode: a scheduler starts a dispatch, and each job arrives as a delivery."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from evervec.model.jobs import Status
from evervec.server.answers import Shown, answer
from evervec.server.credentials import check_scheduler, public_url, read_delivery
from evervec.server.requests import read_json
from evervec.server.router import Routes
from evervec.server.service import Service

router = Routes("push")

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of jobs.")]


class DispatchedOut(Shown):
    """The result of a dispatch."""

    claimed: int
    published: int
    released: int = Field(description="released at once, because they could not be published")


class DeliveryIn(BaseModel):
    """One claimed job."""

    model_config = ConfigDict(extra="forbid")

    job_id: int = Field(ge=0, lt=1 << 63)
    token: str = Field(min_length=1, max_length=200)


class DeliveredOut(Shown):
    """The result of a delivery."""

    status: Status | None = Field(
        description="null: nothing to do, because the token is no longer valid or the same "
        "delivery is in progress; pending: the record failed, and will be retried"
    )
    error: str | None = Field(description="why the record failed, if it did")


@router.on("POST /internal/dispatch", "Dispatch due jobs", DispatchedOut)
async def dispatch(request: Request, limit: Limit = 10) -> Response:
    """For a scheduler: claims jobs and sends each to the worker endpoint, through QStash or by a
    direct request. Requires `CRON_SECRET`."""
    service: Service = request.app.state.service
    settings = service.ev.settings
    await check_scheduler(request, service)
    # in a separate thread: direct requests come back to this service and need its threads
    done = await asyncio.to_thread(
        service.ev.dispatcher.dispatch, limit, public_url(request, settings)
    )
    return answer(DispatchedOut, done)


@router.on(
    "POST /internal/worker",
    "Run a dispatched job",
    DeliveredOut,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": DeliveryIn.model_json_schema()}},
        }
    },
)
async def worker(request: Request) -> Response:
    """For QStash or the dispatcher, with a signature or `WORKER_SECRET`. 200: the job is done, or
    there is nothing to do, or the record failed; 503: something is unavailable, so deliver
    it again."""
    service: Service = request.app.state.service
    settings = service.ev.settings
    body = await read_delivery(request, service)
    try:
        given = DeliveryIn.model_validate(read_json(body, settings))
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None
    done = await service.run_job(service.ev.dispatcher.deliver, given.job_id, given.token)
    return answer(DeliveredOut, done)
