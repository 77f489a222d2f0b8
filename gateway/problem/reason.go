package problem

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/translators"
)

// Reason is why an agent failed, in a word for its operators: in logs, metrics and
// evidence. The set is closed.
type Reason string

// The reasons.
const (
	ReasonDNS        Reason = "dns"         // its host name has no address
	ReasonRefused    Reason = "refused"     // its port takes no connection
	ReasonReset      Reason = "reset"       // it ended the connection before its reply was whole
	ReasonTLSVersion Reason = "tls_version" // it speaks an older TLS, or none
	ReasonTLSCA      Reason = "tls_ca"      // one side does not accept the certificate of the other: its authority, or its time
	ReasonTLSName    Reason = "tls_name"    // its certificate has another host name
	ReasonSPIFFEID   Reason = "spiffe_id"   // its certificate has another SPIFFE id than is listed
	ReasonTimeout    Reason = "timeout"     // it did not answer in time
	ReasonHTTPStatus Reason = "http_status" // an HTTP status and no reply of its protocol
	ReasonBadReply   Reason = "bad_reply"   // something that is no reply of its protocol
	ReasonTooLarge   Reason = "too_large"   // a reply beyond the bounds
	ReasonProgram    Reason = "program"     // the program that the agent is ended, or cannot be started
	ReasonOther      Reason = "other"
)

// reasonUnreachable stands for the reasons that tell about an agent's network, to
// those who are not to know it.
const reasonUnreachable Reason = "unreachable"

// Reasons lists them all. The set is closed, and so fit for a metric label.
func Reasons() []Reason {
	return []Reason{
		ReasonDNS, ReasonRefused, ReasonReset, ReasonTLSVersion, ReasonTLSCA, ReasonTLSName, ReasonSPIFFEID,
		ReasonTimeout, ReasonHTTPStatus, ReasonBadReply, ReasonTooLarge, ReasonProgram, ReasonOther,
	}
}

// ReasonOf finds out why an agent failed; empty: the error is not a failure of one.
func ReasonOf(err error) Reason {
	if _, repeated := errors.AsType[*StoredError](err); repeated {
		return ""
	}
	if e, ok := errors.AsType[*transport.UnreachableError](err); ok {
		return network(e.Err)
	}
	if _, ok := errors.AsType[*transport.TimeoutError](err); ok {
		return ReasonTimeout
	}
	if e, ok := errors.AsType[*transport.RefusedError](err); ok {
		if e.Status < http.StatusInternalServerError {
			return "" // what another gateway says of the message
		}
		return ReasonHTTPStatus
	}
	return replied(err)
}

// replied is what is wrong with an answer.
func replied(err error) Reason {
	_, limit := errors.AsType[*sse.LimitError](err)
	_, status := errors.AsType[*transport.StatusError](err)
	_, bad := errors.AsType[*transport.BadReplyError](err)
	_, document := errors.AsType[*directory.DocumentError](err)
	_, notice := errors.AsType[*translators.UnreadableNoticeError](err)
	switch {
	case limit, errors.Is(err, transport.ErrTooLong):
		return ReasonTooLarge
	case status:
		return ReasonHTTPStatus
	case bad, document, notice:
		return ReasonBadReply
	default:
		return ""
	}
}

// network is why there was no connection, or why it broke.
func network(err error) Reason {
	if stdio.Cause(err) != "" {
		return ReasonProgram
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return ReasonDNS
	}
	if why := handshake(err); why != "" {
		return why
	}
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonRefused
	case errors.Is(err, context.DeadlineExceeded), ok && timeout.Timeout():
		return ReasonTimeout
	case broken(err):
		return ReasonReset
	}
	return worded(err)
}

// handshake is what TLS did not like.
func handshake(err error) Reason {
	_, name := errors.AsType[x509.HostnameError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case errors.Is(err, identity.ErrUnexpectedPeer):
		return ReasonSPIFFEID
	case name:
		return ReasonTLSName
	case authority, invalid, unverified:
		return ReasonTLSCA
	case record, errors.Is(err, http.ErrSchemeMismatch):
		return ReasonTLSVersion
	default:
		return ""
	}
}

func broken(err error) bool {
	ends := []error{syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed}
	_, stream := errors.AsType[resetStream](err)
	return stream || slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) })
}

// resetStream is how net/http shows an HTTP/2 stream that the server has ended: its
// own type, which it does not export, fills any struct of these fields.
type resetStream struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (resetStream) Error() string { return "the stream was reset" }

// words are texts of errors for which crypto/tls, go-spiffe and net/http have no type.
var words = []struct {
	text string
	is   Reason
}{
	{"tls: protocol version not supported", ReasonTLSVersion},
	{"tls: server selected unsupported protocol version", ReasonTLSVersion},
	{"tls: unknown certificate authority", ReasonTLSCA}, // of an alert: it does not accept ours
	{"tls: bad certificate", ReasonTLSCA},
	{"tls: unknown certificate", ReasonTLSCA},
	{"tls: expired certificate", ReasonTLSCA},
	{"tls: certificate required", ReasonTLSCA},
	{"could not get X509 bundle", ReasonTLSCA}, // of its trust domain
	{"could not get leaf SPIFFE ID", ReasonSPIFFEID},
	{"http2: server sent GOAWAY", ReasonReset},
	{"http2: client connection lost", ReasonReset},
	{"http: server closed idle connection", ReasonReset},
	{"response headers exceeded", ReasonTooLarge},
	{"malformed HTTP", ReasonBadReply},
}

func worded(err error) Reason {
	if err == nil {
		return ReasonOther
	}
	text := err.Error()
	for _, w := range words {
		if strings.Contains(text, w.text) {
			return w.is
		}
	}
	return ReasonOther
}

type reasonsKey struct{}

// WithReasons marks the context of a request whose caller may know why an agent
// failed: its operator.
func WithReasons(ctx context.Context) context.Context {
	return context.WithValue(ctx, reasonsKey{}, true)
}

// Knows reports whether the caller of a request may know why an agent failed.
func Knows(ctx context.Context) bool { return ctx.Value(reasonsKey{}) != nil }

// shown is why the agent failed, for those who may know it.
func (p Problem) shown(knows bool) Reason {
	if !knows {
		return ""
	}
	return p.Reason
}

// explained is the detail, with why the agent cannot be reached for those who may know it.
func (p Problem) explained(knows bool) string {
	if knows && p.Where.Program != "" {
		return p.Detail + ": " + p.Where.Program
	}
	if knows && p.Code == CodeBadReply && p.Where.Address != "" {
		return p.Detail + clean(" ("+p.Where.Address+")")
	}
	if !knows || p.Code != CodeUnreachable {
		return p.Detail
	}
	detail := p.Detail
	if p.Where.Address != "" {
		detail += " at " + p.Where.Address
	}
	if why := p.Reason.words(); why != "" {
		detail += ": " + why
	}
	return detail
}

// addressOf is the host and port of an error of the network; empty: it does not say.
func addressOf(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		if at, err := url.Parse(e.URL); err == nil {
			return at.Host
		}
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Addr != nil {
		return e.Addr.String()
	}
	return ""
}

// Explain is what an error is to an operator: its detail, and why the agent cannot be reached.
func Explain(err error) string { return From(err).explained(true) }

// words say a reason of the network, and what to do about it; empty: there is nothing to say.
func (r Reason) words() string {
	switch r {
	case ReasonDNS:
		return "no such host: correct the host name of its URL"
	case ReasonRefused:
		return "connection refused: is it running, at this port?"
	case ReasonReset:
		return "it closed the connection before its reply was complete: its own log may say why"
	case ReasonTLSVersion:
		return "it does not speak TLS 1.3: is it a server of http and not https?"
	case ReasonTLSCA:
		return "certificate of an unknown authority, or not valid now: have it certified by a CA that this gateway trusts"
	case ReasonTLSName:
		return "its certificate is for another host name: correct the URL or the certificate"
	case ReasonSPIFFEID:
		return "its certificate has another SPIFFE id than the agent is listed with: correct the id"
	case ReasonTimeout:
		return "no connection in time: is its host reachable from here?"
	default:
		return ""
	}
}

// Evident is why an agent failed, as the evidence of a request says it. Its caller
// reads that, and is not to learn about the agent's network unless it may know.
func Evident(ctx context.Context, err error) Reason {
	why := ReasonOf(err)
	open := []Reason{"", ReasonTimeout, ReasonHTTPStatus, ReasonBadReply, ReasonTooLarge}
	if Knows(ctx) || slices.Contains(open, why) {
		return why
	}
	return reasonUnreachable
}
