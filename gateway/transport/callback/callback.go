package callback

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

// Client is the one way to the network for URIs that callers name.
type Client interface {
	// Judge says whether a URL may be called at all: *egress.DeniedError.
	Judge(url string) error
	// Tell sends a request for a caller, with the credentials for just this server; empty: none.
	Tell(request *http.Request, caller ect.Identity, authorization string) (*http.Response, error)
}

// Deps is what a Teller needs.
type Deps struct{ Client Client }

// Teller posts decisions. It keeps nothing. Safe for concurrent use.
type Teller struct{ deps Deps }

var (
	_ transport.Callbacks = (*Teller)(nil)
	_ Client              = (*egress.Guard)(nil)
)

// New checks its dependencies.
func New(deps Deps) (*Teller, error) {
	if deps.Client == nil {
		return nil, errors.New("callback: incomplete Deps")
	}
	return &Teller{deps}, nil
}

// Check judges a callback before it is kept.
func (t *Teller) Check(url string) error { return t.deps.Client.Judge(url) }

// Tell posts one decision, see [Post].
func (t *Teller) Tell(ctx context.Context, caller ect.Identity, d transport.Decision) error {
	body, err := json.Marshal(struct {
		Approval string `json:"approval_id"`
	}{d.Approval})
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	header.Set(ect.HeaderName, d.Token)
	return Post(ctx, t.deps.Client, Request{For: caller, URL: d.URL, Header: header, Body: body})
}
