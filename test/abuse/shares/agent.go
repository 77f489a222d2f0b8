package shares

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// What a message has an agent do.
const (
	doAnnounced = "shares-announced" // answer with answerBytes and their length, at the next beat
	doChunked   = "shares-chunked"   // the same in pieces
	doFail      = "shares-fail"      // fail
	doStream    = "shares-stream"    // begin a task of many artifacts that never ends
)

const (
	answerBytes   = 12 << 20
	artifactBytes = 50 << 10
	artifacts     = 300
	mostAsked     = 16 << 10               // of a message that has an agent do any of this
	beat          = 3 * time.Second        // the moments at which large answers begin
	artifactEvery = 800 * time.Millisecond // in two minutes 7 MB of each stream
)

// Agent does what messages of attackers say, and leaves all others to the agent behind it.
func Agent(next http.Handler) http.Handler {
	text := strings.Repeat(" x", answerBytes/2)
	artifact := text[:artifactBytes]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength <= 0 || r.ContentLength > mostAsked {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asks := func(word string) bool { return bytes.Contains(body, []byte(word)) }
		switch {
		case asks(doFail):
			http.Error(w, "it fails for you", http.StatusInternalServerError)
		case asks(doAnnounced), asks(doChunked):
			begin, end := result(body, `{"content":[{"type":"text","text":"`, `"}]}`)
			answer(w, r, asks(doAnnounced), begin, text, end)
		case asks(doStream):
			stream(w, r, body, artifact)
		default:
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		}
	})
}

// result is an answer to a request of JSON-RPC, up to some text in it and from there on.
func result(request []byte, before, after string) (begin, end string) {
	var call struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal(request, &call) // it came from the gateway
	return `{"jsonrpc":"2.0","id":` + string(call.ID) + `,"result":` + before, after + "}"
}

// answer begins at the same moment as all others.
func answer(w http.ResponseWriter, r *http.Request, announced bool, parts ...string) {
	now := time.Now()
	if !wait.Pause(r.Context(), now.Truncate(beat).Add(beat).Sub(now)) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	if announced { // else net/http sends pieces
		w.Header().Set("Content-Length", strconv.Itoa(length))
	}
	for _, part := range parts {
		_, _ = io.WriteString(w, part)
	}
}

// stream gives artifacts and then says nothing until the request ends.
func stream(w http.ResponseWriter, r *http.Request, request []byte, artifact string) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	say := func(event string) bool {
		begin, end := result(request, event, "")
		_, err := fmt.Fprintf(w, "data: %s%s\n\n", begin, end)
		return err == nil && flush.Flush() == nil
	}
	task := "t-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	more := say(`{"task":{"id":"` + task + `","contextId":"c-` + task + `","status":{"state":"TASK_STATE_WORKING"}}}`)
	for i := 0; more && i < artifacts && wait.Pause(r.Context(), artifactEvery); i++ {
		more = say(`{"artifactUpdate":{"taskId":"` + task + `","contextId":"c-` + task +
			`","artifact":{"artifactId":"a-` + strconv.Itoa(i) + `","parts":[{"text":"` + artifact + `"}]}}}`)
	}
	<-r.Context().Done()
}
