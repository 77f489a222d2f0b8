package problem_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func write(t *testing.T, method string, err error) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	w.Header().Set("Execution-Context", "evidence")
	w.Header().Set("Content-Length", "7")
	problem.Write(w, httptest.NewRequest(method, "/aepb/translate?from=secret", nil), err)
	return w.Result()
}

// RFC 9457 and docs/http-api.md.
func TestWrite_RFC9457(t *testing.T) {
	t.Parallel()
	r := write(t, http.MethodPost, fmt.Errorf("road: %w", &policy.Denied{Constraint: policy.ConstraintHops}))
	defer func() { _ = r.Body.Close() }()
	var got map[string]any
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "urn:aepb:problem:policy_violation", "title": "Policy does not allow this", "status": 403.0,
		"code": "policy_violation", "detail": "refused by constraint aepb.max_translation_hops", "instance": "/aepb/translate",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r.StatusCode != http.StatusForbidden || r.Header.Get("Content-Type") != "application/problem+json" ||
		r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Content-Length") != "" {
		t.Errorf("status %d, headers %v", r.StatusCode, r.Header)
	}
	if r.Header.Get("Execution-Context") != "evidence" {
		t.Error("the evidence of the failure was lost")
	}
}

func TestWrite_Headers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err           error
		header, value string
	}{
		"exact seconds":  {&limit.ExceededError{RetryAfter: 2 * time.Second}, "Retry-After", "2"},
		"rounded up":     {&limit.ExceededError{RetryAfter: 2001 * time.Millisecond}, "Retry-After", "3"},
		"at least one":   {&limit.ExceededError{RetryAfter: time.Millisecond}, "Retry-After", "1"},
		"no advice":      {&limit.ExceededError{}, "Retry-After", "1"},
		"unknown error":  {errors.New("x"), "Retry-After", ""},
		"challenge":      {&problem.UnauthenticatedError{}, "WWW-Authenticate", `Bearer realm="aepb"`},
		"other scheme":   {&problem.UnauthenticatedError{Scheme: "DPoP"}, "WWW-Authenticate", `DPoP realm="aepb"`},
		"from a codec":   {&canonical.Error{Code: canonical.CodeUnauthenticated}, "WWW-Authenticate", `Bearer realm="aepb"`},
		"forbidden":      {&policy.Forbidden{}, "WWW-Authenticate", ""},
		"allow":          {&problem.MethodError{Allow: "GET, POST"}, "Allow", "GET, POST"},
		"drain location": {&problem.DrainingError{Location: "https://other.test/"}, "Location", "https://other.test/"},
		"successor":      {&problem.RetiredError{Successor: "https://new.test/"}, "Link", `<https://new.test/>; rel="successor-version"`},
	} {
		r := write(t, http.MethodPost, tc.err)
		_ = r.Body.Close()
		if got := r.Header.Get(tc.header); got != tc.value {
			t.Errorf("%s: %s is %q, want %q", name, tc.header, got, tc.value)
		}
	}
}

func TestWrite_HEADHasNoBody(t *testing.T) {
	t.Parallel()
	r := write(t, http.MethodHead, errors.New("x"))
	defer func() { _ = r.Body.Close() }()
	if n, _ := r.Body.Read(make([]byte, 1)); n != 0 || r.StatusCode != http.StatusInternalServerError {
		t.Errorf("%d bytes, status %d", n, r.StatusCode)
	}
}

func TestNative_CodecAndOtherErrors(t *testing.T) {
	t.Parallel()
	own := &canonical.Error{Code: canonical.CodeBadParams, Message: "no", Schema: json.RawMessage(`{}`)}
	if got := problem.Native(fmt.Errorf("road: %w", own)); got != own {
		t.Errorf("a codec's error became another: %v", got)
	}
	got := problem.Native(&limit.ExceededError{RetryAfter: time.Second})
	want := &canonical.Error{
		Code: canonical.CodeRateLimited, Message: "Too many requests: more requests than this caller may make",
		RetryAfter: time.Second,
		Details:    []json.RawMessage{json.RawMessage(`{"@type":"urn:aepb:problem:rate_limited","code":"rate_limited","status":429}`)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := problem.Native(errors.New("secret")); got.Message != "The gateway failed" {
		t.Errorf("got %q", got.Message)
	}
	// An upstream's error under one of ours is not the answer.
	if got := problem.Native(&problem.RecordingError{Err: own}); got.Code != canonical.CodeUnavailable {
		t.Errorf("got %s", got.Code)
	}
}
