package a2a

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// headerToken is the field of a notification with its receiver's own token
// (A2A 4.3.3).
const headerToken = "A2A-Notification-Token"

// headerToken03 is the same in 0.3 (A2A 0.3, section 9.5).
const headerToken03 = "X-A2A-Notification-Token" //nolint:gosec // the name of a field

const (
	pushTries   = 4                // of one notification, at most
	pushWithin  = 10 * time.Second // for one try
	pushPause   = 500 * time.Millisecond
	pushBackoff = 4        // times as long after each try
	pushAnswer  = 64 << 10 // octets of an answer that are read so that the connection can be used again
)

// Teller is the one door to the network for those who are told and not asked:
// *egress.Guard is one.
type Teller interface {
	// Judge says whether a URL may be called at all: *egress.DeniedError.
	Judge(url string) error
	// Tell sends a request with the credentials for just this server.
	Tell(request *http.Request, authorization string) (*http.Response, error)
}

// PusherDeps is what a Pusher needs.
type PusherDeps struct {
	Client Teller // not the one of agents: what is open to those is not open to what callers name
}

// Pusher posts the changes of tasks to webhooks (A2A 4.3.3): at least once, as
// far as a few tries go. It keeps nothing. Safe for concurrent use.
type Pusher struct{ deps PusherDeps }

var (
	_ transport.Pusher = (*Pusher)(nil)
	_ Teller           = (*egress.Guard)(nil)
)

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
func (p *Pusher) Push(ctx context.Context, config canonical.PushConfig, sealed transport.Sealed) error {
	wire, evidence, err := sealed.Open()
	if err != nil {
		return err
	}
	authorization, err := authorization(config)
	if err != nil {
		return err
	}
	pause := pushPause
	for try := 1; ; try++ {
		again, err := p.try(ctx, config, authorization, wire, evidence)
		if !again || try == pushTries {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause *= pushBackoff
	}
}

// try posts it once, and says whether it is worth while to try again.
func (p *Pusher) try(
	ctx context.Context, config canonical.PushConfig, authorization string, wire translators.Wire, evidence []string,
) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pushWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, config.URL, bytes.NewReader(wire.Body))
	if err != nil {
		return false, &egress.DeniedError{Reason: egress.ReasonURL}
	}
	tokenHeader := headerToken
	if wire.Version == form.Version03 {
		tokenHeader = headerToken03
		request.Header.Set("Content-Type", form.Media)
	} else {
		request.Header.Set("Content-Type", form.MediaHTTP)
		request.Header.Set(form.HeaderVersion, form.Version)
	}
	for _, token := range evidence {
		request.Header.Add(ect.HeaderName, token)
	}
	if config.Token != "" {
		request.Header.Set(tokenHeader, config.Token)
	}
	response, err := p.deps.Client.Tell(request, authorization)
	if denied, ok := errors.AsType[*egress.DeniedError](err); ok {
		return false, denied
	}
	if err != nil {
		return true, &transport.UnreachableError{Agent: request.URL.Host, Err: err}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, pushAnswer))
	_ = response.Body.Close()
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return false, nil
	}
	return passing(response.StatusCode), &transport.BadReplyError{Agent: request.URL.Host, Reason: "HTTP status " + strconv.Itoa(response.StatusCode)}
}

// passing: the webhook may take it later.
func passing(status int) bool {
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
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
