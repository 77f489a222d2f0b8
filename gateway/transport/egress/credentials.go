package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"

	"github.com/aepb/aepb-gateway/ect"
)

// Purpose is what a request is for.
type Purpose struct {
	Agent  string       // name of the listed agent that it goes to
	Caller ect.Identity // on whose behalf; empty: not known
	Own    bool         // the gateway asks for itself, and what it learns serves all callers
}

type purposeKey struct{}

// WithPurpose marks the context of requests with what they are for.
func WithPurpose(ctx context.Context, purpose Purpose) context.Context {
	return context.WithValue(ctx, purposeKey{}, purpose)
}

// PurposeFrom is what the requests of a context are for; false: it does not say.
func PurposeFrom(ctx context.Context) (Purpose, bool) {
	purpose, ok := ctx.Value(purposeKey{}).(Purpose)
	return purpose, ok
}

// Credential is what one request shows. The zero Credential is none besides the gateway's own certificate.
type Credential struct {
	Field, Value  string           // a header field that takes the place of the request's own; empty: none
	Certificate   *tls.Certificate // in place of the gateway's own; nil: that
	CertificateID string           // tells certificates apart
}

// Credentials say what requests show to servers. Safe for concurrent use.
type Credentials interface {
	// For is what a request shows. An error refuses the request before anything is sent.
	For(*http.Request) (Credential, error)
	// Refused takes back what a server refused with 401; false: there is nothing newer to show.
	Refused(*http.Request, Credential) bool
}

// send sends a request with its credential. A request that was refused with 401 is sent once more with a newer
// credential, if its body can be read again: 401 says that the server did not do what was asked (RFC 9110, section
// 15.5.2).
func (g *Guard) send(request *http.Request, expected ect.Identity, usual *pool) (*http.Response, error) {
	if g.credentials == nil {
		return usual.send(bare(request))
	}
	shown, err := g.credentials.For(request)
	if err != nil {
		return nil, errors.Join(err, closeBody(request))
	}
	response, err := g.show(request, expected, usual, shown)
	if err != nil || !refuses401(response) || shown.Field == "" || !replayable(request) || !g.credentials.Refused(request, shown) {
		return response, err
	}
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	if shown, err = g.credentials.For(request); err != nil {
		return nil, err
	}
	again := request.WithContext(request.Context())
	if request.GetBody != nil {
		if again.Body, err = request.GetBody(); err != nil {
			return nil, err
		}
	}
	return g.show(again, expected, usual, shown)
}

// show sends a copy of a request with a credential.
func (g *Guard) show(request *http.Request, expected ect.Identity, usual *pool, shown Credential) (*http.Response, error) {
	out := bare(request)
	if shown.Field != "" {
		out.Header[http.CanonicalHeaderKey(shown.Field)] = []string{shown.Value}
	}
	if shown.Certificate != nil && request.URL.Scheme == "https" {
		usual = g.pool(poolKey{expected, shown.CertificateID}, shown.Certificate)
	}
	return usual.send(out)
}

// refuses401 reports whether a server says that a request shows no credential that it takes. Over gRPC that is
// UNAUTHENTICATED without any message.
func refuses401(r *http.Response) bool {
	return r.StatusCode == http.StatusUnauthorized || r.Header.Get("Grpc-Status") == grpcUnauthenticated
}

const grpcUnauthenticated = "16"

// replayable reports whether the body of a request can be read again.
func replayable(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
}
