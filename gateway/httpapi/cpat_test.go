package httpapi_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

func TestCPAT_WellKnownDocuments(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "")
	for path, want := range map[string]string{
		"/.well-known/cpat":         `"cpat_version":"1.0"`,
		"/.well-known/cpat/gateway": `"translate_endpoint":"https://gw.example/cpat/translate"`,
	} {
		w := s.do(http.MethodGet, path, "", nil, nil)
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "aepb") {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
	for path, aepb := range map[string]string{"/.well-known/cpat": "/.well-known/aepb", "/.well-known/cpat/gateway": "/.well-known/aepb/gateway"} {
		var lists, want struct {
			Protocols []struct{ ID, Version, Endpoint string }
			Pairs     []struct{ From, To string }
		}
		for at, into := range map[string]any{path: &lists, aepb: &want} {
			text := strings.ReplaceAll(s.do(http.MethodGet, at, "", nil, nil).Body.String(), "/aepb/translate", "/cpat/translate")
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatal(err)
			}
		}
		if len(lists.Protocols)+len(lists.Pairs) == 0 || !reflect.DeepEqual(lists, want) {
			t.Errorf("%s lists %+v, and under AEPB's name %+v", path, lists, want)
		}
	}
	caller := ecttest.NewParty(t, "spiffe://example.com/client")
	w := s.do(http.MethodPost, "/cpat/translate?from=a2a-v1&to=mcp-v1", "{}", caller, jsonBody())
	if w.Code != 200 || s.fakeHandler.call.EntryPoint != transport.TranslateCPAT {
		t.Errorf("translate: got %d, entrance %d", w.Code, s.fakeHandler.call.EntryPoint)
	}
}
