"""An A2A client of 1.0 whose calls wait for approval. Each line of its input is a list: ["call",
TEXT] has the skill echo say a text, ["follow", ID] subscribes to a task, ["get", ID] reads one.
Prints each task or change of it as JSON: its id, its state and its text."""

import asyncio
import json
import sys

from a2a.client import ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_message_text, new_data_part
from a2a.types import GetTaskRequest, Message, Role, SendMessageRequest, SubscribeToTaskRequest, TaskState


def show(task: str, status, artifacts) -> None:
    texts = [get_artifact_text(artifact) for artifact in artifacts]
    if status.HasField("message"):
        texts.append(get_message_text(status.message))
    print(json.dumps({"id": task, "state": TaskState.Name(status.state), "text": " ".join(texts)}), flush=True)


async def events(stream) -> None:
    async for event in stream:
        if event.HasField("task"):
            show(event.task.id, event.task.status, event.task.artifacts)
        elif event.HasField("status_update"):
            show(event.status_update.task_id, event.status_update.status, [])


async def main() -> None:
    client, number = await create_client(sys.argv[1], client_config=ClientConfig(streaming=False)), 0
    follower = await create_client(sys.argv[1], client_config=ClientConfig(streaming=True))
    while line := await asyncio.to_thread(sys.stdin.readline):
        verb, word = json.loads(line)
        if verb == "call":
            number += 1
            part = new_data_part({"skill": "echo", "input": {"text": word}})
            message = Message(message_id=f"m{number}", role=Role.ROLE_USER, parts=[part])
            await events(client.send_message(SendMessageRequest(message=message)))
        elif verb == "follow":
            await events(follower.subscribe(SubscribeToTaskRequest(id=word)))
        else:
            task = await client.get_task(GetTaskRequest(id=word))
            show(task.id, task.status, task.artifacts)
    await client.close()
    await follower.close()


asyncio.run(main())
