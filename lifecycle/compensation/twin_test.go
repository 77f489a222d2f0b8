package compensation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/lifecycle/compensation"
)

// errMissing is the twin's word for a value that is not there.
var errMissing = errors.New("missing")

// tree decodes JSON whose numbers stay as they are written.
func tree(t testing.TB, raw []byte) (value any) {
	t.Helper()
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	if err := in.Decode(&value); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return value
}

// text writes a tree: encoding/json sorts members.
func text(t testing.TB, value any) string {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// twinAt follows a pointer by its definition (RFC 6901, 4).
func twinAt(value any, pointer string) (any, error) {
	if pointer == "" {
		return value, nil
	}
	name, rest, more := strings.Cut(pointer[1:], "/")
	if more {
		rest = "/" + rest
	}
	name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	switch v := value.(type) {
	case map[string]any:
		if child, ok := v[name]; ok {
			return twinAt(child, rest)
		}
	case []any:
		if i, err := strconv.Atoi(name); err == nil && strconv.Itoa(i) == name && i >= 0 && i < len(v) {
			return twinAt(v[i], rest)
		}
	}
	return nil, errMissing
}

// twinFill fills a decoded template.
func twinFill(template any, sources map[string]any, outermost bool) (any, error) {
	switch v := template.(type) {
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			filled, err := twinFill(element, sources, false)
			if err != nil {
				return nil, err
			}
			out[i] = filled
		}
		return out, nil
	case map[string]any:
		each, isList := v["each"].(string)
		for _, from := range []string{"call", "result", "before"} {
			at, ok := v[from].(string)
			if !ok || len(v) > 2 || len(v) == 2 && !isList {
				continue
			}
			source, known := sources[from]
			if !known {
				return nil, errMissing
			}
			found, err := twinAt(source, at)
			if err != nil || !isList {
				return found, err
			}
			list, ok := found.([]any)
			if !ok {
				return nil, errMissing
			}
			out := []any{}
			for _, element := range list {
				one, err := twinAt(element, each)
				if err != nil {
					return nil, err
				}
				out = append(out, one)
			}
			return out, nil
		}
		if constant, ok := v["value"]; ok && len(v) == 1 && !outermost {
			return constant, nil
		}
		out := map[string]any{}
		for name, member := range v {
			filled, err := twinFill(member, sources, false)
			if err != nil {
				return nil, err
			}
			out[name] = filled
		}
		return out, nil
	default:
		return template, nil
	}
}

var twinNames = []string{"a", "b", "a/b", "~", "0", "1"}

// randomValue is a value of few names, so that pointers often find something.
func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case n < 3 && depth > 0:
		out := map[string]any{}
		for range r.IntN(4) {
			out[twinNames[r.IntN(len(twinNames))]] = randomValue(r, depth-1)
		}
		return out
	case n < 5 && depth > 0:
		out := []any{}
		for range r.IntN(3) {
			out = append(out, randomValue(r, depth-1))
		}
		return out
	case n == 5:
		return nil
	case n == 6:
		return json.Number([]string{"0", "1.00", "12345678901234567890", "-1e9"}[r.IntN(4)])
	default:
		return []string{"x", "é<", ""}[r.IntN(3)]
	}
}

func randomPointer(r *rand.Rand) string {
	var out strings.Builder
	for range r.IntN(3) {
		out.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(twinNames[r.IntN(len(twinNames))]))
	}
	return out.String()
}

// randomTemplate is an object, or with a number other than 0 of levels above it any value.
func randomTemplate(r *rand.Rand, above int) any {
	switch n := r.IntN(10); {
	case n < 4 && above > 0:
		ref := map[string]any{[]string{"call", "result", "before"}[r.IntN(3)]: randomPointer(r)}
		if r.IntN(3) == 0 {
			ref["each"] = randomPointer(r)
		}
		return ref
	case n == 4:
		return map[string]any{"value": randomTemplate(r, above+1)}
	case above > 0 && n < 6 || above > 3:
		return randomValue(r, 1)
	case above > 0 && n == 6:
		return []any{randomTemplate(r, above+1), randomTemplate(r, above+1)}
	default:
		out := map[string]any{}
		for range r.IntN(4) {
			out[append(twinNames, "call", "result", "value")[r.IntN(len(twinNames)+3)]] = randomTemplate(r, above+1)
		}
		return out
	}
}

// TestFill_Twin: random templates and values are filled as a second implementation over decoded trees fills them.
// AEPB_STEPS sets how many.
func TestFill_Twin(t *testing.T) {
	t.Parallel()
	steps, err := strconv.Atoi(os.Getenv("AEPB_STEPS"))
	if err != nil {
		steps = 20_000
	}
	filled, missing := 0, 0
	for seed := range uint64(steps) {
		r := rand.New(rand.NewPCG(seed, 1))
		written := text(t, randomTemplate(r, 0))
		var tmpl compensation.Template
		if json.Unmarshal([]byte(written), &tmpl) != nil {
			continue // an object such as {"call": 1}
		}
		var v compensation.Values
		sources := map[string]any{}
		for name, raw := range map[string]*json.RawMessage{"call": &v.Call, "result": &v.Result, "before": &v.Before} {
			if value := text(t, randomValue(r, 4)); r.IntN(10) > 0 {
				*raw, sources[name] = json.RawMessage(value), tree(t, []byte(value))
			}
		}
		got, err := tmpl.Fill(v)
		want, wantErr := twinFill(tree(t, []byte(written)), sources, true)
		if _, isMissing := errors.AsType[*compensation.MissingError](err); isMissing != (wantErr != nil) || err != nil && !isMissing {
			t.Fatalf("seed %d: %s\ngot  %v\nwant %v", seed, written, err, wantErr)
		}
		if err != nil {
			missing++
			continue
		}
		filled++
		if string(got) != text(t, want) {
			t.Fatalf("seed %d: %s of %s\ngot  %s\nwant %s", seed, written, fmt.Sprint(sources), got, text(t, want))
		}
	}
	if filled < steps/10 || missing < steps/10 {
		t.Errorf("%d of %d were filled, %d had a missing value: expected a tenth of each", filled, steps, missing)
	}
}
