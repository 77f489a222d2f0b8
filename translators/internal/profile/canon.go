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

// field is how one member of a message or of a part is carried.
type field[N ~string, T any] struct {
	name N
	loss canonical.LossCode
	path string                         // inside the message or the part
	get  func(*T) json.RawMessage       // nil: not set
	set  func(*T, json.RawMessage) bool // false: not a value that get would give
}

type messageField = field[Field, canonical.Message]

// CarryMessage writes those of the listed fields that are set into canon, and
// says what became carried.
func CarryMessage(canon *rawjson.Builder, m *canonical.Message, fields ...Field) []canonical.Loss {
	return carry(messageFields[:], canon, m, "", fields)
}

// RestoreMessage takes the listed fields out of canon into m. A value that
// CarryMessage would not have written stays where it is: kept, not believed.
func RestoreMessage(canon *rawjson.Object, m *canonical.Message, fields ...Field) {
	restore(messageFields[:], canon, m, fields)
}

func carry[N ~string, T any](table []field[N, T], canon *rawjson.Builder, from *T, at string, fields []N) []canonical.Loss {
	var losses []canonical.Loss
	for _, f := range table {
		if !slices.Contains(fields, f.name) {
			continue
		}
		if raw := f.get(from); raw != nil {
			canon.Raw(string(f.name), raw)
			losses = append(losses, canonical.Loss{Code: f.loss, Path: at + f.path, Fate: canonical.Carried})
		}
	}
	return losses
}

func restore[N ~string, T any](table []field[N, T], canon *rawjson.Object, to *T, fields []N) {
	for _, f := range table {
		if !slices.Contains(fields, f.name) {
			continue
		}
		if raw := canon.Peek(string(f.name)); raw != nil && f.set(to, raw) {
			canon.Take(string(f.name))
		}
	}
}

func textField[N ~string, T any](name N, loss canonical.LossCode, path string, at func(*T) *string) field[N, T] {
	return field[N, T]{
		name: name, loss: loss, path: path,
		get: func(of *T) json.RawMessage { return rawjson.QuoteSet(*at(of)) },
		set: func(of *T, raw json.RawMessage) bool { return unquoteSet(raw, at(of)) },
	}
}

func rawField[N ~string, T any](name N, loss canonical.LossCode, path string, at func(*T) *json.RawMessage) field[N, T] {
	return field[N, T]{
		name: name, loss: loss, path: path,
		get: func(of *T) json.RawMessage { return *at(of) },
		set: func(of *T, raw json.RawMessage) bool { *at(of) = raw; return true },
	}
}

func flagField(name Field, loss canonical.LossCode, path string, at func(*canonical.Message) *bool) messageField {
	return messageField{
		name: name, loss: loss, path: path,
		get: func(m *canonical.Message) json.RawMessage { return trueOrNil(*at(m)) },
		set: func(m *canonical.Message, raw json.RawMessage) bool {
			*at(m) = *at(m) || string(raw) == "true"
			return string(raw) == "true"
		},
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
	flagField(FieldNoWait, canonical.LossWait, "/preferences/noWait", func(m *canonical.Message) *bool { return &m.Preferences.NoWait }),
	flagField(FieldStream, canonical.LossStatusUpdates, "/preferences/stream", func(m *canonical.Message) *bool { return &m.Preferences.Stream }),
	{FieldDeadline, canonical.LossDeadline, "/deadline", getDeadline, setDeadline},
	rawField(FieldProgress, canonical.LossProgress, "/correlation/progress", func(m *canonical.Message) *json.RawMessage { return &m.Correlation.Progress }),
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

func getDeadline(m *canonical.Message) json.RawMessage { return quoteTime(m.Deadline) }

func setDeadline(m *canonical.Message, raw json.RawMessage) bool {
	return unquoteTime(raw, &m.Deadline)
}

func getArgsAbsent(m *canonical.Message) json.RawMessage {
	invoke, ok := m.Body.(*canonical.Invoke)
	return trueOrNil(ok && invoke.Call != nil && invoke.Call.Args == nil)
}

func setArgsAbsent(m *canonical.Message, raw json.RawMessage) bool {
	invoke, ok := m.Body.(*canonical.Invoke)
	if !ok || invoke.Call == nil || string(raw) != "true" || invoke.Call.Args != nil && !rawjson.Equal(invoke.Call.Args, []byte("{}")) {
		return false
	}
	invoke.Call.Args = nil
	return true
}

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
