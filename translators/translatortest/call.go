package translatortest

import (
	"errors"
	"fmt"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// panicError is a panic of the translator under test. It never satisfies a law.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func decode(tr translators.Translator, wire translators.Wire) (m *canonical.Message, err error) {
	defer func() {
		if value := recover(); value != nil {
			m, err = nil, &panicError{value}
		}
	}()
	m, err = tr.Decode(wire)
	if err == nil && m == nil {
		err = errors.New("neither a message nor an error")
	}
	return m, err
}

func encode(tr translators.Translator, m *canonical.Message, target translators.Target) (wire translators.Wire, losses []canonical.Loss, err error) {
	defer func() {
		if value := recover(); value != nil {
			wire, losses, err = translators.Wire{}, nil, &panicError{value}
		}
	}()
	return tr.Encode(m, target)
}

// again reads what Encode wrote for m, told what the wire itself cannot tell.
func again(tr translators.Translator, wire translators.Wire, m *canonical.Message) (*canonical.Message, error) {
	if m.Phase != canonical.PhaseRequest && wire.Re == "" {
		wire.Re = m.Op
	}
	return decode(tr, wire)
}

// refusal reports whether err is one of the two kinds that a codec may answer.
func refusal(err error) bool {
	return errors.Is(err, translators.ErrMalformed) || isCanonical(err)
}

func isCanonical(err error) bool {
	return errors.As(err, new(*canonical.Error))
}

// decoded lists the messages that the sample wires hold; what does not decode
// is reported by Sufficient.
func decoded(tr translators.Translator, s Samples) []*canonical.Message {
	var messages []*canonical.Message
	for _, wire := range s.Wires {
		if m, err := decode(tr, wire); err == nil {
			messages = append(messages, m)
		}
	}
	return messages
}

// name says which message a failure is about.
func name(what string, i int, m *canonical.Message) string {
	return fmt.Sprintf("%s %d (%s %s)", what, i, m.Op, m.Phase)
}
