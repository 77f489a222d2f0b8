package profile

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Field is a canonical member of a request that some protocol has no place
// for; its value is its name inside "canon".
type Field string

// The fields of a message that can be carried.
const (
	FieldMessageID   Field = "messageId"
	FieldContextID   Field = "contextId"
	FieldTaskID      Field = "taskId"
	FieldReferences  Field = "referenceTaskIds"
	FieldTenant      Field = "tenant"
	FieldSkill       Field = "skill"
	FieldAccept      Field = "acceptedOutputModes"
	FieldHistory     Field = "historyLength"
	FieldNoWait      Field = "returnImmediately"
	FieldStream      Field = "stream"
	FieldDeadline    Field = "deadline"
	FieldProgress    Field = "progressToken"
	FieldLogLevel    Field = "logLevel"
	FieldFromName    Field = "fromName"
	FieldFromVersion Field = "fromVersion"
	FieldArgsAbsent  Field = "argumentsAbsent"
	FieldMessageExt  Field = "message" // the message-level extensions, by binding
)

type messageField struct {
	name Field
	loss canonical.LossCode
	path string
	get  func(*canonical.Message) json.RawMessage       // nil: not set
	set  func(*canonical.Message, json.RawMessage) bool // false: not a value that get would give
}

// CarryMessage writes those of the listed fields that are set into canon, and
// says what became carried.
func CarryMessage(canon *rawjson.Builder, m *canonical.Message, fields ...Field) []canonical.Loss {
	var losses []canonical.Loss
	for _, f := range messageFields {
		if !slices.Contains(fields, f.name) {
			continue
		}
		if raw := f.get(m); raw != nil {
			canon.Raw(string(f.name), raw)
			losses = append(losses, canonical.Loss{Code: f.loss, Path: f.path, Fate: canonical.Carried})
		}
	}
	return losses
}

// RestoreMessage takes the listed fields out of canon into m. A value that
// CarryMessage would not have written stays where it is: kept, not believed.
func RestoreMessage(canon *rawjson.Object, m *canonical.Message, fields ...Field) {
	for _, f := range messageFields {
		if !slices.Contains(fields, f.name) {
			continue
		}
		if raw := canon.Peek(string(f.name)); raw != nil && f.set(m, raw) {
			canon.Take(string(f.name))
		}
	}
}

func textField(name Field, loss canonical.LossCode, path string, at func(*canonical.Message) *string) messageField {
	return messageField{
		name: name, loss: loss, path: path,
		get: func(m *canonical.Message) json.RawMessage { return quoteSet(*at(m)) },
		set: func(m *canonical.Message, raw json.RawMessage) bool { return unquoteSet(raw, at(m)) },
	}
}

func listField(name Field, loss canonical.LossCode, path string, at func(*canonical.Message) *[]string) messageField {
	return messageField{
		name: name, loss: loss, path: path,
		get: func(m *canonical.Message) json.RawMessage { return rawjson.ArrayOfStrings(*at(m)) },
		set: func(m *canonical.Message, raw json.RawMessage) bool { return unquoteList(raw, at(m)) },
	}
}

var messageFields = [...]messageField{
	textField(FieldMessageID, canonical.LossIDs, "/correlation/messageId", func(m *canonical.Message) *string { return &m.Correlation.MessageID }),
	textField(FieldContextID, canonical.LossIDs, "/conversation/contextId", func(m *canonical.Message) *string { return &m.Conversation.ContextID }),
	textField(FieldTaskID, canonical.LossIDs, "/conversation/taskId", func(m *canonical.Message) *string { return &m.Conversation.TaskID }),
	listField(FieldReferences, canonical.LossIDs, "/conversation/referenceTasks", func(m *canonical.Message) *[]string { return &m.Conversation.ReferenceTasks }),
	textField(FieldTenant, canonical.LossIDs, "/conversation/tenant", func(m *canonical.Message) *string { return &m.Conversation.Tenant }),
	textField(FieldSkill, canonical.LossIDs, "/to/skill", func(m *canonical.Message) *string { return &m.To.Skill }),
	listField(FieldAccept, canonical.LossModes, "/preferences/acceptMedia", func(m *canonical.Message) *[]string { return &m.Preferences.AcceptMedia }),
	{FieldHistory, canonical.LossHistory, "/preferences/historyLength", getHistory, setHistory},
	{FieldNoWait, canonical.LossWait, "/preferences/noWait", getNoWait, setNoWait},
	{FieldStream, canonical.LossStatusUpdates, "/preferences/stream", getStream, setStream},
	{FieldDeadline, canonical.LossDeadline, "/deadline", getDeadline, setDeadline},
	{FieldProgress, canonical.LossProgress, "/correlation/progress", getProgress, setProgress},
	textField(FieldLogLevel, canonical.LossProgress, "/preferences/logLevel", func(m *canonical.Message) *string { return &m.Preferences.LogLevel }),
	textField(FieldFromName, canonical.LossPeerInfo, "/from/name", func(m *canonical.Message) *string { return &m.From.Name }),
	textField(FieldFromVersion, canonical.LossPeerInfo, "/from/version", func(m *canonical.Message) *string { return &m.From.Version }),
	{FieldArgsAbsent, canonical.LossAbsentArgs, "/body/call/args", getArgsAbsent, setArgsAbsent},
	{FieldMessageExt, canonical.LossExtension, "/extensions", getMessageExt, setMessageExt},
}

func getHistory(m *canonical.Message) json.RawMessage {
	if m.Preferences.HistoryLength == nil {
		return nil
	}
	return json.RawMessage(strconv.Itoa(*m.Preferences.HistoryLength))
}

func setHistory(m *canonical.Message, raw json.RawMessage) bool {
	n, err := strconv.Atoi(string(raw))
	if err != nil || strconv.Itoa(n) != string(raw) {
		return false
	}
	m.Preferences.HistoryLength = &n
	return true
}

func getNoWait(m *canonical.Message) json.RawMessage { return trueOrNil(m.Preferences.NoWait) }

func setNoWait(m *canonical.Message, raw json.RawMessage) bool {
	m.Preferences.NoWait = m.Preferences.NoWait || string(raw) == "true"
	return string(raw) == "true"
}

func getStream(m *canonical.Message) json.RawMessage { return trueOrNil(m.Preferences.Stream) }

func setStream(m *canonical.Message, raw json.RawMessage) bool {
	m.Preferences.Stream = m.Preferences.Stream || string(raw) == "true"
	return string(raw) == "true"
}

func getDeadline(m *canonical.Message) json.RawMessage { return quoteTime(m.Deadline) }

func setDeadline(m *canonical.Message, raw json.RawMessage) bool {
	return unquoteTime(raw, &m.Deadline)
}

func getProgress(m *canonical.Message) json.RawMessage { return m.Correlation.Progress }

func setProgress(m *canonical.Message, raw json.RawMessage) bool {
	m.Correlation.Progress = raw
	return true
}

func getArgsAbsent(m *canonical.Message) json.RawMessage {
	invoke, ok := m.Body.(*canonical.Invoke)
	return trueOrNil(ok && invoke.Call != nil && invoke.Call.Args == nil)
}

func setArgsAbsent(m *canonical.Message, raw json.RawMessage) bool {
	invoke, ok := m.Body.(*canonical.Invoke)
	if !ok || invoke.Call == nil || string(raw) != "true" || !emptyObject(invoke.Call.Args) {
		return false
	}
	invoke.Call.Args = nil
	return true
}

func emptyObject(raw json.RawMessage) bool { return raw == nil || rawjson.Equal(raw, []byte("{}")) }

func getMessageExt(m *canonical.Message) json.RawMessage { return writeExt(m.Extensions) }

func setMessageExt(m *canonical.Message, raw json.RawMessage) bool {
	ext, ok := readExt(raw)
	if ok && m.Extensions == nil {
		m.Extensions = ext
		return true
	}
	return false
}

func trueOrNil(set bool) json.RawMessage {
	if set {
		return json.RawMessage("true")
	}
	return nil
}

func quoteSet(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return rawjson.Quote(text)
}

func unquoteSet(raw json.RawMessage, to *string) bool {
	text, ok := rawjson.Unquote(raw)
	if !ok || text == "" {
		return false
	}
	*to = text
	return true
}

func unquoteList(raw json.RawMessage, to *[]string) bool {
	values, ok := rawjson.Texts(raw)
	if !ok || len(values) == 0 {
		return false
	}
	*to = values
	return true
}

func quoteTime(at time.Time) json.RawMessage {
	if at.IsZero() {
		return nil
	}
	return rawjson.Quote(at.UTC().Format(time.RFC3339Nano))
}

func unquoteTime(raw json.RawMessage, to *time.Time) bool {
	text, ok := rawjson.Unquote(raw)
	if !ok {
		return false
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.IsZero() || at.UTC().Format(time.RFC3339Nano) != text {
		return false
	}
	*to = at.UTC()
	return true
}
