package problem_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// TestRefused_NextGateway: what a further gateway refused is no path to the caller, with its code beside, over
// HTTP and in a native endpoint's error (R29); a caller that can come again gets the code itself.
func TestRefused_NextGateway(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		status     int
		code, next string
	}{
		"semantic_loss":    {404, "no_translation_path", "semantic_loss"},
		"policy_violation": {404, "no_translation_path", "policy_violation"},
		"timeout":          {404, "no_translation_path", "timeout"},
		"forbidden":        {404, "no_translation_path", ""},
		"draining":         {503, "draining", ""},
		"rate_limited":     {429, "rate_limited", ""},
	} {
		err := &transport.RefusedError{Agent: "x", Status: 400, Code: code, Detail: "why"}
		response := httptest.NewRecorder()
		problem.Write(response, httptest.NewRequestWithContext(t.Context(), "POST", "/aepb/translate", nil), err)
		var document, native struct {
			Code string `json:"code"`
			Next string `json:"next_gateway"`
		}
		if err := json.Unmarshal(response.Body.Bytes(), &document); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(problem.Native(err).Details[0], &native); err != nil {
			t.Fatal(err)
		}
		if response.Code != want.status || document.Code != want.code || document.Next != want.next || native != document {
			t.Errorf("%s: got %d %+v, native %+v, expected %+v", code, response.Code, document, native, want)
		}
	}
}
