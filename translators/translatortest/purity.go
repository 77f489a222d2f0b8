package translatortest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Purity: Encode leaves its argument as it was, Decode leaves its input as it
// was, the same input gives the same output, and many may ask at once (run the
// contract with the race detector).
//
// One decoded message is judged, hashed, encoded and kept as evidence; if any
// of these steps sees another message than the others, the evidence is wrong.
func Purity(tr translators.Translator, s Samples) []string {
	var failures []string
	for i, wire := range s.Wires {
		failures = append(failures, pureDecode(tr, i, wire)...)
	}
	messages := slices.Concat(s.Foreign, decoded(tr, s))
	for i, m := range messages {
		failures = append(failures, pureEncode(tr, name("message", i, m), m, s.target(m))...)
	}
	return append(failures, crowd(tr, s, messages)...)
}

func pureDecode(tr translators.Translator, i int, wire translators.Wire) []string {
	body, header := bytes.Clone(wire.Body), wire.Header.Clone()
	first, _ := decode(tr, wire)
	if !bytes.Equal(body, wire.Body) || !reflect.DeepEqual(header, wire.Header) {
		return []string{fmt.Sprintf("wire %d: Decode changed its input", i)}
	}
	second, _ := decode(tr, wire)
	if !reflect.DeepEqual(first, second) {
		return []string{fmt.Sprintf("wire %d: Decode said two things about one message", i)}
	}
	return nil
}

func pureEncode(tr translators.Translator, who string, m *canonical.Message, target translators.Target) []string {
	before, lent := clone(m), clone(m)
	first := said(encode(tr, lent, target))
	second := said(encode(tr, lent, target))
	var failures []string
	if !reflect.DeepEqual(before, lent) {
		failures = append(failures, who+": Encode changed its argument")
	}
	if trampled(reflect.ValueOf(lent)) {
		failures = append(failures, who+": Encode wrote behind a value of its argument")
	}
	if !reflect.DeepEqual(first, second) {
		failures = append(failures, who+": Encode said one message in two ways")
	}
	return failures
}

// outcome is all that Encode answers with, in a form that can be compared.
type outcome struct {
	wire   translators.Wire
	losses []canonical.Loss
	err    string
}

func said(wire translators.Wire, losses []canonical.Loss, err error) outcome {
	o := outcome{wire: wire, losses: losses}
	if err != nil {
		o.err = err.Error()
	}
	return o
}

// crowd lets several goroutines translate the same messages at once and
// compares with what one of them does alone.
func crowd(tr translators.Translator, s Samples, messages []*canonical.Message) []string {
	const members = 4
	want := everything(tr, s, messages)
	got := make([][]outcome, members)
	var group sync.WaitGroup
	for i := range members {
		group.Go(func() { got[i] = everything(tr, s, messages) })
	}
	group.Wait()
	for _, outcomes := range got {
		if !reflect.DeepEqual(want, outcomes) {
			return []string{"several at once get other results than one alone"}
		}
	}
	return nil
}

func everything(tr translators.Translator, s Samples, messages []*canonical.Message) []outcome {
	var outcomes []outcome
	for _, m := range messages {
		outcomes = append(outcomes, said(encode(tr, m, s.target(m))))
	}
	for _, wire := range s.Wires {
		if m, err := decode(tr, wire); err == nil {
			outcomes = append(outcomes, said(encode(tr, m, s.target(m))))
		}
	}
	return outcomes
}
