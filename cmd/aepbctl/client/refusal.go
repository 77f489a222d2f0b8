package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/translators/spelling"
)

// unanswered says in words why the gateway could not be asked, and what to do about it.
func unanswered(c *Client, host string, err error) error {
	if svid, unreadable := c.SVID(); unreadable == nil {
		if refused := certificateRefused(host, c.CertFile(), svid, err); refused != nil {
			return refused
		}
	}
	_, name := errors.AsType[*net.DNSError](err)
	_, authority := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	var hint string
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: connection refused: is the gateway running? start it with aepb-gateway dev, or name another with --gateway and --admin", host)
	case name:
		return fmt.Errorf("%s: no such host: correct --gateway, --admin or --dir", host)
	case plain:
		hint = "the server does not speak TLS: is it a gateway?"
	case authority:
		hint = "the server has a certificate that --ca does not vouch for: name the gateway's CA with --ca, or its folder with --dir"
	case errors.Is(err, context.DeadlineExceeded):
		hint = "no answer within " + terminal.Duration(sendTimeout)
	default:
		return err
	}
	return fmt.Errorf("%s: %s: %w", host, hint, err)
}

// certificateRefused says what of our own certificate, in a file, makes a handshake fail; nil: nothing that is
// seen from here.
func certificateRefused(host, file string, svid *identity.SVID, err error) error {
	if other, ok := errors.AsType[*identity.UnknownDomainError](err); ok {
		theirs, _, _ := strings.Cut(strings.TrimPrefix(string(other.ID), "spiffe://"), "/")
		return fmt.Errorf("%s: our certificate is of %s, the gateway of %s: show one of its trust domain with --cert and --key", host, other.Home, theirs)
	}
	if ended := time.Since(svid.Expires()); ended > 0 && strings.Contains(err.Error(), "remote error: tls: ") {
		return fmt.Errorf("%s: the gateway refuses our certificate: %s ended %s ago: have it issued again", host, file, terminal.Duration(ended))
	}
	return nil
}

// Refusal turns an error answer into one line.
func (a Answer) Refusal() error {
	var p Problem
	if json.Unmarshal(a.Body, &p) == nil && p.Code != "" {
		return fmt.Errorf("%s: %s (HTTP %d)", terminal.Word(p.Code), terminal.Line(p.Detail), a.Status)
	}
	if bytes.HasPrefix(a.Body, []byte("Client sent an HTTP request to an HTTPS server")) { // net/http answers so
		return errors.New("a gateway speaks https: give --gateway and --admin as https URLs")
	}
	return fmt.Errorf("the gateway answered HTTP %d", a.Status)
}

// Problem is why the gateway refused.
type Problem struct{ Title, Code, Detail string }

// Explain adds what an operator wants to know about a refusal that concerns an agent: which agents there
// are, if none has that name. Other refusals, and those of gateways that do not list agents to us, stay.
func (c *Client) Explain(ctx context.Context, a Answer, name string) error {
	var p Problem
	unknown := json.Unmarshal(a.Body, &p) == nil && (p.Code == "unknown_agent" || p.Code == "no_translation_path" && strings.Contains(p.Detail, "unknown_agent"))
	if !unknown || c.Gateway != "" && c.Admin == "" { // whose list in --dir may be another gateway's
		return a.Refusal()
	}
	got, err := c.Operate(ctx, http.MethodGet, "/agents", nil, http.StatusOK)
	var all struct {
		Agents []struct{ Name string } `json:"agents"`
	}
	if err != nil || json.Unmarshal(got.Body, &all) != nil {
		return fmt.Errorf("%s: no agent %q here, or no path to it (HTTP %d)", p.Code, terminal.Word(name), a.Status)
	}
	const most = 16
	var names, shown []string
	for _, agent := range all.Agents {
		names = append(names, agent.Name)
	}
	if shown = names; len(shown) > most {
		shown = append(shown[:most:most], "…")
	}
	there := "; there are none: aepbctl agents add lists one"
	if nearest := spelling.Nearest(name, names); nearest != "" {
		there = "; did you mean " + terminal.Word(nearest) + "? aepbctl agents list shows all"
	} else if len(names) > 0 {
		there = "; there are: " + terminal.Words(shown) + " (aepbctl agents list)"
	}
	return fmt.Errorf("%s: no agent %q here%s (HTTP %d)", terminal.Word(p.Code), name, there, a.Status)
}
