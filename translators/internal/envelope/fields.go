package envelope

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// field is one canonical member that the object can hold. get answers nil where
// the message does not say it, set takes nil for "not said"; set answers false
// for a value that get would not give, or where the message has no such member.
type field struct {
	name   string
	get    func(*canonical.Message) json.RawMessage
	set    func(*canonical.Message, json.RawMessage) bool
	losses func(*canonical.Message) []canonical.Loss
	// beyond, if there is one, says what a message says beyond its view where less
	// than all of it has to be said; ok: it does, nil is nothing.
	beyond func(m, view *canonical.Message) (raw json.RawMessage, ok bool)
}

// difference is what has to be said of a field, null if the message does not say
// what the view does; nil: nothing.
func (f *field) difference(m, view *canonical.Message) json.RawMessage {
	if f.beyond != nil {
		if raw, ok := f.beyond(m, view); ok {
			return raw
		}
	}
	encoded, seen := f.get(m), f.get(view)
	switch {
	case (encoded == nil) == (seen == nil) && (encoded == nil || rawjson.Equal(encoded, seen)):
		return nil
	case encoded == nil:
		return json.RawMessage("null")
	default:
		return encoded
	}
}

// fields lists every field, in the order in which they are written.
func fields(own canonical.Binding) []field {
	list := messageFields(own)
	list = append(list, bodyFields(own)...)
	list = append(list, questionFields()...)
	list = append(list, resultFields(own)...)
	list = append(list, workFields()...)
	list = append(list, changeFields()...)
	return append(list, noticeFields()...)
}

// body is the message's body if it is of this type, else nil.
func body[B any](m *canonical.Message) *B {
	b, _ := any(m.Body).(*B)
	return b
}

// of gives a member of a part of the message to a field; nil: it has no such part.
func of[P, T any](part func(*canonical.Message) *P, at func(*P) *T) func(*canonical.Message) *T {
	return func(m *canonical.Message) *T {
		if p := part(m); p != nil {
			return at(p)
		}
		return nil
	}
}

// one is the losses of a field with one place.
func one(code canonical.LossCode, path string) func(*canonical.Message) []canonical.Loss {
	return func(*canonical.Message) []canonical.Loss {
		return []canonical.Loss{{Code: code, Path: path, Fate: canonical.Carried}}
	}
}

// member is a field that is a member of the message; at answers nil where the message has
// no such member. write answers nil for what need not be said; what is not said is zero.
func member[T any](
	name string, code canonical.LossCode, path string, at func(*canonical.Message) *T,
	write func(T) json.RawMessage, read func(json.RawMessage) (T, bool),
) field {
	return field{
		name: name, losses: one(code, path),
		get: func(m *canonical.Message) json.RawMessage {
			if p := at(m); p != nil {
				return write(*p)
			}
			return nil
		},
		set: func(m *canonical.Message, raw json.RawMessage) (ok bool) {
			p := at(m)
			if p == nil {
				return false
			}
			var value T
			if ok = true; raw != nil {
				value, ok = read(raw)
			}
			*p = value
			return ok
		},
	}
}

// whole is a member that is said wherever there is one.
func whole[T any](
	name string, code canonical.LossCode, path string, at func(*canonical.Message) *T,
	write func(*T) json.RawMessage, read func(json.RawMessage) (T, bool),
) field {
	return field{
		name: name, losses: one(code, path),
		get: func(m *canonical.Message) json.RawMessage {
			if p := at(m); p != nil {
				return write(p)
			}
			return nil
		},
		set: func(m *canonical.Message, raw json.RawMessage) (ok bool) {
			p := at(m)
			if p != nil {
				*p, ok = read(raw)
			}
			return ok
		},
	}
}

// optional is a member that may be absent.
func optional[T any](
	name string, code canonical.LossCode, path string, at func(*canonical.Message) **T,
	write func(*T) json.RawMessage, read func(json.RawMessage) (T, bool),
) field {
	return member(name, code, path, at, func(value *T) json.RawMessage {
		if value == nil {
			return nil
		}
		return write(value)
	}, func(raw json.RawMessage) (*T, bool) {
		value, ok := read(raw)
		return &value, ok
	})
}

// list is a member with several values.
func list[T any](
	name string, code canonical.LossCode, path string, at func(*canonical.Message) *[]T,
	write func(*T) json.RawMessage, read func(json.RawMessage) (T, bool),
) field {
	return field{
		name: name, losses: one(code, path),
		get: func(m *canonical.Message) json.RawMessage { return writeList(at(m), write) },
		set: func(m *canonical.Message, raw json.RawMessage) bool { return readList(at(m), raw, read) },
	}
}

// text is a string that is not empty.
func text(name string, code canonical.LossCode, path string, at func(*canonical.Message) *string) field {
	return member(name, code, path, at, func(value string) json.RawMessage {
		if value == "" {
			return nil
		}
		return rawjson.Quote(value)
	}, func(raw json.RawMessage) (string, bool) {
		value, ok := rawjson.Unquote(raw)
		return value, ok && value != ""
	})
}

// texts is a list of strings.
func texts(name string, code canonical.LossCode, path string, at func(*canonical.Message) *[]string) field {
	return member(name, code, path, at, rawjson.ArrayOfStrings, rawjson.Texts)
}

// among narrows a text field to values that exist.
func among[T ~string](f field, values ...T) field {
	set := f.set
	f.set = func(m *canonical.Message, raw json.RawMessage) bool {
		value, _ := rawjson.Unquote(raw)
		return (raw == nil || slices.Contains(values, T(value))) && set(m, raw)
	}
	return f
}

// raws is a member that is JSON already.
func raws(name string, code canonical.LossCode, path string, at func(*canonical.Message) *json.RawMessage) field {
	same := func(raw json.RawMessage) json.RawMessage { return raw }
	return member(name, code, path, at, same, func(raw json.RawMessage) (json.RawMessage, bool) { return raw, true })
}

// flag is a boolean.
func flag(name string, code canonical.LossCode, path string, at func(*canonical.Message) *bool) field {
	return member(name, code, path, at, func(is bool) json.RawMessage {
		if !is {
			return nil
		}
		return json.RawMessage("true")
	}, func(raw json.RawMessage) (is, ok bool) { return true, string(raw) == "true" })
}

// moment is a time in RFC 3339.
func moment(name string, code canonical.LossCode, path string, at func(*canonical.Message) *time.Time) field {
	return member(name, code, path, at, func(when time.Time) json.RawMessage {
		if when.IsZero() {
			return nil
		}
		return rawjson.Quote(when.UTC().Format(time.RFC3339Nano))
	}, func(raw json.RawMessage) (time.Time, bool) {
		text, _ := rawjson.Unquote(raw)
		when, err := time.Parse(time.RFC3339Nano, text)
		return when.UTC(), err == nil && !when.IsZero()
	})
}

// exts is the extensions of one level, for other bindings than own.
func exts(name, path string, own canonical.Binding, at func(*canonical.Message) *canonical.Extensions) field {
	return field{
		name: name,
		losses: func(m *canonical.Message) []canonical.Loss {
			return profile.ForeignLosses(*at(m), own, path)
		},
		get: func(m *canonical.Message) json.RawMessage {
			if p := at(m); p != nil {
				return profile.WriteExt(*p, own)
			}
			return nil
		},
		set: func(m *canonical.Message, raw json.RawMessage) bool {
			p := at(m)
			if p == nil {
				return false
			}
			ext := canonical.Extensions{}
			if raw != nil {
				var ok bool
				if ext, ok = profile.ReadExt(raw, own); !ok {
					return false
				}
			}
			if ours := (*p)[own]; ours != nil {
				ext[own] = ours
			}
			*p = ext
			return true
		},
	}
}

func messageFields(own canonical.Binding) []field {
	return []field{
		raws("id", canonical.LossIDs, "/correlation/wireId", func(m *canonical.Message) *json.RawMessage { return &m.Correlation.WireID }),
		text("message_id", canonical.LossIDs, "/correlation/messageId", func(m *canonical.Message) *string { return &m.Correlation.MessageID }),
		raws("progress", canonical.LossProgress, "/correlation/progress", func(m *canonical.Message) *json.RawMessage { return &m.Correlation.Progress }),
		text("context_id", canonical.LossIDs, "/conversation/contextId", func(m *canonical.Message) *string { return &m.Conversation.ContextID }),
		text("task_id", canonical.LossIDs, "/conversation/taskId", func(m *canonical.Message) *string { return &m.Conversation.TaskID }),
		texts("references", canonical.LossIDs, "/conversation/referenceTasks", func(m *canonical.Message) *[]string { return &m.Conversation.ReferenceTasks }),
		text("tenant", canonical.LossIDs, "/conversation/tenant", func(m *canonical.Message) *string { return &m.Conversation.Tenant }),
		text("sender", canonical.LossPeerInfo, "/from/id", func(m *canonical.Message) *string { return &m.From.ID }),
		text("sender_name", canonical.LossPeerInfo, "/from/name", func(m *canonical.Message) *string { return &m.From.Name }),
		text("sender_version", canonical.LossPeerInfo, "/from/version", func(m *canonical.Message) *string { return &m.From.Version }),
		text("sender_skill", canonical.LossIDs, "/from/skill", func(m *canonical.Message) *string { return &m.From.Skill }),
		text("recipient", canonical.LossPeerInfo, "/to/id", func(m *canonical.Message) *string { return &m.To.ID }),
		text("recipient_name", canonical.LossPeerInfo, "/to/name", func(m *canonical.Message) *string { return &m.To.Name }),
		text("recipient_version", canonical.LossPeerInfo, "/to/version", func(m *canonical.Message) *string { return &m.To.Version }),
		text("skill", canonical.LossIDs, "/to/skill", func(m *canonical.Message) *string { return &m.To.Skill }),
		flag("streaming", canonical.LossStatusUpdates, "/preferences/stream", func(m *canonical.Message) *bool { return &m.Preferences.Stream }),
		flag("no_wait", canonical.LossWait, "/preferences/noWait", func(m *canonical.Message) *bool { return &m.Preferences.NoWait }),
		texts("accept", canonical.LossModes, "/preferences/acceptMedia", func(m *canonical.Message) *[]string { return &m.Preferences.AcceptMedia }),
		optional("history_length", canonical.LossHistory, "/preferences/historyLength",
			func(m *canonical.Message) **int { return &m.Preferences.HistoryLength }, writeLength, readLength),
		text("log_level", canonical.LossProgress, "/preferences/logLevel", func(m *canonical.Message) *string { return &m.Preferences.LogLevel }),
		moment("deadline", canonical.LossDeadline, "/deadline", func(m *canonical.Message) *time.Time { return &m.Deadline }),
		text("traceparent", canonical.LossTrace, "/trace/parent", func(m *canonical.Message) *string { return &m.Trace.Parent }),
		text("tracestate", canonical.LossTrace, "/trace/state", func(m *canonical.Message) *string { return &m.Trace.State }),
		text("baggage", canonical.LossTrace, "/trace/baggage", func(m *canonical.Message) *string { return &m.Trace.Baggage }),
		exts("ext", "", own, func(m *canonical.Message) *canonical.Extensions { return &m.Extensions }),
	}
}

func writeLength(n *int) json.RawMessage { return json.RawMessage(strconv.Itoa(*n)) }

func readLength(raw json.RawMessage) (int, bool) {
	n, err := strconv.Atoi(string(raw))
	return n, err == nil && strconv.Itoa(n) == string(raw)
}
