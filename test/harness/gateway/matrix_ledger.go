package gatewaytest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/server"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// ledger is where the gateway that is tried keeps what it does, and knows two
// things that nobody else is told: in which workflow is what came of a message
// whose words have no place for a token, and which tasks of agents it has heard of.
type ledger struct {
	ect.Store

	mu    sync.Mutex
	about map[string][]string // workflows, by the hash of a message
	tasks map[string]bool     // ids
}

// newLedger is for a gateway that nobody has asked anything yet.
func newLedger(t *testing.T, b *Fixture) *ledger {
	t.Helper()
	return b.ledger
}

// observe lets the ledger see what a gateway stores; nil: nothing sees it.
func (l *ledger) observe(k *server.Stored) {
	if l != nil {
		l.Store, l.about = k.Evidence, map[string][]string{}
		k.Evidence, k.Entries = l, &workbook{k.Entries, l}
	}
}

// Put implements ect.Store.
func (l *ledger) Put(ctx context.Context, r ect.Record) error {
	if claims, _, err := ect.ParseUnverified(r.Compact); err == nil && claims.InputHash != "" {
		l.mu.Lock()
		l.about[claims.InputHash] = append(l.about[claims.InputHash], r.Workflow)
		l.mu.Unlock()
	}
	return l.Store.Put(ctx, r)
}

// workbook is where the gateway keeps how work stands.
type workbook struct {
	store.Entries

	l *ledger
}

// Swap implements store.Entries.
func (w *workbook) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	revision, ok, err := w.Entries.Swap(ctx, key, old, value, until)
	if ok && err == nil {
		w.l.hears(minted.FindAllString(string(value), -1))
	}
	return revision, ok, err
}

func (l *ledger) hears(ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.tasks[id] = true
	}
}

// knows: it is on record that an agent calls a task so.
func (l *ledger) knows(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tasks[id]
}

// workflows are those of what came of messages, by their hashes.
func (l *ledger) workflows(hashes []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, hash := range hashes {
		out = append(out, l.about[hash]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// notes are what a caller knows of what it asked.
type notes struct {
	mu     sync.Mutex
	hashes []string // of what was said bare
	listed string   // where the caller's own work is on the list that it was told; empty: it was told none
	late   bool     // the gateway may have answered before the agent did
}

// patient is less than what the gateway waits for an agent before it promises its
// caller a task.
const patient = 100 * time.Millisecond

// keeps notes what has to be known of a message, so that what is lost of it can be
// found: who speaks bare has no place for a token, and so no workflow of his own.
// What he says is unlike all else by the name of his own among the words.
func (c *Caller) keeps(wire []byte) {
	if c.side.Form == uacp.FormBare && strings.Contains(string(wire), c.Wid) {
		c.notes.mu.Lock()
		defer c.notes.mu.Unlock()
		c.notes.hashes = append(c.notes.hashes, ect.Hash(wire))
	}
}

// answered keeps that an answer took so long.
func (n *notes) answered(op canonical.Op, took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = n.late || op == canonical.OpInvoke && took > patient
}

// wasLate: what came of a play may be another's doing than the agent's.
func (n *notes) wasLate() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.late
}

// losses are the losses of everything that the gateway put on record for this
// caller: of the request (>), of the reply (<), and of what the gateway asked the
// agent by itself (~), carried (+) or dropped (-).
func (c *Caller) losses(ctx context.Context) (marks, words []string) {
	c.notes.mu.Lock()
	defer c.notes.mu.Unlock()
	workflows := []string{c.Wid}
	if c.side.Form == uacp.FormBare {
		workflows = c.ledger.workflows(c.notes.hashes)
	}
	for _, workflow := range workflows {
		records, err := ecttest.All(ctx, c.Stage.Gateway().Evidence, workflow)
		if err != nil {
			return []string{err.Error()}, nil
		}
		for _, r := range records {
			claims, _, err := ect.ParseUnverified(r.Compact)
			if err != nil || claims.Issuer != c.Stage.Dev.Gateway.ID {
				continue
			}
			warnings, _ := claims.Ext.Strings(ect.ExtWarnings)
			for _, w := range warnings {
				if c.notes.foreign(w) {
					continue
				}
				marks = append(marks, lossMark(claims, w))
				words = append(words, lossMark(claims, w)+" "+w)
			}
		}
	}
	slices.Sort(marks)
	return slices.Compact(marks), words
}

// foreign: it is lost of other work, which is on the same list.
func (n *notes) foreign(warning string) bool {
	_, at, listed := strings.Cut(warning, " /body/tasks/")
	at, _, _ = strings.Cut(at, "/")
	return listed && n.listed != "" && at != n.listed
}

func lossMark(of ect.Claims, warning string) string {
	code, rest, _ := strings.Cut(warning, " ")
	way, fate := ">", "+"
	switch direction, _ := of.Ext.String(ect.ExtLeg); {
	case direction == "reply":
		way = "<"
	case of.InputHash == "": // made of nothing that came
		way = "~"
	}
	if strings.HasPrefix(rest, "dropped") {
		fate = "-"
	}
	return way + code + fate
}
