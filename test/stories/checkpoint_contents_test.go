package stories

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/gateway/state/statetest/contents"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/test/harness/toolstest"
)

// bookings is an MCP server that books rooms and knows nothing of rollback. What it returns of a booking has the guest in it.
type bookings struct {
	url string

	mu    sync.Mutex
	calls []string // tool and arguments
}

func newBookings(t *testing.T, b *gatewaytest.Fixture) *bookings {
	t.Helper()
	r := &bookings{}
	server := httptest.NewUnstartedServer(toolstest.Rooms(func(tool, arguments string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, tool+" "+arguments)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.TLS = gatewaytest.Serving(b.SVID(t, "/rooms"))
	server.StartTLS()
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *bookings) received() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// offers lists the rooms at a gateway, with the call that undoes a booking.
func offers(t *testing.T, b *gatewaytest.Fixture, r *bookings) {
	t.Helper()
	b.List(t, "rooms", "mcp-v1", r.url, gatewaytest.Host{})
	agent, _ := b.Directory().Find("rooms")
	rule, err := compensation.ParseRule(json.RawMessage(`{"tool":"cancel","arguments":{"id":{"result":"/id"},"guest":{"call":"/guest"}}}`))
	gatewaytest.Must(t, err)
	agent.Undo = directory.Undo{Compensate: map[string]compensation.Rule{"book": rule}}
	gatewaytest.Must(t, b.Directory().Put(agent))
}

// booking is a workflow with one call.
type booking struct {
	wid        string
	checkpoint ect.ID
	guest      string
}

// books books a room in a workflow of its own.
func books(t *testing.T, b *gatewaytest.Fixture, guest string) booking {
	t.Helper()
	var start struct {
		WID string
		JTI ect.ID
	}
	began := b.Send(t, gatewaytest.HTTPRequest{At: "/atd/workflows"})
	gatewaytest.Must(t, json.Unmarshal(began.Body, &start))
	l := gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=rooms", Body: callBodyOf("book", `{"guest":"`+guest+`"}`)}
	l.Tokens = []string{gatewaytest.Signing(t, b.Me, ect.Claims{
		Act: "send_task", Audience: []string{b.Self()}, Workflow: start.WID, Parents: []ect.ID{start.JTI}, OutputHash: ect.Hash([]byte(l.Body)),
	})}
	got := b.Send(t, l)
	made := booking{wid: start.WID, guest: guest}
	for _, compact := range got.Header.Values(ect.HeaderName) {
		if claims, _, err := ect.ParseUnverified(compact); err == nil && claims.Act == ect.ActCheckpoint {
			made.checkpoint = claims.ID
		}
	}
	if got.Status != http.StatusOK || made.checkpoint == "" {
		t.Fatalf("the booking: %d %s", got.Status, got.Body)
	}
	return made
}

// callBodyOf calls a tool with arguments, in A2A.
func callBodyOf(tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"message":{"messageId":"` + string(ect.NewID()) +
		`","role":"ROLE_USER","parts":[{"data":{"skill":"` + tool + `","input":` + arguments + `},"mediaType":"application/json"}]}}}`
}

// cancels rolls a booking back and expects that it is canceled once.
func cancels(t *testing.T, b *gatewaytest.Fixture, r *bookings, of booking) {
	t.Helper()
	before := len(r.received())
	got := b.Send(t, b.Rollback(t, b.Me, of.wid, of.checkpoint))
	if got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"completed"`) {
		t.Fatalf("the rollback: %d %s", got.Status, got.Body)
	}
	want := `cancel {"guest":"` + of.guest + `","id":"room of ` + of.guest + `"}`
	if now := r.received()[before:]; !slices.Equal(now, []string{want}) {
		t.Errorf("the agent got %q, expected %q once", now, want)
	}
}

// doesNotCancel expects that a rollback is refused with words, that the log says why, and that nothing is sent.
func doesNotCancel(t *testing.T, b *gatewaytest.Fixture, r *bookings, of booking, words, why string) {
	t.Helper()
	before := len(r.received())
	got := b.Send(t, b.Rollback(t, b.Me, of.wid, of.checkpoint))
	if got.Status == http.StatusOK || !strings.Contains(string(got.Body), words) || strings.Contains(string(got.Body), of.guest) {
		t.Errorf("the rollback: %d %s, expected a refusal with the words %q", got.Status, got.Body, words)
	}
	if !strings.Contains(b.Logs.String(), why) {
		t.Errorf("the log does not say %q", why)
	}
	if now := r.received()[before:]; len(now) != 0 {
		t.Errorf("the agent got %q", now)
	}
}

// keptIn is where checkpoints are kept, for a test that looks into it.
type keptIn struct {
	state          config.State
	folder         string // of all files of the state and of its key
	contents.Store        // while the gateway does not run

	// Without the key the caller is told withoutKey. The log says damage of an octet that was changed.
	withoutKey, damage string
}

const notOpened = "the checkpoint cannot be opened: what is stored of it was changed, or this gateway does not have its key"

// inFile is a file of bbolt.
func inFile(t *testing.T) keptIn {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "state.db")
	return keptIn{
		state: config.State{Path: file, Key: filepath.Join(folder, "state-key")}, folder: folder, withoutKey: notOpened, damage: "a checksum is wrong",
		Store: contents.InFile(file),
	}
}

// inRedis is a server of Redis that writes each command to a file.
func inRedis(t *testing.T) keptIn {
	t.Helper()
	server := gatewaytest.NewRedis(t)
	return keptIn{
		state: server.State(), folder: filepath.Dir(server.Key),
		withoutKey: "the caller has no part in this workflow", // its evidence does not open either
		damage:     "changed or moved by another program", Store: contents.InRedis(t, server.Address),
	}
}

// writtenForms are a text, and what is left of it in hexadecimal and in base64 wherever it stands in what is encoded.
func writtenForms(text string) [][]byte {
	forms := [][]byte{[]byte(text), []byte(hex.EncodeToString([]byte(text))), []byte(strings.ToUpper(hex.EncodeToString([]byte(text))))}
	for before := range 3 {
		for _, coding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			form := coding.EncodeToString([]byte(strings.Repeat("-", before) + text))
			form = form[(before*8+5)/6:]                      // the letters before have bits of what stands before
			forms = append(forms, []byte(form[:len(form)-1])) // the last letter may have bits of what stands behind
		}
	}
	return forms
}

// isIn reports whether a text is in what was written, in one of its forms.
func isIn(written []byte, text string) bool {
	return slices.ContainsFunc(writtenForms(text), func(form []byte) bool { return bytes.Contains(written, form) })
}

// TestWrittenForms_Find: each form is found wherever the text stands.
func TestWrittenForms_Find(t *testing.T) {
	t.Parallel()
	const text = "Ada Lovelace-5b1c"
	for before := range 6 {
		whole := []byte(strings.Repeat("x", before) + text + "yz")
		for _, written := range []string{
			string(whole), hex.EncodeToString(whole), strings.ToUpper(hex.EncodeToString(whole)), base64.StdEncoding.EncodeToString(whole),
			base64.RawURLEncoding.EncodeToString(whole), base64.StdEncoding.EncodeToString(whole[:len(whole)-2]),
		} {
			if !isIn([]byte(written), text) {
				t.Errorf("%q is not found in %q", text, written)
			}
		}
	}
	if isIn([]byte("Ada Byron"), text) {
		t.Error("another text is found")
	}
}

// recordOf are the tokens of a workflow, each with its claims in clear.
func recordOf(t *testing.T, b *gatewaytest.Fixture, wid string) []byte {
	t.Helper()
	got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/workflows/" + wid})
	var page struct{ ECTs []string }
	gatewaytest.Must(t, json.Unmarshal(got.Body, &page))
	if len(page.ECTs) < 4 {
		t.Errorf("of the workflow %d tokens are on record", len(page.ECTs))
	}
	written := got.Body
	for _, compact := range page.ECTs {
		for part := range strings.SplitSeq(compact, ".") {
			text, err := base64.RawURLEncoding.DecodeString(part)
			gatewaytest.Must(t, err)
			written = slices.Concat(written, []byte(" "), text)
		}
	}
	return written
}

// hides expects that a text is in none of the files, values and logs.
func (k keptIn) hides(t *testing.T, text string, logs *gatewaytest.Journal) {
	t.Helper()
	count := 0
	gatewaytest.Must(t, filepath.WalkDir(k.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		written, err := os.ReadFile(path)
		if count += len(written); isIn(written, text) {
			t.Errorf("it is in the file %s", path)
		}
		return err
	}))
	values := k.Values(t)
	for name, value := range values {
		if isIn(value, text) {
			t.Errorf("it is in the value of %q", name)
		}
	}
	if count < 1000 || len(values) < 10 {
		t.Errorf("in %d octets and %d values, expected more", count, len(values))
	}
	if log := logs.String(); isIn([]byte(log), text) || !strings.Contains(log, `"DEBUG"`) {
		t.Error("it is in the log, or the log is not that of the level debug")
	}
}

// rotate writes the key file anew.
func (k keptIn) rotate(t *testing.T, keys ...[]byte) {
	t.Helper()
	gatewaytest.Must(t, os.WriteFile(k.state.Key, bytes.Join(keys, nil), 0o600))
}

// TestCheckpoints_Contents: what a checkpoint keeps of a call is nowhere in clear. It is read after the key was exchanged twice, and not without
// the key with which it was sealed, nor when an octet of it was changed: the refusal says so, and nothing is sent to the agent.
func TestCheckpoints_Contents(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) keptIn{"in a file": inFile, "in Redis": inRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := open(t)
			first, second, third := seal.NewKey(), seal.NewKey(), seal.NewKey()
			at.rotate(t, first)
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{State: at.state, Log: config.Log{Level: "debug"}}})
			server := newBookings(t, b)
			offers(t, b, server)
			gatewaytest.Within(t, gatewaytest.Patience, "tokens are taken", func() bool {
				return b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(1)})).Status == http.StatusOK
			})
			private := "guest-" + rand.Text()
			undone, older, sealed := books(t, b, private), books(t, b, private), books(t, b, private)
			cancels(t, b, server, undone)
			if isIn(recordOf(t, b, undone.wid), private) {
				t.Error("it is in the evidence")
			}
			b.Stop()
			at.hides(t, private, b.Logs)

			at.rotate(t, second, first)
			b = reopened(t, b, server, at.state)
			newer := books(t, b, private)
			b.Stop()
			at.rotate(t, third, second, first)
			b = reopened(t, b, server, at.state)
			cancels(t, b, server, older)
			b.Stop()

			at.rotate(t, third, second)
			b = reopened(t, b, server, at.state)
			doesNotCancel(t, b, server, sealed, at.withoutKey, "a key that is not")
			b.Stop()

			at.rotate(t, third, second, first)
			at.Flip(t)
			b = reopened(t, b, server, at.state)
			doesNotCancel(t, b, server, newer, notOpened, at.damage)
			b.Stop()
			at.hides(t, private, b.Logs)
		})
	}
}

// reopened is a gateway over the state of one that has stopped.
func reopened(t *testing.T, b *gatewaytest.Fixture, r *bookings, s config.State) *gatewaytest.Fixture {
	t.Helper()
	next := b.Besides(t, "gateway", gatewaytest.Plan{Config: config.Config{State: s, Log: config.Log{Level: "debug"}}})
	offers(t, next, r)
	gatewaytest.Within(t, gatewaytest.Patience, "tokens are taken", func() bool {
		body := callBodyOf("book", `{"guest":"any"}`)
		return next.Send(t, next.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=rooms", Body: body})).Status == http.StatusOK
	})
	return next
}
