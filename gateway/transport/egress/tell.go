package egress

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// Judge says whether a URL may be called at all, as far as that can be said
// without asking for its addresses: *DeniedError.
func (g *Guard) Judge(place string) error {
	u, err := url.Parse(place)
	if err != nil {
		return &DeniedError{Reason: ReasonURL}
	}
	if _, err := g.admit(&http.Request{URL: u}, ""); err != nil {
		return err
	}
	at, _ := newTarget(u.Hostname(), portOf(u.Port(), u.Scheme))
	if at.address.IsValid() {
		if reason := g.grants.judge(at, at.address); reason != "" {
			return at.denied(reason)
		}
	}
	return nil
}

// Tell sends a request to a server that is judged by its host name, with the
// credentials that the server's own user has given for it. They are the only
// ones that ever go out; empty: none. A host that has refused too many posts
// lately is sent no more for a while: *DeniedError, ReasonFailing.
func (g *Guard) Tell(request *http.Request, authorization string) (*http.Response, error) {
	transport, err := g.admit(request, "")
	host := request.URL.Host
	if err == nil && !g.failures.allow(host, time.Now()) {
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
	response, err := transport.RoundTrip(out)
	if err != nil && !errors.Is(request.Context().Err(), context.Canceled) ||
		err == nil && (response.StatusCode < 200 || response.StatusCode > 299) {
		g.failures.add(host, time.Now())
	}
	return response, err
}
