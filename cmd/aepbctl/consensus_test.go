package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// consensusPages serves bodies by method and path; the rest is not found.
func consensusPages(t *testing.T, pages map[string]string) (dev *identity.Development, flags []string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json" {
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		body, ok := pages[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			body = `{"code":"not_found","detail":"no such round\nis \u001b[31mhere"}`
		}
		if ok && r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	dev, err := identity.LoadOrCreate(dir, "example.org", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return dev, []string{"--dir", dir, "--gateway", server.URL, "--admin", server.URL}
}

func runConsensus(t *testing.T, flags []string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = program.Run(t.Context(), commands, append(append([]string{"consensus"}, args...), flags...), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// hostileRound is a round whose every text forges terminal lines, as far as messages allow that: a subject is one line.
func hostileRound(t *testing.T, dev *identity.Development) string {
	t.Helper()
	signer, err := ect.NewSigner(ect.SignerDeps{Key: dev.Client.Key, Chain: dev.Client.Chain, Issuer: dev.Client.ID, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	m, err := signed.Sign(signer, consensus.Proposal{
		ID: string(ect.NewID()), Proposer: dev.Client.ID, Round: string(ect.NewID()), Mechanism: consensus.Majority, Subject: "a\u202eb", Action: []byte("{\"x\": \"\u202e\"}"),
		Timeout: consensus.At(time.Now()), Participants: []ect.Identity{"spiffe://x/\u202e"},
		Terms: consensus.Terms{Group: "g\u202e", Resource: "r\u2066", Timestamp: time.Now()},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{
		"round": "r", "phase": terminaltest.Hostile, "proposal": m, "rules": consensus.Rules{Leader: terminaltest.Hostile, Deadlock: terminaltest.Hostile}, "wid": terminaltest.Hostile, "propose": terminaltest.Hostile, "commit": terminaltest.Hostile,
		"why": terminaltest.Hostile, "approval": terminaltest.Hostile, "deadlock": consensus.Deadlock{Preferred: terminaltest.Hostile, Candidates: []consensus.Candidate{{Proposal: terminaltest.Hostile, Proposer: terminaltest.Hostile}}},
		"anomalies": []string{terminaltest.Hostile}, "outcome": map[string]string{terminaltest.Hostile: terminaltest.Hostile},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAttack_ConsensusForgesTerminalLines: texts of the gateway and of proposers stay within their line.
func TestAttack_ConsensusForgesTerminalLines(t *testing.T) {
	t.Parallel()
	pages := map[string]string{}
	dev, flags := consensusPages(t, pages)
	round := hostileRound(t, dev)
	group, err := json.Marshal(map[string]any{
		"group": terminaltest.Hostile, "participants": []string{terminaltest.Hostile}, "weights_hash": terminaltest.Hostile, "mechanisms": []string{terminaltest.Hostile}, "leader": terminaltest.Hostile, "deadlock": terminaltest.Hostile, "proposers": []string{terminaltest.Hostile},
	})
	if err != nil {
		t.Fatal(err)
	}
	pages["GET /consensus/groups/g"] = string(group)
	pages["GET /consensus/rounds"] = `{"rounds":[` + round + `]}`
	pages["GET /api/consensus"] = pages["GET /consensus/rounds"]
	pages["GET /consensus/rounds/r"], pages["GET /api/consensus/r"] = round, round
	pages["GET /consensus/rounds/r/events"] = "event: round\ndata: " + round + "\n\nevent: round\ndata: " + strings.Replace(round, `"r"`, `"\u001b[8m"`, 1) + "\n\n"
	dir := t.TempDir()
	for name, text := range map[string]string{"round.json": round, "messages.json": "{}", "\x1b[8mnotes": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, lines := range map[string]int{
		"group g": 9, "list": 2, "list --operator": 2, "show r": 19, "show r --operator": 19, "watch r": 1, "verify " + dir: 4, "show none": 0,
	} {
		code, out, errs := runConsensus(t, flags, strings.Fields(args)...)
		terminaltest.Harmless(t, args, out, lines)
		if errs != "" {
			terminaltest.Harmless(t, args+", error", errs, 1)
		}
		if want := map[bool]int{true: program.ExitFailed, false: program.ExitOK}[args == "watch r" || args == "show none" || strings.HasPrefix(args, "verify")]; code != want {
			t.Errorf("%s: exit code %d, expected %d: %s%s", args, code, want, out, errs)
		}
		if _, out, _ := runConsensus(t, append(flags, "-o", "json"), strings.Fields(args)...); out != "" && !json.Valid([]byte(out)) {
			t.Errorf("%s: no JSON: %s", args, out)
		}
	}
}

// TestConsensus_ProposeAndVote: the program signs with its own key, for the public listener, and misuse has a code of its own.
func TestConsensus_ProposeAndVote(t *testing.T) {
	t.Parallel()
	pages := map[string]string{}
	dev, flags := consensusPages(t, pages)
	table := []consensus.Member{{ID: dev.Client.ID, Weight: 100}}
	group, err := json.Marshal(map[string]any{
		"group": "ops", "participants": []ect.Identity{dev.Client.ID}, "weights": table, "weights_hash": consensus.WeightsHash(table), "mechanisms": []string{"majority"}, "quorum": map[string]int{"majority": 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	pages["GET /consensus/groups/ops"] = string(group)
	for args, want := range map[string]int{
		"propose --group ops": program.ExitUsage, "propose --group ops --subject x --action {} --quorum -1": program.ExitUsage, "vote r maybe": program.ExitUsage, "ack r never": program.ExitUsage,
		"propose --group ops --subject x --action {} --mechanism leader": program.ExitUsage, "propose --group ops --subject x --action {}": program.ExitFailed, "vote r approve": program.ExitFailed,
	} {
		if code, out, errs := runConsensus(t, flags, strings.Fields(args)...); code != want {
			t.Errorf("%s: exit code %d, expected %d: %s%s", args, code, want, out, errs)
		}
	}
	signer, err := ect.NewSigner(ect.SignerDeps{Key: dev.Client.Key, Chain: dev.Client.Chain, Issuer: dev.Client.ID, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	p := consensus.Proposal{
		ID: string(ect.NewID()), Proposer: dev.Client.ID, Round: string(ect.NewID()), Mechanism: consensus.Majority, Subject: "x", Action: []byte("{}"),
		Timeout: consensus.At(time.Now().Add(time.Hour)), Quorum: 1, Participants: []ect.Identity{dev.Client.ID},
		Terms: consensus.Terms{Group: "ops", Timestamp: time.Now()},
	}
	m, err := signed.Sign(signer, p)
	if err != nil {
		t.Fatal(err)
	}
	view, err := json.Marshal(map[string]any{"round": p.Round, "phase": consensus.Voting, "proposal": m})
	if err != nil {
		t.Fatal(err)
	}
	pages["GET /consensus/rounds/"+p.Round] = string(view)
	pages["GET /consensus/rounds/"+p.Round+"/votes"] = "{}"
	pages["POST /consensus/rounds/"+p.Round+"/ack"] = `{"hash":"x"}`
	// The hash of a signature that is made now is not known here: that it is compared shows that all went well until then.
	if code, _, errs := runConsensus(t, flags, "vote", p.Round, "approve"); code != program.ExitFailed || !strings.Contains(errs, "took a message with hash x") {
		t.Error(code, errs)
	}
}
