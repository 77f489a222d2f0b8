package translatortest_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// toy is the smallest honest protocol: someone says something, someone answers,
// or it goes wrong. Text and data are all it knows; a turn's id rides along in
// a member of ours, the rest is dropped and declared.
type toy struct{ cfg translators.Config }

const toyBinding canonical.Binding = "toy-v1"

func newToy() toy {
	return toy{translators.Config{BodyLimit: 1 << 16, Depth: 16}}
}

func (y toy) Info() translators.Info {
	return translators.Info{
		Binding: toyBinding, Name: "Toy", Versions: []string{"1"}, Media: []string{"application/json"},
		BodyLimit: y.cfg.BodyLimit, Depth: y.cfg.Depth,
	}
}

func (y toy) Decode(wire translators.Wire) (*canonical.Message, error) {
	env, err := jsonrpc.Parse(wire.Body, y.cfg)
	if err != nil {
		return nil, err
	}
	m := &canonical.Message{
		Op: canonical.OpInvoke, Correlation: canonical.Correlation{WireID: env.ID},
		Origin: canonical.Origin{Binding: toyBinding, Version: "1", Raw: wire.Body},
	}
	switch {
	case env.Method == "say":
		m.Phase = canonical.PhaseRequest
		turn, rest, err := y.turn(m, env.Params, canonical.RoleCaller)
		m.Body = &canonical.Invoke{Turn: turn, Extensions: rest}
		return m, err
	case env.Method == "hush" && env.ID == nil && env.Params == nil:
		m.Op, m.Phase = canonical.OpNotice, canonical.PhaseRequest
		return m, nil
	case env.Method != "":
		return m, &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such method"}
	case env.Error != nil:
		m.Phase = canonical.PhaseError
		return m, y.failed(m, *env.Error)
	default:
		m.Phase = canonical.PhaseResponse
		turn, rest, err := y.turn(m, env.Result, canonical.RoleAgent)
		m.Body = &canonical.Result{Turn: &turn, Extensions: rest}
		return m, err
	}
}

func (y toy) turn(m *canonical.Message, raw json.RawMessage, role canonical.Role) (canonical.Content, canonical.Extensions, error) {
	o := rawjson.Parse(raw, "")
	turn := canonical.Content{Role: role}
	m.Conversation.ContextID, _ = o.String("context")
	turn.ID, _ = o.String("turn")
	elements, _ := o.Array("parts")
	for _, element := range elements {
		p := rawjson.Parse(element, "/parts")
		part := canonical.Part{Kind: canonical.KindText, Data: p.Take("data")}
		part.Text, _ = p.String("text")
		if part.Data != nil {
			part.Kind = canonical.KindData
		}
		if p.Err() != nil || len(p.Members()) > 0 || (part.Data != nil) == (part.Text != "") {
			o.Fail("parts", "not a part")
		}
		turn.Parts = append(turn.Parts, part)
	}
	var rest canonical.Extensions
	if left := o.Rest(); left != nil {
		rest = canonical.Extensions{toyBinding: left}
	}
	return turn, rest, o.Err()
}

func (y toy) failed(m *canonical.Message, e jsonrpc.Error) error {
	at := int(e.Code) - 1000
	if at < 0 || at >= len(canonical.Codes()) || e.Data != nil || e.Rest != nil {
		return &translators.MalformedError{Path: "/error", Reason: "not an error of this protocol"}
	}
	m.Body = &canonical.Error{Code: canonical.Codes()[at], Message: e.Message}
	return nil
}

func (y toy) Encode(m *canonical.Message, target translators.Target) (translators.Wire, []canonical.Loss, error) {
	if target.Version != "" && target.Version != "1" {
		return translators.Wire{}, nil, &canonical.Error{Code: canonical.CodeUnsupportedVersion}
	}
	wire := translators.Wire{Binding: toyBinding, Version: "1", Media: "application/json"}
	losses := envelopeLosses(m)
	switch body := m.Body.(type) {
	case *canonical.Invoke:
		if body != nil && m.Op == canonical.OpInvoke && m.Phase == canonical.PhaseRequest && len(body.Turn.Parts) > 0 {
			params, more, err := say(m, "/turn", body.Turn, body.Extensions)
			wire.Body = jsonrpc.Request(m.Correlation.WireID, "say", params)
			return wire, append(losses, more...), err
		}
	case *canonical.Result:
		if m.Op == canonical.OpInvoke && m.Phase == canonical.PhaseResponse && body.Turn != nil && m.Correlation.WireID != nil {
			result, more, err := say(m, "/turn", *body.Turn, body.Extensions)
			wire.Re, wire.Body = m.Op, jsonrpc.Result(m.Correlation.WireID, result)
			return wire, append(losses, more...), err
		}
	case *canonical.Error:
		if code := slices.Index(canonical.Codes(), body.Code); code >= 0 && m.Phase == canonical.PhaseError {
			wire.Re = m.Op
			wire.Body = jsonrpc.Failure(m.Correlation.WireID, jsonrpc.Error{Code: int64(1000 + code), Message: body.Message})
			return wire, append(losses, errorLosses(*body)...), nil
		}
	case nil:
		if m.Op == canonical.OpNotice {
			wire.Body = jsonrpc.Request(nil, "hush", nil)
			return wire, losses, nil
		}
	}
	return translators.Wire{}, nil, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "not something this protocol says"}
}

func say(m *canonical.Message, at string, turn canonical.Content, own canonical.Extensions) (json.RawMessage, []canonical.Loss, error) {
	var losses []canonical.Loss
	parts := []json.RawMessage{}
	for i, part := range turn.Parts {
		here := fmt.Sprintf("%s/parts/%d", at, i)
		switch {
		case part.Kind == canonical.KindText && part.Text != "":
			parts = append(parts, rawjson.NewBuilder().String("text", part.Text).Bytes())
		case part.Kind == canonical.KindData && part.Data != nil:
			parts = append(parts, rawjson.NewBuilder().Raw("data", part.Data).Bytes())
		default:
			return nil, nil, &canonical.Error{Code: canonical.CodeUnsupportedMedia, Message: "text and data only"}
		}
		losses = missing(losses, part.Media != "", canonical.LossMediaType, here+"/media")
		losses = missing(losses, part.Name != "", canonical.LossMediaType, here+"/name")
		losses = missing(losses, len(part.Extensions) > 0, canonical.LossMetadata, here+"/extensions")
	}
	if turn.ID != "" && m.Origin.Binding != toyBinding {
		losses = append(losses, canonical.Loss{Code: canonical.LossIDs, Path: at + "/id", Fate: canonical.Carried})
	}
	losses = missing(losses, len(turn.ExtensionURIs) > 0, canonical.LossMetadata, at+"/extensionURIs")
	losses = missing(losses, len(turn.Extensions) > 0, canonical.LossMetadata, at+"/extensions")
	for binding := range own {
		losses = missing(losses, binding != toyBinding, canonical.LossExtension, "/body/extensions/"+string(binding))
	}
	slices.SortFunc(losses, func(a, b canonical.Loss) int { return slices.Compare([]byte(a.Path), []byte(b.Path)) })
	return rawjson.NewBuilder().Optional("context", m.Conversation.ContextID).Optional("turn", turn.ID).
		Array("parts", parts).Merge(own[toyBinding]).Bytes(), losses, nil
}

func envelopeLosses(m *canonical.Message) []canonical.Loss {
	var losses []canonical.Loss
	losses = missing(losses, m.Correlation.MessageID != "", canonical.LossIDs, "/correlation/messageID")
	losses = missing(losses, m.Conversation.TaskID != "", canonical.LossIDs, "/conversation/taskID")
	losses = missing(losses, m.Preferences.NoWait, canonical.LossWait, "/preferences/noWait")
	losses = missing(losses, !m.Deadline.IsZero(), canonical.LossDeadline, "/deadline")
	losses = missing(losses, m.Trace.Parent != "", canonical.LossTrace, "/trace/parent")
	return missing(losses, m.Body != nil && m.Phase == canonical.PhaseError && m.Conversation.ContextID != "", canonical.LossIDs, "/conversation/contextID")
}

func errorLosses(e canonical.Error) []canonical.Loss {
	var losses []canonical.Loss
	losses = missing(losses, e.RetryAfter != 0, canonical.LossErrorDetail, "/retryAfter")
	losses = missing(losses, len(e.Details) > 0, canonical.LossErrorDetail, "/details")
	return missing(losses, e.Native != nil, canonical.LossErrorDetail, "/native")
}

func missing(losses []canonical.Loss, is bool, code canonical.LossCode, path string) []canonical.Loss {
	if is {
		return append(losses, canonical.Loss{Code: code, Path: path, Fate: canonical.Dropped})
	}
	return losses
}
