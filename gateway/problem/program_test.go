package problem_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// TestProgram_CallersDoNotReadOfIt: command, paths and what a program wrote are for operators.
func TestProgram_CallersDoNotReadOfIt(t *testing.T) {
	t.Parallel()
	const secret = "/opt/SECRET"
	ended := &stdio.EndedError{Err: errors.New("exit status 1"), Last: secret}
	for name, cause := range map[string]error{
		"ended":   ended,
		"waits":   &stdio.WaitError{After: time.Second, Err: ended},
		"starts":  &stdio.StartError{Err: errors.New("fork/exec " + secret)},
		"refused": &stdio.WaitError{After: time.Second, Err: &stdio.StartError{Err: errors.New("open " + secret)}},
	} {
		for wrapped, err := range map[string]error{"": cause, " unreachable": &transport.UnreachableError{Agent: "files", Err: cause}} {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
			problem.Write(w, r, err)
			native := problem.NativeFor(false, err)
			for where, text := range map[string]string{
				"response": w.Body.String() + strings.Join(w.Header().Values("Retry-After"), ""),
				"document": string(problem.Document(t.Context(), err)),
				"native":   native.Message + fmt.Sprintf("%s", native.Details),
				"detail":   problem.From(err).Detail,
			} {
				if strings.Contains(text, secret) || strings.Contains(text, "exit status") || strings.Contains(text, "fork") {
					t.Errorf("%s%s: the %s says %s", name, wrapped, where, text)
				}
			}
		}
		if got := problem.Explain(&transport.UnreachableError{Agent: "files", Err: cause}); !strings.Contains(got, secret) {
			t.Errorf("%s: an operator reads %s", name, got)
		}
	}
}
