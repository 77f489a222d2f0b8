package hitl_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

func shown(args string) hitl.Shown {
	return hitl.Shown{
		Call: call, Args: json.RawMessage(args), Workflow: "w1", Until: until, Losses: []string{"L05"},
		Demand: hitl.Demand{Rules: []string{"deletes", "r2"}, Roles: []string{"approver", "operator:oncall"}, Approvers: 2, Unreachable: hitl.DenyCall},
	}
}

// TestShow_Question: what is not about a call says nothing of a call that is sent.
func TestShow_Question(t *testing.T) {
	t.Parallel()
	s := shown(`{"steps":2}`)
	s.Grant, s.Deny = "the steps stay", "the workflow is stopped"
	got, whole := hitl.Show(s)
	want := "approve: the steps stay. Approvals needed: 2, before 2026-12-01T09:15:00Z.\ndeny: the workflow is stopped.\n" +
		"no decision until 2026-12-01T09:15:00Z: the workflow is stopped.\n"
	if !strings.Contains(got, want) || strings.Contains(got, "call is") || !whole {
		t.Errorf("%s", got)
	}
}

func TestShow_Text(t *testing.T) {
	t.Parallel()
	s := shown(`{"path":"C:\\x\u0041\n\"é","n":1.50e+3,"l":[true,null,[],{}],"o":{"z":1,"a":2}}`)
	s.Words = "please"
	got, whole := hitl.Show(s)
	want := `agent: "files"
tool: "delete_file"
operation: "invoke"
caller: "spiffe://a.example/caller"
workflow: "w1"
digest of the call: "` + call.Digest + `"
rule: "deletes"
rule: "r2"
loss: "L05"
role of each approver: "approver"
role of each approver: "operator:oncall"
approve: the call is sent once. Approvals needed: 2, before 2026-12-01T09:15:00Z.
deny: the call is not sent.
no decision until 2026-12-01T09:15:00Z: the call is not sent.
words: "please"
arguments:
{
  "path": "C:\\xA\u{000A}\"é",
  "n": 1.50e+3,
  "l": [
    true,
    null,
    [],
    {}
  ],
  "o": {
    "z": 1,
    "a": 2
  }
}
`
	if got != want || !whole {
		t.Errorf("whole %t, got:\n%s\nwant:\n%s", whole, got, want)
	}
}

func TestShow_EndOfTime(t *testing.T) {
	t.Parallel()
	for u, want := range map[hitl.Unreachable]string{
		hitl.DenyCall: "Z: the call is not sent.\n", hitl.Escalate: "operators are told before that.\n", hitl.Continue: "THE CALL IS SENT without a decision.\n",
	} {
		s := shown("")
		s.Demand.Unreachable = u
		if text, whole := hitl.Show(s); !strings.HasSuffix(text, want) || !whole {
			t.Errorf("%s: %s", u, text)
		}
	}
}

// hidden are characters that are not seen, or that change how others are seen.
func hidden(char rune) bool {
	switch {
	case char == '\n':
		return false // between lines
	case char < ' ', char == 0x7f, unicode.In(char, unicode.C, unicode.Zl, unicode.Zp, unicode.Variation_Selector, unicode.Bidi_Control):
		return true
	case unicode.Is(unicode.Zs, char) && char != ' ', unicode.Is(unicode.Other_Default_Ignorable_Code_Point, char), char == 0x2800:
		return true
	}
	return !unicode.In(char, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Zs) // not assigned
}

// TestAttack_Show_HiddenCharacters: a call hides text from its approver by characters that cannot be seen.
func TestAttack_Show_HiddenCharacters(t *testing.T) {
	t.Parallel()
	for name, char := range map[string]rune{
		"NUL": 0, "escape": 0x1b, "carriage return": '\r', "delete": 0x7f, "C1 control": 0x9b, "line feed": '\n', "next line": 0x85,
		"bidi override": 0x202e, "bidi isolate": 0x2066, "right-to-left mark": 0x200f, "Arabic letter mark": 0x61c, "zero width space": 0x200b,
		"zero width joiner": 0x200d, "word joiner": 0x2060, "byte order mark": 0xfeff, "soft hyphen": 0xad, "line separator": 0x2028,
		"paragraph separator": 0x2029, "tag": 0xe0041, "private use": 0xe000, "private use 16": 0x10fffd, "not assigned": 0x378,
		"noncharacter": 0xffff, "no-break space": 0xa0, "ideographic space": 0x3000, "Hangul filler": 0x3164, "variation selector": 0xfe0f,
		"grapheme joiner": 0x34f, "blank of Braille": 0x2800,
	} {
		quoted, err := json.Marshal("a" + string(char) + "b")
		if err != nil {
			t.Fatal(err)
		}
		escape := `a\u{` + strings.Repeat("0", max(0, 4-len(strconv.FormatInt(int64(char), 16)))) + strings.ToUpper(strconv.FormatInt(int64(char), 16)) + `}b`
		s := shown(`{` + string(quoted) + `:` + string(quoted) + `}`)
		text := "a" + string(char) + "b"
		s.Call.Agent, s.Call.Tool, s.Call.Caller, s.Call.Operation, s.Call.Address, s.Workflow, s.Words = text, text, ect.Identity(text), text, text, text, text
		s.Demand.Rules, s.Demand.Roles, s.Losses = []string{text}, []string{text}, []string{text}
		got, whole := hitl.Show(s)
		if n := strings.Count(got, `"`+escape+`"`); n != 12 || !whole || strings.ContainsFunc(got, hidden) {
			t.Errorf("%s: %d of 12 are made visible as %s:\n%q", name, n, escape, got)
		}
	}
}

// TestAttack_Show_EscapesAreNotForged: what looks like an escape, a quote or a line of ours is told from one.
func TestAttack_Show_EscapesAreNotForged(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, text := range []string{
		"\u202e", `\u{202E}`, `\\u{202E}`, "\xff", `\x{FF}`, "\u00ff", "\ufffd", `"`, `\"`, "\n", `\n`, `\u{000A}`, "x\"\ntool: \"read", "x\\\"\ntool: \"read", " ", "  ",
	} {
		s := shown("")
		s.Call.Agent = text
		got, _ := hitl.Show(s)
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q have one text:\n%s", text, other, got)
		}
		seen[got] = text
		if n := strings.Count(got, "\ntool: "); n != 1 {
			t.Errorf("%q: %d lines for the tool, want 1:\n%s", text, n, got)
		}
		if back := readLine(t, got, "agent"); back != text {
			t.Errorf("%q is read back as %q", text, back)
		}
	}
}

// TestAttack_Show_NotWhole: a call is granted of which a part is not shown.
func TestAttack_Show_NotWhole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ args, reason string }{
		"a name twice":         {`{"a":1,"a":2}`, "twice"},
		"a name twice, deep":   {`[{"b":{"a":1,"x":0,"\u0061":2}}]`, "twice"},
		"cut off":              {`{"a":1`, "no JSON"},
		"two values":           {`{"a":1} {"b":2}`, "no JSON"},
		"lone surrogate":       {`{"a":"\ud800"}`, "no JSON"},
		"no UTF-8":             {"{\"a\":\"\xff\"}", "no JSON"},
		"too deep":             {strings.Repeat("[", 129) + strings.Repeat("]", 129), "no JSON"},
		"too long":             {`{"a":"` + strings.Repeat("x", 64<<10) + `"}`, "too long"},
		"too long by escapes":  {`{"a":"` + strings.Repeat(`\u0001`, 12<<10) + `"}`, "too long"},
		"too long by indent":   {strings.Repeat("[", 120) + strings.Repeat("1,", 4000) + "1" + strings.Repeat("]", 120), "too long"},
		"too long by a number": {strings.Repeat("1", 1<<20), "too long"},
		"too long and no JSON": {strings.Repeat("x", 1<<20), "too long"},
	} {
		text, whole := hitl.Show(shown(c.args))
		if whole || !strings.Contains(text, c.reason) || !strings.Contains(text, "NOT SHOWN WHOLE") || len(text) > hitl.MaxShown {
			t.Errorf("%s: whole %t, %d bytes: %.900s", name, whole, len(text), text)
		}
	}
	if text, _ := hitl.Show(shown(`{"a":1`)); !strings.Contains(text, "arguments:\n\"{\\\"a\\\":1\"\nNOT SHOWN WHOLE") {
		t.Errorf("what is no JSON is not shown as a text alone: %s", text)
	}
	s := shown(`{}`)
	s.Call.Tool = strings.Repeat("x", 64<<10)
	if text, whole := hitl.Show(s); whole || len(text) > 1024 || !strings.Contains(text, "too long") {
		t.Errorf("a long name: whole %t, %.200s", whole, text)
	}
	s = shown(`{}`)
	s.Words = strings.Repeat("x", 1<<20)
	if text, whole := hitl.Show(s); whole || !strings.Contains(text, "words of 1048576 bytes") {
		t.Errorf("long words: whole %t, %.200s", whole, text)
	}
}

// TestShow_AtItsLimit: the longest text that is shown whole, and the next.
func TestShow_AtItsLimit(t *testing.T) {
	t.Parallel()
	empty, _ := hitl.Show(shown(`""`))
	left := hitl.MaxShown - len(empty)
	if text, whole := hitl.Show(shown(`"` + strings.Repeat("x", left) + `"`)); !whole || len(text) != hitl.MaxShown {
		t.Errorf("%d bytes, whole %t, want %d and true", len(text), whole, hitl.MaxShown)
	}
	if text, whole := hitl.Show(shown(`"` + strings.Repeat("x", left+1) + `"`)); whole {
		t.Errorf("%d bytes are shown whole", len(text))
	}
}

// plain reads a text in quotes back; rest is what follows it.
func plain(t *testing.T, quoted string) (text, rest string) {
	t.Helper()
	rest, ok := strings.CutPrefix(quoted, `"`)
	var out []byte
	for ok && rest != "" && rest[0] != '"' {
		if rest[0] != '\\' {
			out, rest = append(out, rest[0]), rest[1:]
			continue
		}
		if rest[1] == '\\' || rest[1] == '"' {
			out, rest = append(out, rest[1]), rest[2:]
			continue
		}
		code, after, _ := strings.Cut(rest[3:], "}")
		n, err := strconv.ParseUint(code, 16, 32)
		if err != nil {
			t.Fatalf("an escape that is none: %.20q", rest)
		}
		if rest[1] == 'x' {
			out = append(out, byte(n))
		} else {
			out = utf8.AppendRune(out, rune(n))
		}
		rest = after
	}
	if rest == "" {
		t.Fatalf("no text in quotes: %.40q", quoted)
	}
	return string(out), rest[1:]
}

func readLine(t *testing.T, text, label string) string {
	t.Helper()
	_, value, ok := strings.Cut("\n"+text, "\n"+label+": ")
	if !ok {
		return ""
	}
	got, _ := plain(t, value)
	return got
}

// readArguments is the JSON that a text shows.
func readArguments(t *testing.T, text string) []byte {
	t.Helper()
	_, rest, _ := strings.Cut(text, "\narguments:\n")
	var out []byte
	for rest != "" {
		if rest[0] != '"' {
			out, rest = append(out, rest[0]), rest[1:]
			continue
		}
		var value string
		value, rest = plain(t, rest)
		quoted, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, quoted...)
	}
	return out
}

// tokens is what JSON says, in its order.
func tokens(t *testing.T, data []byte) (list []json.Token) {
	t.Helper()
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	for {
		token, err := in.Token()
		if err != nil {
			return list
		}
		list = append(list, token)
	}
}

// FuzzShow_ReadsBack: no text has a hidden character, and each is read back as the call that it shows.
func FuzzShow_ReadsBack(f *testing.F) {
	f.Add([]byte(`{"a":"\u202e\\u{202E}","b":[1.0,{}]}`), "tool", "words")
	f.Add([]byte(`{"a":1,"a":"\ud800"}`), "a\xff", "\u202e")
	f.Add([]byte(` [1e5 , "\/" ] `), `\x{FF}`, "\"\nagent: \"x")
	f.Fuzz(func(t *testing.T, args []byte, tool, words string) {
		s := shown(string(args))
		s.Call.Tool, s.Words = tool, words
		text, whole := hitl.Show(s)
		if strings.ContainsFunc(text, hidden) || !utf8.ValidString(text) || len(text) > hitl.MaxShown {
			t.Fatalf("%d bytes: %q", len(text), text)
		}
		if !whole {
			if !strings.Contains(text, "NOT SHOWN WHOLE") {
				t.Fatal("a text does not say that it is not whole")
			}
			return
		}
		if got := readLine(t, text, "tool"); got != tool {
			t.Fatalf("tool %q is read back as %q", tool, got)
		}
		if got := readLine(t, text, "words"); got != words {
			t.Fatalf("words %q are read back as %q", words, got)
		}
		if len(args) > 0 && (!json.Valid(args) || !reflect.DeepEqual(tokens(t, readArguments(t, text)), tokens(t, args))) {
			t.Fatalf("arguments %q are read back as %q", args, readArguments(t, text))
		}
	})
}
