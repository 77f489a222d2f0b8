package rollback

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/aepb/aepb-gateway/ect"
)

const (
	maxName   = 2048                                   // bytes of an identity or a name
	maxID     = 128                                    // bytes of an id
	maxStep   = maxToken + 32<<10                      // bytes of an encoded step
	maxRecord = MaxSteps*maxStep + 3*maxToken + 64<<10 // bytes of an encoded journal
	maxTerm   = 1 << 53                                // beyond it a store's scripts would round
)

// head begins an encoded journal, with Version.
const head = `{"version":1,`

// Encode writes a journal as JSON, equal journals as equal bytes. A journal that [Begin] and [Journal.Next] cannot make
// is a [*RecordError].
func (j Journal) Encode() ([]byte, error) {
	j.Accepted, j.By, j.Ended = instant(j.Accepted), instant(j.By), instant(j.Ended)
	if problem := j.check(); problem != "" {
		return nil, &RecordError{problem}
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, &RecordError{"a time is outside the years 1 to 9999"} // all else can be written
	}
	return slices.Concat([]byte(head), text[1:]), nil
}

// Decode reads what [Journal.Encode] writes, and nothing else: the text is written again and compared, so that no
// member is unknown, stands twice, or is written otherwise. Its error is a [*RecordError].
func Decode(text []byte) (Journal, error) {
	if len(text) > maxRecord {
		return Journal{}, &RecordError{"longer than " + strconv.Itoa(maxRecord) + " bytes"}
	}
	var j Journal
	if err := json.Unmarshal(text, &j); err != nil {
		return Journal{}, &RecordError{"not one JSON object, or a member is not of its type"}
	}
	var form struct{ Version int }
	if err := json.Unmarshal(text, &form); err != nil || form.Version != Version {
		return Journal{}, &RecordError{"version is not " + strconv.Itoa(Version)}
	}
	again, err := j.Encode()
	if err != nil {
		return Journal{}, err
	}
	if !bytes.Equal(again, text) {
		return Journal{}, &RecordError{"a member is unknown, stands twice, or is not written as this program writes it"}
	}
	j.Accepted, j.By, j.Ended = instant(j.Accepted), instant(j.By), instant(j.Ended)
	return j, nil
}

// check says what is wrong with a journal; empty: nothing.
func (j Journal) check() string {
	named := isName(j.Workflow, maxID) && isName(string(j.From), maxID) && isName(string(j.Request), maxID) && isName(string(j.Issuer), maxName)
	switch {
	case j.Term == 0 || j.Term > maxTerm:
		return "term is zero or too high"
	case !named:
		return "workflow, from, request or issuer is empty, too long, or has control characters"
	case !isName(j.Runner, maxRunner):
		return "runner is empty, longer than 256 bytes, or has control characters"
	case j.Accepted.IsZero() || j.By.Before(j.Accepted):
		return "accepted is missing, or by is before it"
	case j.Steps == nil || len(j.Steps) > MaxSteps:
		return "steps are missing, or more than " + strconv.Itoa(MaxSteps)
	}
	return cmp.Or(j.checkReview(), j.checkSteps(), j.checkTokens(), j.checkEnd())
}

// checkReview says what is wrong with the review; empty: nothing.
func (j Journal) checkReview() string {
	_, open := j.current()
	begun := slices.ContainsFunc(j.Steps, func(p Progress) bool { return p.Request != "" })
	switch {
	case !slices.Contains([]Review{"", ReviewWanted, ReviewPaused, ReviewReleased, ReviewDeclined}, j.Review):
		return "review is not wanted, paused, released or declined"
	case begun && j.Review != "" && j.Review != ReviewReleased, open && j.Review == ReviewDeclined:
		return "review does not fit the steps"
	}
	return ""
}

// checkSteps checks each step, that they were undone one after the other, and each checkpoint once.
func (j Journal) checkSteps() string {
	seen := make(map[ect.ID]bool, len(j.Steps))
	begun := true // the steps before this one have ended
	for i, p := range j.Steps {
		problem := cmp.Or(p.checkWay(), p.checkRequest(), p.checkAnswer())
		switch {
		case problem != "":
		case seen[p.Checkpoint]:
			problem = "its checkpoint stands twice"
		case !begun && p.Request != "":
			problem = "it began before its turn"
		}
		if problem != "" {
			return "step " + strconv.Itoa(i) + ": " + problem
		}
		seen[p.Checkpoint] = true
		begun = begun && p.State.ended() && p.State != StepFailed
	}
	return ""
}

// states are those that a step can have, by how it is undone.
func (h How) states() []StepState {
	switch h {
	case ByAgent, ByCall:
		return []StepState{StepWaiting, StepSent, StepCompleted, StepFailed, StepEscalated}
	case Nothing:
		return []StepState{StepSkipped}
	case Never:
		return []StepState{StepEscalated}
	default:
		return nil
	}
}

// checkWay says what is wrong with what is undone, how, and how far it is; empty: nothing.
func (p Progress) checkWay() string {
	switch {
	case !isName(string(p.Checkpoint), maxID) || !isName(string(p.Action), maxID) || p.Agent != "" && !isName(p.Agent, maxName):
		return "checkpoint, action or agent is empty, too long, or has control characters"
	case p.How.states() == nil:
		return "how is not agent, compensation, nothing or irreversible"
	case !slices.Contains(p.How.states(), p.State):
		return "its state does not fit how it is undone"
	}
	return ""
}

// checkRequest says what is wrong with the request of a step; empty: nothing.
func (p Progress) checkRequest() string {
	needed := slices.Contains([]StepState{StepSent, StepCompleted, StepFailed}, p.State)
	allowed := needed || p.isLeft()
	switch {
	case p.Request == "" && needed || p.Request != "" && !(allowed && isToken(p.Request)):
		return "request is missing, is there too early, or is no compact token"
	case p.Tries < 0 || p.Tries > MaxTries || (p.Tries > 0) != (p.Request != ""):
		return "tries do not fit request"
	}
	return ""
}

// isLeft reports whether the step could be undone, and is left to a human.
func (p Progress) isLeft() bool { return p.State == StepEscalated && p.How.sends() }

// checkAnswer says what is wrong with what became of a step; empty: nothing.
func (p Progress) checkAnswer() string {
	switch {
	case p.Restored != "" && (p.State != StepCompleted || !isHash(p.Restored)):
		return "restored is no hash, or the step is not completed"
	case p.Reason != text(p.Reason) || p.Reason != "" && p.State != StepFailed && p.State != StepEscalated:
		return "reason is too long, or the step neither failed nor is escalated"
	}
	return ""
}

// checkTokens holds the tokens about the time and for a human against the steps.
func (j Journal) checkTokens() string {
	_, open := j.current()
	left, declined := slices.ContainsFunc(j.Steps, Progress.isLeft), j.Review == ReviewDeclined
	switch {
	case j.Error != "" && (!isToken(j.Error) || declined) || left != (j.Error != "" || declined) || left && open:
		return "error is no compact token, or does not fit the steps"
	case j.Escalation != "" && (!isToken(j.Escalation) || open || !j.needsHuman()):
		return "escalation is no compact token, or does not fit the steps"
	}
	return ""
}

// checkEnd holds the end against the steps.
func (j Journal) checkEnd() string {
	_, open := j.current()
	ended := j.Status != ""
	switch {
	case ended != isToken(j.Result) || !ended && j.Result != "" || ended == j.Ended.IsZero():
		return "result, status and ended do not fit each other"
	case ended && (open || j.Status != j.Outcome() || j.needsHuman() && j.Escalation == ""):
		return "status does not fit the steps"
	}
	return ""
}
