package mcp_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/transport"
	wire "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestDial_EachLegacyRevision: a server gets its own revision, and since 2025-06-18
// it is told so in the header.
func TestDial_EachLegacyRevision(t *testing.T) {
	t.Parallel()
	for version, header := range map[string]string{mcp.Legacy: mcp.Legacy, mcp.LegacyJune: mcp.LegacyJune, mcp.LegacyMarch: ""} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, newLegacy(version).serve)
			d := newDialer(t, &direct{}, nil)
			description, ep, err := d.Describe(t.Context(), endpoint(p, ""))
			if err != nil || ep.Version != version || len(description.Capabilities) != 1 {
				t.Fatalf("got %+v %+v %v", description, ep, err)
			}
			reply, err := d.Dial(t.Context(), ep, seal(t, version, "id-1"))
			if err != nil || reply.Wire.Version != version {
				t.Fatalf("got %+v %v", reply.Wire, err)
			}
			got := p.last()
			_, there := got.header["Mcp-Protocol-Version"]
			if got.header.Get("Mcp-Protocol-Version") != header || there != (header != "") || got.header.Get("Mcp-Session-Id") != "s1" || got.header.Get("Mcp-Method") != "" {
				t.Errorf("header: %v", got.header)
			}
			want := []string{"server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call"}
			if diff := cmp.Diff(want, p.methods()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDial_FixedRevision: an endpoint that names its revision is asked for that one.
func TestDial_FixedRevision(t *testing.T) {
	t.Parallel()
	server := newLegacy("")
	p := newPeer(t, server.serve)
	d := newDialer(t, &direct{}, nil)
	for i, version := range []string{mcp.LegacyMarch, mcp.LegacyJune, mcp.Legacy} {
		_, ep, err := d.Describe(t.Context(), endpoint(p, version))
		if err != nil || ep.Version != version {
			t.Fatalf("%s: got %+v %v", version, ep, err)
		}
		if _, err := d.Dial(t.Context(), ep, seal(t, version, "id-1")); err != nil {
			t.Fatal(err)
		}
		if server.begun != i+1 {
			t.Errorf("%d sessions after %d revisions", server.begun, i+1)
		}
	}
	older := newPeer(t, newLegacy(mcp.LegacyMarch).serve)
	var bad *transport.BadReplyError
	if _, _, err := d.Describe(t.Context(), endpoint(older, mcp.Legacy)); !errors.As(err, &bad) || !strings.Contains(bad.Reason, "does not speak") {
		t.Errorf("a server that is older: got %v", err)
	}
	d.Close()
	if len(server.valid) != 0 {
		t.Errorf("%d sessions are left", len(server.valid))
	}
}

// TestDial_NoMessageInSessionOfOtherRevision: what is written in one revision is never sent in
// a session of another.
func TestDial_NoMessageInSessionOfOtherRevision(t *testing.T) {
	t.Parallel()
	p := newPeer(t, newLegacy(mcp.LegacyMarch).serve)
	var bad *transport.BadReplyError
	_, err := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, mcp.Legacy), seal(t, mcp.Legacy, "id-1"))
	if !errors.As(err, &bad) || !strings.Contains(bad.Reason, "any more") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{"initialize", "notifications/initialized"}, p.methods()); diff != "" {
		t.Error(diff)
	}
}

// TestDial_ReplyInABatch: a server of 2025-03-26 may put its reply into a batch.
func TestDial_ReplyInABatch(t *testing.T) {
	t.Parallel()
	reply := `{"jsonrpc":"2.0","id":"id-1","result":` + content + `}`
	notice := `{"jsonrpc":"2.0","method":"notifications/progress"}`
	for name, tc := range map[string]struct {
		version, media, text string
		ok                   bool
	}{
		"JSON":               {mcp.LegacyMarch, "application/json", "[" + reply + "]", true},
		"among others":       {mcp.LegacyMarch, "text/event-stream", "data: [" + notice + "," + notice + "]\n\ndata: [" + notice + "," + reply + "]\n\n", true},
		"without the reply":  {mcp.LegacyMarch, "application/json", "[" + notice + "]", false},
		"empty":              {mcp.LegacyMarch, "application/json", "[]", false},
		"of a later time":    {mcp.LegacyJune, "application/json", "[" + reply + "]", false},
		"nothing of a batch": {mcp.LegacyMarch, "application/json", "[" + reply, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newLegacy(tc.version)
			p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
				if in.Method != "tools/call" {
					server.serve(w, r, in)
					return
				}
				w.Header().Set("Content-Type", tc.media)
				_, _ = io.WriteString(w, tc.text)
			})
			got, err := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, tc.version), seal(t, tc.version, "id-1"))
			if got.Events != nil {
				answer, failed := drain(t, got.Events)
				if err, got.Wire = failed, answer[len(answer)-1]; len(answer) != 4 {
					t.Errorf("a stream of %d", len(answer))
				}
			}
			var bad *transport.BadReplyError
			if tc.ok && (err != nil || string(got.Wire.Body) != reply) || !tc.ok && !errors.As(err, &bad) {
				t.Errorf("got %s, %v", got.Wire.Body, err)
			}
		})
	}
}

// TestRevision_OfAServerOfBoth: what a server of both styles says in its newest revision
// leads to the one that suits the caller; one without sessions is told apart.
func TestRevision_OfAServerOfBoth(t *testing.T) {
	t.Parallel()
	for name, sessionless := range map[string]bool{"with sessions": false, "without sessions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newLegacy("")
			server.noID = sessionless
			p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
				if in.Method == "server/discover" {
					result(w, in, `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{},"serverInfo":{"name":"both","version":"1"},"ttlMs":0,"cacheScope":"public"}`)
					return
				}
				if r.Header.Get("Mcp-Protocol-Version") == mcp.Modern {
					result(w, in, `{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"public"}`)
					return
				}
				server.serve(w, r, in)
			})
			d := newDialer(t, &direct{}, nil)
			description, ep, err := d.Describe(t.Context(), endpoint(p, ""))
			if err != nil || ep.Version != mcp.Modern || ep.Sessionless {
				t.Fatalf("got %+v %+v %v", description, ep, err)
			}
			form := []canonical.Mode{canonical.ModeForm}
			for own, want := range map[string]string{mcp.Legacy: mcp.Legacy, mcp.Modern: mcp.Modern, mcp.LegacyJune: mcp.Legacy} {
				if got := d.Revision(description, own, nil); got != want {
					t.Errorf("a caller of %s has it in %q, want %s", own, got, want)
				}
			}
			if asking, silent := d.Revision(description, "", form), d.Revision(description, "", nil); asking != mcp.Legacy || silent != "" {
				t.Errorf("others who can be asked have it in %q, and the rest in %q", asking, silent)
			}
			if _, ep, err = d.Describe(t.Context(), endpoint(p, mcp.Legacy)); err != nil || ep.Version != mcp.Legacy || ep.Sessionless != sessionless {
				t.Errorf("in a session: %+v %v", ep, err)
			}
		})
	}
}

// TestDescribe_Pages: a list ends where its server says so, or gives a page or a cursor again.
func TestDescribe_Pages(t *testing.T) {
	t.Parallel()
	type pages map[string]string // the page at a cursor; "-": the first one
	tool := func(name string) string { return `{"name":"` + name + `","inputSchema":{"type":"object"}}` }
	list := func(name, next string) string {
		if next != "" {
			next = `,"nextCursor":` + next
		}
		return `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[` + tool(name) + `]` + next + `}`
	}
	for name, tc := range map[string]struct {
		pages pages
		want  []string
	}{
		"two":                             {pages{"-": list("a", `"x"`), "x": list("b", "")}, []string{"a", "b"}},
		"the page repeats":                {pages{"-": list("a", `"x"`), "x": list("a", `"y"`)}, []string{"a"}},
		"the cursor repeats":              {pages{"-": list("a", `"x"`), "x": list("b", `"x"`)}, []string{"a", "b"}},
		"a circle":                        {pages{"-": list("a", `"x"`), "x": list("b", `"y"`), "y": list("a", `"x"`)}, []string{"a", "b"}},
		"an empty cursor":                 {pages{"-": list("a", `""`), "": list("b", "")}, []string{"a", "b"}},
		"an empty cursor means the end":   {pages{"-": list("a", `""`), "": list("a", `""`)}, []string{"a"}},
		"an empty cursor that is refused": {pages{"-": list("a", `""`)}, []string{"a"}},
	} {
		for _, version := range []string{mcp.Modern, mcp.Legacy} {
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				server := newLegacy(mcp.Legacy)
				p := newPeer(t, nil)
				p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var in struct {
						incoming
						Params struct {
							Cursor          *string `json:"cursor"`
							ProtocolVersion string  `json:"protocolVersion"`
						} `json:"params"`
					}
					_ = json.NewDecoder(r.Body).Decode(&in)
					at := "-"
					if in.Params.Cursor != nil {
						at = *in.Params.Cursor
					}
					answer, ok := tc.pages[at]
					switch {
					case in.Method == "server/discover":
						result(w, in.incoming, discovered)
					case in.Method == "tools/list" && ok:
						result(w, in.incoming, answer)
					case in.Method == "tools/list":
						failure(w, http.StatusOK, `"id":`+string(in.ID)+`,`, "-32602")
					default:
						in.incoming.Params.ProtocolVersion = in.Params.ProtocolVersion
						server.serve(w, r, in.incoming)
					}
				})
				description, _, err := newDialer(t, &direct{}, nil).Describe(t.Context(), endpoint(p, version))
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, c := range description.Capabilities {
					names = append(names, c.ID)
				}
				if diff := cmp.Diff(tc.want, names); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// TestInitialize_NamesTheGateway: a legacy server is told the gateway's name and version.
func TestInitialize_NamesTheGateway(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	p := newPeer(t, server.serve)
	d, err := wire.NewDialer(wire.DialerDeps{
		Client: &direct{}, Form: mcp.New(translators.Config{}), Self: canonical.Party{Name: "aepb-gateway", Version: "1.2.3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if _, err := d.Dial(t.Context(), endpoint(p, mcp.Legacy), seal(t, mcp.Legacy, "1")); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.requests[0]; got.method != "initialize" || !strings.Contains(got.body, `"clientInfo":{"name":"aepb-gateway","version":"1.2.3"}`) {
		t.Errorf("got %s", got.body)
	}
}
