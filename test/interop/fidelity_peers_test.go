package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The two callees of the fidelity runs do the same work, each in the words of
// its protocol: a worker (A2A) takes "word: rest" as text, a workshop (MCP) has
// a tool for every word.
//
//	stream   two steps, then a result that comes in two pieces (one, in MCP)
//	steps    five steps, then a result (A2A)
//	slow     works until the test lets it go on
//	hold     works until it is canceled
//	free     lets the job of that name go on
//	stopped  waits until the job of that name was stopped
//	begun    waits until the job of that name has begun (MCP)
//	ask      asks "for how many?", and tells the answer
//	files    an image, other bytes, a link, data and text
//	take     gives back the file that it was handed
//	many     three results
//	fail     fails at its work
//	late     fails when the test lets it go on (A2A)
//	refuse   will not do it (A2A: rejected; MCP: says so as a failure)
//	break    has an error of its own

// png is the least that passes for an image.
const png = "\x89PNG\r\n\x1a\n\x00\xff"

// job is one piece of work that a test watches and lets go on.
type job struct {
	begun, free, stopped chan struct{}
	once, freed          sync.Once
}

func (j *job) stop() { j.once.Do(func() { close(j.stopped) }) }

func (j *job) letGo() { j.freed.Do(func() { close(j.free) }) }

// desk has the jobs, by the name that their request gives.
type desk struct {
	mu    sync.Mutex
	jobs  map[string]*job
	tasks map[a2a.TaskID]string
	over  chan struct{}
}

func newDesk() *desk {
	return &desk{jobs: map[string]*job{}, tasks: map[a2a.TaskID]string{}, over: make(chan struct{})}
}

func (d *desk) job(name string) *job {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[name]
	if j == nil {
		j = &job{begun: make(chan struct{}), free: make(chan struct{}), stopped: make(chan struct{})}
		d.jobs[name] = j
	}
	return j
}

// await says whether the job was let go on; false: it was stopped.
func (d *desk) await(ctx context.Context, name string) bool {
	j := d.job(name)
	close(j.begun)
	select {
	case <-j.free:
		return true
	case <-j.stopped:
	case <-d.over:
	case <-ctx.Done():
		j.stop()
	}
	return false
}

// wasStopped waits for a job to be stopped.
func (d *desk) wasStopped(ctx context.Context, name string) bool {
	select {
	case <-d.job(name).stopped:
		return true
	case <-d.over:
	case <-ctx.Done():
	}
	return false
}

// seen is one request that reached a callee, and what it said to it.
type seen struct {
	received
	mu   sync.Mutex
	body bytes.Buffer
	kind string
}

type received struct {
	Body     []byte
	Evidence []string
}

// logbook keeps what went over a callee's wire.
type logbook struct {
	mu     sync.Mutex
	stored []*seen
}

func (l *logbook) all() []*seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*seen(nil), l.stored...)
}

func (l *logbook) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s := &seen{received: received{Body: body, Evidence: r.Header.Values("Execution-Context")}}
		l.mu.Lock()
		l.stored = append(l.stored, s)
		l.mu.Unlock()
		next.ServeHTTP(&noting{w, s}, r)
	})
}

// noting is a response whose body is noted.
type noting struct {
	http.ResponseWriter
	s *seen
}

func (n *noting) Write(b []byte) (int, error) {
	n.s.mu.Lock()
	n.s.kind = n.Header().Get("Content-Type")
	n.s.body.Write(b)
	n.s.mu.Unlock()
	return n.ResponseWriter.Write(b)
}

func (n *noting) Flush() {
	if f, ok := n.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

func (n *noting) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// messages is what a callee said: the body, or the data of each event.
func (s *seen) messages() (list []string, stream bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return messagesIn(s.kind, s.body.String())
}

func messagesIn(kind, body string) (list []string, stream bool) {
	if !strings.HasPrefix(kind, "text/event-stream") {
		if body == "" {
			return nil, false
		}
		return []string{body}, false
	}
	for event := range strings.SplitSeq(strings.ReplaceAll(body, "\r\n", "\n"), "\n\n") {
		var data []string
		for line := range strings.SplitSeq(event, "\n") {
			if text, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(text, " "))
			}
		}
		if text := strings.Join(data, "\n"); text != "" {
			list = append(list, text)
		}
	}
	return list, true
}

// callee is an agent or server behind the gateway.
type callee struct {
	*desk
	*logbook
	name string
	mcp  bool
}

func serveTLS(t *testing.T, g *gw, name string, d *desk, stop func()) (server *httptest.Server, mux *http.ServeMux, book *logbook) {
	t.Helper()
	server, mux, book = httptest.NewUnstartedServer(nil), http.NewServeMux(), &logbook{}
	server.TLS = g.peerTLS(t, name)
	server.Config.Handler = book.middleware(mux)
	server.StartTLS()
	t.Cleanup(func() {
		close(d.over)
		stop()
		server.CloseClientConnections()
		server.Close()
	})
	return server, mux, book
}

// worker starts the A2A agent, in the words of one version.
func (g *gw) worker(t *testing.T, name, version string) *callee {
	t.Helper()
	d := newDesk()
	server, mux, book := serveTLS(t, g, name, d, func() {})
	requests := a2asrv.NewHandler(worker{d})
	card := workerCard(server.URL, version)
	if version == string(a2av0.Version) {
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewAgentCardHandler(a2av0.NewStaticAgentCardProducer(card)))
		mux.Handle("/agent", a2av0.NewJSONRPCHandler(requests))
	} else {
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
		mux.Handle("/agent", a2asrv.NewJSONRPCHandler(requests))
	}
	g.list(t, name, "a2a-v1", server.URL)
	return &callee{desk: d, logbook: book, name: name}
}

func workerCard(url, version string) *a2a.AgentCard {
	iface := a2a.NewAgentInterface(url+"/agent", a2a.TransportProtocolJSONRPC)
	iface.ProtocolVersion = a2a.ProtocolVersion(version)
	return &a2a.AgentCard{
		Name: "Worker", Description: "Works", Version: "1", SupportedInterfaces: []*a2a.AgentInterface{iface},
		Capabilities: a2a.AgentCapabilities{Streaming: true}, DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{ID: "work", Name: "Work", Description: "Works", Tags: []string{"t"}}},
	}
}

type worker struct{ *desk }

var _ a2asrv.AgentExecutor = worker{}

// Cancel ends the work of a task.
func (w worker) Cancel(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		w.mu.Lock()
		name, ok := w.tasks[ec.TaskID]
		w.mu.Unlock()
		if yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCanceled, nil), nil) && ok {
			w.job(name).stop()
		}
	}
}

// Execute does one piece of work.
func (w worker) Execute(ctx context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		text, files := split(ec.Message.Parts)
		word, rest, _ := strings.Cut(text, ":")
		rest = strings.TrimSpace(rest)
		if word == "break" {
			yield(nil, errors.New("the worker broke"))
			return
		}
		if word == "message" {
			yield(a2a.NewMessageForTask(a2a.MessageRoleAgent, a2a.TaskInfo{ContextID: ec.ContextID}, a2a.NewTextPart(rest)), nil)
			return
		}
		answering := ec.StoredTask != nil
		if !answering && !yield(a2a.NewSubmittedTask(ec, ec.Message), nil) {
			return
		}
		for event := range w.work(ctx, ec, word, rest, text, files, answering) {
			if !yield(event, nil) {
				return
			}
		}
	}
}

func split(parts []*a2a.Part) (text string, rest []*a2a.Part) {
	var answer strings.Builder
	for _, p := range parts {
		answer.WriteString(p.Text())
		if p.Text() == "" {
			rest = append(rest, p)
		}
	}
	return answer.String(), rest
}

func (w worker) work(ctx context.Context, ec *a2asrv.ExecutorContext, word, rest, text string, files []*a2a.Part, answering bool) iter.Seq[a2a.Event] {
	status := func(state a2a.TaskState, text string) a2a.Event {
		var answer *a2a.Message
		if text != "" {
			answer = a2a.NewMessageForTask(a2a.MessageRoleAgent, ec, a2a.NewTextPart(text))
		}
		return a2a.NewStatusUpdateEvent(ec, state, answer)
	}
	result := func(name string, parts ...*a2a.Part) *a2a.TaskArtifactUpdateEvent {
		event := a2a.NewArtifactEvent(ec, parts...)
		event.Artifact.Name, event.LastChunk = name, true
		return event
	}
	done := status(a2a.TaskStateCompleted, "")
	return func(yield func(a2a.Event) bool) {
		say := func(events ...a2a.Event) {
			for _, event := range events {
				if !yield(event) {
					return
				}
			}
		}
		switch {
		case answering:
			if len(files) > 0 && text == "" {
				text = string(mustJSON(files[0].Data()))
			}
			say(result("answer", a2a.NewTextPart("answer: "+text)), done)
		case word == "stream":
			first := result("report", a2a.NewTextPart("half "))
			first.LastChunk = false
			second := a2a.NewArtifactUpdateEvent(ec, first.Artifact.ID, a2a.NewTextPart("whole"))
			second.Artifact.Name, second.LastChunk = "report", true
			say(status(a2a.TaskStateWorking, "one"), status(a2a.TaskStateWorking, "two"), first, second, done)
		case word == "steps":
			for i := range 5 {
				say(status(a2a.TaskStateWorking, "step "+strconv.Itoa(i+1)))
			}
			say(result("made", a2a.NewTextPart("made")), done)
		case word == "slow", word == "hold", word == "late":
			w.mu.Lock()
			w.tasks[ec.TaskID] = rest
			w.mu.Unlock()
			say(status(a2a.TaskStateWorking, "at it"))
			switch {
			case !w.await(ctx, rest):
			case word == "late":
				say(status(a2a.TaskStateFailed, "it did not work"))
			default:
				say(result("late", a2a.NewTextPart("done at last")), done)
			}
		case word == "free":
			w.job(rest).letGo()
			say(done)
		case word == "stopped":
			say(result("stopped", a2a.NewTextPart(strconv.FormatBool(w.wasStopped(ctx, rest)))), done)
		case word == "ask":
			say(status(a2a.TaskStateInputRequired, "for how many?"))
		case word == "files":
			say(result("files", workFiles()...), done)
		case word == "take":
			say(result("taken", files...), done)
		case word == "many":
			say(result("one", a2a.NewTextPart("first")), result("two", a2a.NewTextPart("second")), result("three", a2a.NewTextPart("third")), done)
		case word == "fail":
			say(status(a2a.TaskStateFailed, "it did not work"))
		case word == "refuse":
			say(status(a2a.TaskStateRejected, "will not do"))
		}
	}
}

func workFiles() []*a2a.Part {
	image, content, data := a2a.NewRawPart([]byte(png)), a2a.NewRawPart([]byte{0, 255}), a2a.NewDataPart(map[string]any{"n": 1})
	image.MediaType, image.Filename = "image/png", "i.png"
	content.MediaType, content.Filename = "application/octet-stream", "o.bin"
	data.MediaType = "application/json"
	link := a2a.NewFileURLPart("https://example.com/x.pdf", "application/pdf")
	link.Filename = "x.pdf"
	return []*a2a.Part{a2a.NewTextPart("see these"), image, content, link, data}
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}

// workshop starts the MCP server: of the modern revision, or with sessions.
func (g *gw) workshop(t *testing.T, name string, stateless bool) *callee {
	t.Helper()
	return g.shop(t, name, "/mcp", func(shop *mcp.Server) http.Handler {
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shop }, &mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: true})
	})
}

// shopOverSSE is the workshop over the transport of 2024-11-05.
func (g *gw) shopOverSSE(t *testing.T, name string) *callee {
	t.Helper()
	return g.shop(t, name, "/sse", func(shop *mcp.Server) http.Handler {
		return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return shop }, nil)
	})
}

func (g *gw) shop(t *testing.T, name, path string, over func(*mcp.Server) http.Handler) *callee {
	t.Helper()
	d := newDesk()
	shop := mcp.NewServer(&mcp.Implementation{Name: "workshop", Version: "1"}, nil)
	for word, work := range d.tools() {
		schema := `{"type":"object","properties":{"job":{"type":"string"}}}`
		if word == "take" {
			schema = `{"type":"object","properties":{"name":{"type":"string"},"data":{"type":"string","contentEncoding":"base64"}},"required":["name","data"]}`
		}
		shop.AddTool(&mcp.Tool{Name: word, Description: word, InputSchema: json.RawMessage(schema)}, work)
	}
	server, mux, book := serveTLS(t, g, name, d, func() {
		for session := range shop.Sessions() {
			_ = session.Close()
		}
	})
	mux.Handle(path, over(shop))
	addContent(shop)
	addShyTool(shop)
	shop.AddReceivingMiddleware(d.endsAll)
	if err := g.AddServer(t.Context(), name, server.URL+path, "prompts", "resources"); err != nil {
		t.Fatal(err)
	}
	g.unlistLater(t, name)
	return &callee{desk: d, logbook: book, name: name, mcp: true}
}

// endsAll ends every request when the test does, also one whose question its caller
// has left open.
func (d *desk) endsAll(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		ctx, cancel := context.WithCancel(ctx)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			select {
			case <-d.over:
				cancel()
			case <-ctx.Done():
			}
		})
		defer waiting.Wait()
		defer cancel()
		return next(ctx, method, request)
	}
}

func texts(list ...string) *mcp.CallToolResult {
	r := &mcp.CallToolResult{}
	for _, text := range list {
		r.Content = append(r.Content, &mcp.TextContent{Text: text})
	}
	return r
}

func (d *desk) tools() map[string]mcp.ToolHandler {
	just := func(r *mcp.CallToolResult, err error) mcp.ToolHandler {
		return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return r, err }
	}
	failed := func(text string) *mcp.CallToolResult {
		r := texts(text)
		r.IsError = true
		return r
	}
	return map[string]mcp.ToolHandler{
		"stream": stepByStep,
		"slow":   d.wait,
		"hold":   d.wait,
		"free": of(func(_ context.Context, job string) *mcp.CallToolResult {
			d.job(job).letGo()
			return texts("done")
		}),
		"begun": of(func(ctx context.Context, job string) *mcp.CallToolResult {
			select {
			case <-d.job(job).begun:
			case <-d.over:
			case <-ctx.Done():
			}
			return texts("begun")
		}),
		"stopped": of(func(ctx context.Context, job string) *mcp.CallToolResult {
			return texts(strconv.FormatBool(d.wasStopped(ctx, job)))
		}),
		"ask":    askFor,
		"take":   takeFile,
		"many":   just(texts("first", "second", "third"), nil),
		"fail":   just(failed("it did not work"), nil),
		"refuse": just(failed("will not do"), nil),
		"break":  just(nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the workshop broke"}),
		"files": just(&mcp.CallToolResult{
			StructuredContent: map[string]any{"n": 1},
			Content: []mcp.Content{
				&mcp.TextContent{Text: "see these"},
				&mcp.ImageContent{Data: []byte(png), MIMEType: "image/png"},
				&mcp.AudioContent{Data: []byte{1, 2}, MIMEType: "audio/wav"},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "shop://o.bin", MIMEType: "application/octet-stream", Blob: []byte{0, 255}}},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "shop://t.csv", MIMEType: "text/csv", Text: "a,b"}},
				&mcp.ResourceLink{URI: "https://example.com/x.pdf", Name: "x.pdf", MIMEType: "application/pdf"},
			},
		}, nil),
	}
}

func stepByStep(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if token := r.Params.GetProgressToken(); token != nil {
		for i, text := range []string{"one", "two"} {
			err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i + 1), Total: 2, Message: text})
			if err != nil {
				return nil, err
			}
		}
	}
	return texts("half whole"), nil
}

// of is a tool that is told the name of a job.
func of(do func(ctx context.Context, job string) *mcp.CallToolResult) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args struct{ Job string }
		if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
			return nil, err
		}
		return do(ctx, args.Job), nil
	}
}

func (d *desk) wait(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct{ Job string }
	if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
		return nil, err
	}
	if !d.await(ctx, args.Job) {
		return nil, errors.New("stopped")
	}
	return texts("done at last"), nil
}

// askFor asks in the way of the revision: the SDK makes a request of it where
// there are sessions.
func askFor(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answer, ok := r.Params.InputResponses["people"].(*mcp.ElicitResult)
	if !ok {
		return &mcp.CallToolResult{
			RequestState: "asked",
			InputRequests: mcp.InputRequestMap{"people": &mcp.ElicitParams{
				Mode: "form", Message: "for how many?",
				RequestedSchema: json.RawMessage(`{"type":"object","properties":{"people":{"type":"string"}},"required":["people"]}`),
			}},
		}, nil
	}
	if answer.Action != "accept" {
		return texts("answer: " + answer.Action), nil
	}
	people, _ := answer.Content["people"].(string)
	return texts("answer: " + people), nil
}

func takeFile(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct {
		Name string
		Data []byte
	}
	if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
		URI: "shop://" + args.Name, MIMEType: "application/octet-stream", Blob: args.Data,
	}}}}, nil
}
