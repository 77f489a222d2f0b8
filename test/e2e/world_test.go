package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// patience bounds every single thing that a story waits for.
const patience = 40 * time.Second

// worldKey is where a story's world is among testscript's values.
const worldKey = "world"

// world is what one story has running.
type world struct {
	t         testing.TB
	root, bin string
	trust     *devgateway.Trust // whose certificates everybody here shows
	gateway   *devgateway.Process
	ending    chan error // what Stop said, once it was asked for
	idle      *tls.Conn  // kept open to see the gateway let go of it
	serving   *serving
	agents    map[string]*agent
}

// enter sets the stage: the programs are in PATH and nothing runs.
func enter(env *testscript.Env, root, bin string) error {
	t, ok := env.T().(testing.TB)
	if !ok {
		return fmt.Errorf("the story runs under a %T", env.T())
	}
	env.Setenv("GORACE", "atexit_sleep_ms=0") // a program with the race detector would wait a second
	env.Setenv("BIN", bin)
	env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
	w := &world{t: t, root: root, bin: bin, agents: map[string]*agent{}}
	env.Values[worldKey] = w
	env.Defer(w.leave)
	return nil
}

// leave stops whatever the story left running.
func (w *world) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), patience)
	defer cancel()
	if err := w.end(ctx); err != nil {
		w.t.Error(err)
	}
	if err := w.serving.end(ctx); err != nil {
		w.t.Error(err)
	}
	if w.idle != nil {
		_ = w.idle.Close() // the other side may have closed it, or be gone
	}
	for name, a := range w.agents {
		if err := a.stop(ctx); err != nil {
			w.t.Errorf("stop %s: %v", name, err)
		}
	}
}

// terminate has the gateway end, and end waits until it has.
func (w *world) terminate(ctx context.Context) {
	if w.gateway == nil || w.ending != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	gateway, ending := w.gateway, make(chan error, 1)
	w.ending = ending
	go func() { // end waits for it
		defer cancel()
		ending <- gateway.Stop(ctx)
	}()
}

func (w *world) end(ctx context.Context) error {
	w.terminate(ctx)
	if w.ending == nil {
		return nil
	}
	err := <-w.ending
	w.gateway, w.ending = nil, nil
	return err
}

// command is a word of the stories.
type command func(ctx context.Context, w *world, ts *testscript.TestScript, args []string) error

// commands are the words that the stories have beyond testscript's own.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	words := map[string]struct {
		args int // at least so many
		run  command
	}{
		"gateway":   {1, startGateway}, // gateway DIR [FLAG…]: aepb-gateway dev on free ports; sets $PUBLIC and $ADMIN
		"printed":   {1, awaitPrinted}, // printed TEXT: waits until the gateway has; all that it printed is stdout
		"terminate": {0, sendTerm},     // SIGTERM, without waiting
		"linger":    {0, keepIdle},     // opens a connection and leaves it idle
		"dropped":   {0, awaitDrop},    // waits until the gateway has closed it
		"ended":     {0, awaitEnd},     // waits until the gateway has ended, with 0; all that it printed is stdout
		"domain":    {2, startDomain},  // domain NAME DIR: a trust domain; its bundle and SVIDs are put in DIR
		"expand":    {1, expandFile},   // expand FILE: puts the values of variables in
		"serve":     {0, startServe},   // serve [ARG…]: aepb-gateway serve; sets $PUBLIC and $ADMIN
		"next":      {2, runNext},      // next FILE COMMAND: the line of FILE that begins so, as printed; serve is left running
		"ports":     {1, freePorts},    // ports NAME…: sets each to a free port
		"served":    {0, awaitServed},  // SIGTERM; waits until serve has ended, with 0; what it logged is stderr
		"agent":     {2, startAgent},   // agent a2a|mcp NAME [DIR]: sets $NAME to its URL; with the certificate NAME of DIR
		"shows":     {1, awaitShown},   // shows DIR: waits until serve shows the certificate gateway.pem of DIR
		"repeat":    {1, repeat},       // repeat PROGRAM [ARG…]: runs it again until it exits with 0
		"halt":      {1, haltAgent},    // halt NAME: the agent ends
		"front":     {2, startFront},   // front NAME OF: plain HTTP in front of an MCP agent; sets $NAME
		"library":   {2, startLibrary}, // library NAME FILE: serves FILE as a capability document, as it is when asked; sets $NAME
		"reword":    {2, rewordFront},  // reword NAME OLD [NEW]: this front says NEW where its agent says OLD; without NEW no longer
		"between":   {2, startBetween}, // between NAME request|reply|evidence: somebody between us and the gateway who changes that; sets $NAME
		"hold":      {1, holdCalls},    // hold NAME: calls wait in this front
		"arrived":   {1, awaitCall},    // arrived NAME: waits until one does
		"release":   {1, releaseCalls}, // release NAME: they go on
		"exits":     {2, exitsWith},    // exits CODE PROGRAM [ARG…]
		"try":       {1, runPrinted},   // try PROGRAM: the line that the gateway printed for it, as printed
		"suggested": {0, runSuggested}, // suggested [CODE…]: each command that the last program proposed is typed as printed, and exits so
		"fetch":     {0, fetchPrinted}, // what the printed curl line asks for, without curl
		"pair":      {3, checkPair},    // pair DIR NAME PATH: certificate, key and SPIFFE id belong together
		"mode":      {2, checkMode},    // mode OCTAL FILE…
		"tokens":    {1, takeTokens},   // tokens FILE: the ECTs in the JSON of send or sign; sets $TOKEN1…, $JTI1… and $WID
		"spoil":     {2, spoilToken},   // spoil NAME TOKEN: sets $NAME to a token that claims something else
		"audit":     {2, auditOffline}, // audit BUNDLE TOKEN…: with a JWT library and the bundle, nothing of ours
	}
	table := map[string]func(*testscript.TestScript, bool, []string){}
	for name, word := range words {
		table[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			w, ok := ts.Value(worldKey).(*world)
			if !ok || len(args) < word.args {
				ts.Fatalf("%s wants %d arguments or more", name, word.args)
			}
			ctx, cancel := context.WithTimeout(w.t.Context(), patience)
			defer cancel()
			err := word.run(ctx, w, ts, args)
			if neg && err == nil {
				ts.Fatalf("%s: no failure", name)
			}
			if !neg {
				ts.Check(err)
			}
		}
	}
	return table
}

func startGateway(ctx context.Context, w *world, ts *testscript.TestScript, args []string) error {
	if w.gateway != nil {
		return errors.New("one gateway runs already")
	}
	gateway, err := devgateway.Start(ctx, devgateway.Deps{
		Binary: filepath.Join(w.bin, "aepb-gateway"), Dir: ts.MkAbs(args[0]), Args: args[1:],
	})
	if err != nil {
		return err
	}
	w.gateway, w.trust = gateway, gateway.Trust
	ts.Setenv("PUBLIC", gateway.Public)
	ts.Setenv("ADMIN", gateway.Admin)
	return nil
}

func awaitPrinted(ctx context.Context, w *world, ts *testscript.TestScript, args []string) error {
	if err := w.gateway.Await(ctx, args[0]); err != nil {
		return err
	}
	return show(ts, w.gateway.Output())
}

// keepIdle opens a connection, uses it once and keeps it.
func keepIdle(ctx context.Context, w *world, _ *testscript.TestScript, _ []string) error {
	client := w.gateway.Client()
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		return fmt.Errorf("the transport is a %T", client.Transport)
	}
	conn, err := (&tls.Dialer{Config: transport.TLSClientConfig}).DialContext(ctx, "tcp", strings.TrimPrefix(w.gateway.Public, "https://"))
	if err != nil {
		return err
	}
	w.idle, _ = conn.(*tls.Conn)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.gateway.Public+"/.well-known/aepb", nil)
	if err != nil {
		return err
	}
	if err := request.Write(conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

// awaitDrop: a gateway that ends closes its listeners and then what is idle.
func awaitDrop(ctx context.Context, w *world, _ *testscript.TestScript, _ []string) error {
	deadline, _ := ctx.Deadline()
	if err := w.idle.SetReadDeadline(deadline); err != nil {
		return err
	}
	if n, err := w.idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the idle connection gave %d bytes and %w", n, err)
	}
	return nil
}

func show(ts *testscript.TestScript, text string) error {
	_, err := io.WriteString(ts.Stdout(), text)
	return err
}

func sendTerm(ctx context.Context, w *world, _ *testscript.TestScript, _ []string) error {
	w.terminate(ctx)
	return nil
}

func awaitEnd(ctx context.Context, w *world, ts *testscript.TestScript, _ []string) error {
	gateway := w.gateway
	if err := w.end(ctx); err != nil {
		return err
	}
	return show(ts, gateway.Output())
}

func exitsWith(_ context.Context, _ *world, ts *testscript.TestScript, args []string) error {
	want, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got, err = exit.ExitCode(), nil
	}
	if err == nil && got != want {
		err = fmt.Errorf("%s exits with %d, want %d", args[1], got, want)
	}
	return err
}

// printedLine is the command line that the gateway printed for a program.
func (w *world) printedLine(program string) (string, error) {
	for line := range strings.Lines(w.gateway.Output()) {
		// Only a whole line counts: the rest of one may be on its way.
		command, try := strings.CutPrefix(line, "try: ")
		if path, _, _ := strings.Cut(command, " "); try && strings.HasSuffix(line, "\n") && filepath.Base(path) == program {
			return strings.TrimSpace(command), nil
		}
	}
	return "", fmt.Errorf("no line for %s in\n%s", program, w.gateway.Output())
}

// runPrinted runs the line as its reader would: in a shell, where the
// repository is.
func runPrinted(ctx context.Context, w *world, ts *testscript.TestScript, args []string) error {
	line, err := w.printedLine(args[0])
	if err != nil {
		return err
	}
	return shell(ctx, w.root, line, ts.Stdout(), ts.Stderr())
}

func shell(ctx context.Context, dir, line string, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, stdout, stderr
	return cmd.Run()
}

func fetchPrinted(ctx context.Context, w *world, ts *testscript.TestScript, _ []string) error {
	line, err := w.printedLine("curl")
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, line[strings.LastIndex(line, " ")+1:], nil)
	if err != nil {
		return err
	}
	client := w.gateway.Client(w.gateway.ClientSVID())
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(ts.Stdout(), response.Body)
	return err
}

// checkPair: the leaf is the key's, under the folder's CA, for the gateway's
// trust domain and the path.
func checkPair(_ context.Context, w *world, ts *testscript.TestScript, args []string) error {
	file := func(name string) string { return ts.MkAbs(filepath.Join(args[0], name)) }
	pair, err := tls.LoadX509KeyPair(file(args[1]+".pem"), file(args[1]+"-key.pem"))
	if err != nil {
		return err
	}
	bundle, err := os.ReadFile(file("trust-bundle.json"))
	if err != nil {
		return err
	}
	roots, err := anchors(bundle)
	if err != nil {
		return err
	}
	want := "spiffe://" + w.trust.TrustDomain() + args[2]
	return leadsTo(pair.Leaf, nil, roots, want, time.Now())
}

func checkMode(_ context.Context, _ *world, ts *testscript.TestScript, args []string) error {
	want, err := strconv.ParseUint(args[0], 8, 32)
	if err != nil {
		return err
	}
	for _, name := range args[1:] {
		info, err := os.Stat(ts.MkAbs(name))
		if err != nil {
			return err
		}
		if info.Mode().Perm() != os.FileMode(want) {
			return fmt.Errorf("%s is %v", name, info.Mode())
		}
	}
	return nil
}

func takeTokens(_ context.Context, _ *world, ts *testscript.TestScript, args []string) error {
	type token struct {
		Compact  string `json:"compact"`
		ID       string `json:"jti"`
		Workflow string `json:"wid"`
	}
	var answer struct {
		token         // one that was signed
		ECTs  []token `json:"ects"` // those of an exchange
	}
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &answer); err != nil {
		return err
	}
	if answer.Compact != "" {
		answer.ECTs = append(answer.ECTs, answer.token)
	}
	for i, token := range answer.ECTs {
		ts.Setenv("TOKEN"+strconv.Itoa(i+1), token.Compact)
		ts.Setenv("JTI"+strconv.Itoa(i+1), token.ID)
		ts.Setenv("WID", token.Workflow)
	}
	return nil
}

func spoilToken(_ context.Context, _ *world, ts *testscript.TestScript, args []string) error {
	spoilt, err := spoil(args[1])
	ts.Setenv(args[0], spoilt)
	return err
}

func auditOffline(_ context.Context, _ *world, ts *testscript.TestScript, args []string) error {
	roots, err := anchors([]byte(ts.ReadFile(args[0])))
	if err != nil {
		return err
	}
	for _, token := range args[1:] {
		if _, err := audit(roots, token); err != nil {
			return err
		}
	}
	return nil
}
