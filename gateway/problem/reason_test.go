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
	"slices"
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
