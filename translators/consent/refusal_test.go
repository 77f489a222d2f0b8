package consent_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/consent"
)

const (
	noteForm    = `{"type":"object","properties":{"note":{"type":"string"},"times":{"type":"integer"}}}`
	flagForm    = `{"type":"object","properties":{"confirm":{"type":"boolean"}}}`
	certainForm = `{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}`
)

// refusals are natural ways to say no, one on each line.
func refusals(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("testdata/no.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) < 200 {
		t.Fatalf("%d ways to say no, expected 200", len(lines))
	}
	return lines
}

// TestRead_NoIsNeverAccept: a question that requires no value ("Delete all?", "Pay 100
// EUR"), or nothing but a yes or no, is never accepted by a refusal, however that is said:
// as text, or as data of any shape. (Finding F1.)
func TestRead_NoIsNeverAccept(t *testing.T) {
	t.Parallel()
	shapes := []string{
		`"W"`, `["W"]`, `{"W":true}`, `{"answer":"W"}`, `{"response":"W"}`, `{"reply":"W"}`, `{"value":"W"}`, `{"text":"W"}`,
		`{"action":"W"}`, `{"Action":"W"}`, `{"ask":"W"}`, `{"ask":{"action":"W"}}`, `{"result":{"action":"W"}}`,
		`{"content":{"answer":"W"}}`, `{"inputResponses":{"ask":{"action":"W"}}}`, `{"elicitation":{"action":"W"}}`, `{"decision":"W"}`,
	}
	questions := map[string]canonical.Input{
		"nothing to fill in": formOf(emptyForm), "optional values": formOf(noteForm), "an optional flag": formOf(flagForm),
		"a required flag": formOf(certainForm), "a number": formOf(ageForm), "a visit": {Key: "ask", Mode: canonical.ModeURL, URL: "https://pay.example/"},
	}
	for name, question := range questions {
		for _, words := range refusals(t) {
			messages := [][]canonical.Part{text(words), text("“" + words + "”")}
			for _, shape := range shapes {
				inner, err := json.Marshal(words)
				if err != nil {
					t.Fatal(err)
				}
				messages = append(messages, data(strings.ReplaceAll(shape, `"W"`, string(inner))))
			}
			for _, parts := range messages {
				answers, err := consent.Read([]canonical.Input{question}, &canonical.Invoke{Turn: canonical.Content{Parts: parts}})
				if err == nil && answers[0].Action == canonical.Accept {
					t.Errorf("%s: %s%s is taken as accept", name, parts[0].Text, parts[0].Data)
				}
			}
		}
	}
}

// TestRead_ValuesWithoutConsent: findings F1, F8 and F15. Where a form requires nothing,
// only the word accepts; what a form does not name is no value of it.
func TestRead_ValuesWithoutConsent(t *testing.T) {
	t.Parallel()
	visit := canonical.Input{Key: "ask", Mode: canonical.ModeURL, URL: "https://pay.example/"}
	for _, c := range []struct {
		in   canonical.Input
		data string
		want string
	}{
		{formOf(emptyForm), `{}`, "refused"},
		{formOf(emptyForm), `{"confirm":false}`, "refused"},
		{formOf(emptyForm), `{"confirm":true}`, "refused"},
		{formOf(emptyForm), `{"action":"accept"}`, "accept {}"},
		{formOf(emptyForm), `{"action":"accept","content":{}}`, "accept {}"},
		{formOf(emptyForm), `{"action":"accept","content":{"decline":true}}`, "refused"},
		{formOf(emptyForm), `{"action":"accept","content":{"note":"x"}}`, "refused"},
		{formOf(noteForm), `{}`, "refused"},
		{formOf(noteForm), `{"note":"never"}`, "refused"},
		{formOf(noteForm), `{"action":"accept","content":{"note":"fine"}}`, `accept {"note":"fine"}`},
		{formOf(noteForm), `{"action":"accept","content":{"note":"fine","decline":true}}`, "refused"},
		{formOf(noteForm), `{"action":"accept"}`, "accept {}"},
		{formOf(flagForm), `{"confirm":true}`, "refused"},
		{formOf(certainForm), `{"confirm":true}`, `accept {"confirm":true}`},
		{formOf(certainForm), `{"confirm":false}`, `accept {"confirm":false}`},
		{formOf(certainForm), `{"confirm":true,"accept":false}`, "refused"},
		{formOf(certainForm), `{"confirm":true,"more":{"inputResponses":{}}}`, "refused"},
		{formOf(nameForm), `{"name":"Ada","decline":true}`, "refused"},
		{formOf(nameForm), `{"name":"Ada","town":"Rome"}`, `accept {"name":"Ada","town":"Rome"}`},
		{formOf(actionForm), `{"action":"decline"}`, `accept {"action":"decline"}`},
		{visit, `{}`, "refused"},
		{visit, `{"action":"accept"}`, "accept"},
		{visit, `{"action":"accept","content":{}}`, "accept"},
	} {
		answers, err := consent.Read([]canonical.Input{c.in}, &canonical.Invoke{Turn: canonical.Content{Parts: data(c.data)}})
		if got := answer(t, answers, err); got != c.want {
			t.Errorf("%s to %s%s: %q, expected %q (%v)", c.data, c.in.Schema, c.in.URL, got, c.want, err)
		}
	}
	if answers, err := consent.Read([]canonical.Input{formOf(nameForm)}, &canonical.Invoke{Turn: canonical.Content{Parts: text(`{"action":"decline"}`)}}); err == nil {
		t.Errorf("JSON as text is taken as the name: %v", answers)
	}
}

// TestRead_RefusalNamesWhatIsWanted: finding F10.
func TestRead_RefusalNamesWhatIsWanted(t *testing.T) {
	t.Parallel()
	mail := `{"type":"object","properties":{"mail":{"type":"string","format":"email"}},"required":["mail"]}`
	size := `{"type":"object","properties":{"size":{"type":"string","enum":["s","m"]}},"required":["size"]}`
	for schema, want := range map[string]string{
		mail: `the format "email"`, size: `one of "s", "m"`, colourForm: `one of "Red", "None"`, ageForm: "the type \"integer\"", certainForm: "the type \"boolean\"",
	} {
		_, err := consent.Read([]canonical.Input{formOf(schema)}, &canonical.Invoke{Turn: canonical.Content{Parts: text("nope")}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", schema, err, want)
		}
	}
}

// TestCheck_ResultsOfOtherKinds: finding F15. What is no result of sampling or of a
// request for roots does not reach the server as one.
func TestCheck_ResultsOfOtherKinds(t *testing.T) {
	t.Parallel()
	sampling := canonical.Input{Key: "k", Mode: canonical.ModeNative, Native: &canonical.Native{Method: "sampling/createMessage"}}
	roots := canonical.Input{Key: "k", Mode: canonical.ModeNative, Native: &canonical.Native{Method: "roots/list"}}
	for value, c := range map[string]struct {
		in   canonical.Input
		good bool
	}{
		`{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}`:   {sampling, true},
		`{"role":"assistant","content":[{"type":"text","text":"hi"}],"model":"m"}`: {sampling, true},
		`{"role":"user","content":{"type":"text","text":"hi"},"model":"m"}`:        {sampling, false},
		`{"role":"assistant","content":"hi","model":"m"}`:                          {sampling, false},
		`{"role":"assistant","content":{},"model":7}`:                              {sampling, false},
		`{"roots":[{"uri":"file:///home"}]}`:                                       {roots, true},
		`{"roots":[]}`:                                                             {roots, true},
		`{"roots":"x"}`:                                                            {roots, false},
		`{"roots":[{"name":"home"}]}`:                                              {roots, false},
		`{"roots":["file:///home"]}`:                                               {roots, false},
	} {
		_, err := consent.Check([]canonical.Input{c.in}, []canonical.Answer{{Key: "k", Value: json.RawMessage(value)}})
		if (err == nil) != c.good {
			t.Errorf("%s: %v, expected it to be a result: %v", value, err, c.good)
		}
	}
}
