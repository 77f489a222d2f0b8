package a2a

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/a2a/security"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
)

// ServerDeps is what a Server needs.
type ServerDeps struct {
	Form translators.Translator // of this protocol
	// BaseURL is where a caller finds an agent, without a trailing slash; the
	// server is below it.
	BaseURL func(r *http.Request, agent string) string
	GRPC    string                 // host:port where callers reach the server over gRPC, for cards; empty: there is none
	Limits  ect.Limits             // of the evidence of one request; zero: the defaults
	Ours    func(host string) bool // of transport.CheckOrigin

	Security func() security.Schemes // what cards declare; nil: nothing
}

// Server takes native traffic in.
type Server struct{ deps ServerDeps }

var _ transport.HTTPServer = (*Server)(nil)

// NewServer checks its dependencies.
func NewServer(deps ServerDeps) (*Server, error) {
	if deps.Form == nil || deps.BaseURL == nil {
		return nil, errors.New("transport/a2a: incomplete DoorDeps")
	}
	return &Server{deps}, nil
}

// messageFields are the header fields that belong to a message, by their names
// in an http.Header.
var messageFields = []string{"A2a-Version", "A2a-Extensions", "X-A2a-Extensions", "Traceparent", "Tracestate", "Baggage"}

// Handler serves the agent's URL and what is below it (R9). The agent's name is the
// path value "agent", and what follows the agent's own path is "rest": nothing
// or a slash is JSON-RPC, the rest is card.go's and rest.go's.
func (d *Server) Handler(handler transport.Handler) http.Handler {
	card := d.CardHandler(handler)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wire, kind := d.locate(r)
		switch kind {
		case atCard:
			card.ServeHTTP(w, r)
		case atNothing:
			wire.Media = transport.MediaType(r.Header)
			d.refuse(r.Context(), w, wire, &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such operation"})
		default:
			d.serve(w, r, handler, wire)
		}
	})
}

func (d *Server) serve(w http.ResponseWriter, r *http.Request, handler transport.Handler, wire translators.Wire) {
	call, err := d.receive(w, r, handler, wire)
	if err != nil {
		d.refuse(r.Context(), w, call.Wire, err)
		return
	}
	if request := asksCard(d.deps.Form, call.Wire); request != nil {
		if call, err = d.deps.faces(d.deps.BaseURL(r, call.Agent)).extended(r.Context(), d.deps.Form, handler, call, request); err != nil {
			d.refuse(r.Context(), w, call.Wire, err)
			return
		}
	}
	answer, err := handler.Exchange(r.Context(), call)
	answer.Notice.Announce(w.Header())
	transport.AddEvidence(w.Header(), answer.Evidence)
	switch {
	case err != nil:
		d.refuse(r.Context(), w, call.Wire, err, inside(answer)...)
	case answer.Events() != nil:
		d.tell(w, r, call, answer.Events())
	case streaming(d.deps.Form, call.Wire) && (wire.Form != form.FormHTTP || answer.Wire().Status < http.StatusBadRequest):
		single(w, answer.Wire()) // errors of the HTTP form stay as they are (A2A 1.0 section 11.7)
	default:
		d.answer(w, call, answer.Wire())
	}
}

// answer writes one message. The HTTP form has no way to say nothing but an
// empty object.
func (d *Server) answer(w http.ResponseWriter, call transport.Call, wire translators.Wire) {
	status := http.StatusOK
	if call.Wire.Form == form.FormHTTP && wire.Status != 0 {
		status = wire.Status
	}
	if len(wire.Body) == 0 {
		wire.Body = []byte("{}")
	}
	write(w, wire, answerMedia(call.Wire), status)
}

// receive reads a request as far as a server may: method, declared size, type,
// then, once the limit is asked, body and evidence.
func (d *Server) receive(w http.ResponseWriter, r *http.Request, handler transport.Handler, wire translators.Wire) (_ transport.Call, err error) {
	wire.Header = fields(r)
	call := transport.Call{
		EntryPoint: transport.Native, Agent: r.PathValue("agent"), Wire: wire,
		Caller: transport.CallerFrom(r.Context()), Address: transport.AddressFrom(r.Context()), Detached: true,
	}
	if err := allowed(r, wire); err != nil {
		return call, err
	}
	most := int64(d.deps.Form.Info().BodyLimit)
	if r.ContentLength > most {
		return call, problem.Reading(&http.MaxBytesError{Limit: most})
	}
	if err := transport.CheckOrigin(r, d.deps.Ours); err != nil {
		return call, err
	}
	want := []string{form.Media}
	if wire.Form == form.FormHTTP && wire.Version == "" { // which is of 1.0
		want = append(want, form.MediaHTTP)
	}
	bodied := wire.Path == "" || strings.HasPrefix(wire.Path, routeMessage) || r.ContentLength != 0
	if bodied && !slices.Contains(want, transport.MediaType(r.Header)) || r.Header.Get("Content-Encoding") != "" {
		return call, &problem.MediaTypeError{Want: want}
	}
	call.Wire.Media = transport.MediaType(r.Header)
	if call.Pass, err = handler.Limit(r.Context(), transport.CallInfoFrom(r.Context(), call.Agent, form.Binding)); err != nil {
		return call, err
	}
	if err := transport.MayRead(r.Context(), handler, transport.CallInfoFrom(r.Context(), call.Agent, form.Binding).With(call.Pass), r.ContentLength); err != nil {
		return call, err
	}
	body, err := transport.ReadAll(http.MaxBytesReader(w, r.Body, most), r.ContentLength)
	if err != nil {
		return call, problem.Reading(err)
	}
	call.Wire.Body, call.Parent = body, transport.ParentIn(r.Header)
	call.Evidence, err = ect.ParseHeader(r.Header.Values(ect.HeaderName), d.deps.Limits)
	return call, err
}

// fields picks the header fields that belong to the message. A client that
// cannot set a header may say the version in the query (A2A 3.6.1).
func fields(r *http.Request) http.Header {
	h := pick(r.Header)
	if r.URL.RawQuery == "" {
		return h
	}
	if version := r.URL.Query().Get(form.HeaderVersion); version != "" && h.Get(form.HeaderVersion) == "" {
		h.Set(form.HeaderVersion, version)
	}
	return h
}

func pick(from http.Header) http.Header {
	h := http.Header{}
	for _, name := range messageFields {
		if values := from[name]; len(values) > 0 {
			h[name] = slices.Clone(values)
		}
	}
	return h
}

// inside are the tokens that an error has in its body, for callers that look there.
func inside(answer transport.Answer) []string {
	if !answer.Inside {
		return nil
	}
	return answer.Evidence
}

// refuse answers with the error in the words of the request. Who asked for a
// stream over JSON-RPC reads nothing but events where the status is 200.
func (d *Server) refuse(ctx context.Context, w http.ResponseWriter, request translators.Wire, cause error, tokens ...string) {
	wire, p, err := d.failure(ctx, request, cause)
	if err != nil { // an error can always be said
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	wire.Re = cmp.Or(wire.Re, canonical.OpInvoke)
	wire, _ = embedded.Insert(d.deps.Form, wire, tokens)
	p.Advise(w.Header())
	status := statusOf(p)
	switch {
	case request.Form == form.FormHTTP && status == http.StatusOK:
		status = wire.Status
	case status == http.StatusOK && streaming(d.deps.Form, request):
		single(w, wire)
		return
	}
	write(w, wire, answerMedia(request), status)
}

// statusOf keeps the HTTP statuses that a client acts on before it reads a
// body. Everything else is a JSON-RPC answer like any other.
func statusOf(p problem.Problem) int {
	switch p.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusGone:
		return p.Status
	}
	if p.Code == problem.CodeUnknownAgent || p.Code == problem.CodeECTInvalid || p.Code == problem.CodeIdentityInvalid {
		return p.Status
	}
	return http.StatusOK
}

// answerMedia is the media type that the request had, if that is one of its version's.
func answerMedia(request translators.Wire) string {
	if request.Media == form.MediaHTTP && request.Version == "" {
		return form.MediaHTTP
	}
	return form.Media
}

func write(w http.ResponseWriter, wire translators.Wire, media string, status int) {
	maps.Copy(w.Header(), pick(wire.Header))
	transport.Respond(w, media, wire.Body, status)
}
