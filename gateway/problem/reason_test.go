package problem_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
)

// TestReasonOf_Chains: the reason is found however deep its cause is wrapped.
func TestReasonOf_Chains(t *testing.T) {
	t.Parallel()
	away := func(err error) error {
		return &transport.UnreachableError{Agent: "a", Err: &net.OpError{Op: "dial", Err: fmt.Errorf("egress: %w", errors.Join(err))}}
	}
	bad := func(err error) error { return &transport.BadReplyError{Agent: "a", Err: err} }
	cases := []struct {
		err  error
		want problem.Reason
	}{
		{away(&net.DNSError{IsTimeout: true}), problem.ReasonDNS},
		{away(syscall.ECONNREFUSED), problem.ReasonRefused},
		{away(syscall.ECONNRESET), problem.ReasonReset},
		{away(syscall.EPIPE), problem.ReasonReset},
		{away(io.ErrUnexpectedEOF), problem.ReasonReset},
		{away(tls.RecordHeaderError{}), problem.ReasonTLSVersion},
		{away(http.ErrSchemeMismatch), problem.ReasonTLSVersion},
		{away(errors.New("remote error: tls: protocol version not supported")), problem.ReasonTLSVersion},
		{away(errors.New("remote error: tls: certificate required")), problem.ReasonTLSCA},
		{away(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), problem.ReasonTLSCA},
		{away(x509.CertificateInvalidError{Reason: x509.Expired}), problem.ReasonTLSCA},
		{away(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}}}), problem.ReasonTLSName},
		{away(identity.ErrUnexpectedPeer), problem.ReasonSPIFFEID},
		{away(context.DeadlineExceeded), problem.ReasonTimeout},
		{away(syscall.EHOSTUNREACH), problem.ReasonOther},
		{&transport.UnreachableError{Agent: "a"}, problem.ReasonOther},
		{&transport.TimeoutError{Agent: "a"}, problem.ReasonTimeout},
		{bad(nil), problem.ReasonBadReply},
		{bad(&transport.StatusError{Status: 404}), problem.ReasonHTTPStatus},
		{bad(transport.ErrTooLong), problem.ReasonTooLarge},
		{bad(&sse.LimitError{}), problem.ReasonTooLarge},
		{&directory.DocumentError{Reason: "x"}, problem.ReasonBadReply},
		{&transport.RefusedError{Status: 502}, problem.ReasonHTTPStatus},
		{&transport.RefusedError{Status: 403}, ""},
		{&egress.DeniedError{Reason: egress.ReasonScheme}, ""},
		{&problem.StoredError{}, ""},
		{errors.New("ours"), ""},
		{nil, ""},
	}
	for _, c := range cases {
		got := problem.ReasonOf(fmt.Errorf("while calling: %w", c.err))
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
		if got != "" && !slices.Contains(problem.Reasons(), got) {
			t.Errorf("%q is not among the reasons", got)
		}
	}
}

// TestExplain_TellsOperatorsAlone: an operator reads why an agent cannot be reached and what to do, a
// caller does not.
func TestExplain_TellsOperatorsAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause error
		want  string
	}{
		"refused":   {syscall.ECONNREFUSED, "agent a cannot be reached: connection refused: is it running"},
		"no host":   {&net.DNSError{}, "agent a cannot be reached: no such host"},
		"authority": {x509.UnknownAuthorityError{}, "agent a cannot be reached: certificate of an unknown authority"},
		"name":      {x509.HostnameError{Certificate: &x509.Certificate{}}, "agent a cannot be reached: its certificate is for another host name"},
		"http":      {tls.RecordHeaderError{}, "agent a cannot be reached: it does not speak TLS 1.3"},
		"URL":       {&url.Error{Op: "Post", URL: "https://u:secret@a.test:7/secret?secret", Err: syscall.ECONNREFUSED}, "agent a cannot be reached at a.test:7: connection refused: is it"},
		"address":   {&net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv6loopback, Port: 7}, Err: syscall.ECONNREFUSED}, "agent a cannot be reached at [::1]:7: connection refused: is it"},
		"other":     {errors.New("secret"), "agent a cannot be reached"},
	} {
		err := &transport.UnreachableError{Agent: "a", Err: c.cause}
		if got := problem.Explain(err); !strings.HasPrefix(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if got := string(problem.Document(t.Context(), err)); !strings.Contains(got, `"agent a cannot be reached"`) {
			t.Errorf("%s: a caller reads %s", name, got)
		}
		if got := string(problem.Document(problem.WithReasons(t.Context()), err)); !strings.Contains(got, c.want) {
			t.Errorf("%s: an operator reads %s", name, got)
		}
	}
}
