"""An A2A client of 1.0: calls the skill echo of the agent at the URL, whose call waits for an approver, reads the task
until it waits no more, and prints as JSON the states and the text that it has seen."""

import asyncio
import json
import sys

from a2a.client import ClientConfig, create_client
from a2a.helpers import get_artifact_text, new_data_part
from a2a.types import GetTaskRequest, Message, Role, SendMessageRequest, TaskState


def state(task) -> str:
    return TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower().replace("_", "-")


async def main() -> None:
    client, task, seen = await create_client(sys.argv[1], client_config=ClientConfig(streaming=False)), None, []
    part = new_data_part({"skill": "echo", "input": {"text": "Grüße"}})
    message = Message(message_id="m1", role=Role.ROLE_USER, parts=[part])
    async for event in client.send_message(SendMessageRequest(message=message)):
        if event.HasField("task"):
            task = event.task
    while not seen or seen[-1] in ("auth-required", "working"):
        if not seen or seen[-1] != state(task):
            seen.append(state(task))
        if seen[-1] in ("auth-required", "working"):
            await asyncio.sleep(0.05)
            task = await client.get_task(GetTaskRequest(id=task.id))
    await client.close()
    text = get_artifact_text(task.artifacts[0]) if task.artifacts else ""
    print(json.dumps({"first": seen[0], "last": seen[-1], "text": text}))


asyncio.run(main())
