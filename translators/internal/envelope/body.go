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
	list := []field{
		turnText("turn_id", canonical.LossIDs, "/body/turn/id", func(c *canonical.Content) *string { return &c.ID }),
		role(),
		texts("extensions", canonical.LossMetadata, "/body/turn/extensionURIs", of(turn, func(c *canonical.Content) *[]string { return &c.ExtensionURIs })),
		exts("turn_ext", "/body/turn", own, of(turn, func(c *canonical.Content) *canonical.Extensions { return &c.Extensions })),
		made("call", getCall, setCall, one(canonical.LossContent, "/body/call")),
		made("parts", getTurnParts, setTurnParts, partsLosses), // after the call that they may be
		exts("body_ext", "/body", own, bodyExtensions),
		text("cursor", canonical.LossOperation, "/body/cursor", cursor),
		made("capabilities", getCapabilities, setCapabilities, one(canonical.LossSchemas, "/body/capabilities")),
	}
	list = append(list, describeFields()...)
	return append(list, errorFields()...)
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

// partsLosses: the turn of a call is the call in other words, and where it is more
// there are texts beside it that whoever is called does not see.
func partsLosses(m *canonical.Message) []canonical.Loss {
	const path = "/body/turn/parts"
	invoke, ok := m.Body.(*canonical.Invoke)
	if !ok || invoke.Call == nil {
		return one(canonical.LossContent, path)(m)
	}
	if profile.SaysCall(invoke.Turn.Parts, invoke.Call) {
		return nil
	}
	call, _, ok := profile.TypedTurn(invoke.Turn.Parts)
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

func getCall(m *canonical.Message) json.RawMessage {
	invoke, ok := m.Body.(*canonical.Invoke)
	if !ok || invoke.Call == nil {
		return nil
	}
	return rawjson.NewBuilder().String("name", invoke.Call.Name).Raw("arguments", invoke.Call.Args).Bytes()
}

func setCall(m *canonical.Message, raw json.RawMessage) bool {
	invoke, ok := m.Body.(*canonical.Invoke)
	if !ok {
		return false
	}
	invoke.Call = nil
	if raw == nil {
		return true
	}
	o := rawjson.Parse(raw, "")
	invoke.Call = &canonical.Call{Args: o.RawObject("arguments")}
	invoke.Call.Name, _ = o.String("name")
	return o.Err() == nil && len(o.Members()) == 0
}

func bodyExtensions(m *canonical.Message) *canonical.Extensions {
	switch body := m.Body.(type) {
	case *canonical.Invoke:
		return &body.Extensions
	case *canonical.Result:
		return &body.Extensions
	case *canonical.DescribeRequest:
		return &body.Extensions
	case *canonical.Description:
		return &body.Extensions
	case *canonical.Page:
		return &body.Extensions
	case *canonical.CapabilityList:
		return &body.Extensions
	case *canonical.Error:
		return &body.Extensions
	case *canonical.Signal:
		return &body.Extensions
	case *canonical.Event:
		return &body.Extensions
	case *canonical.TaskQuery:
		return &body.Extensions
	case *canonical.TaskFilter:
		return &body.Extensions
	case *canonical.TaskList:
		return &body.Extensions
	case *canonical.Done:
		return &body.Extensions
	case *canonical.Reply:
		return &body.Extensions
	case *canonical.Abort:
		return &body.Extensions
	default:
		return nil
	}
}

func cursor(m *canonical.Message) *string {
	switch body := m.Body.(type) {
	case *canonical.Page:
		return &body.Cursor
	default:
		return nil
	}
}

func failure(m *canonical.Message) *canonical.Error {
	e, _ := m.Body.(*canonical.Error)
	return e
}

func errorFields() []field {
	return []field{
		among(text("error", canonical.LossErrorCode, "/body/code", func(m *canonical.Message) *string {
			if e := failure(m); e != nil {
				return (*string)(&e.Code)
			}
			return nil
		}), canonical.Codes()...),
		text("error_message", canonical.LossErrorDetail, "/body/message", func(m *canonical.Message) *string {
			if e := failure(m); e != nil {
				return &e.Message
			}
			return nil
		}),
		made("error_details", getDetails, setDetails, one(canonical.LossErrorDetail, "/body/details")),
		raws("error_schema", canonical.LossErrorDetail, "/body/schema", func(m *canonical.Message) *json.RawMessage {
			if e := failure(m); e != nil {
				return &e.Schema
			}
			return nil
		}),
		made("retry_after_ns", getRetry, setRetry, one(canonical.LossErrorDetail, "/body/retryAfter")),
		made("error_native", getNative, setNative, one(canonical.LossErrorDetail, "/body/native")),
	}
}

func getDetails(m *canonical.Message) json.RawMessage {
	if e := failure(m); e != nil && len(e.Details) > 0 {
		return rawjson.ArrayOf(e.Details)
	}
	return nil
}

func setDetails(m *canonical.Message, raw json.RawMessage) bool {
	e := failure(m)
	if e == nil {
		return false
	}
	var ok bool
	e.Details, ok = elementsOf(raw)
	return ok
}

func getRetry(m *canonical.Message) json.RawMessage {
	if e := failure(m); e != nil && e.RetryAfter > 0 {
		return json.RawMessage(strconv.FormatInt(int64(e.RetryAfter), 10))
	}
	return nil
}

func setRetry(m *canonical.Message, raw json.RawMessage) bool {
	e := failure(m)
	if e == nil {
		return false
	}
	e.RetryAfter = 0
	if raw == nil {
		return true
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	e.RetryAfter = time.Duration(n)
	return err == nil && n > 0
}

func getNative(m *canonical.Message) json.RawMessage {
	e := failure(m)
	if e == nil || e.Native == nil {
		return nil
	}
	return rawjson.NewBuilder().String("binding", string(e.Native.Binding)).
		Raw("code", json.RawMessage(strconv.FormatInt(e.Native.Code, 10))).Raw("data", e.Native.Data).Bytes()
}

func setNative(m *canonical.Message, raw json.RawMessage) bool {
	e := failure(m)
	if e == nil {
		return false
	}
	e.Native = nil
	if raw == nil {
		return true
	}
	o := rawjson.Parse(raw, "")
	binding, _ := o.String("binding")
	code, err := strconv.ParseInt(string(o.Take("code")), 10, 64)
	e.Native = &canonical.NativeError{Binding: canonical.Binding(binding), Code: code, Data: o.Take("data")}
	return err == nil && o.Err() == nil && binding != "" && len(o.Members()) == 0
}
