package profile

import "encoding/json"

// MessageInputSchema is the input schema of every P1 tool: closed, with its
// properties listed and without composition keywords, so that strict clients
// take it.
func MessageInputSchema() json.RawMessage { return json.RawMessage(messageInput) }

// MessageOutputSchema is the schema of a P1 tool's structured result.
func MessageOutputSchema() json.RawMessage { return json.RawMessage(messageOutput) }

const messageInput = `{"type":"object","properties":{` +
	`"message":{"type":"string","description":"What to say to the agent."},` +
	`"data":{"type":"object","description":"Structured data that goes with the message."},` +
	`"files":{"type":"array","description":"Files that go with the message.","items":{"type":"object","properties":{` +
	`"name":{"type":"string","description":"File name."},` +
	`"mediaType":{"type":"string","description":"Media type, such as image/png."},` +
	`"bytes":{"type":"string","description":"The file's content in base64. Give this or uri."},` +
	`"uri":{"type":"string","description":"Where the file is. Give this or bytes."}},` +
	`"additionalProperties":false}},` +
	`"context_id":{"type":"string","description":"Continues a conversation: the context_id of an earlier result."},` +
	`"task_id":{"type":"string","description":"Continues a task that asked for input: the task_id of its result."}},` +
	`"required":["message"],"additionalProperties":false}`

const messageOutput = `{"type":"object","properties":{` +
	`"state":{"type":"string","description":"How the work stands: completed, input-required, failed and so on."},` +
	`"text":{"type":"string","description":"The agent's words."},` +
	`"context_id":{"type":"string","description":"Names the conversation; pass it to continue."},` +
	`"task_id":{"type":"string","description":"Names the task; pass it to answer a question of the agent."},` +
	`"artifacts":{"type":"array","description":"What the agent made.","items":{"type":"object","properties":{` +
	`"id":{"type":"string"},"name":{"type":"string"},` +
	`"parts":{"type":"array","items":{"type":"object","properties":{` +
	`"text":{"type":"string"},"data":{},"uri":{"type":"string"},"name":{"type":"string"},"mediaType":{"type":"string"},` +
	`"content":{"type":"integer","description":"A file: its place in the result's content, from 0."}}}}}}}},` +
	`"required":["state","text"]}`
