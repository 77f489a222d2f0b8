package gateway

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
)

// meaning is what a person wants to say to a question, before anything is written.
type meaning struct {
	word  string           // what the person says
	means canonical.Action // what that means
}

// inWords and inData are the kinds of messages in which callers of each protocol answer
// in words and in data, without an action.
func inWords() []codec {
	return slices.Concat(a2aMessages(partText), []codec{
		messages(formSLIM, slim.VersionA2A, partText, "SendMessage", newMessage), ainpNotes(noteText), uacpNotes(noteText),
	})
}

func inData() []codec {
	return slices.Concat(a2aMessages(partData), []codec{
		messages(formSLIM, slim.VersionA2A, partData, "SendMessage", newMessage), ainpNotes(noteData), uacpNotes(noteData),
	})
}

// withAction are the kinds of messages that name an action.
func withAction() []codec {
	inSLIM := slim.VersionMCP(mcp.Modern)
	return slices.Concat(a2aMessages(partElicitation), []codec{
		besides(a2a.Version, "SendMessage", newMessage), besides(a2a.Version03, "message/send", oldMessage),
		retries(formMCP, mcp.Modern), updates(formMCP, mcp.Modern), retries(formSLIM, inSLIM), updates(formSLIM, inSLIM),
		messages(formSLIM, slim.VersionA2A, partElicitation, "SendMessage", newMessage), ainpNotes(noteKeyed), ainpNotes(noteTask), uacpNotes(noteKeyed),
	})
}

// questionsWithoutValues require no value: only a word accepts them.
func questionsWithoutValues() []canonical.Input {
	flag, note := inputOf(keySure), inputOf(keySure)
	flag.Schema = []byte(`{"type":"object","properties":{"confirm":{"type":"boolean"}}}`)
	note.Schema = []byte(`{"type":"object","properties":{"note":{"type":"string"}}}`)
	return []canonical.Input{inputOf(keySure), inputOf(keyVisit), flag, note}
}

// asker asks callers of one kind, each of its questions until it is answered.
type asker struct {
	codec *codec
	open  map[int]*fixture
}

// says gives one message to a gateway that waits for the answer to a question, and returns
// what the agent is told; empty: nothing, because the message is refused.
func (a *asker) says(t *testing.T, question int, answer fuzzedAnswer) canonical.Action {
	t.Helper()
	if a.open[question] == nil {
		a.open[question] = newFixture(t, a.codec, questionsWithoutValues()[question:question+1])
		a.open[question].asks(firstRound)
	}
	answers, done := a.open[question].hear(a.codec.wire(t, fuzzedMessage{answers: []fuzzedAnswer{answer}}, execution.StateOf(firstRound, theTask)))
	if done {
		_ = a.open[question].Close()
		delete(a.open, question)
	}
	if len(answers) != 1 {
		return ""
	}
	return answers[0].Action
}

// TestConsent_NoIsNeverHeardAsAccept: whatever a caller's protocol is, a person who says no
// to a question that requires no value is never heard as one who accepts: in words, in
// data of any shape, or where an action is expected.
func TestConsent_NoIsNeverHeardAsAccept(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../translators/consent/testdata/no.txt")
	if err != nil {
		t.Fatal(err)
	}
	no := strings.Split(strings.TrimSpace(string(raw)), "\n")
	shapes := []string{`"W"`, `{"W":true}`, `{"answer":"W"}`, `{"Action":"W"}`, `{"ask":{"action":"W"}}`, `{"inputResponses":{"ask":{"action":"W"}}}`}
	for name, c := range allKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen, asks := map[canonical.Action]int{}, asker{c, map[int]*fixture{}}
			for i, word := range no {
				answers := []fuzzedAnswer{{text: word}, {key: keySure, action: word}, {key: keySure, action: word, content: `{}`}}
				shape := strings.ReplaceAll(shapes[i%len(shapes)], `"W"`, string(inJSON(word)))
				answers = append(answers, fuzzedAnswer{content: shape}, fuzzedAnswer{key: keySure, content: shape})
				question := questionsWithoutValues()[i%4]
				for _, answer := range answers {
					answer.key = strings.ReplaceAll(answer.key, keySure, question.Key)
					if answer.text == "" && strings.HasSuffix(name, "beside words") {
						answer.text = word
					}
					action := asks.says(t, i%4, answer)
					if seen[action]++; action == canonical.Accept {
						t.Errorf("%+v to %s %s is heard as accept", answer, question.Key, question.Schema)
					}
				}
			}
			if seen[canonical.Decline]+seen[canonical.Cancel]+seen[""] == 0 {
				t.Error("no message was read")
			}
		})
	}
}

func allKinds() map[string]*codec {
	kinds := map[string]*codec{}
	for group, list := range map[string][]codec{"words": inWords(), "data": inData(), "action": withAction()} {
		for i := range list {
			kinds[group+", "+string(list[i].form.Info().Binding)+" "+list[i].name] = &list[i]
		}
	}
	return kinds
}

// TestConsent_MeaningIsHeard: what a person means, said in the plain way of each kind of
// message, is what the agent hears: so the test of refusals above cannot pass for want of
// messages that are read.
func TestConsent_MeaningIsHeard(t *testing.T) {
	t.Parallel()
	meanings := []meaning{{"accept", canonical.Accept}, {"decline", canonical.Decline}, {"cancel", canonical.Cancel}}
	for group, list := range map[string][]codec{"words": inWords(), "data": inData(), "action": withAction()} {
		for i := range list {
			c := &list[i]
			t.Run(group+", "+string(c.form.Info().Binding)+" "+c.name, func(t *testing.T) {
				t.Parallel()
				asks := asker{c, map[int]*fixture{}}
				for _, m := range meanings {
					for i, question := range questionsWithoutValues() {
						answer := fuzzedAnswer{text: m.word}
						switch group {
						case "data":
							answer = fuzzedAnswer{action: m.word}
						case "action":
							answer = fuzzedAnswer{key: question.Key, action: m.word}
						}
						if strings.HasSuffix(c.name, "beside words") {
							answer.text = "as said beside"
						}
						if got := asks.says(t, i, answer); got != m.means {
							t.Errorf("%s to %s %s is heard as %q", m.word, question.Key, question.Schema, got)
						}
					}
				}
			})
		}
	}
}
