package stream

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Bounds of what a stream may add up to (R11).
const (
	MaxArtifacts = 1024
	MaxParts     = 16 << 10 // of all artifacts
	MaxBytes     = 16 << 20 // of all content
)

// ErrTooMuch ends a stream whose events hold more than the limit.
var ErrTooMuch = errors.New("stream: too many bytes or parts in all events: send fewer")

// Folder adds the events of one stream up. Its zero value is empty.
type Folder struct {
	// Join makes text that is appended to an artifact one part with the text that the
	// artifact ends with, as the agent means it (A2A, append of TaskArtifactUpdateEvent).
	// It is for readers whose protocol has no chunks. Parts that come together stay apart,
	// and what follows on a part of 256 KiB begins another.
	Join bool

	task   *canonical.Task
	turn   *canonical.Content
	parts  int
	size   int
	joined map[string]bool // the artifacts, by id, that have such a part
	empty  bool            // artifacts have no content
}

// Size is how many bytes of content it holds.
func (f *Folder) Size() int { return f.size }

// Forget drops the content of all artifacts, of those that come later too. It is for readers that were
// told it as it came.
func (f *Folder) Forget() {
	f.empty, f.joined, f.parts, f.size = true, nil, 0, 0
	if f.task != nil {
		task := f.Task()
		for i := range task.Artifacts {
			task.Artifacts[i].Parts = nil
		}
		f.task = task
	}
}

// Add takes the next event; where it belongs stands in the conversation that
// came with it. ErrTooMuch: it would not fit any more, and was not taken.
func (f *Folder) Add(e *canonical.Event, at canonical.Conversation) error {
	parts, size := weigh(e)
	if e.Task == nil { // which takes the place of all that was there
		oldParts, oldSize := f.replaced(e.Artifact)
		parts, size = f.parts+parts-oldParts, f.size+size-oldSize
	}
	if parts > MaxParts || size > MaxBytes || f.artifacts(e) > MaxArtifacts {
		return ErrTooMuch
	}
	f.parts, f.size = parts, size
	if f.empty {
		defer f.Forget()
	}
	switch {
	case e.Task != nil:
		task := *e.Task
		task.Artifacts = slices.Clone(task.Artifacts)
		f.rejoin(task.Artifacts)
		f.task = &task
	case e.Turn != nil:
		f.turn = e.Turn
	case e.Status != nil:
		f.open(at)
		f.task.Status, f.task.Inputs = *e.Status, e.Inputs
	case e.Artifact != nil:
		f.open(at)
		f.artifact(e.Artifact)
	}
	return nil
}

// artifacts is how many there are with this event.
func (f *Folder) artifacts(e *canonical.Event) int {
	switch {
	case e.Task != nil:
		return len(e.Task.Artifacts)
	case e.Artifact != nil && f.task != nil && f.find(e.Artifact) < 0:
		return len(f.task.Artifacts) + 1
	default:
		return 0 // no more than before
	}
}

// replaced weighs the artifact that an update takes the place of.
func (f *Folder) replaced(u *canonical.ArtifactUpdate) (parts, size int) {
	if u == nil || u.Append || f.task == nil {
		return 0, 0
	}
	at := f.find(u)
	if at < 0 {
		return 0, 0
	}
	return weigh(&canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: f.task.Artifacts[at]}})
}

func (f *Folder) find(u *canonical.ArtifactUpdate) int {
	return slices.IndexFunc(f.task.Artifacts, func(a canonical.Artifact) bool { return a.ID == u.Artifact.ID })
}

// open makes the task of a stream that did not begin with one.
func (f *Folder) open(at canonical.Conversation) {
	if f.task == nil {
		f.task = begun(at.TaskID, at.ContextID)
	}
}

func begun(id, contextID string) *canonical.Task {
	return &canonical.Task{ID: id, ContextID: contextID, Status: canonical.Status{State: canonical.StateWorking}}
}

func (f *Folder) artifact(u *canonical.ArtifactUpdate) {
	at := f.find(u)
	switch {
	case at < 0:
		f.task.Artifacts = append(f.task.Artifacts, u.Artifact)
	case u.Append:
		whole := f.task.Artifacts[at]
		whole.Parts = f.appended(whole.ID, whole.Parts, u.Artifact.Parts)
		f.task.Artifacts[at] = whole
	default:
		delete(f.joined, u.Artifact.ID)
		f.task.Artifacts[at] = u.Artifact
	}
}

// maxJoined bounds, in bytes, the text to which chunks are added: each copies it, and
// an agent may send very many.
const maxJoined = 256 << 10

// appended is the parts of an artifact with those that came to it.
func (f *Folder) appended(id string, parts, more []canonical.Part) []canonical.Part {
	last := len(parts) - 1
	if !f.Join || last < 0 || len(more) == 0 || len(parts[last].Text) >= maxJoined || !continues(&parts[last], &more[0]) {
		return slices.Concat(parts, more)
	}
	if f.joined == nil {
		f.joined = map[string]bool{}
	}
	f.joined[id] = true // and there is such an artifact as long as this says so
	whole := parts[last]
	whole.Text += more[0].Text
	return slices.Concat(parts[:last], []canonical.Part{whole}, more[1:])
}

// continues reports whether both parts are plain text and alike in all else.
func continues(a, b *canonical.Part) bool {
	x, y := *a, *b
	if x.Kind != canonical.KindText || x.Form != canonical.FormNone {
		return false
	}
	x.Text, y.Text = "", ""
	return reflect.DeepEqual(x, y)
}

// rejoin joins in the artifacts of a snapshot what was joined when it came piece by
// piece, and the text that has come to it since.
func (f *Folder) rejoin(artifacts []canonical.Artifact) {
	joined := map[string]bool{}
	for i := range artifacts {
		a := &artifacts[i]
		if !f.joined[a.ID] {
			continue
		}
		at := f.find(&canonical.ArtifactUpdate{Artifact: *a})
		if parts := rejoined(f.task.Artifacts[at].Parts, a.Parts); parts != nil {
			a.Parts, joined[a.ID] = parts, true
		}
	}
	f.joined = joined
}

// rejoined is the parts of an artifact with those that are known joined as they were;
// nil: it is another artifact by now.
func rejoined(known, parts []canonical.Part) []canonical.Part {
	var out []canonical.Part
	for i := range known {
		n := pieces(&known[i], parts)
		if n == 0 {
			return nil
		}
		out, parts = append(out, known[i]), parts[n:]
	}
	for last := len(out) - 1; len(parts) > 0 && continues(&out[last], &parts[0]); parts = parts[1:] {
		out[last].Text += parts[0].Text
	}
	return append(out, parts...)
}

// pieces is how many of the parts, from the first on, make up the whole one; zero:
// they do not.
func pieces(whole *canonical.Part, parts []canonical.Part) int {
	rest := whole.Text
	for i := range parts {
		text := parts[i].Text
		if !continues(whole, &parts[i]) {
			if i == 0 && reflect.DeepEqual(*whole, parts[0]) {
				return 1
			}
			return 0
		}
		if !strings.HasPrefix(rest, text) {
			return 0
		}
		if rest = rest[len(text):]; rest == "" {
			return i + 1
		}
	}
	return 0
}

// Joined reports whether chunks of an artifact became one part: their boundaries are
// lost (canonical.LossChunks).
func (f *Folder) Joined() bool { return len(f.joined) > 0 }

// Task is how the task stands; nil: the stream has shown none. It is the
// caller's own but for what lies below its artifacts.
func (f *Folder) Task() *canonical.Task {
	if f.task == nil {
		return nil
	}
	task := *f.task
	task.Artifacts = slices.Clone(f.task.Artifacts)
	return &task
}

// Resume sets a task that waits for input to working, because its question was answered.
func (f *Folder) Resume() {
	if f.task != nil {
		f.task.Status, f.task.Inputs = canonical.Status{State: canonical.StateWorking}, nil
	}
}

// Result is what a caller who waited gets; nil: nothing has come yet.
func (f *Folder) Result() *canonical.Result {
	switch {
	case f.task != nil:
		return &canonical.Result{Task: f.Task()}
	case f.turn != nil:
		return &canonical.Result{Turn: f.turn}
	default:
		return nil
	}
}

// Settled reports whether no event comes before the caller acts: the task is
// terminal or waits for input, or the stream was a message (A2A 3.1.2, 11.7).
func (f *Folder) Settled() bool {
	if f.task != nil {
		return Settled(f.task.Status.State)
	}
	return f.turn != nil
}

// Settled reports whether a task in this state is terminal or waits for its caller.
func Settled(s canonical.State) bool {
	return s.Terminal() || s == canonical.StateInputRequired || s == canonical.StateAuthRequired
}

// weigh counts the parts and the bytes of an event.
func weigh(e *canonical.Event) (parts, size int) {
	count := func(list []canonical.Part) {
		parts += len(list)
		for i := range list {
			size += len(list[i].Text) + len(list[i].Data) + len(list[i].Bytes) + len(list[i].URI)
		}
	}
	switch {
	case e.Artifact != nil:
		count(e.Artifact.Artifact.Parts)
	case e.Turn != nil:
		count(e.Turn.Parts)
	case e.Task != nil:
		for i := range e.Task.Artifacts {
			count(e.Task.Artifacts[i].Parts)
		}
		for i := range e.Task.History {
			count(e.Task.History[i].Parts)
		}
	}
	return parts, size
}
