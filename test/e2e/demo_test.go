package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// demoLimit is what the contract gives the demo.
const demoLimit = 60 * time.Second

// document is what `aepb-gateway demo --json` prints. The bodies are the very
// bytes that were on the wire.
type document struct {
	OK          bool            `json:"ok"`
	Exchanges   []exchange      `json:"exchanges"`
	TrustBundle json.RawMessage `json:"trust_bundle"`
}

type exchange struct {
	From       string          `json:"from"`
	To         string          `json:"to"`
	Request    json.RawMessage `json:"request"`
	Translated json.RawMessage `json:"translated"`
	Reply      json.RawMessage `json:"reply"`
	Losses     []string        `json:"losses"`
	ECTs       []string        `json:"ects"`
}

// demoPrintsProof: the document alone convinces a stranger, and any change to it
// does not.
func demoPrintsProof(t *testing.T, bin string) {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), demoLimit)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "aepb-gateway"), "demo", "--json")
	cmd.Stderr = &stderr
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if err := judge(printed); err != nil {
		t.Fatal(err)
	}
	if err := judge(retold(t, printed, func(*document) {})); err != nil {
		t.Fatalf("retelling it unchanged spoils it: %v", err)
	}
	for name, lie := range lies(t) {
		if judge(retold(t, printed, lie)) == nil {
			t.Errorf("believed: %s", name)
		}
	}
	// A prime step meets every kind of place; the bundle is what is trusted.
	for at := 0; at < bytes.Index(printed, []byte(`"trust_bundle"`)); at += 61 {
		if changed := bytes.Clone(printed); changed[at]^1 != '"' {
			changed[at] ^= 1
			if judge(changed) == nil {
				t.Errorf("believed with byte %d changed, after %s", at, printed[max(0, at-40):at])
			}
		}
	}
}

// judge reads a document of exactly the contract's shape and believes nothing in
// it that no signature backs.
func judge(printed []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(printed))
	decoder.DisallowUnknownFields()
	var d document
	if err := decoder.Decode(&d); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	if !d.OK {
		return errors.New("not ok")
	}
	roots, err := anchors(d.TrustBundle)
	if err != nil {
		return err
	}
	for i, pair := range [][2]string{{"a2a-v1", "mcp-v1"}, {"mcp-v1", "a2a-v1"}} {
		if len(d.Exchanges) != 2 || d.Exchanges[i].From != pair[0] || d.Exchanges[i].To != pair[1] {
			return fmt.Errorf("%d exchanges, or one of them not from %s to %s", len(d.Exchanges), pair[0], pair[1])
		}
		if err := d.Exchanges[i].judge(roots); err != nil {
			return fmt.Errorf("from %s: %w", pair[0], err)
		}
	}
	return nil
}

func (x exchange) judge(roots *x509.CertPool) error {
	if len(x.ECTs) != 2 || x.Losses == nil {
		return fmt.Errorf("%d ECTs, losses %v", len(x.ECTs), x.Losses)
	}
	request, err := audit(roots, x.ECTs[0])
	if err != nil {
		return err
	}
	reply, err := audit(roots, x.ECTs[1])
	if err != nil {
		return err
	}
	for what, holds := range map[string]bool{
		"legs":       request.Ext.Leg == "request" && reply.Ext.Leg == "reply",
		"act":        request.Act == "aepb:translate" && reply.Act == "aepb:translate",
		"issuer":     reply.Issuer == request.Issuer,
		"workflow":   reply.Workflow == request.Workflow && reply.Workflow != "",
		"lineage":    slices.Equal(reply.Parents, []string{request.ID}),
		"request":    request.InputHash == digest(x.Request),
		"translated": request.OutputHash == digest(x.Translated),
		"reply":      reply.OutputHash == digest(x.Reply),
		"losses":     slices.Equal(x.Losses, slices.Concat(request.Ext.Warnings, reply.Ext.Warnings)),
	} {
		if !holds {
			return fmt.Errorf("%s: not what the ECTs say", what)
		}
	}
	return nil
}

// lies are changes after which the document must convince nobody.
func lies(t *testing.T) map[string]func(*document) {
	t.Helper()
	stranger := bundleOf(t, "demo.aepb")
	swap := func(body *json.RawMessage, old, fresh string) {
		if !bytes.Contains(*body, []byte(old)) {
			t.Errorf("%s lacks %s", *body, old)
		}
		*body = bytes.Replace(*body, []byte(old), []byte(fresh), 1)
	}
	const sent, rounded = "9007199254740993", "9007199254740992"
	return map[string]func(*document){
		"another request":            func(d *document) { swap(&d.Exchanges[0].Request, sent, rounded) },
		"another translation":        func(d *document) { swap(&d.Exchanges[0].Translated, sent, rounded) },
		"another sum":                func(d *document) { swap(&d.Exchanges[0].Reply, "18014398509481989", "18014398509481988") },
		"another answer":             func(d *document) { swap(&d.Exchanges[1].Reply, "You said", "You sang") },
		"a loss less":                func(d *document) { d.Exchanges[0].Losses = d.Exchanges[0].Losses[1:] },
		"a loss more":                func(d *document) { d.Exchanges[1].Losses = append(d.Exchanges[1].Losses, "L01 dropped /x") },
		"an ECT less":                func(d *document) { d.Exchanges[0].ECTs = d.Exchanges[0].ECTs[:1] },
		"ECTs in another order":      func(d *document) { slices.Reverse(d.Exchanges[0].ECTs) },
		"an ECT of another exchange": func(d *document) { d.Exchanges[0].ECTs[1] = d.Exchanges[1].ECTs[1] },
		"a spoilt claim":             func(d *document) { d.Exchanges[0].ECTs[0] = spoilt(t, d.Exchanges[0].ECTs[0]) },
		"another CA of that name":    func(d *document) { d.TrustBundle = stranger },
		"no anchors":                 func(d *document) { d.TrustBundle = json.RawMessage(`{"keys":[]}`) },
		"an exchange less":           func(d *document) { d.Exchanges = d.Exchanges[:1] },
		"not ok":                     func(d *document) { d.OK = false },
	}
}

// retold is the document after a change. Like the demo, it leaves the bytes of
// the messages alone.
func retold(t *testing.T, printed []byte, change func(*document)) []byte {
	t.Helper()
	var d document
	if err := json.Unmarshal(printed, &d); err != nil {
		t.Fatal(err)
	}
	change(&d)
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func spoilt(t *testing.T, token string) string {
	t.Helper()
	other, err := spoil(token)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// bundleOf is the trust bundle of a stranger who calls himself like somebody.
func bundleOf(t *testing.T, domain string) json.RawMessage {
	t.Helper()
	trust, err := devgateway.NewTrust(domain)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(trust.RootsPEM())
	bundle, err := json.Marshal(map[string]any{"keys": []map[string]any{{"use": "x509-svid", "x5c": [][]byte{block.Bytes}}}})
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// demoKeepsRunning: with --keep, the line that it prints works until it is
// stopped, and nothing is left behind then.
func demoKeepsRunning(t *testing.T, root, bin string) {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), demoLimit)
	defer cancel()
	temp := t.TempDir()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "aepb-gateway"), "demo", "--keep")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if line, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "try: "); ok {
			if err := shell(ctx, root, line, &out, &out); err != nil || !strings.Contains(out.String(), `"sum":3`) {
				t.Errorf("%s: %v\n%s", line, err, out.String())
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || out.Len() == 0 {
		t.Errorf("ends with %v, tried: %s", err, out.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
