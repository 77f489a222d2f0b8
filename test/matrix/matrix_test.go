package matrix_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/transport/a2a/frame"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// side is one protocol in one version and form.
type side struct {
	name, version string
	codec         translators.Translator
	form          string
}

func sides() []side {
	a, m := a2a.New(translators.Config{}), mcp.New(translators.Config{})
	l := slim.New(translators.Config{})
	return []side{
		{"a2a@1.0", a2a.Version, a, ""},
		{"a2a@1.0+http", a2a.Version, a, a2a.FormHTTP},
		{"a2a@1.0+grpc", a2a.Version, a, a2a.FormGRPC},
		{"a2a@0.3", a2a.Version03, a, ""},
		{"a2a@0.3+http", a2a.Version03, a, a2a.FormHTTP},
		{"mcp@2026-07-28", mcp.Modern, m, ""},
		{"mcp@2025-11-25", mcp.Legacy, m, ""},
		{"mcp@2025-06-18", mcp.LegacyJune, m, ""},
		{"mcp@2025-03-26", mcp.LegacyMarch, m, ""},
		{"uacp@enveloped", "", uacp.New(translators.Config{}), uacp.FormEnveloped},
		{"ainp", ainp.Version, ainp.New(translators.Config{}), ""},
		{"slim@a2a-1.0", slim.VersionA2A, l, ""},
		{"slim@a2a-1.0+slimrpc", slim.VersionA2A, l, slim.FormRPC},
		{"slim@mcp-2026-07-28", slim.VersionMCP(mcp.Modern), l, ""},
	}
}

// lossFile is the table of declared losses: from, to, case, loss.
const lossFile = "losses.txt"

// updateEnv, when set, writes the table anew; the diff is then for a person to judge.
const updateEnv = "AEPB_UPDATE_LOSSES"

const lossHead = `# What each pair of protocols loses, case by case: from, to, case, code, fate, place.
# "carried" comes home again, "dropped" does not. The test fails on a line too many as on one too few.
`

// TestMatrix_EveryCase runs every case of every side to every other side and home.
func TestMatrix_EveryCase(t *testing.T) {
	t.Parallel()
	var got []string
	for _, from := range sides() {
		for _, to := range sides() {
			if from.name == to.name {
				continue
			}
			for _, c := range cases(from) {
				t.Run(from.name+" "+to.name+" "+c.name, func(t *testing.T) {
					for _, loss := range travel(t, from, to, c) {
						got = append(got, strings.Join([]string{from.name, to.name, c.name, loss}, " "))
					}
				})
			}
		}
	}
	sort.Strings(got)
	if os.Getenv(updateEnv) != "" {
		text := lossHead + strings.Join(got, "\n") + "\n"
		if err := os.WriteFile(lossFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := declared(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the losses are not those of %s (-declared +happened):\n%s", lossFile, diff)
	}
}

// travel carries one message there and back. It answers with the losses of the
// way there; the way back may lose nothing more.
func travel(t *testing.T, from, to side, c testCase) []string {
	t.Helper()
	w := translators.Wire{Version: from.version, Form: from.form, Body: []byte(c.body), Re: c.re}
	m, err := from.codec.Decode(w)
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	stamp(m)
	there, losses, err := to.codec.Encode(m, translators.Target{Version: to.version, Form: to.form, Capability: c.capability, Stamp: limit()})
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	there.Re = c.re
	unheld := framed(&there)
	if there.Body == nil {
		return []string{"cannot be said"}
	}
	losses = append(losses, unheld...)
	back, err := to.codec.Decode(there)
	if err != nil {
		t.Fatalf("Decode there: %v\n%s", err, there.Body)
	}
	unstamp(back)
	withoutEnvelope(back, to)
	if to.form == a2a.FormHTTP || inProtobuf(to) {
		back.Correlation.WireID = m.Correlation.WireID // the connection pairs them, not the message
	}
	target := translators.Target{Version: from.version, Form: from.form}
	if _, inside := slim.Revision(from.version); inside || from.codec.Info().Binding == mcp.Binding {
		target.Capability = c.capability // a call names its tool; a turn that named none must not begin to
	}
	home, more, err := from.codec.Encode(back, target)
	if err != nil {
		t.Fatalf("Encode home: %v\n%s", err, there.Body)
	}
	dropped := slices.DeleteFunc(slices.Concat(losses, more), func(l canonical.Loss) bool {
		return l.Fate == canonical.Carried || l.Path == "/correlation/wireID"
	})
	if len(dropped) == 0 {
		value := value
		if inProtobuf(to) {
			value = double
		}
		if diff := cmp.Diff(value(t, c.body), withoutCarriage(value(t, string(home.Body)))); diff != "" {
			t.Errorf("what comes home differs (-left +home):\n%s\nthere: %s", diff, there.Body)
		}
	}
	var out []string
	for _, loss := range slices.Concat(m.Losses, losses) {
		out = append(out, loss.String())
	}
	return out
}

// inProtobuf: A2A's messages travel in protobuf there, over gRPC or SLIMRPC.
func inProtobuf(s side) bool { return s.form == a2a.FormGRPC || s.form == slim.FormRPC }

// framed has a message travel over gRPC or SLIMRPC, if that is its form, and
// says what that loses. What cannot be said there has no body afterwards.
func framed(wire *translators.Wire) []canonical.Loss {
	over, back := frame.Framer{}.Frame, frame.Framer{}.Unframe
	if wire.Form == slim.FormRPC {
		over, back = tslim.Frame, tslim.Unframe
	}
	w, losses, err := over(*wire)
	if err == nil {
		w, err = back(w)
	}
	if err != nil {
		w.Body = nil
	}
	*wire = w
	return losses
}

// double is a JSON value as protobuf has it: 1.50 is 1.5, and that nobody is to
// return immediately is said by not saying it.
func double(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(strings.Replace(text, `"blocking":true`, `"blocking":null`, 1)), &v); err != nil {
		t.Fatal(err)
	}
	for _, at := range []any{v, member(v, "params")} {
		if configuration, ok := member(at, "configuration").(map[string]any); ok && configuration["blocking"] == nil {
			delete(configuration, "blocking")
		}
	}
	return v
}

func member(v any, name string) any {
	object, _ := v.(map[string]any)
	return object[name]
}

// limit is what the gateway says of every message that leaves.
func limit() translators.Addressing {
	return translators.Addressing{From: "did:web:gateway.example", At: time.Date(2026, 7, 28, 1, 2, 3, 0, time.UTC)}
}

// stamp gives a message what the gateway mints before it is encoded.
func stamp(m *canonical.Message) {
	if m.Correlation.WireID == nil {
		m.Correlation.WireID = json.RawMessage(`"` + stamped + `"`)
	}
	if m.Correlation.MessageID == "" && m.Op == canonical.OpInvoke && m.Phase == canonical.PhaseRequest {
		m.Correlation.MessageID = stamped
	}
	if result, ok := m.Body.(*canonical.Result); ok && result.Output != nil {
		m.Conversation = canonical.Conversation{ContextID: stamped, TaskID: stamped}
	}
}

const stamped = "stamped-by-the-roof"

// unstamp takes it away again: the way home is the same message's, not a new one's.
func unstamp(m *canonical.Message) {
	if string(m.Correlation.WireID) == `"`+stamped+`"` {
		m.Correlation.WireID = nil
	}
	if m.Correlation.MessageID == stamped {
		m.Correlation.MessageID = ""
		if invoke, ok := m.Body.(*canonical.Invoke); ok {
			invoke.Turn.ID = ""
		}
	}
	if m.Conversation.TaskID == stamped {
		m.Conversation = canonical.Conversation{}
	}
}

// withoutEnvelope takes out what µACP and AINP say around a message, which a
// gateway carries home for them: it was no part of the message that left.
func withoutEnvelope(m *canonical.Message, to side) {
	id := to.codec.Info().Binding
	if id != uacp.Binding && id != ainp.Binding {
		return
	}
	delete(m.Extensions, id)
	switch body := m.Body.(type) {
	case *canonical.Invoke:
		delete(body.Extensions, id)
		delete(body.Turn.Extensions, id)
	case *canonical.Result:
		delete(body.Extensions, id)
	case *canonical.Error:
		delete(body.Extensions, id)
		if body.Native != nil && body.Native.Binding == id {
			body.Native = nil
		}
	}
}

// value is a JSON value with its numbers digit for digit.
func value(t *testing.T, text string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// withoutCarriage takes out what the way over another protocol added to an MCP
// request's _meta: that it was a turn there is no part of the call.
func withoutCarriage(v any) any {
	at := v
	for _, name := range []string{"params", "_meta"} {
		object, _ := at.(map[string]any)
		at = object[name]
	}
	if meta, ok := at.(map[string]any); ok {
		delete(meta, "aepb.gateway/ext")
	}
	return v
}

func declared(t *testing.T) []string {
	t.Helper()
	file, err := os.Open(lossFile)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var lines []string
	for in := bufio.NewScanner(file); in.Scan(); {
		line := strings.TrimSpace(in.Text())
		if line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if !sort.StringsAreSorted(lines) {
		t.Error(fmt.Errorf("%s is not sorted", lossFile))
	}
	return lines
}
