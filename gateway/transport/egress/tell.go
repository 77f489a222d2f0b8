package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Judge says whether a URL may be called at all, as far as that can be said
// without asking for its addresses: *DeniedError, which is Evident unless it names
// what is taken or listed.
func (g *Guard) Judge(place string) error {
	denied, refused := errors.AsType[*DeniedError](g.judge(place))
	if !refused {
		return nil
	}
	denied.Evident = denied.Reason != ReasonTaken && denied.Reason != ReasonNotListed
	return denied
}

func (g *Guard) judge(place string) error {
	u, err := url.Parse(place)
	if err != nil {
		return &DeniedError{Reason: ReasonURL}
	}
	if _, err := g.admit(&http.Request{URL: u}, ""); err != nil {
		return err
	}
	at, _ := newTarget(u.Hostname(), portOf(u.Port(), u.Scheme))
	address, recognised := at.meaning()
	switch {
	case !recognised:
		return nil
	case !address.IsValid():
		return at.denied(ReasonNoAddress)
	case g.refuses(net.JoinHostPort(address.String(), at.port)):
		return at.denied(ReasonTaken)
	}
	if reason := g.grants.judge(at, address); reason != "" {
		return at.denied(reason)
	}
	return nil
}

// Tell sends a request to a server that is judged by its host name, with the
// credentials that the server's own user has given for it. They are the only
// ones that ever go out; empty: none. A host that has refused too many posts of
// this caller, or of all, lately is sent no more for a while: *DeniedError,
// ReasonFailing.
func (g *Guard) Tell(request *http.Request, caller ect.Identity, authorization string) (*http.Response, error) {
	pool, err := g.admit(request, "")
	host := request.URL.Host
	if err == nil && !g.failures.allow(host, caller, time.Now()) {
		err = &DeniedError{Host: host, Reason: ReasonFailing}
	}
	if err != nil {
		if request.Body != nil {
			err = errors.Join(err, request.Body.Close())
		}
		return nil, err
	}
	out := bare(request)
	if authorization != "" {
		out.Header.Set("Authorization", authorization)
	}
	response, err := pool.send(out)
	if err != nil && !errors.Is(request.Context().Err(), context.Canceled) ||
		err == nil && (response.StatusCode < 200 || response.StatusCode > 299) {
		g.failures.add(host, caller, time.Now())
	}
	return response, err
}
