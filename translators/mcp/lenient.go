package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// What a server has done is never told as failed because a part of its answer cannot be read: that part
// goes on as data, and the loss is declared. Refused is only what would be told wrongly: an answer to
// another request, a question, a task.

// lenientReply makes the reply of a call that cannot be read a result whose one part is the reply
// itself. err is why it cannot; the error that comes back is nil then.
func lenientReply(w translators.Wire, env jsonrpc.Message, m *canonical.Message, err error) error {
	malformed, ok := errors.AsType[*translators.MalformedError](err)
	if !ok || w.Re != canonical.OpInvoke || env.Error != nil || !rawjson.IsObject(env.Result) {
		return err
	}
	result := rawjson.Parse(env.Result, "")
	kind, _ := rawjson.Unquote(result.Peek("resultType"))
	if kind == resultAsks || kind == resultTask || result.Has("task") && !result.Has("content") {
		return err
	}
	if m.Origin.Version = replyVersion(w, result.Peek("resultType")); !known(m.Origin.Version) {
		return err
	}
	m.Body = &canonical.Result{Output: &canonical.Output{
		Parts: []canonical.Part{unreadPart(env.Result)}, Failed: saysFailed(result.Peek("isError")),
	}}
	m.Losses = append(m.Losses, unreadLoss(malformed.Path))
	return nil
}

// saysFailed reads isError. If it is no boolean, the safe reading is that the call failed.
func saysFailed(flag json.RawMessage) bool {
	return flag != nil && string(flag) != "false" && string(flag) != "null"
}

// lenientBlock appends a content block. One of a type that is not known here, or that lacks what its type
// needs, is a part with the block itself as data.
func lenientBlock(parts []canonical.Part, m *canonical.Message, raw json.RawMessage, at string, meta json.RawMessage) []canonical.Part {
	parts = append(parts, canonical.Part{})
	part := &parts[len(parts)-1]
	losses, err := decodeBlock(part, raw, at, m.Origin.Version, meta)
	if err != nil {
		*part, losses = unreadPart(raw), []canonical.Loss{unreadLoss(at)}
	}
	m.Losses = append(m.Losses, losses...)
	return parts
}

func unreadPart(raw json.RawMessage) canonical.Part {
	return canonical.Part{Kind: canonical.KindData, Data: raw}
}

func unreadLoss(at string) canonical.Loss {
	return canonical.Loss{Code: canonical.LossExtension, Path: at, Fate: canonical.Carried}
}

// decodeTools reads a list of tools. One that cannot be used, since it lacks what a tool must have,
// costs no other: it is left out, with the reason.
func decodeTools(tools, metas []json.RawMessage, version string, list *canonical.CapabilityList) {
	for i, raw := range tools {
		at := "/result/tools/" + strconv.Itoa(i)
		tool, err := decodeTool(raw, at, version, metas[i])
		if err == nil {
			list.Capabilities = append(list.Capabilities, tool)
			continue
		}
		omitted := canonical.Omission{Reason: translators.Explain(err)}
		if rawjson.IsObject(raw) {
			omitted.Name = rawjson.Parse(raw, "").PeekText("name")
		}
		list.Omitted = append(list.Omitted, omitted)
	}
}

// Peers whose serialisers write every member (Java, C#, Go, Python) write null for a member that they
// leave out. The schemas allow that for hardly any member, and most clients and servers take it: an
// explicit null is an absent member, in requests as in replies. Evidence covers the bytes as they
// came, and so does a relay of one revision.

// withoutNulls is an object of the protocol, at any depth, without the members that are null. What a
// tool, a schema or an extension defines stays as it is. version is that of the message; empty: it is
// not known, and a result type shows the newest.
func withoutNulls(raw json.RawMessage, version string) json.RawMessage {
	if !bytes.Contains(raw, []byte("null")) {
		return raw
	}
	if version == "" && rawjson.IsObject(raw) && rawjson.Parse(raw, "").Has("resultType") {
		version = Modern
	}
	return absentNulls(raw, version, nullDepth)
}

// nullDepth is how deep the protocol's own values nest at most, arrays counted: a resource in the result of a
// tool in a message of sampling. Each level is read again, so deeper ones, which cost more, stay as they are.
const nullDepth = 14

func absentNulls(raw json.RawMessage, version string, depth int) json.RawMessage {
	if depth == 0 {
		return raw
	}
	if elements, ok := rawjson.Elements(raw); ok {
		for i := range elements {
			elements[i] = absentNulls(elements[i], version, depth-1)
		}
		return rawjson.ArrayOf(elements)
	}
	if !rawjson.IsObject(raw) {
		return raw
	}
	o := rawjson.Parse(raw, "")
	b := rawjson.NewBuilderOf(len(raw))
	task, accepts := o.Has("taskId"), o.PeekText("action") == "accept"
	for _, m := range o.Members() {
		switch null := string(m.Value) == "null"; {
		case accepts && m.Name == "content": // of a form: a user's answer has its words, and to say nothing is no answer
			b.Raw(m.Name, m.Value)
		case null && isAbsent(m.Name, version, task):
		default:
			b.Raw(m.Name, absentInside(m, version, depth-1))
		}
	}
	return b.Bytes()
}

// absentInside is the value of a member without nulls.
func absentInside(m rawjson.Member, version string, depth int) json.RawMessage {
	switch {
	case m.Name == "_meta":
		return withoutNullMeta(m.Value, version, depth)
	case slices.Contains(foreignMembers[:], m.Name) && !(m.Name == "arguments" && m.Value[0] == '['): // those that a prompt lists
		return m.Value
	default:
		return absentNulls(m.Value, version, depth)
	}
}

// foreignMembers hold what the protocol does not define: arguments and results of tools, schemas, log
// data, and what extensions keep.
var foreignMembers = [...]string{
	"arguments", "structuredContent", "input", "inputSchema", "outputSchema", "requestedSchema", "data", "metadata", "experimental", placedKey, "inputResponses",
}

// isAbsent reports whether null counts as an absent member. A task without ttl lives for as long as
// its server wants (2025-11-25, tasks), and structured content is any JSON value since 2026-07-28. Of
// capabilities null is an empty object, since the member is required; the reader judges that. Members
// that no schema knows belong to others, and stay.
func isAbsent(name, version string, task bool) bool {
	switch name {
	case "ttl", "ttlMs":
		return !task
	case "structuredContent":
		return version != Modern
	}
	return slices.Contains(schemaMembers[:], name)
}

// schemaMembers are the members of the official schemas of all revisions and of the extension for
// tasks, but those in which null says something.
var schemaMembers = [...]string{
	"_meta", "action", "annotations", "argument", "arguments", "audience", "blob", "cacheScope", "call", "cancel", "clientInfo", "code",
	"completion", "completions", "content", "contents", "context", "costPriority", "create", "createMessage", "createdAt", "cursor",
	"description", "destructiveHint", "elicitation", "elicitationId", "elicitations", "error", "execution", "experimental", "extensions",
	"form", "format", "hasMore", "hints", "icons", "id", "idempotentHint", "includeContext", "input", "inputRequests", "inputResponses",
	"inputSchema", "instructions", "intelligencePriority", "isError", "lastModified", "lastUpdatedAt", "level", "list", "listChanged",
	"logger", "logging", "maxItems", "maxLength", "maxTokens", "maximum", "message", "messages", "metadata", "method", "mimeType", "minItems",
	"minLength", "minimum", "mode", "model", "modelPreferences", "name", "nextCursor", "notifications", "openWorldHint", "outputSchema",
	"params", "pollInterval", "pollIntervalMs", "priority", "progress", "progressToken", "prompts", "promptsListChanged", "protocolVersion",
	"readOnlyHint", "reason", "ref", "requestId", "requestState", "requested", "requestedSchema", "requests", "required", "requiredCapabilities",
	"resource", "resourceSubscriptions", "resourceTemplates", "resources", "resourcesListChanged", "result", "resultType", "role", "roots",
	"sampling", "serverInfo", "size", "sizes", "speedPriority", "src", "status", "statusMessage", "stopReason", "stopSequences", "subscribe",
	"supported", "supportedVersions", "systemPrompt", "task", "taskId", "taskIds", "taskSupport", "tasks", "temperature", "text", "theme",
	"title", "toolChoice", "toolUseId", "tools", "toolsListChanged", "total", "type", "uri", "uriTemplate", "url", "value", "values",
	"version", "websiteUrl",
}

// withoutNullMeta is a _meta without the nulls of members that the protocol itself defines: what others
// put there is theirs.
func withoutNullMeta(raw json.RawMessage, version string, depth int) json.RawMessage {
	if !rawjson.IsObject(raw) {
		return raw
	}
	b := rawjson.NewBuilderOf(len(raw))
	for _, m := range rawjson.Parse(raw, "").Members() {
		switch defined := slices.Contains(metaMembers[:], m.Name); {
		case defined && string(m.Value) == "null":
		case defined:
			b.Raw(m.Name, absentNulls(m.Value, version, depth))
		default:
			b.Raw(m.Name, m.Value)
		}
	}
	return b.Bytes()
}

// metaMembers are the members of _meta that the protocol defines.
var metaMembers = [...]string{
	"progressToken", metaVersion, metaCapabilities, metaClientInfo, metaServerInfo, metaLogLevel, metaTraceparent, metaTracestate, metaBaggage,
}
