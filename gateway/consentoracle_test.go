package gateway

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// What a message on the wire accepts, read with encoding/json and judged without the
// code under test. It may only say yes where the README of translators does: "accept"
// in one of the forms of that wire, with values that fit the form of the question.

// claim is what a caller says in accepting a question.
type claim struct {
	value json.RawMessage // the values; of free text the text as JSON; nil: none
	free  bool            // free text in other parts than text: it is not compared
}

// claims are those of one message, by the keys of the questions.
type claims map[string]claim

func (c claims) add(key string, answer claim, ok bool) {
	if ok {
		c[key] = answer
	}
}

// membersOf are the members of a JSON object; false: it is none.
func membersOf(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var members map[string]json.RawMessage
	ok := json.Unmarshal(raw, &members) == nil && members != nil
	return members, ok
}

// at follows names into objects; nil: there is no such member.
func at(raw json.RawMessage, names ...string) json.RawMessage {
	for _, name := range names {
		members, _ := membersOf(raw)
		raw = members[name]
	}
	return raw
}

func listOf(raw json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	_ = json.Unmarshal(raw, &list)
	return list
}

// textIn is a JSON text; false: it is something else.
func textIn(raw json.RawMessage) (string, bool) {
	var text *string
	if json.Unmarshal(raw, &text) != nil || text == nil {
		return "", false
	}
	return *text, true
}

// absent: the member is not there, or is null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// inJSON is a text as JSON.
func inJSON(text string) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text)
	return bytes.TrimSpace(out.Bytes())
}

// claimOf is a value with which a question is accepted; false: it does not fit.
func claimOf(key string, value json.RawMessage) (claim, bool) {
	members, object := membersOf(value)
	switch key {
	case keyWho:
		_, ok := textIn(members["name"])
		return claim{value: value}, ok
	case keyAge:
		age, err := strconv.ParseFloat(string(members["age"]), 64)
		return claim{value: value}, err == nil && age >= 18 && age == math.Trunc(age)
	case keySure:
		if value == nil {
			return claim{value: json.RawMessage("{}")}, true
		}
		return claim{value: value}, object
	case keyVisit:
		return claim{}, value == nil || object && len(members) == 0
	case keyTalk:
		text, ok := textIn(value)
		if !ok {
			text, ok = textIn(members["reply"])
		}
		return claim{value: inJSON(text)}, ok && strings.TrimSpace(text) != ""
	}
	return claim{}, false
}

// claimOfText is a text in place of values.
func claimOfText(key, text string) (claim, bool) {
	switch key {
	case keyWho:
		return claim{value: json.RawMessage(`{"name":` + string(inJSON(text)) + `}`)}, strings.TrimSpace(text) != ""
	case keyTalk:
		return claim{value: inJSON(text)}, strings.TrimSpace(text) != ""
	}
	return claim{}, false
}

// claimOfResult is an elicitation result of MCP. What answers a request for a model's
// words is those words, and has no action.
func claimOfResult(key string, raw json.RawMessage) (claim, bool) {
	members, object := membersOf(raw)
	action, _ := textIn(members["action"])
	switch {
	case !object:
		return claim{}, false
	case key == keyModel:
		return claim{value: raw}, isModelsWords(members) && !isWord(action)
	case action != "accept":
		return claim{}, false
	}
	return claimOf(key, members["content"])
}

func isModelsWords(members map[string]json.RawMessage) bool {
	return members["role"] != nil && members["content"] != nil && members["model"] != nil
}

func isWord(text string) bool { return text == "accept" || text == "decline" || text == "cancel" }

// nameOf is the key of the question that an answer names, which it need not where
// there is only one.
func nameOf(request []canonical.Input, key string) string {
	if key == "" && len(request) == 1 {
		return request[0].Key
	}
	return key
}

// claimsOfResponses are inputResponses of MCP.
func claimsOfResponses(request []canonical.Input, body []byte) claims {
	answer := claims{}
	responses, _ := membersOf(at(body, "params", "inputResponses"))
	for key, raw := range responses {
		key = nameOf(request, key)
		c, ok := claimOfResult(key, raw)
		answer.add(key, c, ok)
	}
	return answer
}

// claimsOfEnvelope are answers in an aepb object.
func claimsOfEnvelope(request []canonical.Input, list json.RawMessage) claims {
	answer := claims{}
	for _, raw := range listOf(list) {
		key, _ := textIn(at(raw, "key"))
		key = nameOf(request, key)
		action, _ := textIn(at(raw, "action"))
		value := at(raw, "value")
		switch {
		case key == keyModel && action == "":
			members, _ := membersOf(value)
			answer.add(key, claim{value: value}, isModelsWords(members))
		case action != "accept":
		case value == nil && at(raw, "parts") != nil:
			c, ok := claimOfText(key, strings.Join(textsIn(listOf(at(raw, "parts"))), "\n"))
			answer.add(key, c, ok)
		default:
			c, ok := claimOf(key, value)
			answer.add(key, c, ok)
		}
	}
	return answer
}

// claimsOfParts are those of a message of A2A: of parts for elicitations, if there are
// any, else of what its parts say to the only question.
func claimsOfParts(request []canonical.Input, parts []json.RawMessage) claims {
	reply, elicited := claims{}, false
	for _, part := range parts {
		members, _ := membersOf(at(part, "data"))
		answer, ok := membersOf(members["elicitation"])
		if !ok || len(members) != 1 {
			continue
		}
		elicited = true
		key, named := textIn(answer["key"])
		key, named = nameOf(request, key), named || absent(answer["key"])
		action, _ := textIn(answer["action"])
		implied := absent(answer["action"]) && answer["content"] != nil && key != keySure && key != keyVisit
		if named && (action == "accept" || implied) {
			c, ok := claimOf(key, answer["content"])
			reply.add(key, c, ok)
		}
	}
	if !elicited {
		return claimsOfPlain(request, parts)
	}
	return reply
}

// claimsOfPlain are those of a message that has no answers of its own.
func claimsOfPlain(request []canonical.Input, parts []json.RawMessage) claims {
	answer := claims{}
	if len(request) == 1 {
		c, ok := claimOfMessage(request[0].Key, parts)
		answer.add(request[0].Key, c, ok)
	}
	return answer
}

func textsIn(parts []json.RawMessage) []string {
	var texts []string
	for _, part := range parts {
		if text, ok := textIn(at(part, "text")); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// claimOfMessage is what a message without answers of its own says to a question. Of
// a form it accepts nothing if any part declines or cancels.
func claimOfMessage(key string, parts []json.RawMessage) (claim, bool) {
	text := strings.Join(textsIn(parts), "\n")
	word := strings.ToLower(strings.TrimSpace(text))
	var objects []json.RawMessage
	other := false // there are parts that are neither text nor an object
	for _, part := range parts {
		if _, ok := membersOf(at(part, "data")); ok {
			objects = append(objects, at(part, "data"))
		} else if at(part, "text") == nil {
			other = true
		}
	}
	if key == keyTalk {
		return claimOfTalk(text, objects, other)
	}
	if word == "decline" || word == "cancel" || len(objects) > 1 {
		return claim{}, false
	}
	if len(objects) == 1 {
		return claimOfData(key, objects[0])
	}
	if word == "accept" && (key == keySure || key == keyVisit) || word == "done" && key == keyVisit {
		return claimOf(key, nil)
	}
	return claimOfText(key, text)
}

// claimOfTalk: in free text a message is what the user says, but for a data part
// that is an action.
func claimOfTalk(text string, objects []json.RawMessage, other bool) (claim, bool) {
	if len(objects) > 0 {
		members, _ := membersOf(objects[0])
		action, _ := textIn(members["action"])
		_, content := members["content"]
		if isWord(strings.ToLower(action)) && (len(members) == 1 || len(members) == 2 && content) {
			if !strings.EqualFold(action, "accept") {
				return claim{}, false
			}
			return claimOf(keyTalk, members["content"])
		}
		return claim{free: true}, true
	}
	if other {
		return claim{free: true}, true
	}
	return claimOfText(keyTalk, text)
}

// claimOfData is a data part: an action with content, or values.
func claimOfData(key string, data json.RawMessage) (claim, bool) {
	members, _ := membersOf(data)
	action, says := members["action"]
	if _, elicits := members["elicitation"]; elicits {
		return claim{}, false
	}
	if !says {
		if key == keySure || key == keyVisit { // only the word accepts what requires no value
			return claim{}, false
		}
		return claimOf(key, data)
	}
	word, _ := textIn(action)
	for name := range members {
		if name != "action" && name != "content" {
			return claim{}, false
		}
	}
	if !strings.EqualFold(word, "accept") {
		return claim{}, false
	}
	return claimOf(key, members["content"])
}

// isBeside reports whether an answer stands beside words as a gateway writes it.
func isBeside(raw json.RawMessage) bool {
	members, object := membersOf(raw)
	action, acts := textIn(members["action"])
	count := 1
	for _, name := range []string{"key", "content"} {
		if members[name] != nil {
			count++
		}
	}
	key, named := textIn(members["key"])
	return object && acts && action != "" && count == len(members) && (members["key"] == nil || named && key != "") &&
		(action == "accept" || members["content"] == nil)
}

// claimOfRPCReply is the answer to a request of MCP by its id.
func claimOfRPCReply(key string, body []byte) (claim, bool) {
	if at(body, "error") != nil {
		return claim{}, false
	}
	return claimOfResult(key, at(body, "result"))
}

// claimOfDecision is a RESULT of AINP that answers by an id. What its aepb object says
// of the answer says no more than the RESULT, or is not believed.
func claimOfDecision(key string, body []byte) (claim, bool) {
	kind, _ := textIn(at(body, "msg_type"))
	status, _ := textIn(at(body, "payload", "status"))
	if kind != "RESULT" || status != "success" {
		return claim{}, false
	}
	result := at(body, "payload", "result")
	if text, ok := textIn(result); ok {
		return claimOfText(key, text)
	}
	return claimOf(key, result)
}

// judge holds what reaches the agent against what the message claims.
func judge(t testing.TB, answers []canonical.Answer, answer claims, body []byte) {
	t.Helper()
	for _, a := range answers {
		if a.Action == "" && a.Key != keyModel {
			t.Fatalf("the agent hears %+v, which is no answer, after %q", a, body)
		}
		if a.Action != canonical.Accept && a.Action != "" {
			if a.Action != canonical.Decline && a.Action != canonical.Cancel || a.Value != nil || a.Parts != nil {
				t.Fatalf("the agent hears %+v after %q", a, body)
			}
			continue
		}
		c, ok := answer[a.Key]
		got := a.Value
		if len(a.Parts) > 0 {
			var texts []string
			for _, p := range a.Parts {
				texts = append(texts, p.Text)
			}
			got = inJSON(strings.Join(texts, "\n"))
		}
		if !ok || !c.free && !sameJSON(got, c.value) {
			t.Fatalf("the agent hears %s %s of %q, but the caller said (%v) %s in %q", a.Action, got, a.Key, ok, c.value, body)
		}
	}
}

func sameJSON(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	var one, other any
	for raw, to := range map[*json.RawMessage]*any{&a: &one, &b: &other} {
		decoder := json.NewDecoder(bytes.NewReader(*raw))
		decoder.UseNumber()
		if decoder.Decode(to) != nil {
			return false
		}
	}
	return reflect.DeepEqual(one, other)
}
