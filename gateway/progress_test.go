package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/translators/a2a"
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
