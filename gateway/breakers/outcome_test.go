package breakers

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestOutcome_GoldenTable: each row of README.md is what a failure counts for, and each failure here has a row.
func TestOutcome_GoldenTable(t *testing.T) {
	t.Parallel()
	status := func(n int) error { return transport.BadStatus(transport.Endpoint{Agent: "a"}, "status", n, nil) }
	broken := func(err error) error { return &transport.UnreachableError{Agent: "a", Err: err} }
	connect := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	failures := map[string]error{
		"any | an answer":                                        nil,
		"any | no address":                                       broken(&net.DNSError{Err: "no such host", IsNotFound: true}),
		"any | connection refused":                               broken(syscall.ECONNREFUSED),
		"any | no connection in time":                            transport.CallError(t.Context(), transport.Endpoint{Agent: "a", Timeout: time.Second}, connect),
		"any | certificate of an unknown authority":              broken(x509.UnknownAuthorityError{}),
		"any | certificate of another identity":                  broken(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}),
		"any | connection reset":                                 broken(syscall.ECONNRESET),
		"any | stream broken":                                    broken(io.ErrUnexpectedEOF),
		"any | no answer in time":                                &transport.TimeoutError{Agent: "a", After: time.Second},
		"any | reply that is not of the protocol":                &transport.BadReplyError{Agent: "a", Reason: "no reply"},
		"any | the caller has left":                              context.Canceled,
		"any | refusal of our own":                               &policy.Denied{},
		"any | answer beyond its caller's share":                 &transport.OverBudgetError{Agent: "a", Size: 1 << 20},
		"MCP over stdio | another's call ended a shared program": broken(&stdio.EndedError{Err: errors.New("exit status 1"), Other: true}),
		"HTTP | status 404":                                      status(http.StatusNotFound),
		"HTTP | status 429":                                      status(http.StatusTooManyRequests),
		"HTTP | status 500":                                      status(http.StatusInternalServerError),
		"HTTP | status 503":                                      status(http.StatusServiceUnavailable),
		"MCP over stdio | program ended":                         broken(&stdio.EndedError{Err: errors.New("exit status 1")}),
		"MCP, A2A | JSON-RPC -32602":                             &canonical.Error{Code: canonical.CodeBadParams},
		"MCP, A2A | JSON-RPC -32603":                             &canonical.Error{Code: canonical.CodeInternal},
		"A2A | task not found":                                   &canonical.Error{Code: canonical.CodeTaskNotFound},
		"A2A over gRPC, AINP | unavailable":                      &canonical.Error{Code: canonical.CodeUnavailable},
		"A2A over gRPC, AINP | deadline exceeded":                &canonical.Error{Code: canonical.CodeTimeout},
		"gateway | refusal of a message":                         &transport.RefusedError{Status: http.StatusForbidden},
		"gateway | status 502 of a gateway":                      &transport.RefusedError{Status: http.StatusBadGateway},
		"any | our own look: status 500":                         status(http.StatusInternalServerError),
		"any | our own look: no answer in time":                  &transport.TimeoutError{Agent: "a", After: time.Second},
		"MCP over stdio | our own look: program ended":           broken(&stdio.EndedError{Err: errors.New("exit status 1")}),
		"webhook, callback | status 410":                         status(http.StatusGone),
		"webhook, callback | status 502":                         status(http.StatusBadGateway),
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 3 && cells[0] != "protocol" {
			rows[cells[0]+" | "+cells[1]] = cells[2]
		}
	}
	if got, want := slices.Sorted(maps.Keys(rows)), slices.Sorted(maps.Keys(failures)); !slices.Equal(got, want) {
		t.Errorf("the rows are %q, want %q", got, want)
	}
	for name, err := range failures {
		e, counts := endingOf(err, strings.Contains(name, "our own look")), "nothing"
		switch {
		case e.outcome == breaker.Failure && e.own:
			counts = "agent"
		case e.outcome == breaker.Failure:
			counts = "caller"
		}
		if counts != rows[name] {
			t.Errorf("%s counts for %s, and the table says %q", name, counts, rows[name])
		}
	}
}
