// Package doctor checks a gateway's whole set-up from an operator's side: configuration,
// certificates, both listeners, clocks, readiness, state, the machine, and each agent. Every
// check ends in a bounded time and gives a [Finding], which says what to do unless all is well.
//
// Run goes through the checks from the near to the far: what a failed check makes impossible is not
// tried. Findings hold texts of agents and gateways unchanged: a program that prints one to a
// terminal escapes it.
package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/client"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
)

const (
	// Patience is a good bound of each check.
	Patience = 5 * time.Second

	maxAnswer = 16 << 20 // bytes that are read of any answer
)

// Status is how a check ended.
type Status string

// The three ways in which a check ends.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
)

// Finding is what one check found.
type Finding struct {
	Status Status `json:"status"`
	Check  string `json:"check"`           // what was looked at, such as "admin listener"
	Agent  string `json:"agent,omitempty"` // of which agent
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // what to do; none if all is well
}

// Deps is whom the doctor asks, and as whom.
type Deps struct {
	Public, Admin string // URLs of the listeners
	Unknown       error  // why they are not known; nil: they are
	Cert, Key, CA string // our files
	Token         string // that a development gateway gave its operator; empty: there is none
	Dir           string // folder of a gateway on this machine; empty: there is none
	Config        string // configuration file; empty: there is none

	// CheckConfig runs the check of the gateway's own program on a file and returns what
	// that wrote; errors.ErrUnsupported: there is no such program here. nil: the same.
	CheckConfig func(ctx context.Context, file string) (string, error)
	Now         func() time.Time
	// Patience bounds each check.
	Patience time.Duration
	// Working tells what is waited for, until the function is called.
	Working func(doing string) func()
	Emit    func(Finding)
}

// checkRun is one run.
type checkRun struct {
	Deps

	svid   *identity.SVID
	bundle *identity.Bundle
	client *http.Client      // nil: our files do not allow one
	shown  *x509.Certificate // of the public listener
	config config.Config     // of Deps.Config
	parsed bool              // config is that
	ready  string            // why the gateway is not ready
	name   string            // that the gateway's certificate has, where it lacks that of its URL; else empty
	open   bool              // agents without callers may be called by everybody
}

func (v *checkRun) ok(check, format string, args ...any) {
	v.Emit(Finding{Status: OK, Check: check, Found: fmt.Sprintf(format, args...)})
}

func (v *checkRun) warn(check, remedy, format string, args ...any) {
	v.Emit(Finding{Status: Warning, Check: check, Found: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (v *checkRun) fail(check, remedy, format string, args ...any) {
	v.Emit(Finding{Status: Failed, Check: check, Found: fmt.Sprintf(format, args...), Remedy: remedy})
}

// wait tells what is waited for.
func (v *checkRun) wait(format string, args ...any) func() {
	if v.Working == nil {
		return func() {}
	}
	return v.Working(fmt.Sprintf(format, args...))
}

// get asks a listener. The token goes to the admin API alone.
func (v *checkRun) get(ctx context.Context, url string) (client.Answer, error) {
	defer v.wait("asking %s", url)()
	ctx, cancel := context.WithTimeout(ctx, v.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return client.Answer{}, err
	}
	if v.Token != "" && strings.HasPrefix(url, v.Admin+"/api/") {
		request.Header.Set("Authorization", "Bearer "+v.Token)
	}
	response, err := v.client.Do(request)
	if err != nil {
		return client.Answer{}, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return client.Answer{Status: response.StatusCode, Header: response.Header, Body: body}, errors.Join(err, response.Body.Close())
}

// unanswered says why a request had no answer, and what to do.
func (v *checkRun) unanswered(check string, err error) {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		v.fail(check, "look at the gateway's log and load; ask again", "no answer within %s", terminal.Duration(v.Patience))
	case strings.Contains(err.Error(), "remote error: tls:"):
		v.fail(check, "show a certificate of the gateway's own or a federated trust domain with --cert and --key; see the clocks, and identity.bundle of the gateway",
			"the gateway ends the handshake: it does not take our certificate %s (%v)", v.Cert, err)
	default:
		v.fail(check, "look at the gateway's log, and at what stands between it and this machine", "no answer: %v", err)
	}
}
