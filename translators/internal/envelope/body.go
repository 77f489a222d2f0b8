package envelope

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// turn is the turn of an invocation or of a result; nil: it has none.
func turn(m *canonical.Message) *canonical.Content {
	switch body := m.Body.(type) {
	case *canonical.Invoke:
		return &body.Turn
	case *canonical.Result:
		return body.Turn
	case *canonical.Event:
		return body.Turn
	default:
		return nil
	}
}

func bodyFields(own canonical.Binding) []field {
	all := []field{
		turnText("turn_id", canonical.LossIDs, "/body/turn/id", func(c *canonical.Content) *string { return &c.ID }),
		role(),
		texts("extensions", canonical.LossMetadata, "/body/turn/extensionURIs", of(turn, func(c *canonical.Content) *[]string { return &c.ExtensionURIs })),
		exts("turn_ext", "/body/turn", own, of(turn, func(c *canonical.Content) *canonical.Extensions { return &c.Extensions })),
		optional("call", canonical.LossContent, "/body/call",
			of(body[canonical.Invoke], func(i *canonical.Invoke) **canonical.Call { return &i.Call }), writeCall, readCall),
		{name: "parts", get: getTurnParts, set: setTurnParts, losses: partsLosses}, // after the call that they may be
		exts("body_ext", "/body", own, func(m *canonical.Message) *canonical.Extensions { return canonical.ExtensionsOf(m.Body) }),
		text("cursor", canonical.LossOperation, "/body/cursor", of(body[canonical.Page], func(p *canonical.Page) *string { return &p.Cursor })),
		list("capabilities", canonical.LossSchemas, "/body/capabilities", capabilities, writeCapability, readCapability),
	}
	all = append(all, describeFields()...)
	return append(all, errorFields()...)
}

// role is a loss only where it is not the one that goes without saying.
func role() field {
	f := turnText("role", canonical.LossHistory, "/body/turn/role", func(c *canonical.Content) *string { return (*string)(&c.Role) })
	declared := f.losses
	f.losses = func(m *canonical.Message) []canonical.Loss {
		implied := canonical.RoleCaller
		switch m.Body.(type) {
		case *canonical.Result, *canonical.Event:
			implied = canonical.RoleAgent
		}
		if turn(m).Role == implied {
			return nil
		}
		return declared(m)
	}
	return among(f, canonical.RoleCaller, canonical.RoleAgent)
}

func turnText(name string, code canonical.LossCode, path string, at func(*canonical.Content) *string) field {
	return text(name, code, path, of(turn, at))
}

// theCall stands in place of the parts of a turn that are the message's call in
// other words (profile P2), and nothing else: the call is not said twice.
const theCall = `"call"`

// partsLosses returns the losses of a turn beside its call. A turn may hold texts that the
// call does not, which the agent then does not see.
func partsLosses(m *canonical.Message) []canonical.Loss {
	const path = "/body/turn/parts"
	invoke, ok := m.Body.(*canonical.Invoke)
	if !ok || invoke.Call == nil {
		return one(canonical.LossContent, path)(m)
	}
	if profile.SaysCall(invoke.Turn.Parts, invoke.Call) {
		return nil
	}
	call, ok := profile.TypedTurn(invoke.Turn.Parts)
	if !ok || call.Name != invoke.Call.Name || !rawjson.Equal(call.Args, invoke.Call.Args) {
		return one(canonical.LossContent, path)(m)
	}
	return one(canonical.LossPartBoundaries, path)(m)
}

func getTurnParts(m *canonical.Message) json.RawMessage {
	c := turn(m)
	if c == nil {
		return nil
	}
	if invoke, ok := m.Body.(*canonical.Invoke); ok && invoke.Call != nil && profile.SaysCall(c.Parts, invoke.Call) {
		return json.RawMessage(theCall)
	}
	return writeParts(c.Parts)
}

func setTurnParts(m *canonical.Message, raw json.RawMessage) bool {
	c := turn(m)
	if invoke, ok := m.Body.(*canonical.Invoke); ok && invoke.Call != nil && string(raw) == theCall {
		c.Parts = profile.TypedParts(invoke.Call)
		return true
	}
	return c != nil && readParts(raw, &c.Parts)
}

func writeParts(parts []canonical.Part) json.RawMessage {
	return writeList(&parts, profile.WritePart)
}

func readParts(raw json.RawMessage, to *[]canonical.Part) bool {
	return readList(to, raw, profile.ReadPart)
}

func writeCall(c *canonical.Call) json.RawMessage {
	return rawjson.NewBuilder().String("name", c.Name).Raw("arguments", c.Args).Bytes()
}

func readCall(raw json.RawMessage) (c canonical.Call, ok bool) {
	o := rawjson.Parse(raw, "")
	c.Args = o.RawObject("arguments")
	c.Name, _ = o.String("name")
	return c, o.Err() == nil && len(o.Members()) == 0
}

func failure(m *canonical.Message) *canonical.Error { return body[canonical.Error](m) }

func errorFields() []field {
	return []field{
		among(text("error", canonical.LossErrorCode, "/body/code", of(failure, func(e *canonical.Error) *string { return (*string)(&e.Code) })),
			canonical.Codes()...),
		text("error_message", canonical.LossErrorDetail, "/body/message", of(failure, func(e *canonical.Error) *string { return &e.Message })),
		member("error_details", canonical.LossErrorDetail, "/body/details",
			of(failure, func(e *canonical.Error) *[]json.RawMessage { return &e.Details }), writeDetails, rawjson.Elements),
		raws("error_schema", canonical.LossErrorDetail, "/body/schema", of(failure, func(e *canonical.Error) *json.RawMessage { return &e.Schema })),
		member("retry_after_ns", canonical.LossErrorDetail, "/body/retryAfter",
			of(failure, func(e *canonical.Error) *time.Duration { return &e.RetryAfter }), writeRetry, readRetry),
		optional("error_native", canonical.LossErrorDetail, "/body/native",
			of(failure, func(e *canonical.Error) **canonical.NativeError { return &e.Native }), writeNative, readNative),
	}
}

func writeDetails(details []json.RawMessage) json.RawMessage {
	if len(details) == 0 {
		return nil
	}
	return rawjson.ArrayOf(details)
}

func writeRetry(after time.Duration) json.RawMessage {
	if after <= 0 {
		return nil
	}
	return json.RawMessage(strconv.FormatInt(int64(after), 10))
}

func readRetry(raw json.RawMessage) (time.Duration, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return time.Duration(n), err == nil && n > 0
}

func writeNative(n *canonical.NativeError) json.RawMessage {
	return rawjson.NewBuilder().String("binding", string(n.Binding)).
		Raw("code", json.RawMessage(strconv.FormatInt(n.Code, 10))).Raw("data", n.Data).Bytes()
}

func readNative(raw json.RawMessage) (canonical.NativeError, bool) {
	o := rawjson.Parse(raw, "")
	binding, _ := o.String("binding")
	code, err := strconv.ParseInt(string(o.Take("code")), 10, 64)
	n := canonical.NativeError{Binding: canonical.Binding(binding), Code: code, Data: o.Take("data")}
	return n, err == nil && o.Err() == nil && binding != "" && len(o.Members()) == 0
}
