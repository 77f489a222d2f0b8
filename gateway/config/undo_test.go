package config_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
)

// undoing is what an operator may say of an agent's undoing, with every key.
const undoing = `
    read_only: [search, list_bookings]
    rollback: own
    compensate:
      create_booking:
        tool: cancel_booking
        arguments: {id: {result: /id}, guest: {call: /guest}, reason: "rolled back"}
      write_file:
        before: {tool: read_file, arguments: {path: {call: /path}}}
        tool: write_file
        arguments:
          path: {call: /path}
          content: {before: /content}
      swap: {tool: swap, arguments: {a: {call: /b}, b: {call: /a}}}
`

// inAgent is a file with an agent that has these keys. They begin in line 4.
func inAgent(keys string) string {
	return "agents:\n  bookings:\n    endpoints: [{binding: mcp-v1, url: \"https://bookings.example/mcp\"}]\n    " + strings.TrimLeft(keys, "\n ")
}

func undoOf(t *testing.T, file string) directory.Undo {
	t.Helper()
	c, err := config.Parse([]byte(file))
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	return c.Directory(false)[0].Undo
}

func written(t *testing.T, rule compensation.Rule) string {
	t.Helper()
	text, err := json.Marshal(rule)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUndo_OfAnAgent: what the file says is what the directory gets.
func TestUndo_OfAnAgent(t *testing.T) {
	t.Parallel()
	u := undoOf(t, inAgent(undoing))
	if !u.Own || !u.IsReadOnly("search") || u.IsReadOnly("create_booking") {
		t.Errorf("got %+v", u)
	}
	for tool, want := range map[string]string{
		"create_booking": `{"tool":"cancel_booking","arguments":{"guest":{"call":"/guest"},"id":{"result":"/id"},"reason":"rolled back"}}`,
		"write_file":     `{"tool":"write_file","arguments":{"content":{"before":"/content"},"path":{"call":"/path"}},"before":{"tool":"read_file","arguments":{"path":{"call":"/path"}}}}`,
		"swap":           `{"tool":"swap","arguments":{"a":{"call":"/b"},"b":{"call":"/a"}}}`,
	} {
		if got := written(t, u.Compensate[tool]); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", tool, got, want)
		}
	}
	if len(u.Compensate) != 3 {
		t.Errorf("rules of %v", slices.Collect(maps.Keys(u.Compensate)))
	}
}

// TestUndo_IsLeftOut: an agent whose operator says nothing has no rule and does not roll back.
func TestUndo_IsLeftOut(t *testing.T) {
	t.Parallel()
	if u := undoOf(t, inAgent("timeout: 5s")); u.Own || u.ReadOnly != nil || u.Compensate != nil {
		t.Errorf("got %+v", u)
	}
}

// TestUndo_ValuesOfArguments: YAML is read as the JSON that it means; numbers stay as they are written.
func TestUndo_ValuesOfArguments(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		"{n: [1.50, -0, 12345678901234567890123, 1e3]}": `{"n":[1.50,-0,12345678901234567890123,1e3]}`,
		"{s: [text, \"5\", '1e3', '', \"a\\n<\\\"\"]}":  `{"s":["text","5","1e3","","a\n<\""]}`,
		"{b: [true, false], n: [null, ~, ]}":            `{"b":[true,false],"n":[null,null]}`,
		"{5: a, true: b, \"x.y'z\": c}":                 `{"5":"a","true":"b","x.y'z":"c"}`,
		"{}":                                            `{}`,
		"\n          text: |\n            two\n            lines\n          list:\n            - a: 1\n            - - b\n": `{"list":[{"a":1},["b"]],"text":"two\nlines\n"}`,
		"":             `{}`,
		"{call: \"\"}": `{"call":""}`,
	} {
		u := undoOf(t, inAgent("compensate:\n      t:\n        tool: u\n        arguments: "+yaml))
		var got strings.Builder
		encoder := json.NewEncoder(&got)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(u.Compensate["t"].Arguments); err != nil || strings.TrimSpace(got.String()) != want {
			t.Errorf("%s\ngot  %s (%v)\nwant %s", yaml, got.String(), err, want)
		}
	}
}

const toolExpected = "expected the name of a tool: text of 1 to 128 bytes without control characters"

// many is text for each of n numbers.
func many(n int, format string) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

// TestUndo_Mistakes: each has its place, and says what is expected.
func TestUndo_Mistakes(t *testing.T) {
	t.Parallel()
	rule := func(text string) string { return inAgent("compensate:\n      book: " + text) }
	for _, c := range []struct{ file, want string }{
		{inAgent("rollback: theirs"), "[4:15] agents.'bookings'.rollback: expected own, or no rollback at all"},
		{inAgent("read_only: [a, b, a]"), "[4:23] agents.'bookings'.read_only[2]: stands twice"},
		{inAgent(`read_only: [a, ""]`), "[4:20] agents.'bookings'.read_only[1]: " + toolExpected},
		{inAgent("read_only: [" + many(1025, "t%d, ") + "]"), `[4:16] agents.'bookings'.read_only: too many tools: expected at most 1024, or "*" for all`},
		{inAgent("read_only: [book]\n    compensate: {book: {tool: cancel}}"), `[4:17] agents.'bookings'.read_only[0]: "book" is in compensate too: expected it in one of them, because what changes nothing needs no undoing`},
		{inAgent("read_only: [\"*\"]\n    compensate: {book: {tool: cancel}}"), `[4:17] agents.'bookings'.read_only[0]: "*" is every tool, and compensate has some of them: expected the names of tools that change nothing`},
		{inAgent("compensate:\n" + many(257, "      t%d: {tool: u}\n")), "[5:9] agents.'bookings'.compensate: too many rules: expected at most 256"},
		{inAgent(`compensate: {"*": {tool: u}}`), "[4:23] agents.'bookings'.compensate.'*': a rule is for one tool: expected its name"},
		{inAgent(`compensate: {` + strings.Repeat("t", 129) + `: {tool: u}}`), "[4:149] agents.'bookings'.compensate.'" + strings.Repeat("t", 129) + "': " + toolExpected},
		{rule("{arguments: {}}"), "[5:13] agents.'bookings'.compensate.'book': tool is missing: expected the tool of the same agent that undoes the call"},
		{rule("{tool: cancel, before: {arguments: {}}}"), "[5:36] agents.'bookings'.compensate.'book'.before: tool is missing: expected the tool of the same agent that reads the state"},
		{rule("{tool: " + strings.Repeat("t", 129) + "}"), "[5:20] agents.'bookings'.compensate.'book'.'tool': " + toolExpected},
		{rule("{tool: cancel, undo: x}"), `[5:28] agents.bookings.compensate.book.undo: unknown field "undo"`},
		{rule("{tool: cancel, before: {tool: read, before: {}}}"), `[5:49] agents.bookings.compensate.book.before.before: unknown field "before"`},
		{rule("{tool: cancel, arguments: [1]}"), "[5:39] agents.'bookings'.compensate.'book'.'arguments': expected an object: arguments by their names"},
		{rule("{tool: cancel, arguments: {ids: [1, {result: id}]}}"), "[5:58] agents.'bookings'.compensate.'book'.'arguments'.'ids'[1].'result': expected a JSON pointer such as /id, or an empty text for the whole value, of at most 512 bytes and 32 levels"},
		{rule("{tool: cancel, arguments: {id: {before: /id}}}"), "[5:53] agents.'bookings'.compensate.'book'.'arguments'.'id'.'before': the rule reads nothing before the call: expected a member before of the rule"},
		{rule("{tool: cancel, before: {tool: r, arguments: {a/b: {result: /id}}}}"), "[5:72] agents.'bookings'.compensate.'book'.'before'.'arguments'.'a/b'.'result': it is not known before the call: expected a pointer into the call"},
		{rule("{tool: cancel, arguments: {n: 0x10}}"), `[5:43] agents.bookings.compensate.book.arguments.n: "0x10" is no number of JSON: expected one such as 12 or 0.5, or text in quotation marks`},
		{rule("{tool: cancel, arguments: {n: .inf}}"), `[5:43] agents.bookings.compensate.book.arguments.n: expected a plain value: no anchor, alias, tag, infinity or NaN`},
		{rule("{tool: cancel, arguments: {n: [!!str 5]}}"), `agents.bookings.compensate.book.arguments.n[0]: expected a plain value: no anchor, alias, tag, infinity or NaN`},
		{rule("{tool: cancel, arguments: {n: &a 5}}"), `agents.bookings.compensate.book.arguments.n: expected a plain value: no anchor, alias, tag, infinity or NaN`},
		{rule("{tool: cancel, arguments: {a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}}"), "nested too deeply: expected at most 32 objects and lists within each other"},
		{rule("{tool: cancel, arguments: {a: " + strings.Repeat("[", 90) + strings.Repeat("]", 90) + "}}"), "nested too deeply: expected at most 32 objects and lists within each other"},
		{rule("{tool: cancel, arguments: {a: " + strings.Repeat("x", 17000) + "}}"), "[5:13] agents.'bookings'.compensate.'book': it is too long: expected at most 16384 bytes"},
		{"policy: {checkpoint_ttl: 59s}", "[1:26] policy.checkpoint_ttl: whole seconds between 1m and 720h"},
		{"policy: {checkpoint_ttl: 721h}", "[1:26] policy.checkpoint_ttl: whole seconds between 1m and 720h"},
		{"policy: {checkpoint_ttl: 60.5s}", "[1:26] policy.checkpoint_ttl: whole seconds between 1m and 720h"},
	} {
		_, err := config.Parse([]byte(c.file))
		if err == nil || !strings.HasSuffix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.200s\ngot  %v\nwant %s", c.file, err, c.want)
		}
	}
}

// TestUndo_AtItsBounds: as many rules as may be.
func TestUndo_AtItsBounds(t *testing.T) {
	t.Parallel()
	if u := undoOf(t, inAgent("compensate:\n"+many(256, "      t%d: {tool: u}\n"))); len(u.Compensate) != 256 {
		t.Errorf("%d rules", len(u.Compensate))
	}
}

// TestCheckpointTTL_Bounds: a day unless the file says otherwise.
func TestCheckpointTTL_Bounds(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]time.Duration{
		"": 24 * time.Hour, "policy: {checkpoint_ttl: 0}": 24 * time.Hour, "policy: {checkpoint_ttl: 1m}": time.Minute, "policy: {checkpoint_ttl: 720h}": 720 * time.Hour,
	} {
		c, err := config.Parse([]byte(file))
		if err != nil || c.Policy.CheckpointLifetime() != want {
			t.Errorf("%s: %v, %v, expected %v", file, c.Policy.CheckpointLifetime(), err, want)
		}
	}
}
