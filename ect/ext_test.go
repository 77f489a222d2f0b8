package ect_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
)

func TestExt_Thousandths(t *testing.T) {
	t.Parallel()
	for value, want := range map[int64]string{
		0: "0", 1: "0.001", 10: "0.01", 100: "0.1", 667: "0.667", 750: "0.75", 1000: "1", 1050: "1.05", 60000: "60",
		-1: "-0.001", -1500: "-1.5", math.MaxInt64: "9223372036854775.807", math.MinInt64: "-9223372036854775.808",
	} {
		e := ect.Ext{}
		e.SetThousandths("n", value)
		if got := string(e["n"]); got != want || !json.Valid(e["n"]) {
			t.Errorf("%d: got %s, want %s", value, got, want)
		}
	}
}

func TestExt_RoundTrip(t *testing.T) {
	t.Parallel()
	e := ect.Ext{"number": []byte("1"), "mixed": []byte(`["a",1]`), "null": []byte("null")}
	e.SetString("string", "quote \" é \u2028")
	e.SetBool("yes", true)
	e.SetBool("no", false)
	e.SetInt("int", -9007199254740993)
	e.SetList("list", []string{"a", "b\\"}, 0)
	if got, ok := e.String("string"); got != "quote \" é \u2028" || !ok {
		t.Errorf("got %q", got)
	}
	yes, isYes := e.Bool("yes")
	no, isNo := e.Bool("no")
	if !yes || !isYes || no || !isNo {
		t.Error("booleans differ")
	}
	if got := string(e["int"]); got != "-9007199254740993" {
		t.Errorf("got %s", got)
	}
	if got, ok := e.Strings("list"); !cmp.Equal(got, []string{"a", "b\\"}) || !ok {
		t.Errorf("got %q", got)
	}
	for _, key := range []string{"absent", "number", "mixed", "null", "yes"} {
		if _, ok := e.String(key); ok {
			t.Errorf("%s is a string", key)
		}
		if _, ok := e.Strings(key); ok {
			t.Errorf("%s is an array of strings", key)
		}
	}
	if _, ok := e.Bool("string"); ok {
		t.Error("a string is a boolean")
	}
	if _, ok := ect.Ext(nil).String("x"); ok {
		t.Error("nothing is something")
	}
}

// The keys stand in signed evidence that others read: their names are the drafts' own
// (AEPB, Translation ECT and Translation Error ECT; CPAT, Translation ECT Claims).
func TestExt_KeysOfTheDrafts(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		ect.ExtSourceProtocol:     "aepb.source_protocol",
		ect.ExtDestProtocol:       "aepb.dest_protocol",
		ect.ExtGatewayID:          "aepb.gateway_id",
		ect.ExtWarnings:           "aepb.translation_warnings",
		ect.ExtError:              "aepb.error",
		ect.ExtDescription:        "aepb.description",
		ect.ExtAgentVersion:       "aepb.agent_version",
		ect.ExtCPATSourceProtocol: "cpat.source_protocol",
		ect.ExtCPATDestProtocol:   "cpat.dest_protocol",
		ect.ExtCPATGatewayID:      "cpat.gateway_id",
		ect.ExtCPATWarnings:       "cpat.translation_warnings",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestExt_SetText(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want string }{
		"plain":        {"a message", "a message"},
		"controls":     {"a\r\nb\x00c\u0085d", "a  b c d"},
		"broken UTF-8": {"a\xffb", "a b"},
		"long":         {strings.Repeat("x", 600), strings.Repeat("x", 512)},
		"long and odd": {"x" + strings.Repeat("é", 300), "x" + strings.Repeat("é", 255)},
	} {
		e := ect.Ext{}
		e.SetText("k", tc.in)
		if got, _ := e.String("k"); got != tc.want || !utf8.ValidString(got) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestWarnings_AreBounded(t *testing.T) {
	t.Parallel()
	few := []string{"L05 dropped /a", `L06 carried /"`}
	stored, omitted, hash := ect.Warnings(few, 0)
	if !cmp.Equal(stored, few) || omitted != 0 || hash != "" {
		t.Errorf("few: got %q %d %q", stored, omitted, hash)
	}
	var many []string
	for i := range 500 {
		many = append(many, "L05 dropped /parts/"+strconv.Itoa(i)+"/é\"\n")
	}
	stored, omitted, hash = ect.Warnings(many, 0)
	whole, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	if omitted == 0 || len(stored)+omitted != len(many) || !cmp.Equal(stored, many[:len(stored)]) {
		t.Errorf("many: kept %d, omitted %d", len(stored), omitted)
	}
	if want := ect.Hash(whole); hash != want {
		t.Errorf("got hash %s, want %s", hash, want)
	}
	size := func(list []string) int { raw, _ := json.Marshal(list); return len(raw) }
	if size(stored) > 2048 || size(many[:len(stored)+1]) <= 2048 {
		t.Errorf("kept %d bytes, one more would make %d", size(stored), size(many[:len(stored)+1]))
	}
	if stored, omitted, _ := ect.Warnings([]string{strings.Repeat("x", 3000), "y"}, 0); len(stored) != 0 || omitted != 2 {
		t.Errorf("one too large: kept %d, omitted %d", len(stored), omitted)
	}
	exact := size(few)
	if _, omitted, _ := ect.Warnings(few, exact); omitted != 0 {
		t.Error("what fits exactly was cut")
	}
	if stored, omitted, _ := ect.Warnings(few, exact-1); len(stored) != 1 || omitted != 1 {
		t.Error("one byte too many was kept")
	}
	stored, _, _ = ect.Warnings(few, 0)
	stored[0] = "changed"
	if few[0] == "changed" {
		t.Error("what is kept is the caller's own list")
	}
}

func TestExt_SetWarnings(t *testing.T) {
	t.Parallel()
	e := ect.Ext{}
	e.SetWarnings(nil)
	if got := string(e[ect.ExtWarnings]); got != "[]" || len(e) != 1 {
		t.Errorf("lossless: got %v", e)
	}
	e.SetWarnings([]string{strings.Repeat("x", 2000), strings.Repeat("y", 2000)})
	if got, _ := e.Strings(ect.ExtWarnings); len(got) != 1 {
		t.Errorf("kept %d", len(got))
	}
	if got := string(e[ect.ExtWarningsOmitted]); got != "1" {
		t.Errorf("omitted %s", got)
	}
	if got, _ := e.String(ect.ExtWarningsHash); len(got) != 43 {
		t.Errorf("hash %q", got)
	}
}
