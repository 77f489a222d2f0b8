package a2a

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/callback"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// headerToken is the field of a notification with its receiver's own token
// (A2A 4.3.3).
const headerToken = "A2A-Notification-Token"

// headerToken03 is the same in 0.3 (A2A 0.3, section 9.5).
const headerToken03 = "X-A2A-Notification-Token" //nolint:gosec // the name of a field

// PusherDeps is what a Pusher needs.
type PusherDeps struct {
	Client callback.Client // not the one of agents: what is open to those is not open to what callers name
}

// Pusher posts the changes of tasks to webhooks (A2A 4.3.3): at least once, as
// far as a few tries go. It keeps nothing. Safe for concurrent use.
type Pusher struct{ deps PusherDeps }

var _ transport.Pusher = (*Pusher)(nil)

// NewPusher checks its dependencies.
func NewPusher(deps PusherDeps) (*Pusher, error) {
	if deps.Client == nil {
		return nil, errors.New("transport/a2a: incomplete PusherDeps")
	}
	return &Pusher{deps}, nil
}

// Form is, for callers of 1.0, an event in the form over HTTP (A2A 4.3.3), whatever
// form the caller used; for callers of 0.3 the whole task (A2A 0.3, section 9.5).
func (p *Pusher) Form(version string) (wireForm string, whole bool) {
	if version == form.Version03 {
		return form.FormPush, true
	}
	return form.FormHTTP, false
}

// Check judges a configuration before it is kept: *egress.DeniedError or *canonical.Error.
func (p *Pusher) Check(config canonical.PushConfig) error {
	if _, err := authorization(config); err != nil {
		return err
	}
	return p.deps.Client.Judge(config.URL)
}

// Push posts one change, with its ECT in the header. An error says why it was not taken: *egress.DeniedError,
// *transport.BadReplyError, *transport.UnreachableError.
func (p *Pusher) Push(ctx context.Context, caller ect.Identity, config canonical.PushConfig, sealed transport.Sealed) error {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return err
	}
	authorization, err := authorization(config)
	if err != nil {
		return err
	}
	header, tokenHeader := http.Header{}, headerToken
	if wire.Version == form.Version03 {
		tokenHeader = headerToken03
		header.Set("Content-Type", form.Media)
	} else {
		header.Set("Content-Type", form.MediaHTTP)
		header.Set(form.HeaderVersion, form.Version)
	}
	transport.AddEvidence(header, evidence)
	if config.Token != "" {
		header.Set(tokenHeader, config.Token)
	}
	return callback.Post(ctx, p.deps.Client, callback.Request{For: caller, URL: config.URL, Header: header, Body: wire.Body, Authorization: authorization})
}

// authorization is the field with the credentials of a webhook; empty: it has none.
func authorization(config canonical.PushConfig) (string, error) {
	if strings.ContainsFunc(config.Scheme+config.Credentials+config.Token, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", &canonical.Error{Code: canonical.CodeBadParams, Message: "the push notification configuration has a token or credentials that no HTTP header field can hold: send printable ASCII"}
	}
	if config.Scheme == "" || config.Credentials == "" {
		return "", nil
	}
	if strings.ContainsFunc(config.Scheme, func(r rune) bool { return !schemeChar(r) }) {
		return "", &canonical.Error{Code: canonical.CodeBadParams, Message: "the scheme of push authentication is no HTTP authentication scheme"}
	}
	return config.Scheme + " " + config.Credentials, nil
}

// schemeChar reports whether an HTTP authentication scheme may hold it: a token
// (RFC 9110, section 5.6.2).
func schemeChar(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
