package rollback

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
)

const (
	maxCascaded = 256  // entries
	maxAgent    = 2048 // bytes of an agent's name
)

// Result is what an atd:rollback_result says.
type Result struct {
	Status     Status
	Checkpoint ect.ID
	OutHash    string        // of the restored state; empty: not said
	Cascaded   []AgentStatus // at most 256
}

// ParseResult reads the claims of an atd:rollback_result that was verified, or that is on record (ATD, Basic Rollback).
// An absent atd.cascaded is an empty one. Its error is a [*ResultError].
func ParseResult(c ect.Claims) (Result, error) {
	status, _ := c.Ext.String(ect.ExtStatus)
	of, _ := c.Ext.String(ect.ExtCheckpointID)
	out := Result{Status: Status(status), Checkpoint: ect.ID(of), OutHash: c.OutputHash}
	var ok bool
	out.Cascaded, ok = parseCascaded(c.Ext[ect.ExtCascaded])
	switch {
	case c.Act != ect.ActRollbackResult:
		return Result{}, &ResultError{"exec_act", string(ect.ActRollbackResult)}
	case !out.Status.valid():
		return Result{}, &ResultError{ect.ExtStatus, "completed, partial, escalated or failed"}
	case !out.Checkpoint.Valid():
		return Result{}, &ResultError{ect.ExtCheckpointID, "the id of the checkpoint, a UUID"}
	case !ok:
		return Result{}, &ResultError{ect.ExtCascaded, `a list of at most 256 {"agent": NAME, "status": STATUS}`}
	}
	return out, nil
}

func (s Status) valid() bool {
	switch s {
	case StatusCompleted, StatusPartial, StatusEscalated, StatusFailed:
		return true
	default:
		return false
	}
}

// parseCascaded reads a list of agents. encoding/json alone would take a member twice, in any case of letters.
func parseCascaded(raw json.RawMessage) (list []AgentStatus, ok bool) {
	if raw == nil {
		return nil, true
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	if open, err := in.Token(); err != nil || open != json.Delim('[') {
		return nil, false
	}
	for in.More() {
		entry, ok := parseAgent(in)
		if !ok || len(list) == maxCascaded {
			return nil, false
		}
		list = append(list, entry)
	}
	if _, err := in.Token(); err != nil {
		return nil, false
	}
	_, err := in.Token()
	return list, errors.Is(err, io.EOF)
}

// parseAgent reads one entry: an object with the two members and no other.
func parseAgent(in *json.Decoder) (entry AgentStatus, ok bool) {
	if open, err := in.Token(); err != nil || open != json.Delim('{') {
		return entry, false
	}
	found := map[string]string{}
	for in.More() {
		key, errKey := in.Token()
		value, errValue := in.Token()
		name, _ := key.(string) // as every key is
		text, isText := value.(string)
		if _, again := found[name]; errors.Join(errKey, errValue) != nil || !isText || again {
			return entry, false
		}
		found[name] = text
	}
	if _, err := in.Token(); err != nil {
		return entry, false
	}
	entry = AgentStatus{found["agent"], Status(found["status"])}
	return entry, len(found) == 2 && isName(entry.Agent, maxAgent) && entry.Status.valid()
}

// Restores reports whether the agent restored the state of a checkpoint: the result is completed, is about that
// checkpoint, and has its hash (ATD, Checkpoint ECT Format). Its error is a [*ResultError].
func (r Result) Restores(c checkpoint.Checkpoint) error {
	switch {
	case r.Status != StatusCompleted:
		return &ResultError{ect.ExtStatus, string(StatusCompleted)}
	case r.Checkpoint != c.ID:
		return &ResultError{ect.ExtCheckpointID, "the checkpoint that was asked for, " + string(c.ID)}
	case r.OutHash == "" || r.OutHash != c.State:
		return &ResultError{"out_hash", "that of the checkpoint, " + c.State}
	}
	return nil
}
