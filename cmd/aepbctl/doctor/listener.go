package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// clockTolerance is how far clocks may differ: ECTs are valid for minutes.
const clockTolerance = 30 * time.Second

// kind is one of the gateway's listeners.
type kind struct{ check, flag, example string }

func publicListener() kind {
	return kind{"public listener", "--gateway", "https://gw.example.com"}
}

func adminListener() kind { return kind{"admin listener", "--admin", "https://127.0.0.1:9443"} }

// listener goes to one step by step: its name, a connection, a handshake. Without source
// it ends with the connection.
func (v *checkRun) listener(ctx context.Context, k kind, base string, source *identity.Source) bool {
	defer v.wait("connecting to %s", base)()
	u, err := url.Parse(base)
	if base == "" || err != nil || u.Scheme != "https" || u.Hostname() == "" {
		v.fail(k.check, "name the gateway's with "+k.flag+", such as "+k.example+", or its folder with --dir", "%q is no https URL", base)
		return false
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = "443"
	}
	if !v.named(ctx, k, host) {
		return false
	}
	address := net.JoinHostPort(host, port)
	if source == nil {
		conn, err := dial(ctx, address, v.Patience)
		if err != nil {
			v.unreached(k, base, err)
			return false
		}
		_ = conn.Close() // nothing is lost with it
		v.warn(k.check, "mend what is said above of our certificate, key or CA, and ask again", "%s can be reached, but without our certificate and CA no more can be checked", base)
		return false
	}
	leaf, err := shake(ctx, address, host, source, v.Patience)
	if failed, ok := errors.AsType[*connectError](err); ok {
		v.unreached(k, base, failed.Unwrap())
		return false
	}
	if err != nil {
		v.unproved(k, base, host, err)
		if leaf = otherName(ctx, v, address, source, err); leaf == nil {
			return false
		}
	}
	if k == publicListener() {
		v.shown = leaf
	}
	v.life(k.check, "put a renewed certificate in place of the gateway's (identity.certificate, or tls.certificate); it is read by itself", base+" shows the certificate of "+spiffeID(leaf), leaf)
	return true
}

// connectError: there is no connection, so that no certificate was seen.
type connectError struct{ err error }

func (e *connectError) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *connectError) Unwrap() error { return e.err }

// shake connects, and returns the certificate of a server that our CA vouches for under a name.
func shake(ctx context.Context, address, name string, source *identity.Source, patience time.Duration) (*x509.Certificate, error) {
	conn, err := dial(ctx, address, patience)
	if err != nil {
		return nil, &connectError{err}
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	config := source.ClientConfig("")
	config.ServerName = name
	secure := tls.Client(conn, config)
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := secure.HandshakeContext(limit); err != nil {
		return nil, err
	}
	return secure.ConnectionState().PeerCertificates[0], nil
}

// otherName tries the first name of a certificate that lacks the one of the URL, so that the other checks go on.
// A token is not sent to such a server. Nil: the certificate is no good under that name either.
func otherName(ctx context.Context, v *checkRun, address string, source *identity.Source, err error) *x509.Certificate {
	wrong, ok := errors.AsType[x509.HostnameError](err)
	if !ok || len(wrong.Certificate.DNSNames) == 0 {
		return nil
	}
	leaf, err := shake(ctx, address, wrong.Certificate.DNSNames[0], source, v.Patience)
	if err != nil {
		return nil
	}
	v.name, v.Token = wrong.Certificate.DNSNames[0], ""
	return leaf
}

// named resolves a host name.
func (v *checkRun) named(ctx context.Context, k kind, host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, v.Patience)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil || len(addresses) == 0 {
		v.fail(k.check, "correct "+k.flag+", or have DNS or /etc/hosts know the name", "no address is known for the name %s", host)
		return false
	}
	v.ok(k.check, "%s is %s", host, strings.Join(addresses, ", "))
	return true
}

func dial(ctx context.Context, address string, patience time.Duration) (net.Conn, error) {
	return (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", address)
}

// unreached says why there is no connection.
func (v *checkRun) unreached(k kind, base string, err error) {
	network, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		v.fail(k.check, "start it with aepb-gateway dev, or aepb-gateway serve --config FILE; or name another with "+k.flag, "%s: connection refused: no gateway runs there", base)
	case ok && network.Timeout():
		v.fail(k.check, "look at firewalls between this machine and the gateway, and at "+k.flag, "%s: no connection within %s", base, terminal.Duration(v.Patience))
	default:
		v.fail(k.check, "look at the network of this machine, and at "+k.flag, "%s: no connection: %v", base, err)
	}
}

// unproved says why the listener is not believed to be the gateway's.
func (v *checkRun) unproved(k kind, base, host string, err error) {
	refused, judged := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	invalid, ended := errors.AsType[x509.CertificateInvalidError](err)
	var leaf *x509.Certificate
	if judged && len(refused.UnverifiedCertificates) > 0 {
		leaf = refused.UnverifiedCertificates[0]
	}
	switch {
	case plain:
		v.fail(k.check, "name the gateway's with "+k.flag+": listen.public and listen.admin speak TLS, listen.metrics does not", "%s does not speak TLS", base)
	case errors.Is(err, context.DeadlineExceeded):
		v.fail(k.check, "see whether it is a gateway, and how busy", "%s: no handshake within %s", base, terminal.Duration(v.Patience))
	case leaf != nil && authority:
		v.fail(k.check, "name the CA of this gateway with --ca, or its folder with --dir", "%s shows a certificate of %s, which %s did not issue but %q", base, spiffeID(leaf), v.CA, leaf.Issuer.CommonName)
	case leaf != nil && name:
		v.fail(k.check, "reach it by one of these names, or put "+host+" into its certificate", "%s shows a certificate for other names: %s", base, names(leaf))
	case leaf != nil && ended && invalid.Reason == x509.Expired && (v.Now().After(leaf.NotAfter) || v.Now().Before(leaf.NotBefore)):
		v.life(k.check, "put a renewed certificate in place of the gateway's (identity.certificate, or tls.certificate); it is read by itself", base+" shows the certificate of "+spiffeID(leaf)+", which", leaf)
	default:
		v.fail(k.check, "see whether it is a gateway, whether it speaks TLS 1.3, and whether --ca is its CA", "%s: no handshake: %v", base, err)
	}
}

// names are those that a client may know the server by.
func names(leaf *x509.Certificate) string {
	all := append([]string{}, leaf.DNSNames...)
	for _, address := range leaf.IPAddresses {
		all = append(all, address.String())
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// clock holds the gateway's clock against ours.
func (v *checkRun) clock(ctx context.Context) {
	const check = "clocks"
	before := v.Now()
	got, err := v.get(ctx, v.Public+"/.well-known/aepb")
	after := v.Now()
	if err != nil {
		v.unanswered(check, err)
		return
	}
	theirs, err := http.ParseTime(got.Header.Get("Date"))
	var apart time.Duration // what the request took, and parts of seconds, are no difference
	switch {
	case err != nil:
		v.warn(check, "see whether it is a gateway, or what stands before it", "%s answers without a date", v.Public)
		return
	case theirs.After(after):
		apart = theirs.Sub(after)
	case theirs.Add(time.Second).Before(before):
		apart = theirs.Add(time.Second).Sub(before)
	}
	size := apart.Abs().Truncate(time.Second)
	where := "ahead of"
	if apart < 0 {
		where = "behind"
	}
	if size > clockTolerance {
		v.warn(check, "let both machines take their time from NTP: an ECT is valid for minutes", "the gateway's clock is %s %s ours", terminal.Duration(size), where)
		return
	}
	v.ok(check, "the gateway's clock and ours differ by %s", terminal.Duration(size))
}
