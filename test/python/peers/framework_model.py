"""A model of the OpenAI Agents SDK that needs no network: it calls the one tool that it has
with what the user says, and then says what the tool answered; without tools it answers
itself."""

import json

from agents import Model, ModelResponse, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


def text_of(output) -> str:
    """What a tool answered, whether as text or as a list of parts."""
    return output if isinstance(output, str) else " ".join(part["text"] for part in output)


class Scripted(Model):
    def __init__(self) -> None:
        self.tools: list[str] = []

    async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs) -> ModelResponse:
        self.tools = [tool.name for tool in tools]
        items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        asked = next(item["content"] for item in items if item.get("role") == "user")
        results = [text_of(item["output"]) for item in items if item.get("type") == "function_call_output"]
        if tools and not results:
            call = ResponseFunctionToolCall(
                type="function_call", call_id="call-1", name=tools[0].name, arguments=json.dumps({"message": asked})
            )
            return ModelResponse(output=[call], usage=Usage(), response_id=None)
        text = f"the tool answered: {results[-1]}" if results else f"the framework answers: {asked}"
        message = ResponseOutputMessage(
            id="m1", type="message", role="assistant", status="completed",
            content=[ResponseOutputText(type="output_text", text=text, annotations=[])],
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError("the script does not stream")
