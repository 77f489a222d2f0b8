package gateway

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// What is put into the fields of answers to begin with. An empty text leaves one out.
var (
	seedKeys    = []string{keyWho, keySure, keyAge, keyVisit, keyTalk, keyModel, "other", "", "7", "null", "earlier " + keyWho}
	seedActions = []string{
		"accept", "accept", "accept", "decline", "cancel", "", `""`, "maybe", "ACCEPT", "Decline", " accept", "null", "7", `["accept"]`, `{"accept":true}`,
		"success", "success", "failed", "partial",
	}
	seedContents = []string{
		`{"name":"Ada"}`, `{"name":7}`, `{"name":""}`, `{"name":null}`, `{"age":20}`, `{"age":17}`, `{"age":"20"}`, `{"reply":"yes"}`, `{"reply":" "}`,
		`{}`, "", "null", "[]", `"Ada"`, `""`, "7", `{"name":"Ada","age":20}`, `{"name":7,"name":"Ada"}`,
		`{"role":"assistant","content":{"type":"text","text":"it"},"model":"m"}`, `{"action":"decline"}`,
		`{"elicitation":{"action":"decline"}}`, `{"elicitation":"decline"}`,
	}
	seedMore = []string{
		"", "", "", `"a":1`, `"_meta":{}`, `"action":"accept"`, `"action":"decline"`, `"name":"Ada"`, `"key":"sure"`, `"content":{"name":"Ada"}`,
		`"error":{"code":-1,"message":"no"}`, `"role":"assistant","content":{},"model":"m"`, `"parts":[{"kind":"text","text":"Ada"}]`,
		`"aepb":{"answer":{"key":"who","action":"accept","value":{"name":"Ada"}}}`, `"aepb":{"answer":{"key":"who","action":"cancel"}}`, `"intent_id":"x"`, `"status":"success"`,
	}
	seedTexts = []string{"", "Ada", "accept", "decline", " Cancel\n", "done", " ", "20", "null", `{"error":{"code":-1,"message":"no"}}`}
	seedState = []string{"", "", "", "earlier", "none", "7:t1", "x"}
)

// fitting answers each question as good answers the one for a name: with values, and
// in words where good has some.
func fitting(key string, good fuzzedAnswer) fuzzedAnswer {
	a := fuzzedAnswer{key: key, action: good.action}
	a.content = map[string]string{
		keyWho: `{"name":"Ada"}`, keyAge: `{"age":20}`, keySure: `{}`, keyVisit: `{}`, keyTalk: `{"reply":"yes"}`,
		keyModel: `{"role":"assistant","content":{"type":"text","text":"it"},"model":"m"}`,
	}[key]
	if good.text != "" {
		a.text = map[string]string{keyWho: "Ada", keySure: "accept", keyVisit: "done", keyTalk: "yes"}[key]
	}
	return a
}

// seedEvery is how many of the first streams become one that a fuzzer begins with: it
// takes its time with each.
const seedEvery = 16

// trySeeds tries streams of answers to each set of questions, in each of some codecs:
// good ones, and ones with something bad, missing or too much. Some the fuzzer has too.
func trySeeds(f *testing.F, codecs []codec, good fuzzedAnswer, try func(*fixture, []fuzzedMessage)) {
	f.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for of := range codecs {
		for set, keys := range askedSets() {
			var right []fuzzedAnswer
			for _, key := range keys {
				right = append(right, fitting(key, good))
			}
			streams := slices.Concat(inRow(right), changed(right), single(right[0]))
			for range 12 {
				streams = append(streams, randomStream(random, keys))
			}
			for i, stream := range streams {
				try(newFixture(f, &codecs[of], inputsOfSet(uint8(set))), stream)
				if i%seedEvery == 0 {
					f.Add(uint8(of), uint8(set), streamOf(stream...))
				}
			}
		}
	}
}

// inRow are messages of which the first answers, or not, and others follow.
func inRow(right []fuzzedAnswer) [][]fuzzedMessage {
	yes, no, earlier := fuzzedMessage{answers: right}, fuzzedMessage{}, fuzzedMessage{}
	for _, a := range right {
		before := a
		before.key = "earlier " + a.key
		earlier.answers = append(earlier.answers, before)
		a.action, a.text = "decline", ""
		no.answers = append(no.answers, a)
	}
	list := [][]fuzzedMessage{{yes}, {no}, {yes, yes, yes}, {no, yes, yes}, {yes, no, no}, {{}, yes}, {earlier}, {earlier, yes}}
	for _, state := range []string{"earlier", "none", "x"} {
		late := fuzzedMessage{state: state, answers: right}
		list = append(list, []fuzzedMessage{late}, []fuzzedMessage{yes, yes, late, yes})
	}
	return list
}

// changed are messages in which one answer is another than it should be.
func changed(right []fuzzedAnswer) [][]fuzzedMessage {
	var list [][]fuzzedMessage
	add := func(answers []fuzzedAnswer) {
		list = append(list, []fuzzedMessage{{answers: answers}})
	}
	for i := range right {
		with := func(edit func(*fuzzedAnswer)) {
			answers := slices.Clone(right)
			edit(&answers[i])
			add(answers)
		}
		for _, key := range seedKeys {
			with(func(a *fuzzedAnswer) { a.key = key })
		}
		for _, action := range slices.Compact(slices.Clone(seedActions)) {
			with(func(a *fuzzedAnswer) { a.action = action })
		}
		for _, more := range seedMore[3:] {
			with(func(a *fuzzedAnswer) { a.more = more })
			if right[i].key == keyModel { // whose answer has no action
				with(func(a *fuzzedAnswer) { a.more, a.action = more, `""` })
			}
		}
		for _, other := range right {
			with(func(a *fuzzedAnswer) { a.content = other.content })
		}
		add(slices.Delete(slices.Clone(right), i, i+1))
		twice := right[i]
		twice.action, twice.content = "decline", ""
		add(append(slices.Clone(right), twice))
		add(append([]fuzzedAnswer{twice}, right...))
	}
	return list
}

// single are messages with one answer, in all its values and words.
func single(right fuzzedAnswer) [][]fuzzedMessage {
	var list [][]fuzzedMessage
	add := func(a fuzzedAnswer) {
		list = append(list, []fuzzedMessage{{answers: []fuzzedAnswer{a}}})
	}
	for _, content := range seedContents {
		for _, action := range slices.Compact([]string{right.action, ""}) {
			add(fuzzedAnswer{key: right.key, action: action, content: content})
		}
	}
	for _, text := range seedTexts {
		add(fuzzedAnswer{key: right.key, text: text})
		with := right
		with.text = text
		add(with)
		with.more = `"status":"success"`
		add(with)
	}
	return list
}

// randomStream has answers of which most are to the questions.
func randomStream(random *rand.Rand, keys []string) []fuzzedMessage {
	pick := func(of []string) string { return of[random.IntN(len(of))] }
	var messages []fuzzedMessage
	for range 1 + random.IntN(4) {
		m := fuzzedMessage{state: pick(seedState)}
		for i := range random.IntN(len(keys) + 2) {
			key := pick(seedKeys)
			if random.IntN(4) > 0 {
				key = keys[i%len(keys)]
			}
			a := fuzzedAnswer{key, pick(seedActions), pick(seedContents), pick(seedMore), ""}
			if random.IntN(3) == 0 {
				a.text = pick(seedTexts)
			}
			m.answers = append(m.answers, a)
		}
		messages = append(messages, m)
	}
	return messages
}
