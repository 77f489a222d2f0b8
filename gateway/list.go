package gateway

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	usualPage = 50 // A2A 1.0, ListTasksRequest.page_size
	maxPage   = 100
)

// listed is a task on a list, as much of it as decides about its place there.
type listed struct {
	id  string
	at  time.Time
	rec *record // nil: it is kept like an answer
}

// before is the order of lists: what changed last comes first (A2A 1.0, ListTasks).
func (a listed) before(b listed) int {
	return cmp.Or(b.at.Compare(a.at), strings.Compare(a.id, b.id))
}

// cursor names a place between two tasks, which stays where it is when others
// come and go.
func (a listed) cursor() string { return strconv.FormatInt(a.at.UnixNano(), 36) + "." + a.id }

func readCursor(text string) (after listed, ok bool) {
	at, id, found := strings.Cut(text, ".")
	nanos, err := strconv.ParseInt(at, 36, 64)
	return listed{id: id, at: time.Unix(0, nanos)}, found && err == nil
}

// page is the tasks of a list that one answer tells, of which no more are held
// than that.
type page struct {
	filter *canonical.TaskFilter
	after  *listed // nil: from the beginning
	size   int
	first  []listed // one more than the page has, if there is one
	total  int
	bound  string // the agent's name for a dialogue that the filter names as its caller does
	seen   map[string]bool
}

func (p *page) add(one listed, context string, state canonical.State) {
	f := p.filter
	if f.ContextID != "" && context != f.ContextID && context != p.bound || f.State != "" && state != f.State ||
		!f.After.IsZero() && !one.at.After(f.After) || p.seen[one.id] {
		return
	}
	p.seen[one.id] = true
	p.total++
	if p.after != nil && p.after.before(one) >= 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(p.first, one, listed.before)
	if p.first = slices.Insert(p.first, at, one); len(p.first) > p.size+1 {
		p.first = p.first[:p.size+1]
	}
}

// list answers from the record, because the agent takes all of us for one
// caller: it would tell one of our callers of another's work. What ended with
// its first answer is on it for as long as it can be asked for.
func (g *Gateway) list(ctx context.Context, x *exchange, f *canonical.TaskFilter) (transport.Answer, error) {
	p := &page{filter: f, size: f.Size, seen: map[string]bool{}, bound: boundContext(x, f.ContextID)}
	if p.size <= 0 {
		p.size = usualPage
	}
	p.size = min(p.size, maxPage)
	if f.Cursor != "" {
		after, ok := readCursor(f.Cursor)
		if !ok {
			return transport.Answer{}, &canonical.Error{Code: canonical.CodeBadParams, Message: "no such page"}
		}
		p.after = &after
	}
	if err := g.collectTasks(ctx, g.keyOf(x, "").Group, p); err != nil {
		return transport.Answer{}, &problem.RecordingError{Err: err}
	}
	g.lineage(x)
	wire, err := g.tellPage(ctx, x, p)
	return g.answer(x, wire), err
}

// tellPage answers with a page, or with as much of it as a message of the
// caller's protocol holds (µACP: 64 KiB).
func (g *Gateway) tellPage(ctx context.Context, x *exchange, p *page) (translators.Wire, error) {
	tasks := make([]*canonical.Task, min(len(p.first), p.size))
	for i := range tasks {
		tasks[i] = g.told(ctx, x, p.first[i], p.filter)
	}
	for {
		list := &canonical.TaskList{Size: p.size, Total: p.total, Tasks: []canonical.Task{}}
		if len(p.first) > len(tasks) {
			list.Next = p.first[len(tasks)-1].cursor()
		}
		for _, task := range tasks {
			if task != nil {
				list.Tasks = append(list.Tasks, *task)
			}
		}
		m := &canonical.Message{Op: x.message.Op, Phase: canonical.PhaseResponse, Body: list, Correlation: canonical.Correlation{WireID: x.wireID}}
		wire, _, err := g.leg(ctx, x, g.toCaller(x, m, x.parents))
		if unsaid, ok := errors.AsType[*canonical.Error](err); !ok || unsaid.Code != canonical.CodeBadParams || len(tasks) < 2 {
			return wire, err
		}
		tasks = tasks[:len(tasks)/2]
	}
}

// collectTasks visits everything that is kept of a caller's work at an agent.
func (g *Gateway) collectTasks(ctx context.Context, group string, p *page) error {
	for after := ""; ; {
		entries, err := g.Entries.List(ctx, entryTask, group, after, maxPage)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			after = entry.Key.ID
			if rec, err := g.readRecord(entry); err == nil {
				p.add(listed{id: entry.Key.ID, at: rec.Changed, rec: rec}, rec.Task.ContextID, rec.Task.Status.State)
			}
		}
		if len(entries) < maxPage {
			break
		}
	}
	return g.finished(ctx, group, func(t ended) { p.add(listed{id: t.ID, at: t.At}, t.Context, t.State) })
}

// told is a task as a list tells of it; nil: it is gone.
func (g *Gateway) told(ctx context.Context, x *exchange, one listed, f *canonical.TaskFilter) *canonical.Task {
	rec := one.rec
	if rec == nil {
		rec = g.loadReply(ctx, g.keyOf(x, one.id))
	}
	if rec == nil {
		return nil
	}
	task, err := g.present(rec)
	if err != nil {
		return nil
	}
	if task.Output = nil; f.IncludeArtifacts == nil || !*f.IncludeArtifacts {
		task.Artifacts = nil
	}
	return task
}

// Most tasks end with their first answer, and are kept like answers, which are
// found by name alone (repeat.go). So that their caller can list them too, each
// process keeps lists of their names, beside them: one that is being filled, the
// head, and behind it full ones with numbers. Which processes have any is among
// the entries, written once in a while.

const (
	entryEnded  = "ended"    // which processes have lists of tasks that ended at once
	listSpan    = 4          // names in a full list; the head has up to twice as many
	maxLists    = 1024       // full lists that are read of one process
	maxListings = 1 << 14    // callers and agents of which this process keeps lists
	headList    = ect.ID("") // the name of the head
)

// ended is a task that ended with its first answer, as far as lists tell.
type ended struct {
	ID, Context string
	State       canonical.State
	At          time.Time
}

// listing is the head of one caller's tasks at one agent.
type listing struct {
	mu     sync.Mutex
	moved  *sync.Cond
	tasks  []ended
	full   int // lists that were filled
	added  int // tasks, ever
	kept   int // of those, how many are where others see them
	busy   bool
	listed time.Time // when this process was last put on the list of processes
	used   time.Time
}

// listings are those of this process.
type listings struct {
	mu    sync.Mutex
	of    map[string]*listing
	swept time.Time
}

// find is the listing of a group; nil: there are too many.
func (l *listings) find(group string, now time.Time) *listing {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.of[group]
	if found == nil {
		if len(l.of) >= maxListings {
			l.sweep(now)
		}
		if len(l.of) >= maxListings {
			return nil
		}
		if l.of == nil {
			l.of = map[string]*listing{}
		}
		found = &listing{}
		found.moved = sync.NewCond(&found.mu)
		l.of[group] = found
	}
	found.used = now
	return found
}

// sweep forgets listings of which nothing is kept any more. Their numbers begin
// anew, when what had them is gone.
func (l *listings) sweep(now time.Time) {
	if now.Sub(l.swept) < replyLife/10 {
		return
	}
	l.swept = now
	for group, one := range l.of {
		if now.Sub(one.used) > replyLife {
			delete(l.of, group)
		}
	}
}

// listEnd puts a task on the list. When it returns, others find it.
func (g *Gateway) listEnd(ctx context.Context, rec *record) {
	now := g.Now()
	l := g.listings.find(rec.key.Group, now)
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks = append(l.tasks, ended{rec.key.ID, rec.Task.ContextID, rec.Task.Status.State, now})
	l.added++
	for mine := l.added; l.kept < mine; {
		if l.busy { // whoever writes takes along what has come meanwhile
			l.moved.Wait()
			continue
		}
		g.writeList(ctx, l, rec.key.Group, now)
	}
}

// writeList writes the head, and what is full of it as a list of its own. It is
// called with the lock, which it gives away meanwhile.
func (g *Gateway) writeList(ctx context.Context, l *listing, group string, now time.Time) {
	type list struct {
		id   ect.ID
		blob []byte
	}
	var lists []list
	for len(l.tasks) > 2*listSpan { // many may have come meanwhile
		lists = append(lists, list{listName(l.full), appendEnded(nil, 0, l.tasks[:listSpan])})
		l.tasks = append([]ended(nil), l.tasks[listSpan:]...)
		l.full++
	}
	lists = append(lists, list{headList, appendEnded(nil, l.full, l.tasks)})
	register := now.Sub(l.listed) > replyLife/2
	upTo := l.added
	l.busy = true
	l.mu.Unlock()
	for _, one := range lists {
		g.Answers.Finish(ctx, listKey(group, g.instance, one.id), one.blob, now.Add(replyLife))
	}
	if register {
		register = g.register(ctx, group, now)
	}
	l.mu.Lock()
	if l.busy, l.kept = false, upTo; register {
		l.listed = now
	}
	l.moved.Broadcast()
}

// register says that this process has a list.
func (g *Gateway) register(ctx context.Context, group string, now time.Time) bool {
	key := EntryKey{Kind: entryEnded, Group: group, ID: g.instance}
	entry, _, err := g.Entries.Get(ctx, key)
	if err == nil {
		_, _, err = g.Entries.Swap(ctx, key, entry.Revision, []byte("{}"), now.Add(2*replyLife))
	}
	if err != nil {
		g.Logger.WarnContext(ctx, "tasks that have ended are not listed", slog.Any("error", err))
	}
	return err == nil
}

func listName(n int) ect.ID { return ect.ID(strconv.Itoa(n)) }

// listKey is where a list is kept among the answers: no issuer of tokens has
// such a name.
func listKey(group, instance string, id ect.ID) ect.ReplayKey {
	return ect.ReplayKey{Issuer: ect.Identity("ended\x00" + group), Workflow: instance, ID: id}
}

// finished visits the tasks of a group that ended with their first answer.
func (g *Gateway) finished(ctx context.Context, group string, visit func(ended)) error {
	processes, err := g.Entries.List(ctx, entryEnded, group, "", maxPage)
	if err != nil {
		return err
	}
	oldest := g.Now().Add(-replyLife)
	for _, process := range processes {
		id := headList
		for n, read := 0, 0; read <= maxLists; read++ {
			blob, ok := g.Answers.Load(ctx, listKey(group, process.Key.ID, id))
			full, tasks := readEnded(blob)
			if !ok || len(tasks) == 0 || tasks[len(tasks)-1].At.Before(oldest) {
				break
			}
			for _, task := range tasks {
				visit(task)
			}
			if id == headList {
				n = full
			}
			if n--; n < 0 {
				break
			}
			id = listName(n)
		}
	}
	return nil
}

func appendEnded(b []byte, full int, tasks []ended) []byte {
	size := binary.MaxVarintLen64
	for _, t := range tasks {
		size += 4*binary.MaxVarintLen32 + len(t.ID) + len(t.Context) + len(t.State)
	}
	b = slices.Grow(b, size)
	b = binary.AppendUvarint(b, uint64(full)) //nolint:gosec // a count
	for _, t := range tasks {
		b = binary.AppendVarint(b, t.At.UnixNano())
		b = appendTexts(b, t.ID, t.Context, string(t.State))
	}
	return b
}

// readEnded reads what appendEnded wrote, as far as it can be read.
func readEnded(b []byte) (full int, tasks []ended) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil
	}
	for b = b[n:]; len(b) > 0; {
		at, n := binary.Varint(b)
		if n <= 0 {
			break
		}
		var t ended
		var state string
		rest, whole := readTexts(b[n:], &t.ID, &t.Context, &state)
		if !whole {
			break
		}
		t.At, t.State, b = time.Unix(0, at), canonical.State(state), rest
		tasks = append(tasks, t)
	}
	return int(count), tasks //nolint:gosec // one of ours
}
