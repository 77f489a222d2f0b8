package interop

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	form "github.com/aepb/aepb-gateway/translators/mcp"
)

// sseJob is what sse-client.mjs does.
type sseJob struct {
	Endpoint string  `json:"endpoint"`
	Version  string  `json:"version"` // that it offers; empty: the SDK's newest
	Call     jsCall  `json:"call"`
	Progress jsCall  `json:"progress"`
	Hold     jsCall  `json:"hold"`
	Stopped  jsCall  `json:"stopped"`
	Roots    *jsCall `json:"roots"`
}

// sseReport is what it saw.
type sseReport struct {
	Version  string   `json:"version"`
	Tools    []string `json:"tools"`
	Text     string   `json:"text"`
	Progress []string `json:"progress"`
	Canceled string   `json:"canceled"`
	Roots    string   `json:"roots"`
	Unknown  string   `json:"unknown"`
}

// mcpOverSSE has the official SDK's client and server of HTTP with SSE work through the
// gateway, in the newest revision that they speak and in that of the transport: the client
// with an A2A agent and with that server, the server with an A2A client.
func mcpOverSSE(t *testing.T, g *gw) {
	t.Helper()
	js := newJavascript(t)
	worker := g.worker(t, "sse-worker", "1.0")
	newest, oldest := js.oldServer(t, g, "sse-newest", ""), js.oldServer(t, g, "sse-oldest", form.LegacyFirst)
	for _, version := range []string{form.LegacyFirst, ""} {
		spoken := version
		if version == "" {
			spoken = form.Legacy
		}
		run := func(t *testing.T, name string, job sseJob, want sseReport) {
			t.Helper()
			var got sseReport
			job.Endpoint, job.Version, want.Version = g.agentURL(name)+"/mcp/sse", version, spoken
			js.run(t, g.CAFile(), "sse-client.mjs", job, &got)
			if version != "" && name != oldest { // that revision has no texts of progress: they are there where it is relayed
				want.Progress = make([]string, len(want.Progress))
			}
			got.Text, _, _ = strings.Cut(got.Text, "{") // structured content, which that revision has as text
			got.Canceled, _, _ = strings.Cut(got.Canceled, "{")
			if got.Unknown != "" {
				got.Unknown = "refused"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		t.Run("client of "+spoken+" to an A2A agent", func(t *testing.T) {
			want := func(text string) jsCall {
				return jsCall{Name: "work", Arguments: mustJSON(map[string]string{"message": text})}
			}
			run(t, worker.name, sseJob{
				Call: want("many: x"), Progress: want("stream: x"), Hold: want("hold: sse" + spoken), Stopped: want("stopped: sse" + spoken),
			}, sseReport{Tools: []string{"work"}, Text: "firstsecondthird", Progress: []string{"one", "two", "half ", "whole"}, Canceled: "true", Unknown: "refused"})
		})
		for _, name := range []string{newest, oldest} {
			t.Run("client of "+spoken+" to "+name, func(t *testing.T) {
				want := func(name, args string) jsCall { return jsCall{Name: name, Arguments: json.RawMessage(args)} }
				job := sseJob{Call: want("add", `{"a":2,"b":3}`), Progress: want("steps", `{}`), Hold: want("hold", `{}`), Stopped: want("stopped", `{}`)}
				seen := sseReport{Tools: []string{"add", "hold", "nap", "naps", "roots", "steps", "stopped"}, Text: "5", Progress: []string{"one", "two"}, Canceled: "true", Unknown: "refused"}
				if version == "" || name == oldest { // a client of that revision is asked by servers of that revision alone
					roots := want("roots", `{}`)
					job.Roots, seen.Roots = &roots, "file:///home/ada"
				}
				run(t, name, job, seen)
			})
		}
	}
	for _, name := range []string{newest, oldest} {
		t.Run("A2A client to "+name, func(t *testing.T) { a2aToOldServer(t, g, name) })
	}
}

// a2aToOldServer: the card has the tools; one is called, one says how far it is, and one is
// canceled.
func a2aToOldServer(t *testing.T, g *gw, name string) {
	t.Helper()
	who := g.authenticated(t)
	got, err := peers.A2ACall(t.Context(), who.client, g.agentURL(name), typed("add", `{"a":2,"b":3}`))
	if err != nil {
		t.Fatal(err)
	}
	if skills := len(got.Card.Skills); skills != 7 || got.State() != a2a.TaskStateCompleted || got.Text() != "5" {
		t.Errorf("%d skills, %s, %q", skills, got.State(), got.Text())
	}
	client, err := a2aclient.NewFromCard(t.Context(), got.Card, a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(who.client))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { check(t, client.Destroy()) }()
	if steps, state := oldServerSays(t, client, "steps", nil); steps < 2 || state != a2a.TaskStateCompleted {
		t.Errorf("%d steps, %s", steps, state)
	}
	_, state := oldServerSays(t, client, "hold", func(id a2a.TaskID) {
		if _, err := client.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: id}); err != nil {
			t.Error(err)
		}
	})
	stopped, err := peers.A2ACall(t.Context(), who.client, g.agentURL(name), typed("stopped", `{}`))
	if err != nil || state != a2a.TaskStateCanceled || stopped.Text() != "true" {
		t.Errorf("%s, stopped %q, %v", state, stopped.Text(), err)
	}
}

// oldServerSays streams a call: how many updates of the status there are, and the last state.
// cancel is called once with the first of them.
func oldServerSays(t *testing.T, client *a2aclient.Client, skill string, cancel func(a2a.TaskID)) (updates int, state a2a.TaskState) {
	t.Helper()
	for event, err := range client.SendStreamingMessage(t.Context(), &a2a.SendMessageRequest{Message: typed(skill, `{}`)}) {
		if err != nil {
			t.Fatal(err)
		}
		update, ok := event.(*a2a.TaskStatusUpdateEvent)
		if !ok {
			continue
		}
		updates, state = updates+1, update.Status.State
		if cancel != nil && updates == 1 {
			cancel(update.TaskID)
		}
	}
	return updates, state
}

// oldServer starts the SDK's server of HTTP with SSE.
func (j javascript) oldServer(t *testing.T, g *gw, name, version string) string {
	t.Helper()
	job := g.certified(t, name)
	job["version"] = version
	url, _ := j.serve(t, "sse-server.mjs", job)
	g.list(t, name, "mcp-v1", url)
	return name
}

// certified is the job of a script that serves, with the certificate of a peer.
func (g *gw) certified(t *testing.T, name string) map[string]any {
	t.Helper()
	conf, dir := g.peerTLS(t, name), t.TempDir()
	certificate := conf.Certificates[0]
	var chain []byte
	for _, der := range certificate.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"cert": chain, "key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})}
	job := map[string]any{}
	for what, data := range files {
		file := filepath.Join(dir, what+".pem")
		if job[what] = file; os.WriteFile(file, data, 0o600) != nil {
			t.Fatal("no file for " + what)
		}
	}
	return job
}

// serve starts a script that prints its URL and serves until the test ends, or it is killed.
func (j javascript) serve(t *testing.T, script string, job map[string]any) (url string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), j.node, script, string(mustJSON(job)))
	cmd.Dir, cmd.Stderr = "js", os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait := sync.OnceFunc(func() { _ = cmd.Wait() })
	t.Cleanup(func() {
		_ = input.Close()
		wait()
	})
	url, err = bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url), func() {
		_ = cmd.Process.Kill()
		wait()
	}
}
