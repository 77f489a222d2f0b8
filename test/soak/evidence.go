package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

const (
	rollbackPath    = "/.well-known/atd/rollback"
	evidenceCallers = 2               // who calls, and the auditor
	callsOfOne      = 5               // calls in one workflow
	evidenceLife    = 5 * time.Minute // of tokens: their uses are kept so long
	readers         = 8               // that look for the tokens afterwards
	issuedTokens    = 2               // in each answer: one for each leg
	heldTokens      = 4               // of each call: those, the caller's and the agent's
)

const evidenceConfig = `
public_url: https://PUBLIC
listen: {public: "PUBLIC", admin: "127.0.0.1:0", metrics: "METRICS"}
identity: {trust_domain: soak.test, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/ca.pem}
admin: {operators: {ann: {id: "spiffe://soak.test/caller/caller-1", roles: [auditor]}}}
limits: {rate: 1000000, burst: 1000000}
state: {path: DIR/state.db}
agents:
  talker: {callers: ["spiffe://soak.test/caller/caller-0"], endpoints: [{binding: mcp-v1, url: "AGENT/mcp"}]}
`

// token is what is remembered of one that must be on record.
type token struct {
	id   ect.ID
	hash [sha256.Size]byte
}

func tokenOf(compact string) (token, error) {
	claims, _, err := ect.ParseUnverified(compact)
	return token{claims.ID, sha256.Sum256([]byte(compact))}, err
}

// records are the tokens of all calls.
type records struct {
	mu    sync.Mutex
	all   []token
	first string // the workflow of the first call, which is alone in it
	point ect.ID // the agent's checkpoint then
}

func (r *records) add(compacts ...string) error {
	for _, compact := range compacts {
		t, err := tokenOf(compact)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.all = append(r.all, t)
		r.mu.Unlock()
	}
	return nil
}

// serveCheckpoints is the MCP agent, which sets a checkpoint at each call and goes back to it.
func (r *records) serveCheckpoints(trust *devgateway.Trust) (*httptest.Server, error) {
	conf, err := trust.PeerTLS("talker")
	if err != nil {
		return nil, err
	}
	minter, err := devgateway.NewMinterOf(conf.Certificates[0], trust.GatewayID())
	if err != nil {
		return nil, err
	}
	// answer signs what follows from the first token of a request.
	answer := func(w http.ResponseWriter, req *http.Request, act, output string) (string, bool) {
		request, _, err := ect.ParseUnverified(req.Header.Get(ect.HeaderName))
		if err != nil {
			return "", false
		}
		signed, err := minter.Sign(devgateway.Claims{
			RegisteredClaims: jwt.RegisteredClaims{ExpiresAt: jwt.NewNumericDate(time.Now().Add(evidenceLife))},
			Act:              act, Workflow: request.Workflow, Parents: []string{string(request.ID)}, OutputHash: output,
		})
		if err == nil {
			w.Header().Set(ect.HeaderName, signed)
		}
		return signed, err == nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, req *http.Request) {
		if signed, ok := answer(w, req, "atd:checkpoint", ""); ok && r.add(signed) == nil {
			claims, _, _ := ect.ParseUnverified(signed)
			r.mu.Lock()
			if r.point == "" && claims.Workflow == r.first {
				r.point = claims.ID
			}
			r.mu.Unlock()
		}
		serveTool(w, req)
	})
	mux.HandleFunc(rollbackPath, func(w http.ResponseWriter, req *http.Request) {
		if _, ok := answer(w, req, string(ect.ActRollbackResult), devgateway.HashOf("as it was")); !ok {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	server := httptest.NewUnstartedServer(mux)
	server.TLS = conf
	server.StartTLS()
	return server, nil
}

// evidence is one long use of a gateway that keeps its state in a file.
type evidence struct {
	*streaming
	records
	dir string
}

// ask makes one request as a caller and expects 200.
func (c *streamer) ask(ctx context.Context, method, url, body, token string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("A2A-Version", "1.0")
	if token != "" {
		req.Header.Set(ect.HeaderName, token)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &statusError{resp.StatusCode, string(text)}
	}
	return answer{resp.Header, string(text)}, err
}

// call makes one attested call and remembers its tokens.
func (e *evidence) call(ctx context.Context, n int, wid string) error {
	caller, message := e.callers[0], word()
	body := a2aBody(n, message)
	minted, err := caller.minter.Mint(body, wid, evidenceLife)
	if err != nil {
		return err
	}
	got, err := caller.ask(ctx, http.MethodPost, caller.url, body, minted)
	if err != nil {
		return err
	}
	issued := got.header.Values(ect.HeaderName)
	if !strings.Contains(got.body, message) || len(issued) != issuedTokens {
		return fmt.Errorf("%w: %d tokens with %.400s", errEvidence, len(issued), got.body)
	}
	return e.add(append(issued, minted)...)
}

var errEvidence = errors.New("soak: evidence")

// load makes so many calls a second, until ctx ends.
func (e *evidence) load(ctx context.Context, rate int) (calls, late int, err error) {
	group, all := errgroup.WithContext(ctx)
	group.SetLimit(mostOpen)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for wid := ""; ; {
		select {
		case <-all.Done():
			return calls, late, group.Wait()
		case <-tick.C:
		}
		if calls%callsOfOne == 0 {
			wid = uuid.NewString()
		}
		n, in := calls, wid
		if group.TryGo(func() error { return e.call(context.WithoutCancel(ctx), n, in) }) {
			calls++
		} else {
			late++
		}
	}
}

// missing counts the tokens that are not on record as they were.
func (e *evidence) missing(ctx context.Context) (int, error) {
	var mu sync.Mutex
	absent := 0
	group, all := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, t := range e.all {
		group.Go(func() error {
			got, err := e.callers[0].ask(all, http.MethodGet, e.gateway.Public+"/ects/"+string(t.id), "", "")
			var refused *statusError
			if err != nil && !errors.As(err, &refused) {
				return err
			}
			if err != nil || sha256.Sum256([]byte(got.body)) != t.hash {
				mu.Lock()
				absent++
				mu.Unlock()
			}
			return nil
		})
	}
	return absent, group.Wait()
}

// audited says whether the first call's workflow is there for its caller, whose tool verifies
// each token, and for an auditor.
func (e *evidence) audited(ctx context.Context, binaries string) error {
	files, err := e.callers[0].files(e.dir)
	if err != nil {
		return err
	}
	args := append([]string{"dag", e.first, "--gateway", e.gateway.Public, "--ca", filepath.Join(e.dir, "ca.pem"), "-o", "json"}, files...)
	out, err := exec.CommandContext(ctx, filepath.Join(binaries, "aepbctl"), args...).CombinedOutput()
	if count := bytes.Count(out, []byte(`"verified": true`)); err != nil || count != heldTokens {
		return errors.Join(err, fmt.Errorf("%w: aepbctl dag verified %d tokens, want %d: %.2000s", errEvidence, count, heldTokens, out))
	}
	got, err := e.callers[1].ask(ctx, http.MethodGet, e.gateway.Admin+"/api/workflows/"+e.first, "", "")
	if err != nil || strings.Count(got.body, "eyJ") < heldTokens {
		return errors.Join(err, fmt.Errorf("%w: the auditor got %.2000s", errEvidence, got.body))
	}
	return nil
}

// files writes the caller's certificate and key and returns the flags that name them.
func (c *streamer) files(dir string) ([]string, error) {
	key, err := x509.MarshalPKCS8PrivateKey(c.svid.PrivateKey)
	if err != nil {
		return nil, err
	}
	cert := filepath.Join(dir, "caller.pem")
	keyFile := filepath.Join(dir, "caller-key.pem")
	return []string{"--cert", cert, "--key", keyFile}, errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.svid.Certificate[0]}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
	)
}

// undone says whether the first call can be rolled back.
func (e *evidence) undone(ctx context.Context) error {
	caller := e.callers[0]
	asks, err := caller.minter.Sign(devgateway.Claims{
		Act: string(ect.ActRollbackRequest), Workflow: e.first, Parents: []string{string(e.point)}, Ext: map[string]any{"atd.reason": "it went wrong"},
	})
	if err != nil {
		return err
	}
	got, err := caller.ask(ctx, http.MethodPost, e.gateway.Public+rollbackPath, `{"exec_act":"atd:rollback_request"}`, asks)
	if err != nil {
		return err
	}
	result, _, err := ect.ParseUnverified(got.header.Get(ect.HeaderName))
	if err != nil || result.Act != ect.ActRollbackResult {
		return errors.Join(err, fmt.Errorf("%w: the rollback was answered %.400s", errEvidence, got.body))
	}
	return nil
}

// lasted is what came of it.
type lasted struct {
	Calls, Late, Tokens, Missing int
	Want                         float64
	Quarter, End                 footprint   // medians, after the first quarter and at the end of the load
	Tenths                       []footprint // medians of all tenths
	Then, Now                    memory      // what the gateway says of its own at these two
}

func (l lasted) String() string {
	return fmt.Sprintf("evidence: %d calls of %.0f (%d too late), %d tokens, %d of them lost, resident: after a quarter %s, at the end %s; tenths: %s\nquarter: %v\nend:     %v",
		l.Calls, l.Want, l.Late, l.Tokens, l.Missing, l.Quarter, l.End, l.Tenths, l.Then, l.Now)
}

// judge finds what is wrong.
func (l lasted) judge() error {
	var errs []error
	if float64(l.Calls) < leastPace*l.Want {
		errs = append(errs, fmt.Errorf("%w: %d calls were made, want %.0f: nothing was proved", errEvidence, l.Calls, l.Want))
	}
	if l.Tokens != heldTokens*(l.Calls+1) || l.Missing > 0 {
		errs = append(errs, fmt.Errorf("%w: of %d tokens of %d calls %d are not on record", errEvidence, l.Tokens, l.Calls+1, l.Missing))
	}
	if l.End.Own > mostLeft*l.Quarter.Own {
		errs = append(errs, fmt.Errorf("%w: %s are resident at the end, more than a tenth above the %s after a quarter", errEvidence, l.End, l.Quarter))
	}
	return errors.Join(errs...)
}

// middle is the median of footprints.
func middle(all []footprint) footprint {
	var whole, own []float64
	for _, f := range all {
		whole, own = append(whole, f.All), append(own, f.Own)
	}
	return footprint{median(whole), median(own)}
}

// watch looks at the process each second until ctx ends.
func (e *evidence) watch(ctx context.Context, l *lasted, total time.Duration) (seen []footprint) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return seen
		case <-tick.C:
		}
		if now, err := resident(strconv.Itoa(e.gateway.PID())); err == nil {
			seen = append(seen, now)
		}
		if to := map[int]*memory{int(total.Seconds()) / 4: &l.Then, int(total.Seconds()) - 1: &l.Now}[len(seen)]; to != nil {
			*to, _ = e.look(ctx)
		}
	}
}

// lasting has one caller make calls for long, and looks whether all that is proved about
// them is on record then, and at the memory of the gateway.
func lasting(ctx context.Context, o options, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "aepb-soak-evidence-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	e := &evidence{dir: dir, records: records{first: uuid.NewString()}}
	e.streaming, err = stage(ctx, dir, evidenceConfig, evidenceCallers, e.serveCheckpoints)
	defer func() { err = errors.Join(err, e.end()) }()
	if err != nil {
		return err
	}
	if err := e.call(ctx, 0, e.first); err != nil {
		return err
	}
	l := lasted{Want: float64(o.rate) * o.time.Seconds()}
	loading, enough := context.WithTimeout(ctx, o.time)
	defer enough()
	var seen []footprint
	var watching sync.WaitGroup
	watching.Go(func() { seen = e.watch(loading, &l, o.time) })
	l.Calls, l.Late, err = e.load(loading, o.rate)
	enough()
	watching.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return fmt.Errorf("after %d calls: %w\n%.4000s", l.Calls, err, e.gateway.Output())
	}
	span := max(1, len(seen)/20)
	l.Quarter, l.End = middle(seen[len(seen)/4:][:span]), middle(seen[len(seen)-span:])
	for tenth := range slices.Chunk(seen, max(1, (len(seen)+9)/10)) {
		l.Tenths = append(l.Tenths, middle(tenth))
	}
	l.Tokens = len(e.all)
	if l.Missing, err = e.missing(ctx); err != nil {
		return err
	}
	binaries, err := devgateway.BuildAll(ctx, dir)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, l)
	return errors.Join(l.judge(), e.audited(ctx, binaries), e.undone(ctx))
}
