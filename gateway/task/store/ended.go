package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// EndedLife is how long a task that was answered with its end can be asked for.
const EndedLife = 10 * time.Minute

// SaveEnded keeps a task that was answered with its end, like a reply, and puts it on the
// list. Its error is a *[problem.RecordingError].
func (s *Store) SaveEnded(ctx context.Context, rec *Record) error {
	key, reply, until := endedKey(rec.Key), rec.appendReply(nil), s.deps.Now().Add(EndedLife)
	if shared, ok := s.deps.Replies.(idempotency.ConfirmedStore); ok {
		if err := shared.Confirm(ctx, key, reply, until); err != nil {
			return &problem.RecordingError{Err: err}
		}
	} else {
		s.deps.Replies.Finish(ctx, key, reply, until)
	}
	s.addEnded(ctx, rec)
	return nil
}

// appendReply writes what LoadEnded reads.
func (r *Record) appendReply(b []byte) []byte {
	b = idempotency.AppendTexts(slices.Grow(b, 384+len(r.Saved.Body)),
		string(r.Binding), string(r.Source), r.TaskID, r.Context, r.Task.ContextID, string(r.Task.Status.State), r.Workflow,
		string(r.Last), r.Saved.Version, r.Saved.Form, string(r.Saved.Body), r.Saved.Media)
	if history, err := EncodeJSON(r.Task.History); err == nil && r.Task.History != nil {
		return idempotency.AppendTexts(b, string(history))
	}
	return b
}

// LoadEnded finds a task that was answered with its end; nil: there is none.
func (s *Store) LoadEnded(ctx context.Context, key EntryKey) *Record {
	blob, ok := s.deps.Replies.Load(ctx, endedKey(key))
	if !ok {
		return nil
	}
	return readEnded(key, blob)
}

func readEnded(key EntryKey, blob []byte) *Record {
	rec := &Record{Key: key, AsTold: AsTold{Form: RecordForm, Saved: &SavedMessage{}}}
	var binding, source, taskState, last, body string
	rest, whole := idempotency.ReadTexts(blob,
		&binding, &source, &rec.TaskID, &rec.Context, &rec.Task.ContextID, &taskState, &rec.Workflow,
		&last, &rec.Saved.Version, &rec.Saved.Form, &body,
	)
	if !whole {
		return nil
	}
	var history string
	_, _ = idempotency.ReadTexts(rest, &rec.Saved.Media, &history) // which earlier versions did not write
	_ = json.Unmarshal([]byte(history), &rec.Task.History)
	rec.Binding, rec.Source, rec.Last = canonical.Binding(binding), canonical.Binding(source), ect.ID(last)
	rec.Task.ID, rec.Task.Status.State, rec.Saved.Body = key.ID, canonical.State(taskState), []byte(body)
	return rec
}

// Tasks that ended with their first reply are found by name alone. So that their caller
// can list them too, each replica keeps lists of their names among the replies: one that
// is being filled, the head, and behind it full lists with numbers. Which replicas have a
// list is among the entries, written once in a while. Where replicas share the replies, a
// list is written before its task is answered; else a moment later, once for all that came
// meanwhile, and before this process reads it.

const (
	listSize   = 4       // names in a full list; the head has up to twice as many
	maxLists   = 1024    // full lists that are read of one replica
	maxIndexed = 1 << 14 // callers and agents of which this replica keeps lists
	listHead   = ect.ID("")
	lateRest   = 250 * time.Millisecond // how much later lists are written that no other replica reads
)

// endedTask is a task that ended with its first reply, as far as lists show it.
type endedTask struct {
	ID, Context string
	State       canonical.State
	At          time.Time
}

// recentTasks is the head of one caller's ended tasks at one agent.
type recentTasks struct {
	mu         sync.Mutex
	written    *sync.Cond
	tasks      []endedTask
	full       int // lists that were filled
	added      int // tasks, ever
	saved      int // of those, how many other replicas see
	busy       bool
	registered time.Time // when this replica last said that it has a list
	used       time.Time
}

// recentIndex is the lists of this replica.
type recentIndex struct {
	mu    sync.Mutex
	of    map[string]*recentTasks
	swept time.Time
	late  map[string]*recentTasks // with tasks that are not written yet; nil: there are none
	timed bool                    // they will be written, or that is under way
}

// leave leaves a list to be written later. It reports whether the caller has to see to that.
func (i *recentIndex) leave(group string, recent *recentTasks) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.late == nil {
		i.late = map[string]*recentTasks{}
	}
	i.late[group] = recent
	first := !i.timed
	i.timed = true
	return first
}

// again reports whether lists came while others were written.
func (i *recentIndex) again() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.timed = i.late != nil
	return i.timed
}

// takeLate gives what was left.
func (i *recentIndex) takeLate() map[string]*recentTasks {
	i.mu.Lock()
	defer i.mu.Unlock()
	taken := i.late
	i.late = nil
	return taken
}

// known is the list of a group; nil: there is none.
func (i *recentIndex) known(group string) *recentTasks {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.of[group]
}

// find is the list of a group; nil: there are too many.
func (i *recentIndex) find(group string, now time.Time) *recentTasks {
	i.mu.Lock()
	defer i.mu.Unlock()
	found := i.of[group]
	if found == nil {
		if len(i.of) >= maxIndexed {
			i.sweep(now)
		}
		if len(i.of) >= maxIndexed {
			return nil
		}
		if i.of == nil {
			i.of = map[string]*recentTasks{}
		}
		found = &recentTasks{}
		found.written = sync.NewCond(&found.mu)
		i.of[group] = found
	}
	found.used = now
	return found
}

// sweep forgets lists of which nothing is kept any more. Their numbers begin anew.
func (i *recentIndex) sweep(now time.Time) {
	if now.Sub(i.swept) < EndedLife/10 {
		return
	}
	i.swept = now
	maps.DeleteFunc(i.of, func(_ string, one *recentTasks) bool { return now.Sub(one.used) > EndedLife })
}

// addEnded puts a task on the list. When it returns, other replicas find the task, if there are any.
func (s *Store) addEnded(ctx context.Context, rec *Record) {
	now := s.deps.Now()
	recent := s.recent.find(rec.Key.Group, now)
	if recent == nil {
		return
	}
	recent.mu.Lock()
	recent.tasks = append(recent.tasks, endedTask{rec.Key.ID, rec.Task.ContextID, rec.Task.Status.State, now})
	recent.added++
	recent.mu.Unlock()
	if _, shared := s.deps.Replies.(idempotency.ConfirmedStore); shared {
		s.writeAll(ctx, recent, rec.Key.Group)
	} else if s.recent.leave(rec.Key.Group, recent) {
		s.flushLater(context.WithoutCancel(ctx))
	}
}

// flushLater flushes after a moment, again and again while more comes; one at a time, however slow
// the disk is.
func (s *Store) flushLater(ctx context.Context) {
	time.AfterFunc(lateRest, func() {
		s.Flush(ctx)
		if s.recent.again() {
			s.flushLater(ctx)
		}
	})
}

// Flush writes the lists of ended tasks that were left for later.
func (s *Store) Flush(ctx context.Context) {
	for group, recent := range s.recent.takeLate() {
		s.writeAll(ctx, recent, group)
	}
}

// writeAll writes what has come to a list, or waits until it is written.
func (s *Store) writeAll(ctx context.Context, recent *recentTasks, group string) {
	recent.mu.Lock()
	defer recent.mu.Unlock()
	for mine := recent.added; recent.saved < mine; {
		if recent.busy { // the writer takes along what has come meanwhile
			recent.written.Wait()
			continue
		}
		s.writeRecent(ctx, recent, group, s.deps.Now())
	}
}

// writeRecent writes the head, and what is full of it as a list of its own. It is called
// with the lock, which it gives away meanwhile.
func (s *Store) writeRecent(ctx context.Context, recent *recentTasks, group string, now time.Time) {
	type list struct {
		id   ect.ID
		blob []byte
	}
	var lists []list
	for len(recent.tasks) > 2*listSize { // many may have come meanwhile
		lists = append(lists, list{listID(recent.full), appendTasks(nil, 0, recent.tasks[:listSize])})
		recent.tasks = append([]endedTask(nil), recent.tasks[listSize:]...)
		recent.full++
	}
	lists = append(lists, list{listHead, appendTasks(nil, recent.full, recent.tasks)})
	register := now.Sub(recent.registered) > EndedLife/2
	upTo := recent.added
	recent.busy = true
	recent.mu.Unlock()
	for _, one := range lists {
		s.deps.Replies.Finish(ctx, listKey(group, s.deps.Replica, one.id), one.blob, now.Add(EndedLife))
	}
	if register {
		register = s.register(ctx, group, now)
	}
	recent.mu.Lock()
	if recent.busy, recent.saved = false, upTo; register {
		recent.registered = now
	}
	recent.written.Broadcast()
}

// register says that this replica has a list of a group.
func (s *Store) register(ctx context.Context, group string, now time.Time) bool {
	key := EntryKey{Kind: kindEnded, Group: group, ID: s.deps.Replica}
	entry, _, err := s.deps.Entries.Get(ctx, key)
	if err == nil {
		_, _, err = s.deps.Entries.Swap(ctx, key, entry.Revision, []byte("{}"), now.Add(2*EndedLife))
	}
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "ended tasks not listed", slog.Any("error", err))
	}
	return err == nil
}

func listID(n int) ect.ID { return ect.ID(strconv.Itoa(n)) }

// listKey is where a list is kept among the replies. No issuer of tokens has such a name.
func listKey(group, replica string, id ect.ID) ect.ReplayKey {
	return ect.ReplayKey{Issuer: ect.Identity("ended\x00" + group), Workflow: replica, ID: id}
}

// visitEnded visits the tasks of a group that ended with their first reply.
func (s *Store) visitEnded(ctx context.Context, group string, visit func(endedTask)) error {
	if own := s.recent.known(group); own != nil {
		s.writeAll(ctx, own, group)
	}
	replicas, err := s.deps.Entries.List(ctx, kindEnded, group, "", maxPage)
	if err != nil {
		return err
	}
	oldest := s.deps.Now().Add(-EndedLife)
	for _, replica := range replicas {
		id := listHead
		for n, lists := 0, 0; lists <= maxLists; lists++ {
			blob, ok := s.deps.Replies.Load(ctx, listKey(group, replica.Key.ID, id))
			full, tasks := readTasks(blob)
			if !ok || len(tasks) == 0 || tasks[len(tasks)-1].At.Before(oldest) {
				break
			}
			for _, task := range tasks {
				visit(task)
			}
			if id == listHead {
				n = full
			}
			if n--; n < 0 {
				break
			}
			id = listID(n)
		}
	}
	return nil
}

func appendTasks(b []byte, full int, tasks []endedTask) []byte {
	size := binary.MaxVarintLen64
	for _, t := range tasks {
		size += 4*binary.MaxVarintLen32 + len(t.ID) + len(t.Context) + len(t.State)
	}
	b = slices.Grow(b, size)
	b = binary.AppendUvarint(b, uint64(full)) //nolint:gosec // a count
	for _, t := range tasks {
		b = binary.AppendVarint(b, t.At.UnixNano())
		b = idempotency.AppendTexts(b, t.ID, t.Context, string(t.State))
	}
	return b
}

// readTasks reads what appendTasks wrote, as far as it can be read.
func readTasks(b []byte) (full int, tasks []endedTask) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil
	}
	for b = b[n:]; len(b) > 0; {
		at, n := binary.Varint(b)
		if n <= 0 {
			break
		}
		var t endedTask
		var taskState string
		rest, whole := idempotency.ReadTexts(b[n:], &t.ID, &t.Context, &taskState)
		if !whole {
			break
		}
		t.At, t.State, b = time.Unix(0, at), canonical.State(taskState), rest
		tasks = append(tasks, t)
	}
	return int(count), tasks //nolint:gosec // one of ours
}
