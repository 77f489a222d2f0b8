package consent_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/consent"
)

const (
	nameForm   = `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`
	colourForm = `{"type":"object","properties":{"colour":{"type":"string","oneOf":[{"const":"#f00","title":"Red"},{"const":"cancel","title":"None"}]}},"required":["colour"]}`
	ageForm    = `{"type":"object","properties":{"age":{"type":"integer","minimum":18}},"required":["age"]}`
	emptyForm  = `{"type":"object","properties":{}}`
	actionForm = `{"type":"object","properties":{"action":{"type":"string"}},"required":["action"]}`
)

func formOf(schema string) canonical.Input {
	return canonical.Input{Key: "ask", Mode: canonical.ModeForm, Schema: json.RawMessage(schema)}
}

func text(words string) []canonical.Part {
	return []canonical.Part{{Kind: canonical.KindText, Text: words}}
}

func data(value string) []canonical.Part {
	return []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage(value)}}
}

// answer is an answer in short: its action and its value or text. "refused": it is none,
// "missing": there is none.
func answer(t *testing.T, answers []canonical.Answer, err error) string {
	t.Helper()
	if _, missing := errors.AsType[*consent.MissingError](err); missing {
		return "missing"
	}
	if refusal, ok := errors.AsType[*canonical.Error](err); ok && refusal.Code == canonical.CodeBadParams && refusal.Message != "" {
		return "refused"
	}
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, len(answers))
	for i, a := range answers {
		out[i] = strings.TrimSpace(string(a.Action) + " " + string(a.Value))
		for _, p := range a.Parts {
			out[i] += " " + p.Text + string(p.Data)
		}
	}
	return strings.Join(out, ", ")
}

func TestRead_PlainMessages(t *testing.T) {
	talk := canonical.Input{Key: "reply", Mode: canonical.ModeText}
	visit := canonical.Input{Key: "ask", Mode: canonical.ModeURL, URL: "https://example.com/"}
	for _, c := range []struct {
		name  string
		in    canonical.Input
		parts []canonical.Part
		want  string
	}{
		{"values", formOf(nameForm), data(`{"name":"Ada"}`), `accept {"name":"Ada"}`},
		{"values that do not fit", formOf(nameForm), data(`{"name":7}`), "refused"},
		{"values of another form", formOf(nameForm), data(`{"town":"Rome"}`), "refused"},
		{"action decline", formOf(nameForm), data(`{"action":"decline"}`), "decline"},
		{"action DECLINE", formOf(nameForm), data(`{"action":"DECLINE"}`), "decline"},
		{"action cancel", formOf(emptyForm), data(`{"action":"cancel"}`), "cancel"},
		{"action accept with content", formOf(nameForm), data(`{"action":"accept","content":{"name":"Ada"}}`), `accept {"name":"Ada"}`},
		{"action accept without content", formOf(nameForm), data(`{"action":"accept"}`), "refused"},
		{"action accept, nothing to fill in", formOf(emptyForm), data(`{"action":"accept"}`), "accept {}"},
		{"action maybe", formOf(emptyForm), data(`{"action":"maybe"}`), "refused"},
		{"action and values", formOf(nameForm), data(`{"action":"accept","name":"Ada"}`), "refused"},
		{"action decline with content", formOf(nameForm), data(`{"action":"decline","content":{"name":"Ada"}}`), "decline"},
		{"a form with a member action", formOf(actionForm), data(`{"action":"decline"}`), `accept {"action":"decline"}`},
		{"action that is no text", formOf(nameForm), data(`{"action":7,"name":"Ada"}`), "refused"},
		{"action that is no text, nothing to fill in", formOf(emptyForm), data(`{"action":7}`), "refused"},
		{"elicitation that is none", formOf(emptyForm), data(`{"elicitation":"decline"}`), "refused"},
		{"values and words", formOf(nameForm), slices.Concat(text("here you are"), data(`{"name":"Ada"}`)), `accept {"name":"Ada"}`},
		{"accept and the word no", formOf(emptyForm), slices.Concat(text("no"), data(`{"action":"accept"}`)), "refused"},
		{"accept and other words", formOf(emptyForm), slices.Concat(data(`{"action":"accept"}`), text("I would rather not")), "refused"},
		{"accept with content and words", formOf(nameForm), slices.Concat(data(`{"action":"accept","content":{"name":"Ada"}}`), text("here you are")), `accept {"name":"Ada"}`},
		{"accept with content and the word no", formOf(nameForm), slices.Concat(data(`{"action":"accept","content":{"name":"Ada"}}`), text("no")), "refused"},
		{"decline and other words", formOf(emptyForm), slices.Concat(data(`{"action":"decline"}`), text("I would rather not")), "decline"},
		{"accept and the same word", formOf(emptyForm), slices.Concat(text("Accept"), data(`{"action":"accept"}`)), "accept {}"},
		{"decline and the word accept", formOf(emptyForm), slices.Concat(text("accept"), data(`{"action":"decline"}`)), "refused"},
		{"visit accepted and the word no", visit, slices.Concat(text("no"), data(`{"action":"accept"}`)), "refused"},
		{"visit accepted and done", visit, slices.Concat(text("done"), data(`{"action":"accept"}`)), "accept"},
		{"talk with action and words", talk, slices.Concat(text("no"), data(`{"action":"accept"}`)), "refused"},
		{"values and the word decline", formOf(nameForm), slices.Concat(data(`{"name":"Ada"}`), text("Decline")), "refused"},
		{"values, then an action", formOf(nameForm), slices.Concat(data(`{"name":"Ada"}`), data(`{"action":"decline"}`)), "refused"},
		{"neither text nor values", formOf(nameForm), data(`7`), "refused"},
		{"text", formOf(nameForm), text("Ada"), `accept {"name":"Ada"}`},
		{"text decline", formOf(nameForm), text(" Decline "), "decline"},
		{"text cancel", formOf(nameForm), text("cancel"), "cancel"},
		{"text accept to a form with a text", formOf(nameForm), text("accept"), `accept {"name":"accept"}`},
		{"text accept to a form with a number", formOf(ageForm), text("accept"), "refused"},
		{"text accept, nothing to fill in", formOf(emptyForm), text("accept"), "accept {}"},
		{"text, nothing to fill in", formOf(emptyForm), text("sure"), "refused"},
		{"text to a number", formOf(ageForm), text("20"), "refused"},
		{"number", formOf(ageForm), data(`{"age":20}`), `accept {"age":20}`},
		{"number too small", formOf(ageForm), data(`{"age":17}`), "refused"},
		{"title of a choice", formOf(colourForm), text("Red"), `accept {"colour":"#f00"}`},
		{"value of a choice", formOf(colourForm), text("#f00"), `accept {"colour":"#f00"}`},
		{"a choice that is called cancel", formOf(colourForm), text("cancel"), `accept {"colour":"cancel"}`},
		{"no choice", formOf(colourForm), text("Blue"), "refused"},
		{"decline among choices", formOf(colourForm), text("decline"), "decline"},
		{"nothing", formOf(nameForm), nil, "missing"},
		{"empty text", formOf(nameForm), text(" \n"), "missing"},
		{"talk", talk, text("cancel that"), "accept  cancel that"},
		{"talk of one word", talk, text("decline"), "accept  decline"},
		{"talk with action", talk, data(`{"action":"decline"}`), "decline"},
		{"talk with data", talk, data(`{"a":1}`), `accept  {"a":1}`},
		{"talk without words", talk, text(""), "missing"},
		{"visit accepted", visit, text("Accept"), "accept"},
		{"visit done", visit, text("done"), "accept"},
		{"visit in other words", visit, text("I did it"), "refused"},
		{"visit declined", visit, data(`{"action":"decline"}`), "decline"},
		{"visit with values", visit, data(`{"name":"Ada"}`), "refused"},
	} {
		answers, err := consent.Read([]canonical.Input{c.in}, &canonical.Invoke{Turn: canonical.Content{Parts: c.parts}})
		if got := strings.ReplaceAll(answer(t, answers, err), "  ", " "); got != strings.ReplaceAll(c.want, "  ", " ") {
			t.Errorf("%s: %q, expected %q (%v)", c.name, got, c.want, err)
		}
	}
}

// TestRead_WordsBesideAnswers: an answer of its own, without values, is refused beside a word that says
// something else. Other words beside it are what a gateway wrote of it.
func TestRead_WordsBesideAnswers(t *testing.T) {
	for _, c := range []struct {
		schema, action, value, words, want string
	}{
		{emptyForm, "accept", ``, "No.", "refused"},
		{emptyForm, "accept", `{}`, "decline", "refused"},
		{emptyForm, "decline", ``, "accept", "refused"},
		{emptyForm, "accept", ``, "Yes", "accept {}"},
		{emptyForm, "accept", ``, "as said beside", "accept {}"},
		{nameForm, "accept", `{"name":"no"}`, "no", `accept {"name":"no"}`},
		{nameForm, "decline", ``, "no", "decline"},
	} {
		a := canonical.Answer{Key: "ask", Action: canonical.Action(c.action), Value: json.RawMessage(c.value)}
		answers, err := consent.Read([]canonical.Input{formOf(c.schema)}, &canonical.Invoke{Answers: []canonical.Answer{a}, Turn: canonical.Content{Parts: text(c.words)}})
		if got := answer(t, answers, err); got != c.want {
			t.Errorf("%s %s beside %q: %q, expected %q (%v)", c.action, c.value, c.words, got, c.want, err)
		}
	}
}

func TestCheck_Answers(t *testing.T) {
	two := []canonical.Input{formOf(nameForm), {Key: "age", Mode: canonical.ModeForm, Schema: json.RawMessage(ageForm)}}
	one := two[:1]
	sampling := []canonical.Input{{Key: "s", Mode: canonical.ModeNative, Native: &canonical.Native{Method: "sampling/createMessage"}}}
	roots := []canonical.Input{{Key: "r", Mode: canonical.ModeNative, Native: &canonical.Native{Method: "roots/list"}}}
	yes := func(key, value string) canonical.Answer {
		return canonical.Answer{Key: key, Action: canonical.Accept, Value: json.RawMessage(value)}
	}
	for _, c := range []struct {
		name    string
		request []canonical.Input
		given   []canonical.Answer
		want    string
	}{
		{"both, in the other order", two, []canonical.Answer{yes("age", `{"age":20}`), yes("ask", `{"name":"Ada"}`)}, `accept {"name":"Ada"}, accept {"age":20}`},
		{"one of two", two, []canonical.Answer{yes("age", `{"age":20}`)}, "missing"},
		{"one twice", two, []canonical.Answer{yes("age", `{"age":20}`), yes("age", `{"age":21}`)}, "refused"},
		{"another action beside its own", one, []canonical.Answer{{Key: "ask", Action: canonical.Accept, Value: json.RawMessage(`{"name":"Ada"}`), Extensions: canonical.Extensions{"mcp-v1": json.RawMessage(`{"action2":"decline"}`)}}}, "refused"},
		{"meta beside its action", one, []canonical.Answer{{Key: "ask", Action: canonical.Accept, Value: json.RawMessage(`{"name":"Ada"}`), Extensions: canonical.Extensions{"mcp-v1": json.RawMessage(`{"_meta":{}}`)}}}, `accept {"name":"Ada"}`},
		{"another key", one, []canonical.Answer{yes("other", `{"name":"Ada"}`)}, "refused"},
		{"no key, one question", one, []canonical.Answer{yes("", `{"name":"Ada"}`)}, `accept {"name":"Ada"}`},
		{"no key, two questions", two, []canonical.Answer{yes("", `{"name":"Ada"}`)}, "refused"},
		{"no action", one, []canonical.Answer{{Key: "ask", Value: json.RawMessage(`{"name":"Ada"}`)}}, "refused"},
		{"unknown action", one, []canonical.Answer{{Key: "ask", Action: "maybe", Value: json.RawMessage(`{"name":"Ada"}`)}}, "refused"},
		{"accept without values", one, []canonical.Answer{{Key: "ask", Action: canonical.Accept}}, "refused"},
		{"a form that cannot be checked", []canonical.Input{formOf(`{"$ref":"#/x"}`)}, []canonical.Answer{yes("ask", `{"name":"Ada"}`)}, "refused"},
		{"values that are no object", one, []canonical.Answer{yes("ask", `["Ada"]`)}, "refused"},
		{"declined with values", one, []canonical.Answer{{Key: "ask", Action: canonical.Decline, Value: json.RawMessage(`{"name":"Ada"}`)}}, "decline"},
		{"text in place of values", one, []canonical.Answer{{Key: "ask", Action: canonical.Accept, Parts: text("Ada")}}, `accept {"name":"Ada"}`},
		{"text beside values", one, []canonical.Answer{{Key: "ask", Action: canonical.Accept, Value: json.RawMessage(`{"name":"Ada"}`), Parts: text("no")}}, `accept {"name":"Ada"}`},
		{"empty text in place of values", one, []canonical.Answer{{Key: "ask", Action: canonical.Accept, Parts: text(" ")}}, "refused"},
		{"text beside a result", roots, []canonical.Answer{{Key: "r", Value: json.RawMessage(`{"roots":[]}`), Parts: text("no")}}, `{"roots":[]}`},
		{"sampling", sampling, []canonical.Answer{{Key: "s", Value: json.RawMessage(`{"role":"assistant","content":{},"model":"m"}`)}}, `{"role":"assistant","content":{},"model":"m"}`},
		{"sampling with an action", sampling, []canonical.Answer{{Key: "s", Action: canonical.Accept}}, "refused"},
		{"sampling accepted", sampling, []canonical.Answer{{Key: "s", Action: canonical.Accept, Value: json.RawMessage(`{"role":"assistant","content":{},"model":"m"}`)}}, "refused"},
		{"sampling without a model", sampling, []canonical.Answer{{Key: "s", Value: json.RawMessage(`{"role":"assistant","content":{}}`)}}, "refused"},
		{"roots", roots, []canonical.Answer{{Key: "r", Value: json.RawMessage(`{"roots":[]}`)}}, `{"roots":[]}`},
		{"roots without roots", roots, []canonical.Answer{{Key: "r", Value: json.RawMessage(`{}`)}}, "refused"},
	} {
		answers, err := consent.Check(c.request, c.given)
		if got := answer(t, answers, err); got != c.want {
			t.Errorf("%s: %q, expected %q (%v)", c.name, got, c.want, err)
		}
	}
}

// A free text that is asked for in a form is text again where it leaves.
func TestFit_TextFromForm(t *testing.T) {
	talk := canonical.Input{Key: "reply", Mode: canonical.ModeText}
	for value, want := range map[string]string{
		`{"reply":"yes"}`: "accept yes", `"yes"`: "accept yes", `{"reply":""}`: "refused", `{"username":""}`: "refused", `{}`: "refused", `""`: "refused",
	} {
		a, err := consent.Fit(talk, canonical.Answer{Key: "reply", Action: canonical.Accept, Value: json.RawMessage(value)})
		if got := answer(t, []canonical.Answer{a}, err); got != want {
			t.Errorf("%s: %q, expected %q", value, got, want)
		}
	}
}

// Whatever a message says, "accept" comes out only where it said accept to that
// question, with values that fit.
func TestRead_AcceptIsNeverMadeUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for range 20000 {
		request := []canonical.Input{formOf(pick(nameForm, colourForm, ageForm, emptyForm, actionForm))}
		invoke := &canonical.Invoke{}
		action := pick("accept", "decline", "cancel", "maybe", "")
		content := pick(`{"name":"Ada"}`, `{"age":20}`, `{"age":1}`, `{}`, `{"colour":"#f00"}`, `{"colour":"blue"}`, `[]`, `"Ada"`, "")
		words := pick("Ada", "accept", "decline", "cancel", "", "Red", "yes")
		how := random.IntN(4)
		switch how {
		case 0:
			invoke.Answers = []canonical.Answer{{Key: pick("ask", "other", ""), Action: canonical.Action(action), Value: json.RawMessage(content)}}
		case 1:
			invoke.Turn.Parts = text(words)
		case 2:
			invoke.Turn.Parts = data(`{"action":"` + action + `"}`)
		default:
			invoke.Turn.Parts = nil
		}
		answers, err := consent.Read(request, invoke)
		if err != nil {
			continue
		}
		for _, a := range answers {
			if a.Action != canonical.Accept {
				if a.Value != nil || a.Parts != nil {
					t.Fatalf("%s goes on with values: %+v", a.Action, a)
				}
				continue
			}
			spoke := how == 0 && action == "accept" || how == 1 && words != "" && words != "decline" && words != "cancel" ||
				how == 2 && (action == "accept" || string(request[0].Schema) == actionForm) || how == 1 && string(request[0].Schema) == colourForm && words == "cancel"
			if !spoke || how == 3 {
				t.Fatalf("accept was made up: %+v of %+v for %s", a, invoke, request[0].Schema)
			}
		}
	}
}

// FuzzRead_AnswersFitTheQuestion: no message is read as an answer to another question, and what accepts
// fits (a second look changes nothing).
func FuzzRead_AnswersFitTheQuestion(f *testing.F) {
	f.Add("ask", "accept", `{"name":"Ada"}`, "", nameForm)
	f.Add("", "", ``, "Red", colourForm)
	f.Fuzz(func(t *testing.T, key, action, value, words, schema string) {
		if !json.Valid([]byte(schema)) || value != "" && !json.Valid([]byte(value)) {
			t.Skip()
		}
		request := []canonical.Input{formOf(schema)}
		invokes := []*canonical.Invoke{
			{Answers: []canonical.Answer{{Key: key, Action: canonical.Action(action), Value: json.RawMessage(value)}}},
			{Turn: canonical.Content{Parts: text(words)}},
			{Turn: canonical.Content{Parts: data(value)}},
		}
		for _, invoke := range invokes {
			answers, err := consent.Read(request, invoke)
			if err != nil {
				continue
			}
			if len(answers) != 1 || answers[0].Key != "ask" {
				t.Fatalf("answers: %+v", answers)
			}
			again, err := consent.Check(request, answers)
			if err != nil || !slices.EqualFunc(again, answers, func(a, b canonical.Answer) bool {
				return a.Action == b.Action && string(a.Value) == string(b.Value)
			}) {
				t.Fatalf("a second look: %+v, %v; the first: %+v", again, err, answers)
			}
		}
	})
}
