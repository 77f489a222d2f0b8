package store

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// samples are values and keys as an earlier version wrote them.
type samples struct {
	Record           string   `json:"record"`
	RecordSmall      string   `json:"record_small"`
	TaskKey          EntryKey `json:"task_key"`
	TaskKeyAnonymous EntryKey `json:"task_key_anonymous"`
	ControlKey       EntryKey `json:"control_key"`
	FailoverKey      EntryKey `json:"failover_key"`
	CancelKey        EntryKey `json:"cancel_key"`
	ReplyKey         []string `json:"reply_key"`
	Reply            []byte   `json:"reply"`
	ListKey          []string `json:"list_key"`
	List             []byte   `json:"list"`
	Control          string   `json:"control"`
}

func readSamples(t *testing.T) (s samples) {
	t.Helper()
	raw, err := os.ReadFile("testdata/stored.json")
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStored_RecordIsReadAndWrittenAlike: what an earlier version wrote is read, and is
// written with the same bytes: replicas of both versions share the records.
func TestStored_RecordIsReadAndWrittenAlike(t *testing.T) {
	t.Parallel()
	s := readSamples(t)
	for name, stored := range map[string]string{"every field": s.Record, "few fields": s.RecordSmall} {
		rec, err := read(Entry{Key: s.TaskKey, Revision: 7, Value: []byte(stored)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		written, err := EncodeJSON(rec)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(stored, string(written)); diff != "" {
			t.Errorf("%s: -stored +written\n%s", name, diff)
		}
	}
	rec, err := read(Entry{Key: s.TaskKey, Revision: 7, Value: []byte(s.Record)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.ControlKey, rec.ControlKey()); diff != "" {
		t.Errorf("key of the control messages: -stored +now\n%s", diff)
	}
	if rec.Task.ID != "task-1" || rec.Saved.Verb != "GET" || rec.Queue != "box-1" || rec.Resume != ResumeState || rec.Round != 3 ||
		rec.Released != time.Minute || len(rec.Requests) != 2 || rec.Input != "hash" || !rec.Converted || len(rec.Losses) != 1 {
		t.Errorf("the record is read as %+v", rec)
	}
}

// TestStored_ReplyIsReadAndWrittenAlike: an ended task is kept like a reply.
func TestStored_ReplyIsReadAndWrittenAlike(t *testing.T) {
	t.Parallel()
	s := readSamples(t)
	rec := readEnded(s.TaskKey, s.Reply)
	if rec == nil {
		t.Fatal("the reply is not read")
	}
	if rec.Task.ID != "task-1" || rec.AgentSide != (AgentSide{Binding: "mcp", TaskID: "agent-task", Context: "agent-ctx"}) || rec.Saved.Media != "application/a2a+json" {
		t.Errorf("the reply is read as %+v", rec)
	}
	if diff := cmp.Diff(s.Reply, rec.appendReply(nil)); diff != "" {
		t.Errorf("-stored +written\n%s", diff)
	}
	for cut := range len(s.Reply) - len("\x14application/a2a+json") {
		if readEnded(s.TaskKey, s.Reply[:cut]) != nil {
			t.Errorf("the first %d bytes are read as a whole reply", cut)
		}
	}
	rec.Task.History = []canonical.Content{{ID: "m1", Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "<hello>"}}}}
	if diff := cmp.Diff(rec, readEnded(s.TaskKey, rec.appendReply(nil))); diff != "" {
		t.Errorf("with a history: -written +read\n%s", diff)
	}
	full, tasks := readTasks(s.List)
	if diff := cmp.Diff(s.List, appendTasks(nil, full, tasks)); diff != "" || full != 5 || len(tasks) != 2 {
		t.Errorf("the list has %d full lists and %d tasks: -stored +written\n%s", full, len(tasks), diff)
	}
}

// TestStored_ControlMessage: another replica may send it.
func TestStored_ControlMessage(t *testing.T) {
	t.Parallel()
	s := readSamples(t)
	var message ControlMessage
	if err := json.Unmarshal([]byte(s.Control), &message); err != nil {
		t.Fatal(err)
	}
	written, err := json.Marshal(message)
	if diff := cmp.Diff(s.Control, string(written)); diff != "" || err != nil {
		t.Errorf("%v: -stored +written\n%s", err, diff)
	}
	if len(message.Answers) != 1 || message.Answers[0].Round != 2 || message.Answers[0].Failure.Code != canonical.CodeInternal {
		t.Errorf("the message is read as %+v", message)
	}
}

// TestStored_KeysStay: replicas of both versions find the same entries.
func TestStored_KeysStay(t *testing.T) {
	t.Parallel()
	s := readSamples(t)
	task := TaskKey("spiffe://x/alice", "calculator", "task-1")
	reply, list := endedKey(task), listKey("group", "instance", listID(12))
	for name, c := range map[string][2]any{
		"task":              {s.TaskKey, task},
		"task of a guest":   {s.TaskKeyAnonymous, TaskKey("anonymous@10.0.0.1", "calculator", "task-1")},
		"failover":          {s.FailoverKey, FailoverKey(task)},
		"cancel":            {s.CancelKey, CancelKey("spiffe://x/alice", "sess", json.RawMessage(`"id-1"`))},
		"ended task":        {s.ReplyKey, []string{string(reply.Issuer), reply.Workflow, string(reply.ID)}},
		"list of the ended": {s.ListKey, []string{string(list.Issuer), list.Workflow, string(list.ID)}},
	} {
		if diff := cmp.Diff(c[0], c[1]); diff != "" {
			t.Errorf("key of %s: -stored +now\n%s", name, diff)
		}
	}
}
