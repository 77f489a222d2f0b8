package mcp

import (
	"bytes"
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// The header fields of Streamable HTTP.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-" // and the name that a tool's schema gives an argument
	headerSession = "Mcp-Session-Id"
)

// admissionError is a request that HTTP itself refuses, before it is a message.
type admissionError struct {
	status int
	reason error // says what a native error says
}

func (e *admissionError) Error() string { return e.reason.Error() }

func (e *admissionError) Unwrap() error { return e.reason }

// admit judges a request by its header alone.
func (v *serverCall) admit() error {
	most := int64(v.server.deps.Form.Info().BodyLimit)
	if v.r.ContentLength > most {
		return problem.Reading(&http.MaxBytesError{Limit: most})
	}
	if err := v.origin(); err != nil {
		return err
	}
	switch {
	case transport.MediaType(v.r.Header) != mediaJSON || v.r.Header.Get("Content-Encoding") != "":
		return &problem.MediaTypeError{Want: []string{mediaJSON}}
	case !accepts(v.r.Header.Values("Accept"), mediaJSON):
		return &admissionError{http.StatusNotAcceptable, &canonical.Error{Code: canonical.CodeInvalidRequest, Message: "the answer is application/json, which Accept does not admit"}}
	}
	return nil
}

// origin is what [transport.CheckOrigin] says, with its status.
func (v *serverCall) origin() error {
	if err := transport.CheckOrigin(v.r, v.server.deps.Ours); err != nil {
		return &admissionError{http.StatusForbidden, err}
	}
	return nil
}

// accepts reports whether an Accept header admits a media type; no header at
// all admits everything (RFC 9110 section 12.5.1).
func accepts(values []string, wanted string) bool {
	family, _, _ := strings.Cut(wanted, "/")
	seen := false
	for member := range strings.SplitSeq(strings.Join(values, ","), ",") {
		accepted, params, err := mime.ParseMediaType(member)
		if err != nil {
			continue
		}
		seen = true
		refused := strings.Trim(params["q"], "0.") == "" && params["q"] != ""
		if (accepted == wanted || accepted == family+"/*" || accepted == "*/*") && !refused {
			return true
		}
	}
	return !seen && strings.Trim(strings.Join(values, ""), " \t") == ""
}

// badParams makes what is wrong inside params the error that JSON-RPC has for
// it; to the codec all of it is a malformed message.
func badParams(err error) error {
	var malformed *translators.MalformedError
	if !errors.As(err, &malformed) || !strings.HasPrefix(malformed.Path, "/params/") {
		return err
	}
	return &canonical.Error{Code: canonical.CodeBadParams, Message: malformed.Path + ": " + malformed.Reason}
}

// mirrored adds to what the codec found the one thing that only the server
// demands: that a modern request repeats version, method and tool in its
// header. A header that contradicts the body the codec has refused already.
func (v *serverCall) mirrored(err error) error {
	m := v.message
	if m == nil || m.Origin.Version != mcp.Modern {
		return err
	}
	if failure, ok := errors.AsType[*canonical.Error](err); ok && failure.Code == canonical.CodeBadParams && !strings.HasPrefix(failure.Message, "/params/") {
		return &admissionError{http.StatusBadRequest, failure} // what every request must say about itself
	}
	needed := []string{headerVersion, headerMethod}
	if named(m) {
		needed = append(needed, headerName)
	}
	for _, name := range needed {
		if v.r.Header.Get(name) == "" {
			return &canonical.Error{Code: canonical.CodeHeaderMismatch, Message: "Header mismatch: " + name + " is required"}
		}
	}
	return err
}

// named reports whether the request has a name that its header must repeat.
func named(m *canonical.Message) bool {
	switch m.Op {
	case canonical.OpInvoke, canonical.OpTaskGet, canonical.OpTaskCancel, canonical.OpTaskAnswer:
		return true
	case canonical.OpNative:
		native, _ := m.Body.(*canonical.Native)
		return native != nil && (native.Method == "prompts/get" || native.Method == "resources/read")
	default:
		return false
	}
}

// envelope is what tells a reply from other messages. The codec judges the rest.
type envelope mcp.Envelope

// parse sees to the envelope alone: that all of it is JSON is the codec's to judge.
func parse(body []byte) (envelope, error) {
	e, ok := mcp.Skim(body)
	if !ok || e.Version != "2.0" {
		return envelope(e), errors.New("not JSON-RPC 2.0")
	}
	return envelope(e), nil
}

// isBatch reports whether a body is a JSON-RPC batch, which is an array.
func isBatch(body []byte) bool {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '['
}
