package problem

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
)

// MediaType is that of problem documents (RFC 9457).
const MediaType = "application/problem+json"

const typePrefix = "urn:aepb:problem:"

// document is what goes over the wire (docs/http-api.md).
type document struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Code     string `json:"code"`
	Detail   string `json:"detail"`
	Instance string `json:"instance"`
	Request  string `json:"request_id,omitempty"` // also in X-Request-Id and the log
	Reason   Reason `json:"reason,omitempty"`     // for operators alone
	Next     string `json:"next_gateway,omitempty"`
	Waiting
}

// Write answers a request with the problem that err is. Nothing may have been
// written before; headers that were set, evidence above all, stay.
func Write(w http.ResponseWriter, r *http.Request, err error) {
	p := From(err)
	p.setHeaders(w.Header())
	body, err := json.Marshal(document{
		Type: typePrefix + p.Code, Title: p.Title, Status: p.Status, Code: p.Code, Detail: p.explained(Knows(r.Context())),
		Instance: clean(r.URL.EscapedPath()), Request: cmp.Or(p.Request, transport.RequestID(r.Context())), Reason: p.shown(Knows(r.Context())),
		Next: p.NextGateway, Waiting: p.Where.Approval,
	})
	if err != nil { // a struct of strings always can be
		w.WriteHeader(p.Status)
		return
	}
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(body, '\n')) // a caller that went away needs no answer
	}
}

// Document is the problem that err is, where there is no response of its own to
// write it as: in the middle of a stream.
func Document(ctx context.Context, err error) []byte {
	p := From(err)
	body, err := json.Marshal(document{
		Type: typePrefix + p.Code, Title: p.Title, Status: p.Status, Code: p.Code, Detail: p.explained(Knows(ctx)), Request: cmp.Or(p.Request, transport.RequestID(ctx)), Reason: p.shown(Knows(ctx)),
		Next: p.NextGateway, Waiting: p.Where.Approval,
	})
	if err != nil { // a struct of strings always can be
		return nil
	}
	return body
}

func (p Problem) setHeaders(h http.Header) {
	h.Set("Content-Type", MediaType)
	if h.Get("Cache-Control") == "" { // the answer to a pair query may be kept, also the 404
		h.Set("Cache-Control", "no-store")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Del("Content-Length")
	h.Del("ETag")
	p.Advise(h)
}

// Advise sets the header fields that tell a client what to do about a problem,
// whatever shape its body has. Endpoints use it for their own error shapes.
func (p Problem) Advise(h http.Header) {
	for name, value := range map[string]string{
		"WWW-Authenticate": p.Challenge, "Allow": p.Allow, "Location": p.Location,
	} {
		if value != "" {
			h.Set(name, value)
		}
	}
	if p.Successor != "" {
		h.Add("Link", "<"+p.Successor+`>; rel="successor-version"`)
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", retryAfter(p.RetryAfter))
	}
}

// retryAfter is in whole seconds, rounded up: a caller that comes too early is
// refused again.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(max(int64(math.Ceil(d.Seconds())), 1), 10)
}
