package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// stored is an answer as it is kept for a repetition (R6). Its ECTs are on
// record anyway, so their ids suffice.
type stored struct {
	Evidence []ect.ID          `json:",omitempty"`
	Binding  canonical.Binding `json:",omitempty"`
	Version  string            `json:",omitempty"`
	Form     string            `json:",omitempty"`
	Media    string            `json:",omitempty"`
	Header   http.Header       `json:",omitempty"`
	Body     []byte            `json:",omitempty"`
	Status   int               `json:",omitempty"`
	Problem  *problem.Problem  `json:",omitempty"`
}

var errUnreadable = errors.New("gateway: a stored answer is unreadable")

// store keeps an answer, or how the message failed, under each source's key.
func (g *Gateway) store(ctx context.Context, x *exchange, answer transport.Answer, cause error) {
	if len(x.evidence.sources) == 0 {
		return
	}
	s := stored{
		Evidence: x.issuedIDs, Binding: answer.Wire.Binding, Version: answer.Wire.Version, Form: answer.Wire.Form,
		Media: answer.Wire.Media, Header: answer.Wire.Header, Body: answer.Wire.Body, Status: answer.Wire.Status,
	}
	if cause != nil {
		p := problem.From(cause)
		s.Problem = &p
	}
	blob, err := json.Marshal(s)
	if err != nil {
		return
	}
	for _, v := range x.evidence.sources {
		c := v.Claims()
		g.Answers.Finish(ctx, ect.ReplayKey{Issuer: c.Issuer, Workflow: c.Workflow, ID: c.ID}, blob, time.Unix(c.Expires, 0))
	}
}

// repeat answers a byte-identical repetition: with the same octets and the
// same ECTs, or with the same refusal.
func (g *Gateway) repeat(ctx context.Context, key ect.ReplayKey) (transport.Answer, bool, error) {
	blob, ok := g.Answers.Load(ctx, key)
	if !ok {
		return transport.Answer{}, true, &problem.InProgressError{}
	}
	var s stored
	if err := json.Unmarshal(blob, &s); err != nil {
		return transport.Answer{}, true, errUnreadable
	}
	answer := transport.Answer{Wire: translators.Wire{
		Binding: s.Binding, Version: s.Version, Form: s.Form, Media: s.Media, Header: s.Header, Body: s.Body, Status: s.Status,
	}}
	for _, id := range s.Evidence {
		record, ok, err := g.Evidence.Get(ctx, id)
		if err != nil || !ok {
			return transport.Answer{}, true, &problem.RecordingError{Err: err}
		}
		answer.Evidence = append(answer.Evidence, record.Compact)
	}
	if s.Problem != nil {
		return answer, true, &problem.StoredError{Problem: *s.Problem}
	}
	return answer, true, nil
}
