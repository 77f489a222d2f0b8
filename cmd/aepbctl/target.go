package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/translators/spelling"
)

const (
	maxReply    = 32 << 20 // bytes that are read of any answer
	sendTimeout = 5 * time.Minute
)

// target is the gateway that a command talks to, and as whom.
type target struct {
	dir, gateway, admin, cert, key, ca, output string
}

func (t *target) file(flag, name string) string {
	return cmp.Or(flag, filepath.Join(t.dir, name))
}

// bundle is what we trust. The trust domain is that of our own certificate.
func (t *target) bundle() (*identity.Bundle, error) {
	svid, err := t.svid()
	if err != nil {
		return nil, err
	}
	domain, _, _ := strings.Cut(strings.TrimPrefix(string(svid.ID), "spiffe://"), "/")
	return identity.LoadBundle(t.file(t.ca, "ca.pem"), domain)
}

func (t *target) svid() (*identity.SVID, error) {
	cert, key := t.file(t.cert, "client.pem"), t.file(t.key, "client-key.pem")
	for _, file := range []string{cert, key} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("our certificate and key: %w: name them with --cert and --key, or a gateway's folder with --dir", err)
		}
	}
	return identity.LoadSVID(cert, key)
}

func (t *target) signer() (*ect.Signer, error) {
	svid, err := t.svid()
	if err != nil {
		return nil, err
	}
	return ect.NewSigner(ect.SignerDeps{Key: svid.Key, Chain: svid.Chain, Issuer: svid.ID, Now: time.Now})
}

func (t *target) client() (*http.Client, error) {
	svid, err := t.svid()
	if err != nil {
		return nil, err
	}
	bundle, err := t.bundle()
	if err != nil {
		return nil, err
	}
	source, err := identity.NewSource(svid, bundle)
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Timeout:       sendTimeout,
		Transport:     &http.Transport{TLSClientConfig: source.ClientConfig("")},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// base is a listener's URL: the flag's, else what the gateway of --dir wrote.
func (t *target) base(flag, member string) (string, error) {
	if flag != "" && !strings.Contains(flag, "://") {
		return "", fmt.Errorf("--gateway and --admin are URLs such as https://127.0.0.1:8443, not %q", flag)
	}
	if flag != "" {
		return strings.TrimRight(flag, "/"), nil
	}
	data, err := os.ReadFile(filepath.Join(t.dir, "addresses.json"))
	if err != nil {
		return "", fmt.Errorf("no gateway has run in %s (name one with --gateway and --admin): %w", t.dir, err)
	}
	var known map[string]string
	if err := json.Unmarshal(data, &known); err != nil || known[member] == "" {
		return "", fmt.Errorf("addresses.json in %s is unreadable", t.dir)
	}
	return known[member], nil
}

// answer is an HTTP response, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call sends one request and reads a bounded answer.
func (t *target) call(ctx context.Context, method, url string, header http.Header, body []byte) (answer, error) {
	client, err := t.client()
	if err != nil {
		return answer{}, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if header != nil {
		request.Header = header
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, unanswered(t, request.URL.Host, err)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	return answer{response.StatusCode, response.Header, data}, errors.Join(err, response.Body.Close())
}

// unanswered says in words why the gateway could not be asked, and what to do about it.
func unanswered(t *target, host string, err error) error {
	if svid, unreadable := t.svid(); unreadable == nil {
		if refused := certificateRefused(host, t.file(t.cert, "client.pem"), svid, err); refused != nil {
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

// token is what a development gateway left for its operator, if there is one. It
// is not shown to a gateway that was named together with a certificate: that one
// knows us by the certificate, and the token of --dir is another's.
func (t *target) token() (string, error) {
	if t.cert != "" && t.admin != "" {
		return "", nil
	}
	data, err := os.ReadFile(filepath.Join(t.dir, "admin-token"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// operate calls the admin API, which answers with the status want or refuses.
func (t *target) operate(ctx context.Context, method, path string, body []byte, want int) (answer, error) {
	got, err := t.administer(ctx, method, path, body)
	if err == nil && got.status != want {
		err = got.refusal()
	}
	return got, err
}

// administer sends a request to the admin API, whatever the answer.
func (t *target) administer(ctx context.Context, method, path string, body []byte) (answer, error) {
	base, err := t.base(t.admin, "admin")
	if err != nil {
		return answer{}, err
	}
	token, err := t.token()
	if err != nil {
		return answer{}, err
	}
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	return t.call(ctx, method, base+"/api"+path, header, body)
}

// public calls the public listener, which answers with the status want or refuses. A nil body is not sent.
func publicOf(ctx context.Context, t *target, method, path string, body []byte, want int) ([]byte, error) {
	base, err := t.base(t.gateway, "public")
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	got, err := t.call(ctx, method, base+path, header, body)
	if err == nil && got.status != want {
		err = got.refusal()
	}
	return got.body, err
}

// stream reads events from the public listener, for as long as they come.
func streamOf(ctx context.Context, t *target, path string) (io.ReadCloser, error) {
	base, err := t.base(t.gateway, "public")
	if err != nil {
		return nil, err
	}
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	client.Timeout = 0
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/event-stream")
	response, err := client.Do(request)
	if err != nil {
		return nil, unanswered(t, request.URL.Host, err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	return nil, errors.Join(err, response.Body.Close(), answer{response.StatusCode, response.Header, data}.refusal())
}

// refusal turns an error answer into one line.
func (a answer) refusal() error {
	var p problem
	if json.Unmarshal(a.body, &p) == nil && p.Code != "" {
		return fmt.Errorf("%s: %s (HTTP %d)", terminal.Word(p.Code), terminal.Line(p.Detail), a.status)
	}
	if bytes.HasPrefix(a.body, []byte("Client sent an HTTP request to an HTTPS server")) { // net/http answers so
		return errors.New("a gateway speaks https: give --gateway and --admin as https URLs")
	}
	return fmt.Errorf("the gateway answered HTTP %d", a.status)
}

// problem is why the gateway refused.
type problem struct{ Title, Code, Detail string }

// explain adds what an operator wants to know about a refusal that concerns an agent: which agents there
// are, if none has that name. Other refusals, and those of gateways that do not list agents to us, stay.
func (t *target) explain(ctx context.Context, a answer, name string) error {
	var p problem
	unknown := json.Unmarshal(a.body, &p) == nil && (p.Code == "unknown_agent" || p.Code == "no_translation_path" && strings.Contains(p.Detail, "unknown_agent"))
	if !unknown || t.gateway != "" && t.admin == "" { // whose list in --dir may be another gateway's
		return a.refusal()
	}
	got, err := t.operate(ctx, http.MethodGet, "/agents", nil, http.StatusOK)
	var all struct {
		Agents []struct{ Name string } `json:"agents"`
	}
	if err != nil || json.Unmarshal(got.body, &all) != nil {
		return fmt.Errorf("%s: no agent %q here, or no path to it (HTTP %d)", p.Code, terminal.Word(name), a.status)
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
	return fmt.Errorf("%s: no agent %q here%s (HTTP %d)", terminal.Word(p.Code), name, there, a.status)
}

// show prints a value as the user asked for it.
func (t *target) show(cmd *cobra.Command, value any, text func(io.Writer) error) error {
	if t.output == "json" {
		to := cmd.OutOrStdout()
		if terminal.Is(to) { // which obeys some characters that JSON lets stand as they are
			to = terminal.Printable{To: to}
		}
		encoder := json.NewEncoder(to)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	return text(cmd.OutOrStdout())
}
