package rollback_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

const claims = `{"exec_act":"atd:rollback_request","par":["c-1"],"ext":{"atd.cascade":true}}`

func token(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func form() *rollback.Form { return rollback.Over(mcp.New(translators.Config{})) }

// TestForm_Roundtrip: what was written is read again, in both directions.
func TestForm_Roundtrip(t *testing.T) {
	t.Parallel()
	for phase, re := range map[canonical.Phase]canonical.Op{canonical.PhaseRequest: "", canonical.PhaseResponse: canonical.OpRollback} {
		wire, losses, err := form().Encode(&canonical.Message{
			Op: canonical.OpRollback, Phase: phase,
			Body: &canonical.Signal{Token: token(claims), Extensions: canonical.Extensions{"uacp-v1": []byte(`{"a":1}`)}},
		}, translators.Target{})
		if err != nil || len(losses) != 1 || losses[0].Code != canonical.LossExtension {
			t.Fatalf("%s: %v, lost %v", phase, err, losses)
		}
		if asks := wire.Verb == http.MethodPost && wire.Path == rollback.Path; string(wire.Body) != claims || wire.Re != re || asks != (re == "") {
			t.Errorf("%s: %+v", phase, wire)
		}
		m, err := form().Decode(wire)
		if err != nil {
			t.Fatal(err)
		}
		if answer, ok := m.Body.(*canonical.Signal); !ok || answer.Token != token(claims) || m.Phase != phase || m.Op != canonical.OpRollback {
			t.Errorf("%s came back as %+v", phase, m)
		}
	}
}

// TestDecode_Refuses is refused, and never with a panic.
func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{
		"no token": nil, "two": {token(claims), token(claims)}, "no JWS": {"a.b"}, "an empty part": {"e30.e30."}, "padding": {"e30.e30=.e30"},
		"no object": {token(`"x"`)}, "no JSON": {token("{")}, "a member twice": {token(`{"par":[],"par":["x"]}`)},
	} {
		var bad *canonical.Error
		if _, err := form().Decode(translators.Wire{Header: http.Header{rollback.Field: values}}); !errors.As(err, &bad) || bad.Code != canonical.CodeBadParams {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, body := range map[string]canonical.Body{
		"another body": &canonical.Done{}, "no token": &canonical.Signal{}, "an error": &canonical.Error{Code: canonical.CodeForbidden},
	} {
		var bad *canonical.Error
		if _, _, err := form().Encode(&canonical.Message{Op: canonical.OpRollback, Body: body}, translators.Target{}); !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDecode_StatusBecomesCanonicalError: a status is an error in canonical words.
func TestDecode_StatusBecomesCanonicalError(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]canonical.Code{
		302: canonical.CodeBadUpstream, 400: canonical.CodeBadParams, 401: canonical.CodeForbidden, 403: canonical.CodeForbidden,
		404: canonical.CodeUnsupportedOp, 405: canonical.CodeUnsupportedOp, 429: canonical.CodeRateLimited,
		500: canonical.CodeBadUpstream, 501: canonical.CodeUnsupportedOp, 503: canonical.CodeUnavailable,
	} {
		m, err := form().Decode(translators.Wire{Re: canonical.OpRollback, Status: status, Header: http.Header{rollback.Field: {token(claims)}}})
		if err != nil {
			t.Fatal(err)
		}
		if answer, ok := m.Body.(*canonical.Error); !ok || answer.Code != code || m.Phase != canonical.PhaseError {
			t.Errorf("%d is %+v", status, m.Body)
		}
	}
}
