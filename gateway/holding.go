package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Bounds of what callers can read later.
const (
	shelfLife   = store.EndedLife
	shelfSlots  = 64          // tasks that are listed for one caller and agent, by each process
	maxShelves  = 1 << 12     // callers and agents whose slots a process counts
	maxYield    = 768 << 10   // octets of what is kept of one task
	maxCaptions = 32          // artifacts of one task that are listed
	maxCaption  = 512         // octets of what the list says of one
	shelfPage   = 32          // tasks on a page of the list
	maxPlace    = 2048        // octets of a URI
	shelfRest   = time.Second // between two times that what is pending is listed
	placeScheme = "a2a://"
)

// yield is what came of a task, kept for its caller beside the replies.
type yield struct {
	Form      int
	Slot      string // of the entry that lists it
	Workflow  string
	Last      ect.ID // of the ECT of the reply
	Artifacts []canonical.Artifact

	task string
}

// spine is what the list shows of a task.
type spine struct {
	Form     int
	Task     string
	At       time.Time
	Captions []caption
}

// caption is what the list shows of an artifact.
type caption struct {
	ID                string
	Name, Description string `json:",omitempty"`
	Media             string `json:",omitempty"`
}

// shelves counts the slots in use, so that the oldest is used again. That is
// each process's own business: no two have a slot in common.
type shelves struct {
	mu      sync.Mutex
	next    map[string]int
	pending map[store.EntryKey]shelved // not on the list yet
	busy    bool                       // somebody is about to put it there

	writing sync.Mutex // held while some are put there
}

// shelved is what stands in one slot. It is written down when it goes on the
// list: by then another one may have its slot.
type shelved struct {
	spine spine
	until time.Time
}

// add leaves an entry for whoever writes, in place of one for the same slot.
// True: nobody writes yet.
func (s *shelves) add(key store.EntryKey, l shelved) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		s.pending = map[store.EntryKey]shelved{}
	}
	s.pending[key] = l
	idle := !s.busy
	s.busy = true
	return idle
}

// take gives some of a group, or of any (""); none: there is nothing.
func (s *shelves) take(group string) map[store.EntryKey]shelved {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := map[store.EntryKey]shelved{}
	for key, l := range s.pending {
		if len(taken) == shelfSlots {
			break
		}
		if group == "" || key.Group == group {
			taken[key] = l
			delete(s.pending, key)
		}
	}
	if group == "" && len(taken) == 0 {
		s.busy = false
	}
	return taken
}

// slot is the next one of a group.
func (s *shelves) slot(group, instance string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, counted := s.next[group]; s.next == nil || !counted && len(s.next) >= maxShelves {
		s.next = map[string]int{}
	}
	n := s.next[group]
	s.next[group] = (n + 1) % shelfSlots
	return instance + "." + string([]byte{'0' + byte(n/10), '0' + byte(n%10)}) //nolint:gosec // below shelfSlots
}

// place is where an artifact, or one part of it, can be read.
type place struct {
	agent, task, artifact string
	part                  int // negative: all of them
}

func (p place) uri() string {
	whole := placeScheme + url.PathEscape(p.agent) + "/tasks/" + url.PathEscape(p.task) + "/artifacts/" + url.PathEscape(p.artifact)
	if p.part < 0 {
		return whole
	}
	return whole + "/parts/" + strconv.Itoa(p.part)
}

// placeOf reads what uri wrote, and no other spelling of it.
func placeOf(uri string) (p place, ok bool) {
	rest, ok := strings.CutPrefix(uri, placeScheme)
	segments := strings.Split(rest, "/")
	if !ok || len(uri) > maxPlace || len(segments) != 5 && len(segments) != 7 {
		return p, false
	}
	for i, to := range map[int]*string{0: &p.agent, 2: &p.task, 4: &p.artifact} {
		text, err := url.PathUnescape(segments[i])
		if err != nil {
			return p, false
		}
		*to = text
	}
	p.part = -1
	if len(segments) == 7 {
		var err error
		if p.part, err = strconv.Atoi(segments[6]); err != nil || p.part < 0 {
			return p, false
		}
	}
	return p, p.uri() == uri
}

// label gives what came of a task the names under which its caller can read it
// later, and takes note of it.
func (x *exchange) label(m *canonical.Message) {
	librarian, ok := x.source.(translators.Librarian)
	result, answers := m.Body.(*canonical.Result)
	if !ok || !answers || result.Task == nil || len(result.Task.Artifacts) == 0 || x.relay() || x.call.Agent == "" || !x.call.Entrance.Native() {
		return
	}
	named, task := *result, *result.Task
	id := task.ID
	if x.record != nil {
		id = x.record.Task.ID // by which it is known to its caller
	}
	if id == "" || len(id) > store.MaxTaskID {
		return
	}
	task.Artifacts = slices.Clone(task.Artifacts)
	for i := range task.Artifacts {
		a := &task.Artifacts[i]
		a.Parts = slices.Clone(a.Parts)
		for n := range a.Parts {
			if a.ID != "" && librarian.Embeds(&a.Parts[n]) {
				a.Parts[n].URI, a.Parts[n].Form = place{x.agent.Name, id, a.ID, n}.uri(), canonical.FormEmbedded
			}
		}
	}
	named.Task, m.Body = &task, &named
	x.yield = &yield{Form: store.RecordForm, Artifacts: result.Task.Artifacts, task: id}
}

// shelve keeps what the reply that was signed last brought. That it is not kept
// costs the caller no more than that it cannot ask again.
func (g *Gateway) shelve(ctx context.Context, x *exchange) {
	y := x.yield
	if y == nil || x.replyID == "" {
		return
	}
	x.yield = nil
	ctx = context.WithoutCancel(ctx)
	group := x.keyOf("").Group
	if before := g.yieldOf(ctx, group, y.task); before == nil {
		y.Slot = g.shelves.slot(group, g.instance)
	} else if y.Slot = before.Slot; same(before.Artifacts, y.Artifacts) {
		return
	}
	y.Workflow, y.Last = x.workflow, x.replyID
	blob, err := store.EncodeJSON(y)
	if err != nil || len(blob) > maxYield {
		g.Logger.InfoContext(ctx, "what came of a task is not kept to be read later", slog.String("task", y.task), slog.Int("octets", len(blob)))
		return
	}
	until := g.Now().Add(shelfLife)
	g.Answers.Finish(ctx, yieldKey(group, y.task), blob, until)
	g.enlist(ctx, group, y, until)
}

func same(a, b []canonical.Artifact) bool {
	x, err := store.EncodeJSON(a)
	y, err2 := store.EncodeJSON(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// enlist puts a task on the list, in place of what had its slot.
func (g *Gateway) enlist(ctx context.Context, group string, y *yield, until time.Time) {
	s := spine{Form: store.RecordForm, Task: y.task, At: g.Now()}
	for _, a := range y.Artifacts[:min(len(y.Artifacts), maxCaptions)] {
		c := caption{ID: a.ID, Name: bounded(a.Name, maxCaption), Description: bounded(a.Description, maxCaption)}
		if len(a.Parts) == 1 {
			c.Media = bounded(a.Parts[0].Media, maxCaption)
		}
		if a.ID != "" && len(a.ID) <= store.MaxTaskID {
			s.Captions = append(s.Captions, c)
		}
	}
	if !g.shelves.add(store.EntryKey{Kind: store.KindArtifacts, Group: group, ID: y.Slot}, shelved{s, until}) {
		return
	}
	if g.workers.Go(g.listNow) == nil {
		return
	}
	for g.listPending(ctx, "") { // to the end, or nobody would begin again
		continue
	}
}

// listNow puts what is pending on the list, and again while there is more, until
// nothing is. In between it rests: what comes meanwhile goes to the disk together.
func (g *Gateway) listNow(ctx context.Context) {
	rest := time.NewTimer(shelfRest)
	defer rest.Stop()
	for g.listPending(context.WithoutCancel(ctx), "") {
		rest.Reset(shelfRest)
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
	}
}

// listPending puts what is pending of a group, or of any (""), on the list; false:
// nothing was. No caller waits for the disk because of it but one who wants to
// see the list.
func (g *Gateway) listPending(ctx context.Context, group string) bool {
	g.shelves.writing.Lock()
	defer g.shelves.writing.Unlock()
	pending := g.shelves.take(group)
	var all sync.WaitGroup
	for key, l := range pending {
		all.Go(func() { g.listOne(ctx, key, l) })
	}
	all.Wait()
	return len(pending) > 0
}

func (g *Gateway) listOne(ctx context.Context, key store.EntryKey, l shelved) {
	value, err := store.EncodeJSON(l.spine)
	var old store.Entry
	if err == nil {
		old, _, err = g.Entries.Get(ctx, key)
	}
	if err == nil { // nobody else has this slot
		_, _, err = g.Entries.Swap(ctx, key, old.Revision, value, l.until)
	}
	if err != nil {
		g.Logger.WarnContext(ctx, "what came of a task is not listed", slog.Any("error", err))
	}
}

// yieldKey is where what came of a task is kept: no issuer of tokens has such a name.
func yieldKey(group, task string) ect.ReplayKey {
	return ect.ReplayKey{Issuer: ect.Identity("yield\x00" + group), ID: ect.ID(task)}
}

// yieldOf finds it; nil: it is not kept, or not this caller's.
func (g *Gateway) yieldOf(ctx context.Context, group, task string) *yield {
	blob, ok := g.Answers.Load(ctx, yieldKey(group, task))
	if !ok {
		return nil
	}
	y := &yield{}
	if err := json.Unmarshal(blob, y); err != nil || y.Form != store.RecordForm {
		return nil
	}
	y.task = task
	return y
}

// look answers a caller who looks for what was made for it: itself, because only
// here is known what of an agent's work is whose. False: it asks something else.
func (g *Gateway) look(ctx context.Context, x *exchange) (answer transport.Answer, done bool, err error) {
	librarian, ok := x.source.(translators.Librarian)
	native, asks := x.message.Body.(*canonical.Native)
	if !ok || !asks || !x.call.Entrance.Native() {
		return answer, false, nil
	}
	seeking, err := librarian.Seeks(native)
	if err != nil || seeking == nil {
		return answer, false, err
	}
	m := &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseResponse, Correlation: canonical.Correlation{WireID: x.wireID},
		Origin: canonical.Origin{Binding: x.source.Info().Binding},
	}
	g.lineage(x)
	var showing translators.Showing
	switch showing.What = seeking.What; seeking.What {
	case translators.SeekPatterns:
		showing.Holdings = patterns(x.agent.Name)
	case translators.SeekOne:
		showing.Contents, m.Losses, err = g.readHolding(ctx, x, seeking.URI)
	default:
		showing.Holdings, showing.Next, err = g.holdings(ctx, x, seeking.Cursor)
	}
	if err != nil {
		return answer, false, err
	}
	m.Body = librarian.Shows(showing)
	wire, _, err := g.leg(ctx, x, g.toCaller(x, m, x.parents))
	return g.answer(x, wire), true, err
}

// patterns are how the places of an agent are named.
func patterns(agent string) []translators.Holding {
	whole := placeScheme + url.PathEscape(agent) + "/tasks/{task}/artifacts/{artifact}"
	return []translators.Holding{
		{URI: whole, Name: "artifact", Description: "What came of a task: each part is one of the contents."},
		{URI: whole + "/parts/{part}", Name: "part", Description: "One part of that, counted from 0."},
	}
}

// holdings lists what can be read, the newest of a page first.
func (g *Gateway) holdings(ctx context.Context, x *exchange, cursor string) (list []translators.Holding, next string, err error) {
	if strings.Trim(cursor, "0123456789abcdefghijklmnopqrstuvwxyz-.") != "" || len(cursor) > store.MaxTaskID {
		return nil, "", &canonical.Error{Code: canonical.CodeBadParams, Message: "Invalid cursor"}
	}
	for g.listPending(ctx, x.keyOf("").Group) { // what is not on the list yet
		continue
	}
	entries, err := g.Entries.List(ctx, store.KindArtifacts, x.keyOf("").Group, cursor, shelfPage)
	if err != nil {
		return nil, "", &problem.RecordingError{Err: err}
	}
	if len(entries) == shelfPage {
		next = entries[shelfPage-1].Key.ID
	}
	spines := make([]spine, 0, len(entries))
	for _, entry := range entries {
		var s spine
		if json.Unmarshal(entry.Value, &s) == nil && s.Form == store.RecordForm {
			spines = append(spines, s)
		}
	}
	slices.SortStableFunc(spines, func(a, b spine) int { return b.At.Compare(a.At) })
	for _, s := range spines {
		for _, l := range s.Captions {
			h := translators.Holding{URI: place{x.agent.Name, s.Task, l.ID, -1}.uri(), Name: l.Name, Description: l.Description, Media: l.Media}
			if h.Name == "" {
				h.Name = l.ID
			}
			list = append(list, h)
		}
	}
	return list, next, nil
}

// readHolding reads an artifact, or one part of it. What is another's is not there (R2).
func (g *Gateway) readHolding(ctx context.Context, x *exchange, uri string) ([]translators.Held, []canonical.Loss, error) {
	none := &canonical.Error{Code: canonical.CodeResourceNotFound, Message: "Resource not found"}
	at, ok := placeOf(uri)
	if !ok || at.agent != x.agent.Name {
		return nil, nil, none
	}
	y := g.yieldOf(ctx, x.keyOf("").Group, at.task)
	if y == nil {
		return nil, nil, none
	}
	i := slices.IndexFunc(y.Artifacts, func(a canonical.Artifact) bool { return a.ID == at.artifact })
	if i < 0 || at.part >= len(y.Artifacts[i].Parts) {
		return nil, nil, none
	}
	var held []translators.Held
	var losses []canonical.Loss
	for n := range y.Artifacts[i].Parts {
		if at.part >= 0 && n != at.part {
			continue
		}
		p := &y.Artifacts[i].Parts[n]
		held = append(held, translators.Held{URI: place{at.agent, at.task, at.artifact, n}.uri(), Part: p})
		if p.Name != "" || p.Title != "" || p.Description != "" || len(p.Extensions) > 0 {
			losses = append(losses, canonical.Loss{Code: canonical.LossMetadata, Path: "/body/contents/" + strconv.Itoa(n), Fate: canonical.Dropped})
		}
	}
	x.workflow, x.parents = y.Workflow, x.behind(&store.Record{Proof: store.Proof{Last: y.Last}})
	return held, losses, nil
}
