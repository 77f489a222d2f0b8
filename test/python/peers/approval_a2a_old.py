"""An A2A client of 0.3: like approval_a2a.py."""

import asyncio
import json
import sys

from a2a.client import ClientConfig, ClientFactory
from a2a.types import DataPart, Message, Part, Role, TaskIdParams, TaskQueryParams


def show(task) -> None:
    parts = [part for artifact in task.artifacts or [] for part in artifact.parts]
    if task.status.message:
        parts += task.status.message.parts
    text = " ".join(part.root.text for part in parts if part.root.kind == "text")
    print(json.dumps({"id": task.id, "state": task.status.state.value, "text": text}), flush=True)


async def main() -> None:
    client, number = await ClientFactory.connect(sys.argv[1], client_config=ClientConfig(streaming=False)), 0
    follower = await ClientFactory.connect(sys.argv[1], client_config=ClientConfig(streaming=True))
    while line := await asyncio.to_thread(sys.stdin.readline):
        verb, word = json.loads(line)
        if verb == "call":
            number += 1
            part = Part(root=DataPart(data={"skill": "echo", "input": {"text": word}}))
            async for event in client.send_message(Message(message_id=f"m{number}", role=Role.user, parts=[part])):
                show(event[0])
        elif verb == "follow":
            async for event in follower.resubscribe(TaskIdParams(id=word)):
                show(event[0])
        else:
            show(await client.get_task(TaskQueryParams(id=word)))
    await client.close()
    await follower.close()


asyncio.run(main())
