package canonical

import "encoding/json"

// Event is something that happened while a request is worked on. Exactly one
// member is set, besides Inputs and Extensions.
type Event struct {
	Task       *Task           // a snapshot of everything so far
	Turn       *Content        // a message; the whole stream where there is no task
	Status     *Status         // the task's state changed
	Artifact   *ArtifactUpdate // a result, or a piece of one, is there
	Progress   *Progress       // how far, for a progress bar
	Log        *Log            // something for the records
	Ask        *Ask            // a question; the stream waits
	Native     *Native         // a notification that only one protocol has
	Inputs     []Input         // with Status: what the task asks
	Extensions Extensions      // of the event itself
}

// ArtifactUpdate is an artifact, or the next piece of one.
type ArtifactUpdate struct {
	Artifact Artifact
	Append   bool // its parts come after those that the artifact already has
	Last     bool // nothing more comes to this artifact
}

// Progress is how far the work is. Numbers are raw.
type Progress struct {
	Token   json.RawMessage `json:",omitempty"` // which request it is about, as that one said
	Value   json.RawMessage `json:",omitempty"`
	Total   json.RawMessage `json:",omitempty"` // nil: not known
	Message string
}

// Log is one line for the records.
type Log struct {
	Level, Logger string
	Data          json.RawMessage `json:",omitempty"`
}
