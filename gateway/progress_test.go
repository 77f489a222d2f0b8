package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// steps are so many progress notifications of an MCP tool.
func steps(from, to int, message string) (events []string) {
	for i := from; i <= to; i++ {
		events = append(events, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":%d,"message":"%s"}}`,
			i, strings.ReplaceAll(message, "#", fmt.Sprint(i))))
	}
	return events
}

// TestProgress_IsPosted: progress of an MCP tool is an update of the task's status for
// webhooks as for streams (A2A 1.0, 4.3.3: a StreamResponse of each update). Of a burst
// the last one is posted; callers of 0.3 are posted the whole task with it.
func TestProgress_IsPosted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version, message string
		want             []string // parts of the posts, in order
	}{
		"1.0":               {a2a.Version, "step #", []string{`{"task":`, `"text":"step 40"`, `"text":"step 41"`, `"COMPLETED"`}},
		"0.3":               {a2a.Version03, "step #", []string{`"kind":"task"`, `"text":"step 40"`, `"text":"step 41"`, `"completed"`}},
		"1.0 without words": {a2a.Version, "", []string{`{"task":`, `"value":40`, `"value":41`, `"COMPLETED"`}},
		"0.3 without words": {a2a.Version03, "", []string{`"kind":"task"`, `"completed"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			says := append([]string{""}, steps(1, 40, c.message)...)
			says = append(append(says, ""), steps(41, 41, c.message)...)
			says = append(says, "", result(complete))
			play(t, map[string][]scene{calling: {{events: says}}}, func(s *stage) {
				t := s.t
				call := s.asksTool(invoking, `,"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://hook.example/"}}`)
				if c.version == a2a.Version03 {
					call = s.by(a2a.Binding, a2a.Version03, `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"configuration":{"blocking":false,"pushNotificationConfig":{"url":"https://hook.example/"}},`+
						`"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"data","data":{"skill":"ask","input":{}}}]}}}`)
					call.Agent = "asker"
				}
				s.ask(t, s, call)
				for range 3 {
					<-time.After(time.Second)
					s.asker.resume <- struct{}{}
				}
				<-time.After(time.Second)
				posts, proofs := s.mails()
				at := 0
				for _, post := range posts {
					if at < len(c.want) && strings.Contains(strings.ReplaceAll(post, "TASK_STATE_", ""), c.want[at]) {
						at++
					}
				}
				if at != len(c.want) || len(posts) > len(c.want)+3 || len(proofs) != len(posts) {
					t.Errorf("posted is, of %q as far as %d:\n%s", c.want, at, strings.Join(posts, "\n"))
				}
			})
		})
	}
}

// piece is a chunk of the agent's artifact.
func piece(text string, more, last bool) string {
	return result(fmt.Sprintf(`{"artifactUpdate":{"taskId":"t1","contextId":"c1","artifact":{"artifactId":"a1","parts":[{"text":"%s"}]},"append":%t,"lastChunk":%t}}`, text, more, last))
}

// TestProgress_OfChunks: a client that asked for progress is told each chunk of an A2A agent's artifact
// as it comes (MCP, progress: the value rises with each), and has the whole artifact with the result.
func TestProgress_OfChunks(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 600)
	events := []string{
		wholeTask("WORKING", ""), piece("one ", false, false), status("WORKING", "thinking"), piece("two ", true, false),
		piece(long, true, false), piece("end", true, true), status("COMPLETED", ""),
	}
	notices := []string{"one ", "thinking", "two ", strings.Repeat("é", 512), "end"}
	for name, c := range map[string]struct {
		version string
		token   bool
	}{
		"2025-11-25":       {mcp.Legacy, true},
		"2026-07-28":       {mcp.Modern, true},
		"without progress": {mcp.Legacy, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{streaming: {{events: events, end: io.EOF}}}, func(s *stage) {
				t := s.t
				call := s.tool(askingHi)
				if c.version == mcp.Legacy {
					call = s.legacy(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":` + askingHi + `,"_meta":{}}}`)
				}
				if c.token {
					call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `"_meta":{`, `"_meta":{"progressToken":"p",`, 1))
					call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `,}`, `}`, 1))
				}
				answer := s.ask(t, s, call)
				if !c.token {
					if got := whole(t, answer); strings.Contains(got, "notifications/progress") || !strings.Contains(got, "one two "+long+"end") {
						t.Errorf("told is %s", got)
					}
					return
				}
				bodies, _ := read(t, answer.Events())
				if len(bodies) != len(notices)+1 || !strings.Contains(bodies[len(bodies)-1], `"text":"one two `+long+`end"`) {
					t.Fatalf("told is %s", bodies)
				}
				for i, text := range notices {
					var notice struct {
						Method string
						Params struct {
							ProgressToken, Message string
							Progress               int
						}
					}
					if err := json.Unmarshal([]byte(bodies[i]), &notice); err != nil || notice.Method != "notifications/progress" ||
						notice.Params.ProgressToken != "p" || notice.Params.Progress != i+1 || notice.Params.Message != text {
						t.Errorf("%d: told is %s", i, bodies[i])
					}
				}
			})
		})
	}
}
