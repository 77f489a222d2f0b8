package stream_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

func text(s string) canonical.Part { return canonical.Part{Kind: canonical.KindText, Text: s} }

func answer(s string) *canonical.Content {
	return &canonical.Content{Role: canonical.RoleAgent, Parts: []canonical.Part{text(s)}}
}

func status(state canonical.State, words ...string) canonical.Event {
	e := canonical.Event{Status: &canonical.Status{State: state}}
	if len(words) > 0 {
		e.Status.Message = answer(words[0])
	}
	return e
}

func artifact(id string, add, last bool, texts ...string) canonical.Event {
	a := canonical.Artifact{ID: id}
	for _, t := range texts {
		a.Parts = append(a.Parts, text(t))
	}
	return canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: a, Append: add, Last: last}}
}

var at = canonical.Conversation{TaskID: "t", ContextID: "c"}

// story is a stream of tasks from its first event to its last.
func story() []canonical.Event {
	return []canonical.Event{
		{Task: &canonical.Task{ID: "t", ContextID: "c", Status: canonical.Status{State: canonical.StateSubmitted}}},
		status(canonical.StateWorking, "reading"),
		artifact("a", false, false, "one"),
		artifact("b", false, true, "beside"),
		artifact("a", true, true, "two"),
		status(canonical.StateCompleted),
	}
}

func TestFolder_EventsAddUpToTheTask(t *testing.T) {
	var f stream.Folder
	for i, e := range story() {
		if f.Settled() {
			t.Errorf("settled before event %d", i)
		}
		if err := f.Add(&e, at); err != nil {
			t.Fatal(err)
		}
	}
	want := &canonical.Task{ID: "t", ContextID: "c", Status: canonical.Status{State: canonical.StateCompleted}, Artifacts: []canonical.Artifact{
		{ID: "a", Parts: []canonical.Part{text("one"), text("two")}}, {ID: "b", Parts: []canonical.Part{text("beside")}},
	}}
	if diff := cmp.Diff(want, f.Task()); diff != "" || !f.Settled() {
		t.Errorf("settled %v, -want +got:\n%s", f.Settled(), diff)
	}
	f.Task().Artifacts[0] = canonical.Artifact{}
	if diff := cmp.Diff(want, f.Result().Task); diff != "" {
		t.Errorf("a task that was given away changes the folder:\n%s", diff)
	}
}

func TestFolder_StreamWithoutInitialTask(t *testing.T) {
	var f stream.Folder
	e := status(canonical.StateInputRequired, "which?")
	e.Inputs = []canonical.Input{{Key: "k"}}
	if err := f.Add(&e, at); err != nil {
		t.Fatal(err)
	}
	if got := f.Task(); got.ID != "t" || got.ContextID != "c" || len(got.Inputs) != 1 || !f.Settled() {
		t.Errorf("the task is %+v", got)
	}
	f.Resume()
	if got := f.Task(); got.Status.State != canonical.StateWorking || got.Inputs != nil || f.Settled() {
		t.Errorf("after the answer the task is %+v", got)
	}
	var m stream.Folder
	_ = m.Add(&canonical.Event{Turn: answer("hello")}, at)
	if r := m.Result(); !m.Settled() || r.Turn == nil || m.Task() != nil {
		t.Error("a message is the whole of its stream")
	}
}

func TestFolder_Limits(t *testing.T) {
	var parts, bytes, artifacts stream.Folder
	many := canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: canonical.Artifact{ID: "a", Parts: make([]canonical.Part, stream.MaxParts)}}}
	large := canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: canonical.Artifact{ID: "a", Parts: []canonical.Part{
		{Kind: canonical.KindFile, Bytes: make([]byte, stream.MaxBytes)},
	}}}}
	one := artifact("b", false, false, "x")
	for name, f := range map[string]*stream.Folder{"parts": &parts, "bytes": &bytes} {
		first := many
		if name == "bytes" {
			first = large
		}
		if err := f.Add(&first, at); err != nil {
			t.Errorf("%s: what just fits is refused: %v", name, err)
		}
		if err := f.Add(&one, at); !errors.Is(err, stream.ErrTooMuch) || len(f.Task().Artifacts) != 1 {
			t.Errorf("%s: one more: %v", name, err)
		}
	}
	for i := range stream.MaxArtifacts {
		e := artifact(strconv.Itoa(i), false, true)
		if err := artifacts.Add(&e, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := artifacts.Add(&one, at); !errors.Is(err, stream.ErrTooMuch) {
		t.Errorf("one artifact more: %v", err)
	}
}

func TestDiff_LeadsFromOneTaskToAnother(t *testing.T) {
	var whole stream.Folder
	var looks []*canonical.Task
	for _, e := range story() {
		_ = whole.Add(&e, at)
		looks = append(looks, whole.Task())
	}
	for i, before := range looks {
		for j := i; j < len(looks); j++ {
			var f stream.Folder
			_ = f.Add(&canonical.Event{Task: before}, at)
			for _, e := range stream.Diff(before, looks[j]) {
				_ = f.Add(&e, at)
			}
			if diff := cmp.Diff(looks[j], f.Task()); diff != "" {
				t.Errorf("from look %d to look %d:\n%s", i, j, diff)
			}
		}
	}
	if events := stream.Diff(looks[2], looks[4]); len(events) != 2 || !events[0].Artifact.Append {
		t.Errorf("a piece that came is told as %+v", events)
	}
}

// tell shapes a stream of one way for a reader of another.
func tell(s *stream.Shaper, events []canonical.Event) (out []canonical.Event, codes []canonical.LossCode) {
	for _, e := range events {
		got, losses := s.Event(&e)
		out = append(out, got...)
		for _, l := range losses {
			codes = append(codes, l.Code)
		}
	}
	return out, codes
}

func TestShaper_TaskAsReply(t *testing.T) {
	shape := stream.Shape{From: translators.StreamsTask, To: translators.StreamsReply, Token: json.RawMessage(`"p"`)}
	got, losses := tell(stream.NewShaper(shape), story())
	progress := func(value, text string) canonical.Event {
		return canonical.Event{Progress: &canonical.Progress{Token: json.RawMessage(`"p"`), Value: json.RawMessage(value), Message: text}}
	}
	want := []canonical.Event{progress("1", "reading"), progress("2", "one"), progress("3", "two")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]canonical.LossCode{canonical.LossChunks, canonical.LossChunks}, losses); diff != "" {
		t.Errorf("losses: %s", diff)
	}
	shape.Token = nil
	got, losses = tell(stream.NewShaper(shape), story())
	if len(got) != 0 || losses[0] != canonical.LossStatusUpdates {
		t.Errorf("without a token: %+v, losing %v", got, losses)
	}
	result := &canonical.Result{Turn: answer("x")}
	if events, reply := stream.NewShaper(shape).End(result); events != nil || reply != result {
		t.Error("the reply of a stream with a reply is the reply")
	}
}

func TestShaper_ProgressOnlyGrows(t *testing.T) {
	s := stream.NewShaper(stream.Shape{From: translators.StreamsTask, To: translators.StreamsReply, Token: json.RawMessage("1")})
	var values []string
	for _, v := range []string{"0.5", "0.25", "", "1e99999", "7", "7.5", "7.25", "123456789012345678901234567890"} {
		got, _ := s.Event(&canonical.Event{Progress: &canonical.Progress{Value: json.RawMessage(v)}})
		values = append(values, string(got[0].Progress.Value))
	}
	want := []string{"0.5", "1", "2", "3", "7", "7.5", "8", "123456789012345678901234567890"}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestShaper_ReplyAsTask(t *testing.T) {
	shape := stream.Shape{From: translators.StreamsReply, To: translators.StreamsTask, TaskID: "t", ContextID: "c"}
	s := stream.NewShaper(shape)
	events, losses := tell(s, []canonical.Event{
		{Progress: &canonical.Progress{Token: json.RawMessage("9"), Value: json.RawMessage("3")}},
		{Log: &canonical.Log{Level: "info"}},
		{Native: &canonical.Native{Method: "notifications/x"}},
	})
	more, reply := s.End(&canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{text("done")}, Structured: json.RawMessage(`{"n":1}`)}})
	if reply != nil {
		t.Error("a stream of tasks has no reply")
	}
	var f stream.Folder
	for i, e := range append(events, more...) {
		if (i == 0) != (e.Task != nil) {
			t.Errorf("event %d is %+v: the task comes first, and once", i, e)
		}
		_ = f.Add(&e, at)
	}
	task := f.Task()
	if task.Status.State != canonical.StateCompleted || len(task.Artifacts) != 1 || len(task.Artifacts[0].Parts) != 2 || task.ID != "t" {
		t.Errorf("it adds up to %+v", task)
	}
	if events[1].Progress.Token != nil || len(losses) != 2 {
		t.Errorf("the agent's token is not the caller's: %+v, losing %v", events[1].Progress, losses)
	}
	failed, _ := stream.NewShaper(shape).End(&canonical.Result{Output: &canonical.Output{Failed: true, Parts: []canonical.Part{text("no")}}})
	if last := failed[len(failed)-1]; last.Status == nil || last.Status.State != canonical.StateFailed || last.Status.Message.Parts[0].Text != "no" {
		t.Errorf("a failure ends in %+v", last)
	}
	if request, _ := stream.NewShaper(shape).End(&canonical.Result{Pending: &canonical.Pending{Inputs: []canonical.Input{{Key: "k"}}}}); len(request) != 2 ||
		request[1].Status.State != canonical.StateInputRequired || request[1].Inputs[0].Key != "k" {
		t.Errorf("a question is told as %+v", request)
	}
	for _, r := range []*canonical.Result{{Turn: answer("hi")}, {Task: &canonical.Task{ID: "x"}}} {
		if events, _ := stream.NewShaper(shape).End(r); len(events) != 1 {
			t.Errorf("%+v is told in %d events", r, len(events))
		}
	}
	late := stream.NewShaper(shape)
	_ = late.Begin()
	if events, _ := late.End(&canonical.Result{Turn: answer("hi")}); len(events) != 2 || events[0].Artifact == nil || events[1].Status.State != canonical.StateCompleted {
		t.Errorf("what is said after a task has begun belongs to it: %+v", events)
	}
}

func TestQuestions_ForOthers(t *testing.T) {
	form := canonical.Input{Key: "f", Mode: canonical.ModeForm, Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)}
	free := canonical.Input{Key: "q", Mode: canonical.ModeText}
	forms := stream.Forms([]canonical.Input{free, form})
	if forms[0].Mode != canonical.ModeForm || forms[0].Schema == nil || cmp.Diff(forms[1], form) != "" {
		t.Errorf("forms: %+v", forms)
	}
	words := canonical.Answer{Key: "q", Action: canonical.Accept, Parts: []canonical.Part{text("yes")}}
	turn := stream.Turn([]canonical.Answer{words, {Action: canonical.Decline}, {Action: canonical.Accept, Value: json.RawMessage(`{}`)}})
	if len(turn.Parts) != 3 || turn.Parts[1].Text != "declined" || turn.Parts[2].Kind != canonical.KindData {
		t.Errorf("for an agent that only talks: %+v", turn.Parts)
	}
	login := &canonical.Task{Status: canonical.Status{State: canonical.StateAuthRequired, Message: &canonical.Content{Parts: []canonical.Part{
		text("log in"), {Kind: canonical.KindRef, URI: "https://id.example/"},
	}}}}
	if got := stream.Inputs(login); got[0].Mode != canonical.ModeURL || got[0].URL != "https://id.example/" {
		t.Errorf("a login is asked as %+v", got)
	}
}

func TestFolder_SnapshotReplacesTheTask(t *testing.T) {
	t.Parallel()
	var f stream.Folder
	large := canonical.Part{Kind: canonical.KindText, Text: strings.Repeat("x", stream.MaxBytes/2+1)}
	whole := func() *canonical.Event {
		return &canonical.Event{Task: &canonical.Task{Artifacts: []canonical.Artifact{{ID: "a", Parts: []canonical.Part{large}}}}}
	}
	again := &canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: canonical.Artifact{ID: "a", Parts: []canonical.Part{large}}}}
	for i, e := range []*canonical.Event{whole(), whole(), again, whole(), again} {
		if err := f.Add(e, canonical.Conversation{}); err != nil {
			t.Errorf("event %d: %v", i, err)
		}
	}
	again.Artifact.Append = true
	if err := f.Add(again, canonical.Conversation{}); !errors.Is(err, stream.ErrTooMuch) {
		t.Errorf("what does not fit: %v", err)
	}
}

// TestPlain_UndoesForms: an agent is answered in the way in which it asked.
func TestPlain_UndoesForms(t *testing.T) {
	t.Parallel()
	request := []canonical.Input{
		{Key: "reply", Mode: canonical.ModeText},
		{Key: "age", Mode: canonical.ModeForm, Schema: json.RawMessage(`{"type":"object","properties":{"age":{"type":"integer"}}}`)},
		{Key: "login", Mode: canonical.ModeURL, URL: "https://x.example"},
	}
	if got := stream.Plain(stream.Forms(request)); !cmp.Equal(got, request) {
		t.Errorf("%+v came back as %+v", request, got)
	}
}

func TestShaper_StatusChangesAsProgress(t *testing.T) {
	shape := stream.Shape{From: translators.StreamsReply, To: translators.StreamsReply, Token: json.RawMessage(`"p"`)}
	events := []canonical.Event{
		status(canonical.StateWorking, "reading"),
		{Progress: &canonical.Progress{Token: json.RawMessage(`"p"`), Value: json.RawMessage("5")}},
		{Progress: &canonical.Progress{Token: json.RawMessage(`"other"`), Value: json.RawMessage("7")}},
	}
	got, _ := tell(stream.NewShaper(shape), events)
	want := []canonical.Event{
		{Progress: &canonical.Progress{Token: shape.Token, Value: json.RawMessage("1"), Message: "reading"}},
		events[1],
		{Progress: &canonical.Progress{Token: shape.Token, Value: json.RawMessage("7")}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	shape.Relay = true
	if got, _ := tell(stream.NewShaper(shape), events); cmp.Diff(events, got) != "" {
		t.Errorf("a relay tells %+v", got)
	}
}

// TestFolder_Join: text that is appended to an artifact is one text with what it ends
// with; parts that come together stay apart, and so does what is no text.
func TestFolder_Join(t *testing.T) {
	link := canonical.Part{Kind: canonical.KindRef, URI: "https://example.com/"}
	markdown := canonical.Part{Kind: canonical.KindText, Text: "# x", Media: "text/markdown"}
	more := func(parts ...canonical.Part) canonical.Event {
		return canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: canonical.Artifact{ID: "a", Parts: parts}, Append: true}}
	}
	whole := func(state canonical.State, parts ...canonical.Part) canonical.Event {
		return canonical.Event{Task: &canonical.Task{ID: "t", ContextID: "c", Status: canonical.Status{State: state}, Artifacts: []canonical.Artifact{{ID: "a", Parts: parts}}}}
	}
	working, full := canonical.StateWorking, strings.Repeat("x", 256<<10)
	for name, test := range map[string]struct {
		events []canonical.Event
		want   []canonical.Part
		joined bool
	}{
		"chunks of text": {[]canonical.Event{artifact("a", false, false, "Hello "), more(text("wor")), more(text("ld"))}, []canonical.Part{text("Hello world")}, true},
		"a part that is full": {
			[]canonical.Event{artifact("a", false, false, full), more(text("b")), more(text("c"))},
			[]canonical.Part{text(full), text("bc")},
			true,
		},
		"parts of one chunk":          {[]canonical.Event{artifact("a", false, false, "one", "two")}, []canonical.Part{text("one"), text("two")}, false},
		"a chunk of several":          {[]canonical.Event{artifact("a", false, false, "one"), more(text(" more"), text("two"))}, []canonical.Part{text("one more"), text("two")}, true},
		"a link between":              {[]canonical.Event{artifact("a", false, false, "one"), more(link), more(text("two"))}, []canonical.Part{text("one"), link, text("two")}, false},
		"text of another media type":  {[]canonical.Event{artifact("a", false, false, "one"), more(markdown)}, []canonical.Part{text("one"), markdown}, false},
		"a snapshot of the same":      {[]canonical.Event{artifact("a", false, false, "a"), more(text("b")), whole(working, text("a"), text("b"))}, []canonical.Part{text("ab")}, true},
		"a snapshot with more":        {[]canonical.Event{artifact("a", false, false, "a"), more(text("b")), whole(working, text("a"), text("b"), text("c"), link), more(text("d"))}, []canonical.Part{text("abc"), link, text("d")}, true},
		"a snapshot of something new": {[]canonical.Event{artifact("a", false, false, "a"), more(text("b")), whole(working, text("x"), text("y"))}, []canonical.Part{text("x"), text("y")}, false},
		"only a snapshot":             {[]canonical.Event{whole(working, text("x"), text("y"))}, []canonical.Part{text("x"), text("y")}, false},
		"what takes its place":        {[]canonical.Event{artifact("a", false, false, "a"), more(text("b")), artifact("a", false, true, "c", "d")}, []canonical.Part{text("c"), text("d")}, false},
		"gone and begun anew": {
			[]canonical.Event{artifact("a", false, false, "a"), more(text("b")), {Task: &canonical.Task{ID: "t"}}, artifact("a", false, false), whole(working, text("x"), text("y"))},
			[]canonical.Part{text("x"), text("y")},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := stream.Folder{Join: true}
			plain := stream.Folder{}
			for _, e := range test.events {
				if err := errors.Join(f.Add(&e, at), plain.Add(&e, at)); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, f.Task().Artifacts[0].Parts); diff != "" || f.Joined() != test.joined {
				t.Errorf("joined %v, -want +got:\n%s", f.Joined(), diff)
			}
			if plain.Joined() {
				t.Error("a folder that does not join has joined")
			}
		})
	}
}

// TestShaper_WholeArtifactIsNoProgress: of an artifact that came at once, and was not said to
// be the last of it, the reply has all.
func TestShaper_WholeArtifactIsNoProgress(t *testing.T) {
	t.Parallel()
	chunk := func(text string, more bool) canonical.Event {
		return canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: canonical.Artifact{ID: "a", Parts: []canonical.Part{{Kind: canonical.KindText, Text: text}}}, Append: more}}
	}
	done := canonical.Event{Status: &canonical.Status{State: canonical.StateCompleted}}
	whole := canonical.Event{Task: &canonical.Task{Status: canonical.Status{State: canonical.StateCompleted}}}
	for name, c := range map[string]struct {
		events []canonical.Event
		want   int
	}{
		"ends with its status": {[]canonical.Event{chunk("all", false), done}, 0},
		"ends with the task":   {[]canonical.Event{chunk("all", false), whole}, 0},
		"goes on":              {[]canonical.Event{chunk("one", false), chunk("two", true), done}, 2},
		"two artifacts":        {[]canonical.Event{chunk("one", false), chunk("other", false), done}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shape := stream.Shape{From: translators.StreamsTask, To: translators.StreamsReply, Token: json.RawMessage(`"p"`)}
			if got, _ := tell(stream.NewShaper(shape), c.events); len(got) != c.want {
				t.Errorf("%d notices, want %d: %+v", len(got), c.want, got)
			}
		})
	}
}
