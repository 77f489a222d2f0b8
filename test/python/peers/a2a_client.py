"""An A2A client of 1.0: calls the skills of the agent at the URL, answers what it asks in
each way, and prints as JSON the states it has seen and what the agent has heard. With a question, its
answer and whether to stream after the URL, it sends these alone, and prints the two states."""

import asyncio
import json
import sys
import uuid

from a2a.client import ClientConfig, create_client
from a2a.helpers import get_artifact_text, new_data_part, new_text_part
from a2a.types import Message, Role, SendMessageRequest, Task, TaskState

ANSWERS = {"accept": None, "decline": "decline", "cancel": "cancel"}


async def say(client, part, task: str, number):
    """The last task of the answer, and the state of it."""
    message = Message(message_id=f"m{number}", role=Role.ROLE_USER, parts=[part], task_id=task)
    last = Task(id=task)
    async for event in client.send_message(SendMessageRequest(message=message)):
        if event.HasField("task"):
            last = event.task
        elif event.HasField("status_update"):
            last.status.CopyFrom(event.status_update.status)
    return last


async def talk(url: str, *messages: str, streaming: bool) -> list:
    client, states, task = await create_client(url, client_config=ClientConfig(streaming=streaming)), [], ""
    for message in map(json.loads, messages):
        part = new_text_part(message["text"]) if "text" in message else new_data_part(message["data"])
        last = await say(client, part, task, uuid.uuid4().hex)
        task = last.id
        states.append(state(last))
    await client.close()
    return states


def state(task) -> str:
    return TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower().replace("_", "-")


async def main() -> None:
    if len(sys.argv) > 2:
        print(json.dumps(await talk(*sys.argv[1:4], streaming=sys.argv[4] == "stream")))
        return
    client, seen, number = await create_client(sys.argv[1], client_config=ClientConfig(streaming=False)), {}, 0
    for action, word in ANSWERS.items():
        seen[action] = {}
        for skill in ("greet", "wipe", "order", "purge"):
            accepts = {"name": "Ada"} if skill in ("greet", "order") else {"action": "accept"}
            number += 2
            waits = await say(client, new_data_part({"skill": skill, "input": {}}), "", number)
            part = new_text_part(word) if word else new_data_part(accepts)
            ended = await say(client, part, waits.id, number + 1)
            text = get_artifact_text(ended.artifacts[0]) if ended.artifacts else ""
            seen[action][skill] = [state(waits), state(ended), text]
    await client.close()
    print(json.dumps(seen))


asyncio.run(main())
