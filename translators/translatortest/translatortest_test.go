package translatortest_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
	"github.com/aepb/aepb-gateway/translators/translatortest"
)

func wire(body string, re canonical.Op) translators.Wire {
	return translators.Wire{Binding: toyBinding, Version: "1", Media: "application/json", Body: []byte(body), Re: re}
}

func samples() translatortest.Samples {
	return translatortest.Samples{
		Wires: []translators.Wire{
			wire(`{"jsonrpc":"2.0","id":1,"method":"say","params":{"context":"c","mood":{"n":12345678901234567890.50},"parts":[{"text":"hello"},{"data":{"n":9007199254740993,"z":null}}]}}`, ""),
			wire(`{"jsonrpc":"2.0","method":"hush"}`, ""),
			wire(`{"jsonrpc":"2.0","id":"a","result":{"parts":[{"text":"good day"}],"turn":"t1"}}`, canonical.OpInvoke),
			wire(`{"jsonrpc":"2.0","id":"a","error":{"code":1003,"message":"no"}}`, canonical.OpInvoke),
		},
		Malformed: [][]byte{nil, []byte(`{`), []byte(`[]`), []byte(`{"jsonrpc":"2.0","id":1,"id":2,"method":"say"}`), []byte(`{"jsonrpc":"2.0","id":1,"method":"sing"}`)},
		Foreign:   foreign(),
	}
}

func foreign() []*canonical.Message {
	turn := canonical.Content{ID: "turn-7", Role: canonical.RoleCaller, Parts: []canonical.Part{
		{Kind: canonical.KindText, Text: "a question", Media: "text/plain"},
		{Kind: canonical.KindData, Data: json.RawMessage(`{"x":[9007199254740993,{}]}`), Extensions: canonical.Extensions{"other-v1": json.RawMessage(`{"k":true}`)}},
	}}
	return []*canonical.Message{
		{
			Op: canonical.OpInvoke, Phase: canonical.PhaseRequest,
			Correlation:  canonical.Correlation{WireID: json.RawMessage(`7`), MessageID: "m-7"},
			Conversation: canonical.Conversation{ContextID: "ctx", TaskID: "task"},
			Preferences:  canonical.Preferences{NoWait: true}, Deadline: time.Unix(1_800_000_000, 0),
			Trace:  canonical.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
			Body:   &canonical.Invoke{Turn: turn, Call: &canonical.Call{Name: "derived"}, Extensions: canonical.Extensions{"other-v1": json.RawMessage(`{"a":1}`)}},
			Origin: canonical.Origin{Binding: "other-v1"},
		},
		{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: &canonical.Invoke{Call: &canonical.Call{Name: "alone"}}},
		{
			Op: canonical.OpInvoke, Phase: canonical.PhaseError, Correlation: canonical.Correlation{WireID: json.RawMessage(`"x"`)},
			Body: &canonical.Error{Code: canonical.CodeTimeout, Message: "late", RetryAfter: time.Second, Native: &canonical.NativeError{Binding: "other-v1", Code: -3}},
		},
	}
}

func TestRun_CorrectTranslatorPasses(t *testing.T) {
	t.Parallel()
	translatortest.Run(t, newToy(), samples())
}

// mutant is the toy with one vice.
type mutant struct {
	toy
	decode func(toy, translators.Wire) (*canonical.Message, error)
	encode func(toy, *canonical.Message, translators.Target) (translators.Wire, []canonical.Loss, error)
}

func (u mutant) Decode(w translators.Wire) (*canonical.Message, error) {
	if u.decode == nil {
		return u.toy.Decode(w)
	}
	return u.decode(u.toy, w)
}

func (u mutant) Encode(m *canonical.Message, t translators.Target) (translators.Wire, []canonical.Loss, error) {
	if u.encode == nil {
		return u.toy.Encode(m, t)
	}
	return u.encode(u.toy, m, t)
}

// TestLaws_CatchMutants: each vice is seen by at least the law that forbids it.
// Others may see it too: who changes the argument seldom writes the same twice.
func TestLaws_CatchMutants(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		law   string
		tr    translators.Translator
		spoil func(*translatortest.Samples)
	}{
		"liar declares nothing":            {law: "honesty", tr: relosing(func([]canonical.Loss) []canonical.Loss { return nil })},
		"forgetter drops the context":      {law: "honesty", tr: forgetter()},
		"announcer calls a reply an event": {law: "identity", tr: announcer()},
		"promiser carries nothing":         {law: "honesty", tr: relosing(promise)},
		"boaster drops what arrives":       {law: "honesty", tr: relosing(boast)},
		"excuser declares everything":      {law: "honesty", tr: relosing(excuse)},
		"grumbler fails without a code":    {law: "honesty", tr: grumbler()},
		"mutator clears a field":           {law: "purity", tr: mutator()},
		"trespasser appends to a value":    {law: "purity", tr: trespasser()},
		"gambler never says it twice":      {law: "purity", tr: gambler()},
		"scribbler writes in its input":    {law: "purity", tr: scribbler()},
		"panicker":                         {law: "totality", tr: panicker()},
		"fainter panics in Encode":         {law: "totality", tr: fainter()},
		"reader knows calls alone":         {law: "totality", tr: reader()},
		"mumbler errs without a type":      {law: "totality", tr: mumbler()},
		"glutton knows no limits":          {law: "totality", tr: glutton(1<<30, 16)},
		"abyss knows no depth":             {law: "totality", tr: glutton(1<<16, 1<<20)},
		"swallower takes anything":         {law: "totality", tr: swallower()},
		"rounder uses doubles":             {law: "identity", tr: rounder()},
		"parrot repeats the raw body":      {law: "identity", tr: parrot()},
		"moaner loses on the way home":     {law: "identity", tr: relosing(func(l []canonical.Loss) []canonical.Loss { return append(l, canonical.Loss{Code: "L30"}) })},
		"inventor makes up ids":            {law: "correlation", tr: inventor()},
		"stringer turns 1 into \"1\"":      {law: "correlation", tr: stringer()},
		"optimist turns errors to good":    {law: "errors", tr: optimist()},
		"coarsener forgets the code":       {law: "errors", tr: coarsener()},
		"silencer forgets the text":        {law: "errors", tr: silencer()},
		"outlaw has a code of its own":     {law: "catalogue", tr: relosing(recode("X99", "/trace", canonical.Dropped))},
		"drifter has no place":             {law: "catalogue", tr: relosing(recode("L30", "/arguments/_meta", canonical.Dropped))},
		"fatalist knows a third fate":      {law: "catalogue", tr: relosing(recode("L30", "/trace", "misplaced"))},
		"idler brings nothing malformed":   {law: "samples", tr: newToy(), spoil: func(s *translatortest.Samples) { s.Malformed = nil }},
		"idler brings no errors":           {law: "samples", tr: newToy(), spoil: func(s *translatortest.Samples) { s.Wires = s.Wires[:3] }},
		"idler brings nothing foreign":     {law: "samples", tr: newToy(), spoil: func(s *translatortest.Samples) { s.Foreign = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := samples()
			if tc.spoil != nil {
				tc.spoil(&s)
			}
			for _, law := range translatortest.Laws() {
				if law.Name == tc.law && len(law.Check(tc.tr, s)) == 0 {
					t.Errorf("the law of %s did not notice", law.Name)
				}
			}
		})
	}
}

func TestLaws_AreComplete(t *testing.T) {
	t.Parallel()
	for _, law := range translatortest.Laws() {
		if law.Name == "" || law.Because == "" || law.Check == nil {
			t.Errorf("law %q is incomplete", law.Name)
		}
	}
}

// after changes what the toy's Encode answers with.
func after(change func(*canonical.Message, *translators.Wire, *[]canonical.Loss)) mutant {
	return mutant{toy: newToy(), encode: func(y toy, m *canonical.Message, t translators.Target) (translators.Wire, []canonical.Loss, error) {
		w, losses, err := y.Encode(m, t)
		if err == nil {
			change(m, &w, &losses)
		}
		return w, losses, err
	}}
}

func relosing(change func([]canonical.Loss) []canonical.Loss) mutant {
	return after(func(_ *canonical.Message, _ *translators.Wire, losses *[]canonical.Loss) { *losses = change(*losses) })
}

func promise(losses []canonical.Loss) []canonical.Loss {
	for i := range losses {
		losses[i].Fate = canonical.Carried
	}
	return losses
}

func boast(losses []canonical.Loss) []canonical.Loss {
	return append(losses, canonical.Loss{Code: canonical.LossIDs, Path: "/correlation/wireID", Fate: canonical.Dropped})
}

func excuse([]canonical.Loss) []canonical.Loss {
	return []canonical.Loss{{Code: canonical.LossContent, Path: "", Fate: canonical.Dropped}, {Code: canonical.LossContent, Path: "/body", Fate: canonical.Dropped}}
}

func recode(code canonical.LossCode, path string, fate canonical.Fate) func([]canonical.Loss) []canonical.Loss {
	return func(losses []canonical.Loss) []canonical.Loss {
		return append(losses, canonical.Loss{Code: code, Path: path, Fate: fate})
	}
}

// before changes a shallow copy of what the toy's Encode is given.
func before(change func(*canonical.Message)) mutant {
	return mutant{toy: newToy(), encode: func(y toy, m *canonical.Message, t translators.Target) (translators.Wire, []canonical.Loss, error) {
		other := *m
		change(&other)
		return y.Encode(&other, t)
	}}
}

func forgetter() mutant {
	return before(func(m *canonical.Message) { m.Conversation.ContextID = "" })
}

func announcer() mutant {
	return after(func(_ *canonical.Message, w *translators.Wire, _ *[]canonical.Loss) { w.Event = true })
}

func grumbler() mutant {
	return mutant{toy: newToy(), encode: func(y toy, m *canonical.Message, t translators.Target) (translators.Wire, []canonical.Loss, error) {
		w, losses, err := y.Encode(m, t)
		if err != nil {
			err = errors.New("rather not")
		}
		return w, losses, err
	}}
}

func mutator() mutant {
	return after(func(m *canonical.Message, _ *translators.Wire, _ *[]canonical.Loss) {
		if m.Preferences.NoWait { // only a foreign sample has it; the others are encoded by many at once
			m.Preferences.NoWait = false
		}
	})
}

func trespasser() mutant {
	return after(func(m *canonical.Message, _ *translators.Wire, _ *[]canonical.Loss) {
		// 0xA5 is how the law marks the room behind a value that it lends; what
		// many share at once is left alone, or the race detector ends the test.
		if id := m.Correlation.WireID; cap(id) > len(id) && id[:len(id)+1][len(id)] == 0xA5 {
			_ = append(id, '!')
		}
	})
}

func gambler() mutant {
	var throw atomic.Int64
	return after(func(_ *canonical.Message, w *translators.Wire, _ *[]canonical.Loss) {
		w.Body = append(w.Body, strings.Repeat(" ", int(throw.Add(1)%7))...)
	})
}

func scribbler() mutant {
	return mutant{toy: newToy(), decode: func(y toy, w translators.Wire) (*canonical.Message, error) {
		m, err := y.Decode(w)
		if len(w.Body) > 0 && w.Body[len(w.Body)-1] == '}' {
			w.Body[len(w.Body)-1] = '\n'
		}
		return m, err
	}}
}

func panicker() mutant {
	return mutant{toy: newToy(), decode: func(y toy, w translators.Wire) (*canonical.Message, error) {
		if strings.Contains(string(w.Body), `"id":null`) {
			panic("no id")
		}
		return y.Decode(w)
	}}
}

func fainter() mutant {
	return before(func(m *canonical.Message) {
		if result, ok := m.Body.(*canonical.Result); ok && result.Turn == nil && result.Task != nil {
			panic("a task")
		}
	})
}

// reader takes every answer for one to a prompt if it is told so.
func reader() mutant {
	return mutant{toy: newToy(), decode: func(y toy, w translators.Wire) (*canonical.Message, error) {
		m, err := y.Decode(w)
		if err == nil && w.Profile == canonical.ProfilePrompt {
			m.Body = &canonical.Result{Output: &canonical.Output{Parts: m.Body.(*canonical.Result).Task.Artifacts[0].Parts}}
		}
		return m, err
	}}
}

func mumbler() mutant {
	return mutant{toy: newToy(), decode: func(y toy, w translators.Wire) (*canonical.Message, error) {
		m, err := y.Decode(w)
		if err != nil {
			err = errors.New("something is wrong")
		}
		return m, err
	}}
}

// glutton's Info promises limits that its Decode does not keep.
func glutton(size, depth int) mutant {
	return mutant{toy: newToy(), decode: func(_ toy, w translators.Wire) (*canonical.Message, error) {
		return toy{translators.Config{BodyLimit: size, Depth: depth}}.Decode(w)
	}}
}

func swallower() mutant {
	return mutant{toy: newToy(), decode: func(y toy, w translators.Wire) (*canonical.Message, error) {
		if m, err := y.Decode(w); err == nil {
			return m, nil
		}
		return &canonical.Message{Op: canonical.OpNotice, Phase: canonical.PhaseRequest}, nil
	}}
}

func rounder() mutant {
	return after(func(_ *canonical.Message, w *translators.Wire, _ *[]canonical.Loss) {
		var value any
		if json.Unmarshal(w.Body, &value) == nil {
			w.Body, _ = json.Marshal(value)
		}
	})
}

// parrot answers with the verbatim body and has nothing to say without it.
func parrot() mutant {
	return after(func(m *canonical.Message, w *translators.Wire, _ *[]canonical.Loss) {
		if m.Origin.Binding == toyBinding {
			w.Body = m.Origin.Raw
		}
	})
}

func inventor() mutant {
	return mutant{toy: newToy(), decode: func(y toy, w translators.Wire) (*canonical.Message, error) {
		m, err := y.Decode(w)
		if err == nil && m.Correlation.WireID == nil {
			m.Correlation.WireID = json.RawMessage(`"generated"`)
		}
		return m, err
	}}
}

func stringer() mutant {
	return before(func(m *canonical.Message) {
		if id := m.Correlation.WireID; len(id) > 0 && id[0] != '"' {
			m.Correlation.WireID = rawjson.Quote(string(id))
		}
	})
}

func optimist() mutant {
	return before(func(m *canonical.Message) {
		if m.Phase == canonical.PhaseError {
			m.Phase = canonical.PhaseResponse
			m.Body = &canonical.Result{Turn: &canonical.Content{Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "all is well"}}}}
		}
	})
}

func coarsener() mutant {
	return before(func(m *canonical.Message) {
		if e, ok := m.Body.(*canonical.Error); ok && e.Code == canonical.CodeRateLimited {
			m.Body = &canonical.Error{Code: canonical.CodeInternal, Message: e.Message}
		}
	})
}

func silencer() mutant {
	return before(func(m *canonical.Message) {
		if e, ok := m.Body.(*canonical.Error); ok {
			m.Body = &canonical.Error{Code: e.Code, Message: strconv.Itoa(len(e.Message))}
		}
	})
}

func TestLaws_AreDeterministic(t *testing.T) {
	t.Parallel()
	tr := mumbler()
	first, second := translatortest.Totality(tr, samples()), translatortest.Totality(tr, samples())
	if len(first) == 0 || !slices.Equal(first, second) {
		t.Errorf("%d failures, then %d: the damage is not the same twice", len(first), len(second))
	}
}
