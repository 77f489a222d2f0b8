"""An A2A client of 1.0: reads the card of the agent at the URL, streams what its skill count
does, cancels wait once it is under way, and prints as JSON what it has seen."""

import asyncio
import json
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_message_text, new_data_part
from a2a.types import CancelTaskRequest, Message, Role, SendMessageRequest, TaskState


def request(skill: str) -> SendMessageRequest:
    part = new_data_part({"skill": skill, "input": {}})
    return SendMessageRequest(message=Message(message_id=skill, role=Role.ROLE_USER, parts=[part]))


async def main() -> None:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, sys.argv[1]).get_agent_card()
    seen = {"skills": sorted(skill.id for skill in card.skills), "steps": [], "texts": [], "last": ""}
    client = await create_client(sys.argv[1], client_config=ClientConfig(streaming=True))

    async for event in client.send_message(request("count")):
        if event.HasField("artifact_update"):
            seen["texts"].append(get_artifact_text(event.artifact_update.artifact))
        if event.HasField("status_update"):
            status = event.status_update.status
            seen["last"] = TaskState.Name(status.state)
            if status.HasField("message") and status.state == TaskState.TASK_STATE_WORKING:
                seen["steps"].append(get_message_text(status.message))

    task, canceled = "", None
    async for event in client.send_message(request("wait")):
        if event.HasField("task"):
            task = event.task.id
        if canceled is None and event.HasField("status_update"):
            if get_message_text(event.status_update.status.message) == "waiting":
                canceled = await client.cancel_task(CancelTaskRequest(id=task))
    seen["canceled"] = TaskState.Name(canceled.status.state)
    async for event in client.send_message(request("canceled")):
        if event.HasField("artifact_update"):
            seen["heard"] = get_artifact_text(event.artifact_update.artifact)
    await client.close()
    print(json.dumps(seen))


asyncio.run(main())
