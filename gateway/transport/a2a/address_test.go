package a2a

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/problem"
	form "github.com/aepb/aepb-gateway/translators/a2a"
)

// site is a server with cards at some paths. Calls are taken at some paths, others
// answer 404.
type site struct {
	cards    map[string]string // by path: interfaces; HERE is the server
	calls    []string          // paths
	received []string          // what came to paths without a card, in order
}

func (s *site) serve(here *string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", form.Media)
		if interfaces, ok := s.cards[r.URL.Path]; ok {
			_, _ = io.WriteString(w, card(strings.ReplaceAll(interfaces, "HERE", *here)))
			return
		}
		body, _ := io.ReadAll(r.Body)
		s.received = append(s.received, r.Method+" "+r.URL.Path+" "+string(body))
		if !slices.Contains(s.calls, r.URL.Path) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no JSON"}}`)
	}
}

// TestDescribe_CardThatCounts: an agent that is listed below the origin is described by a
// card below its URL. A card at the origin may be that of another agent: it counts only if
// it names the listed URL.
func TestDescribe_CardThatCounts(t *testing.T) {
	t.Parallel()
	old, origin := "/.well-known/agent.json", iface("HERE/rpc", "JSONRPC", "1.0")
	cases := map[string]struct {
		listed string
		cards  map[string]string
		want   string // path that is called; empty: the error says refused
	}{
		"the old path below":          {"/oldcard", map[string]string{"/oldcard" + old: iface("HERE/oldcard", "JSONRPC", "0.3"), CardPath: origin}, "/oldcard"},
		"the old path at the origin":  {"", map[string]string{old: origin}, "/rpc"},
		"the origin's, another agent": {"/oldcard", map[string]string{CardPath: origin}, ""},
		"the origin's, old path":      {"/oldcard", map[string]string{old: origin}, ""},
		"the origin's, a slash more":  {"/rpc/", map[string]string{CardPath: origin}, "/rpc"},
		"the origin's, dots":          {"/a/../rpc", map[string]string{CardPath: origin}, "/rpc"},
		"the origin's, relative":      {"/rpc", map[string]string{CardPath: iface("../rpc", "JSONRPC", "1.0")}, "/rpc"},
		"the origin's, inner host":    {"/rpc", map[string]string{CardPath: iface("http://inner:8000/rpc", "JSONRPC", "1.0")}, "/rpc"},
		"the origin's, second":        {"/old", map[string]string{CardPath: origin + "," + iface("HERE/old", "JSONRPC", "0.3")}, "/rpc"},
		"the card's URL":              {old, map[string]string{old: origin}, "/rpc"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := ""
			s := &site{cards: c.cards}
			d, e, _ := serve(t, s.serve(&here))
			here = e.URL
			e.URL += c.listed
			_, reached, err := d.Describe(t.Context(), e)
			if c.want != "" {
				if err != nil || strings.TrimSuffix(reached.URL, "/") != here+c.want {
					t.Errorf("%s: %v, want %s", reached.URL, err, c.want)
				}
				return
			}
			if err == nil {
				t.Fatalf("the agent at %s is called", reached.URL)
			}
			for _, part := range []string{"another agent", here + c.listed, here + "/.well-known/", here + "/rpc"} {
				if text := problem.Explain(err); !strings.Contains(text, part) {
					t.Errorf("%q lacks %q", text, part)
				}
			}
			if strings.Contains(problem.From(err).Detail, here) {
				t.Error("a caller reads URLs")
			}
		})
	}
}

// TestDescribe_CardThatNamesAnotherHost: a card that was written for another host than the
// listed one names a path at best, and the listed URL comes first if it takes calls.
func TestDescribe_CardThatNamesAnotherHost(t *testing.T) {
	t.Parallel()
	const malformed = `{"`
	cases := map[string]struct {
		listed, at, url string
		calls           []string
		want            string
		probed          string
	}{
		"the listed URL takes calls":       {"/bob", "/bob" + CardPath, "http://0.0.0.0:9999/bob/rpc", []string{"/bob", "/bob/rpc"}, "/bob", "/bob"},
		"its path does":                    {"/bob", "/bob" + CardPath, "http://localhost:9999/bob/rpc", []string{"/bob/rpc"}, "/bob/rpc", "/bob"},
		"its path below the listed URL":    {"/bob", "/bob" + CardPath, "http://inner/rpc", []string{"/bob/rpc", "/rpc"}, "/bob/rpc", "/bob"},
		"a path that begins alike":         {"/bob", "/bob" + CardPath, "http://inner/bobby", []string{"/bobby"}, "/bob/bobby", "/bob"},
		"the origin":                       {"", CardPath, "https://evil.example/rpc", []string{"/rpc"}, "/rpc", "/"},
		"the listed URL by another name":   {"/rpc", CardPath, "http://inner/rpc", []string{"/rpc"}, "/rpc", ""},
		"the card's URL is no endpoint":    {"/x/agent-card.json", "/x/agent-card.json", "http://inner/x/rpc", nil, "/x/rpc", ""},
		"the card's URL at its usual path": {"/x" + CardPath, "/x" + CardPath, "http://inner/rpc", nil, "/x/rpc", ""},
		"credentials":                      {"", CardPath, "https://u:p@inner/rpc", []string{"/rpc"}, "/rpc", "/"},
		"no URL":                           {"", CardPath, "0.0.0.0:9999", nil, "", ""},
		"relative to the card":             {"/bob", "/bob" + CardPath, "../rpc", nil, "/bob/rpc", ""},
		"relative to the origin":           {"/bob", "/bob" + CardPath, "/rpc", nil, "/rpc", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := ""
			s := &site{cards: map[string]string{c.at: iface(c.url, "JSONRPC", "1.0")}, calls: c.calls}
			d, e, _ := serve(t, s.serve(&here))
			here = e.URL
			e.URL += c.listed
			_, reached, err := d.Describe(t.Context(), e)
			if err != nil || reached.URL != here+c.want {
				t.Errorf("%s: %v, want %s", reached.URL, err, c.want)
			}
			probes := slices.DeleteFunc(s.received, func(request string) bool { return strings.HasPrefix(request, "GET ") })
			if want := "POST " + c.probed + " " + malformed; c.probed != "" && !slices.Equal(probes, []string{want}) || c.probed == "" && len(probes) > 0 {
				t.Errorf("sent %q, want to %q", probes, c.probed)
			}
		})
	}
}
