package rollback_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/rollback"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/rollback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is an agent's, without a network.
type host struct {
	status   int
	body     string
	tokens   []string
	fails    error
	request  *http.Request
	expected ect.Identity
}

func (h *host) DoAs(r *http.Request, expected ect.Identity) (*http.Response, error) {
	if h.request, h.expected = r, expected; h.fails != nil {
		return nil, h.fails
	}
	return &http.Response{StatusCode: h.status, Header: http.Header{ect.HeaderName: h.tokens}, Body: io.NopCloser(strings.NewReader(h.body))}, nil
}

func compact(t *testing.T, act ect.Act) string {
	t.Helper()
	token, err := ecttest.NewParty(t, "spiffe://example.com/a").Signer(t, time.Now).Sign(ect.Claims{
		Act: act, Audience: []string{"spiffe://example.com/gateway"}, Parents: []ect.ID{ect.NewID()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return token.Compact()
}

func sealed(t *testing.T, request string) (transport.Sealed, string) {
	t.Helper()
	wire := translators.Wire{Binding: "mcp-v1", Form: form.Name, Header: http.Header{form.Field: {request}}, Body: []byte("{}")}
	token, err := ecttest.NewParty(t, "spiffe://example.com/gateway").Signer(t, time.Now).Sign(ect.Claims{
		Act: ect.ActTranslate, Audience: []string{"spiffe://example.com/a"}, OutputHash: ect.Hash(wire.Body),
	})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: ecttest.NewStore()})
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := recorder.Record(t.Context(), token, ect.Filing{})
	if err != nil {
		t.Fatal(err)
	}
	attested, err := transport.Attest(receipt, wire)
	if err != nil {
		t.Fatal(err)
	}
	out, err := attested.Seal(request, "an.cest.or")
	if err != nil {
		t.Fatal(err)
	}
	return out, token.Compact()
}

// TestRollbackRequest_SentBesideTheEndpoint: on the same host, by the same identity, with
// the request's token before all others, and each of them once.
func TestRollbackRequest_SentBesideTheEndpoint(t *testing.T) {
	t.Parallel()
	request, result := compact(t, ect.ActRollbackRequest), compact(t, ect.ActRollbackResult)
	h := &host{status: 200, tokens: []string{"an.oth.er", result}, body: "{}"}
	d, err := rollback.New(rollback.Deps{Client: h})
	if err != nil {
		t.Fatal(err)
	}
	message, own := sealed(t, request)
	reply, err := d.Dial(t.Context(), transport.Endpoint{Agent: "a", ID: "spiffe://example.com/a", URL: "https://a.example:8443/deep/mcp?x=y"}, message)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{request, own, "an.cest.or"}
	if got := h.request.Header.Values(ect.HeaderName); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%d tokens went along, or in another order", len(got))
	}
	if h.request.URL.String() != "https://a.example:8443/.well-known/atd/rollback" || h.request.Method != http.MethodPost || h.expected != "spiffe://example.com/a" {
		t.Errorf("%s %s as %s", h.request.Method, h.request.URL, h.expected)
	}
	if reply.Wire.Header.Get(form.Field) != result || len(reply.Evidence) != 0 {
		t.Errorf("heard %+v", reply)
	}
}

// TestRollbackRequest_Answers: what is one, and what is told of the rest.
func TestRollbackRequest_Answers(t *testing.T) {
	t.Parallel()
	request, result := compact(t, ect.ActRollbackRequest), compact(t, ect.ActRollbackResult)
	var (
		bad    *transport.BadReplyError
		gone   *transport.UnreachableError
		late   *transport.TimeoutError
		denied *egress.DeniedError
	)
	for name, c := range map[string]struct {
		host host
		url  string
		as   any // nil: a reply
	}{
		"the body":           {host{status: 200, body: " " + result + "\n"}, "https://a.example/", nil},
		"a refusal":          {host{status: 403}, "https://a.example/", nil},
		"a redirect":         {host{status: 307}, "https://a.example/", nil},
		"nothing":            {host{status: 204}, "https://a.example/", &bad},
		"another act":        {host{status: 200, tokens: []string{request}}, "https://a.example/", &bad},
		"a broken header":    {host{status: 200, tokens: []string{"not a token"}}, "https://a.example/", &bad},
		"too much":           {host{status: 200, body: strings.Repeat("x", 65<<10)}, "https://a.example/", &bad},
		"no connection":      {host{fails: io.ErrUnexpectedEOF}, "https://a.example/", &gone},
		"too late":           {host{fails: context.DeadlineExceeded}, "https://a.example/", &late},
		"not to be called":   {host{fails: &egress.DeniedError{Reason: egress.ReasonURL}}, "https://a.example/", &denied},
		"no place over HTTP": {host{}, "uacps://a.example", &denied},
		"no URL":             {host{}, "%", &denied},
	} {
		d, err := rollback.New(rollback.Deps{Client: &c.host})
		if err != nil {
			t.Fatal(err)
		}
		message, _ := sealed(t, request)
		reply, err := d.Dial(t.Context(), transport.Endpoint{Agent: "a", URL: c.url}, message)
		if (err == nil) != (c.as == nil) || err != nil && !errors.As(err, c.as) {
			t.Errorf("%s: %v", name, err)
		}
		if c.as == nil && (reply.Wire.Status == 0) != (c.host.status == 200) {
			t.Errorf("%s: status %d", name, reply.Wire.Status)
		}
	}
	d, err := rollback.New(rollback.Deps{Client: &host{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Dial(t.Context(), transport.Endpoint{}, transport.Sealed{}); !errors.Is(err, transport.ErrUnsealed) {
		t.Errorf("unsealed: %v", err)
	}
	if _, err := rollback.New(rollback.Deps{}); err == nil {
		t.Error("a dialer without a way out")
	}
}

// endsHalf answers with half a result, and ends it properly when the deadline is there.
type endsHalf struct {
	ctx  context.Context //nolint:containedctx // the request's
	half io.Reader
}

func (b *endsHalf) Read(p []byte) (int, error) {
	n, err := b.half.Read(p)
	if err != nil {
		<-b.ctx.Done()
	}
	return n, err
}

func (*endsHalf) Close() error { return nil }

type halfway struct{}

func (halfway) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: &endsHalf{r.Context(), strings.NewReader("ey")}}, nil
}

// Half an answer at the deadline is a timeout, not a bad answer, also from an agent
// that sees the deadline and ends its answer properly.
func TestRollbackRequest_HalfAnswerAtTheDeadline(t *testing.T) {
	t.Parallel()
	d, err := rollback.New(rollback.Deps{Client: halfway{}})
	if err != nil {
		t.Fatal(err)
	}
	message, _ := sealed(t, compact(t, ect.ActRollbackRequest))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = d.Dial(ctx, transport.Endpoint{Agent: "a", ID: "spiffe://example.com/a", URL: "https://a.example:8443/"}, message)
	if _, late := errors.AsType[*transport.TimeoutError](err); !late {
		t.Errorf("got %v, want a timeout", err)
	}
}
