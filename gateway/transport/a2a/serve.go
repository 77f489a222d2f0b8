package a2a

import (
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// DoorDeps is what a Door needs.
type DoorDeps struct {
	Form translators.Translator // of this protocol
	// BaseURL is where a caller finds an agent, without a trailing slash; the
	// door is below it.
	BaseURL func(r *http.Request, agent string) string
	Limits  ect.Limits // of the evidence of one request; zero: the defaults
}

// Door takes native traffic in.
type Door struct{ deps DoorDeps }

var _ transport.Door = (*Door)(nil)

// NewDoor checks its dependencies.
func NewDoor(deps DoorDeps) (*Door, error) {
	if deps.Form == nil || deps.BaseURL == nil {
		return nil, errors.New("transport/a2a: incomplete DoorDeps")
	}
	return &Door{deps}, nil
}

// messageFields are the header fields that belong to a message.
var messageFields = []string{form.HeaderVersion, form.HeaderExtensions, "Traceparent", "Tracestate", "Baggage"}

// Handler serves JSON-RPC. The agent's name is the path value "agent".
func (d *Door) Handler(road transport.Exchanger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, err := d.receive(w, r)
		if err != nil {
			d.refuse(w, call.Wire, err)
			return
		}
		answer, err := road.Exchange(r.Context(), call)
		for _, token := range answer.Evidence {
			w.Header().Add(ect.HeaderName, token)
		}
		if err != nil {
			d.refuse(w, call.Wire, err)
			return
		}
		write(w, answer.Wire, http.StatusOK)
	})
}

// receive reads a request as far as a door may: method, type, size, evidence.
func (d *Door) receive(w http.ResponseWriter, r *http.Request) (transport.Call, error) {
	call := transport.Call{
		Entrance: transport.Native, Agent: r.PathValue("agent"),
		Wire:   translators.Wire{Binding: form.Binding, Media: form.Media, Header: fields(r)},
		Caller: transport.CallerFrom(r.Context()), Address: transport.AddressFrom(r.Context()),
	}
	if r.Method != http.MethodPost {
		return call, &problem.MethodError{Allow: http.MethodPost}
	}
	if media(r.Header) != form.Media || r.Header.Get("Content-Encoding") != "" {
		return call, &problem.MediaTypeError{Want: []string{form.Media}}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(d.deps.Form.Info().BodyLimit)))
	if err != nil {
		return call, problem.Reading(err)
	}
	call.Wire.Body = body
	call.Evidence, err = ect.ParseHeader(r.Header.Values(ect.HeaderName), d.deps.Limits)
	return call, err
}

// fields picks the header fields that belong to the message. A client that
// cannot set a header may say the version in the query (A2A 3.6.1).
func fields(r *http.Request) http.Header {
	h := pick(r.Header)
	if version := r.URL.Query().Get(form.HeaderVersion); version != "" && h.Get(form.HeaderVersion) == "" {
		h.Set(form.HeaderVersion, version)
	}
	return h
}

func pick(from http.Header) http.Header {
	h := http.Header{}
	for _, name := range messageFields {
		for _, value := range from.Values(name) {
			h.Add(name, value)
		}
	}
	return h
}

// media is a Content-Type without parameters; "": none, or a broken one.
func media(h http.Header) string {
	name, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return name
}

// refuse answers with the error as a JSON-RPC error, under the caller's id as
// far as it could be read.
func (d *Door) refuse(w http.ResponseWriter, request translators.Wire, cause error) {
	p := problem.From(cause)
	m := &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseError, Body: problem.Native(cause)}
	if decoded, _ := d.deps.Form.Decode(request); decoded != nil {
		m.Correlation.WireID = decoded.Correlation.WireID
	}
	wire, _, err := d.deps.Form.Encode(m, translators.Target{})
	if err != nil { // an error can always be said
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	p.Advise(w.Header())
	write(w, wire, statusOf(p))
}

// statusOf keeps the HTTP statuses that a client acts on before it reads a
// body. Everything else is a JSON-RPC answer like any other.
func statusOf(p problem.Problem) int {
	switch p.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return p.Status
	}
	if p.Code == problem.CodeUnknownAgent || p.Code == problem.CodeECTInvalid || p.Code == problem.CodeIdentityInvalid {
		return p.Status
	}
	return http.StatusOK
}

func write(w http.ResponseWriter, wire translators.Wire, status int) {
	h := w.Header()
	maps.Copy(h, pick(wire.Header))
	h.Set("Content-Type", form.Media)
	h.Set("Content-Length", strconv.Itoa(len(wire.Body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(wire.Body) // a caller that went away needs no answer
}
