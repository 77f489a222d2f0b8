"""An A2A client of 0.3: like a2a_client.py."""

import asyncio
import json
import sys
import uuid

from a2a.client import ClientConfig, ClientFactory
from a2a.types import DataPart, Message, Part, Role, TextPart

ANSWERS = {"accept": None, "decline": "decline", "cancel": "cancel"}


async def say(client, part, task: str | None, number):
    """The last task of the answer."""
    message = Message(message_id=f"m{number}", role=Role.user, parts=[Part(root=part)], task_id=task)
    last = None
    async for event in client.send_message(message):
        last = event[0]
    return last


async def talk(url: str, *messages: str, streaming: bool) -> list:
    client, states, task = await ClientFactory.connect(url, client_config=ClientConfig(streaming=streaming)), [], None
    for message in map(json.loads, messages):
        part = TextPart(text=message["text"]) if "text" in message else DataPart(data=message["data"])
        last = await say(client, part, task, uuid.uuid4().hex)
        task = last.id
        states.append(last.status.state.value)
    return states


async def main() -> None:
    if len(sys.argv) > 2:
        print(json.dumps(await talk(*sys.argv[1:4], streaming=sys.argv[4] == "stream")))
        return
    client, seen, number = await ClientFactory.connect(sys.argv[1], client_config=ClientConfig(streaming=False)), {}, 0
    for action, word in ANSWERS.items():
        seen[action] = {}
        for skill in ("greet", "wipe", "order", "purge"):
            accepts = {"name": "Ada"} if skill in ("greet", "order") else {"action": "accept"}
            number += 2
            waits = await say(client, DataPart(data={"skill": skill, "input": {}}), None, number)
            part = TextPart(text=word) if word else DataPart(data=accepts)
            ended = await say(client, part, waits.id, number + 1)
            texts = [p.root.text for a in ended.artifacts or [] for p in a.parts if isinstance(p.root, TextPart)]
            seen[action][skill] = [waits.status.state.value, ended.status.state.value, "".join(texts)]
    print(json.dumps(seen))


asyncio.run(main())
