"""An A2A client of 1.0: calls the skills of fastmcp_server.py at the URL, and prints as JSON
what came of that."""

import asyncio
import json
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_message_text, new_data_part
from a2a.types import Message, Role, SendMessageRequest, TaskState


def message(part, name: str, task: str = "") -> SendMessageRequest:
    return SendMessageRequest(message=Message(message_id=name, role=Role.ROLE_USER, parts=[part], task_id=task))


def called(skill: str, **arguments):
    return new_data_part({"skill": skill, "input": arguments})


def state(task) -> str:
    return TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower().replace("_", "-")


async def ends(client, request):
    last = None
    async for event in client.send_message(request):
        if event.HasField("task"):
            last = event.task
    return last


async def main() -> None:
    http = httpx.AsyncClient(timeout=60)  # a first process takes a while to start
    card = await A2ACardResolver(http, sys.argv[1]).get_agent_card()
    seen = {"skills": sorted(skill.id for skill in card.skills), "steps": [], "counted": ""}
    client = await create_client(sys.argv[1], client_config=ClientConfig(streaming=False, httpx_client=http))
    task = await ends(client, message(called("echo", text="Grüße, 世界"), "m1"))
    seen["echo"] = [state(task), get_artifact_text(task.artifacts[0])]
    task = await ends(client, message(called("greet"), "m2"))
    seen["asked"] = state(task)
    task = await ends(client, message(new_data_part({"name": "Ada"}), "m3", task.id))
    seen["greeted"] = [state(task), get_artifact_text(task.artifacts[0])]
    client = await create_client(sys.argv[1], client_config=ClientConfig(streaming=True, httpx_client=http))
    async for event in client.send_message(message(called("count"), "m4")):
        if event.HasField("artifact_update"):
            seen["counted"] = get_artifact_text(event.artifact_update.artifact)
        if event.HasField("status_update") and event.status_update.status.HasField("message"):
            seen["steps"].append(get_message_text(event.status_update.status.message))
    await client.close()
    await http.aclose()
    print(json.dumps(seen))


asyncio.run(main())
