package lifecycle_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/lifecycle"
)

const drained = `{"agent":"pricing","status":"draining","term":2,"deprecated_at":"2026-03-01T12:00:00.000000005Z",` +
	`"sunset_at":"2026-03-03T12:00:00.000000005Z","reason":"replaced by pricing-v3","by":"spiffe://example.com/operator/ana",` +
	`"at":"2026-03-03T12:00:00.000000005Z","token":"a.b_-9.c","step":"refusing"}`

// TestEncode_Form: the form is stored, so it is a contract.
func TestEncode_Form(t *testing.T) {
	t.Parallel()
	r := in(t, lifecycle.Draining)
	r.Token, r.Step = "a.b_-9.c", lifecycle.Refusing
	text, err := r.Encode()
	if err != nil || string(text) != drained {
		t.Fatalf("%s, %v", text, err)
	}
	if back, err := lifecycle.Decode(text); err != nil || back != r {
		t.Fatalf("%+v, %v", back, err)
	}
	r.FinalAt = r.At
	text, err = r.Encode()
	if back, errBack := lifecycle.Decode(text); err != nil || errBack != nil || back != r || !strings.Contains(string(text), `,"final_at":"2026-03-03T12:00:00.000000005Z",`) {
		t.Errorf("%s, %v, %v", text, err, errBack)
	}
	text, err = lifecycle.Record{}.Encode()
	if err != nil || string(text) != `{"agent":"","status":"active","term":0}` {
		t.Errorf("%s, %v", text, err)
	}
}

func TestEncode_OtherZoneIsUTC(t *testing.T) {
	t.Parallel()
	r := in(t, lifecycle.Draining)
	want, _ := r.Encode()
	r.At = r.At.In(time.FixedZone("", 7200))
	if text, err := r.Encode(); err != nil || !bytes.Equal(text, want) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	swap := func(old, with string) string {
		if !strings.Contains(drained, old) {
			t.Fatal(old)
		}
		return strings.Replace(drained, old, with, 1)
	}
	for name, text := range map[string]string{
		"nothing":                         "",
		"an array":                        "[" + drained + "]",
		"null":                            "null",
		"half of it":                      drained[:len(drained)-1],
		"two":                             drained + drained,
		"something behind":                drained + "x",
		"not UTF-8":                       swap("replaced", "\xff"),
		"too long":                        drained + strings.Repeat(" ", 64<<10),
		"an unknown member":               swap(`"term"`, `"leader":1,"term"`),
		"another case":                    swap(`"reason"`, `"Reason"`),
		"a member twice":                  swap(`"term"`, `"term":3,"term"`),
		"a member twice, escaped":         swap(`"term"`, `"\u0074erm":2,"term"`),
		"null as a member":                swap(`"a.b_-9.c"`, `null`),
		"no agent":                        swap(`"agent":"pricing",`, ""),
		"no status":                       swap(`"status":"draining",`, ""),
		"no term":                         swap(`"term":2,`, ""),
		"no term of an active one":        `{"agent":"","status":"active"}`,
		"an empty status":                 `{"agent":"","status":"","term":0}`,
		"an unknown status":               swap(`"draining"`, `"paused"`),
		"a status in other letters":       swap(`"draining"`, `"Draining"`),
		"a status that does not fit":      swap(`"draining"`, `"active"`),
		"deprecated without time":         `{"agent":"","status":"deprecated","term":1,"reason":"x","by":"y","at":"2026-03-01T12:00:00Z"}`,
		"draining without sunset":         `{"agent":"","status":"draining","term":1,"reason":"x","by":"y","at":"2026-03-01T12:00:00Z"}`,
		"retired without sunset":          `{"agent":"","status":"retired","term":1,"reason":"x","by":"y","at":"2026-03-01T12:00:00Z"}`,
		"active with sunset":              `{"agent":"","status":"active","term":0,"sunset_at":"2026-03-01T12:00:00Z"}`,
		"deprecated, term 0":              `{"agent":"","status":"deprecated","term":0,"deprecated_at":"2026-03-01T12:00:00Z"}`,
		"a token without a term":          `{"agent":"","status":"active","term":0,"token":"a.b.c"}`,
		"active with final_at":            `{"agent":"","status":"active","term":0,"final_at":"2026-03-01T12:00:00Z"}`,
		"retiring without final_at":       swap(`"refusing"`, `"retiring"`),
		"an end of an active one":         `{"agent":"","status":"active","term":0,"step":"refusing"}`,
		"a term as text":                  swap(`"term":2`, `"term":"2"`),
		"a term below 0":                  swap(`"term":2`, `"term":-1`),
		"a broken term":                   swap(`"term":2`, `"term":2.0`),
		"a term as a power":               swap(`"term":2`, `"term":2e0`),
		"a term beyond its bound":         swap(`"term":2`, `"term":9007199254740993`),
		"a time in a zone":                swap(`"at":"2026-03-03T12:00:00.000000005Z"`, `"at":"2026-03-03T12:00:00+00:00"`),
		"a time that is no text":          swap(`"at":"2026-03-03T12:00:00.000000005Z"`, `"at":1`),
		"a month 13":                      swap(`"at":"2026-03-03T12:00:00.000000005Z"`, `"at":"2026-13-03T12:00:00Z"`),
		"no time of the transition":       swap(`"at":"2026-03-03T12:00:00.000000005Z",`, ""),
		"sunset before deprecated":        swap(`"sunset_at":"2026-03-03`, `"sunset_at":"2026-02-03`),
		"a reason of two lines":           swap("replaced by", `replaced\nby`),
		"a reason with half a character":  swap("replaced by", `\ud800`),
		"no reason":                       swap(`"reason":"replaced by pricing-v3",`, ""),
		"a long reason":                   swap("replaced by", strings.Repeat("a", 501)),
		"no operator":                     swap(`"by":"spiffe://example.com/operator/ana",`, ""),
		"a long operator":                 swap("spiffe://", strings.Repeat("a", 2048)),
		"a long agent":                    swap("pricing", strings.Repeat("a", 2049)),
		"an agent with control":           swap("pricing", `a\u0000`),
		"a successor over http":           swap(`"reason"`, `"successor":"http://a.example/","reason"`),
		"a token with spaces":             swap("a.b_-9.c", "a b"),
		"a long token":                    swap("a.b_-9.c", strings.Repeat("a", 16<<10+1)),
		"an unknown step":                 swap("refusing", "resting"),
		"an empty step":                   swap(`"refusing"`, `""`),
		"a step as a number":              swap(`"refusing"`, `2`),
		"an object where a text is asked": swap(`"pricing"`, `{}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := lifecycle.Decode([]byte(text))
			if !isA[*lifecycle.RecordError](err) || r != (lifecycle.Record{}) {
				t.Fatalf("%+v, %v", r, err)
			}
			if len(err.Error()) > 120 {
				t.Error("it quotes what it refuses")
			}
		})
	}
}

// TestEncode_RefusesWhatDecodeWould: nothing gets into a store that does not come out.
func TestEncode_RefusesWhatDecodeWould(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *lifecycle.Record){
		"no term":             func(r *lifecycle.Record) { r.Term = 0 },
		"no reason":           func(r *lifecycle.Record) { r.Reason = "" },
		"an unknown status":   func(r *lifecycle.Record) { r.Status = "paused" },
		"an unknown step":     func(r *lifecycle.Record) { r.Step = lifecycle.Ended + 1 },
		"a time beyond":       func(r *lifecycle.Record) { r.SunsetAt = start.AddDate(9000, 0, 0) },
		"a zero sunset":       func(r *lifecycle.Record) { r.SunsetAt = time.Time{} },
		"an agent, not UTF-8": func(r *lifecycle.Record) { r.Agent = "\xff" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := in(t, lifecycle.Draining)
			change(&r)
			if text, err := r.Encode(); !isA[*lifecycle.RecordError](err) || text != nil {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
}

func FuzzDecode_Roundtrip(f *testing.F) {
	f.Add([]byte(drained))
	f.Add([]byte(strings.Replace(drained, `"reason"`, `"final_at":"2026-03-03T12:10:00Z","reason"`, 1)))
	f.Add([]byte(`{"agent":"","status":"active","term":0}`))
	f.Add([]byte(strings.Replace(drained, `"term"`, `"\u0074erm":2,"term"`, 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := lifecycle.Decode(text)
		if err != nil {
			if !isA[*lifecycle.RecordError](err) || r != (lifecycle.Record{}) {
				t.Fatalf("%+v, %v", r, err)
			}
			return
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatal("what decodes does not encode: ", err)
		}
		if back, err := lifecycle.Decode(again); err != nil || back != r {
			t.Fatalf("%+v became %+v, %v", r, back, err)
		}
	})
}
