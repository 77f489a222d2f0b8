package translatortest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Totality: no input panics, neither of Decode nor of Encode; what Decode
// refuses is malformed or a *canonical.Error, never anything else; and the
// limits that Info states hold.
//
// The first bytes a codec sees come from a stranger, before policy has had a
// word. The damage done here is what strangers do: cut, flip, replace a value
// by one of another type, nest, and inflate. It is seeded, so that a failure
// repeats.
func Totality(tr translators.Translator, s Samples) []string {
	var failures []string
	failures = append(failures, refused(tr, s)...)
	for i, wire := range s.Wires {
		who := fmt.Sprintf("wire %d", i)
		failures = append(failures, survives(tr, who+" damaged", damaged(wire.Body), wire)...)
		failures = append(failures, survives(tr, who+" in a false frame", [][]byte{wire.Body}, frames(wire)...)...)
		failures = append(failures, deep(tr, who, wire)...)
	}
	failures = append(failures, survives(tr, "noise", noise(), plain(tr), reply(tr))...)
	failures = append(failures, huge(tr, s)...)
	for i, m := range slices.Concat(s.Foreign, decoded(tr, s)) {
		failures = append(failures, unshaken(tr, name("message", i, m), m, s.target(m))...)
	}
	return failures
}

// refused: what the plugin itself calls malformed is.
func refused(tr translators.Translator, s Samples) []string {
	var failures []string
	for i, body := range s.Malformed {
		wire := plain(tr)
		wire.Body = body
		_, err := decode(tr, wire)
		if err == nil || !refusal(err) {
			failures = append(failures, fmt.Sprintf("malformed %d: got %v, want ErrMalformed or a *canonical.Error", i, err))
		}
	}
	return failures
}

// plain is a frame without a body, as a request of the newest version has it.
func plain(tr translators.Translator) translators.Wire {
	info := tr.Info()
	wire := translators.Wire{Binding: info.Binding}
	if len(info.Versions) > 0 {
		wire.Version = info.Versions[0]
	}
	if len(info.Media) > 0 {
		wire.Media = info.Media[0]
	}
	return wire
}

func reply(tr translators.Translator) translators.Wire {
	wire := plain(tr)
	wire.Re = canonical.OpInvoke
	return wire
}

// survives decodes every body in every frame.
func survives(tr translators.Translator, who string, bodies [][]byte, frames ...translators.Wire) []string {
	var failures []string
	for i, body := range bodies {
		for _, wire := range frames {
			wire.Body = body
			m, err := decode(tr, wire)
			if err != nil && !refusal(err) {
				failures = append(failures, fmt.Sprintf("%s, %d: got %T (%v) for %q", who, i, err, err, clip(string(body))))
			}
			if err != nil {
				continue
			}
			if _, _, err := encode(tr, m, translators.Target{Version: m.Origin.Version}); panicked(err) {
				failures = append(failures, fmt.Sprintf("%s, %d: Encode of what it decoded to: %v for %q", who, i, err, clip(string(body))))
			}
		}
	}
	return failures
}

func panicked(err error) bool {
	return errors.As(err, new(*panicError))
}

// frames tells lies about a wire: another version, medium, phase, no header, and
// that it answers something else than a call.
func frames(wire translators.Wire) []translators.Wire {
	version, media, header := wire, wire, wire
	version.Version, media.Media, header.Header = "9999-never", "application/x-unheard-of", nil
	out := []translators.Wire{version, media, header}
	for _, op := range []canonical.Op{"", canonical.OpInvoke, canonical.OpDescribe, canonical.OpCapabilities, canonical.OpPing, canonical.OpNotice, "unheard-of"} {
		other := wire
		other.Re = op
		out = append(out, other)
	}
	for _, profile := range []canonical.Profile{canonical.ProfilePrompt, canonical.ProfileResource, canonical.ProfileResources, "unheard-of"} {
		content := wire
		content.Re, content.Profile = canonical.OpInvoke, profile
		out = append(out, content)
	}
	return out
}

// cuts bounds how many positions of one sample are tried.
const cuts = 300

func damaged(body []byte) [][]byte {
	var out [][]byte
	step := max(1, len(body)/cuts)
	for i := 0; i < len(body); i += step {
		out = append(out, body[:i:i])
		for _, bits := range []byte{0x01, 0x20, 0xFF} {
			flipped := bytes.Clone(body)
			flipped[i] ^= bits
			out = append(out, flipped)
		}
	}
	for _, other := range []string{`null`, `0`, `-1.5e999`, `""`, `"\u0000"`, `[]`, `{}`, `[null]`, `true`} {
		out = append(out, transplants(body, other)...)
	}
	return append(out, append(bytes.Clone(body), body...), nil)
}

// transplants replaces each JSON value inside body by another, one at a time.
func transplants(body []byte, other string) [][]byte {
	if !json.Valid(body) {
		return nil
	}
	var out [][]byte
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	for {
		start := dec.InputOffset()
		tok, err := dec.Token()
		if err != nil {
			return out
		}
		if delim, ok := tok.(json.Delim); ok && (delim == '}' || delim == ']') {
			continue
		}
		at := int(start) + len(body[start:]) - len(bytes.TrimLeft(body[start:], " \t\r\n,:"))
		var value json.RawMessage
		if json.NewDecoder(bytes.NewReader(body[at:])).Decode(&value) != nil {
			continue
		}
		out = append(out, slices.Concat(body[:at], []byte(other), body[at+len(value):]))
	}
}

// noise is random bytes and random JSON punctuation.
func noise() [][]byte {
	random := rand.New(rand.NewPCG(1, 2)) // noise that repeats, not secrets
	const alphabet = "{}[]\",:0123456789.eE-+truefalsn\\u \n\x00\xff"
	var out [][]byte
	for range 200 {
		raw, text := make([]byte, random.IntN(200)), make([]byte, random.IntN(200))
		for i := range raw {
			raw[i] = byte(random.UintN(256))
		}
		for i := range text {
			text[i] = alphabet[random.IntN(len(alphabet))]
		}
		out = append(out, raw, text)
	}
	for _, open := range []string{"[", "{\"a\":", "\"", "\\"} {
		out = append(out, []byte(strings.Repeat(open, 100_000)))
	}
	return out
}

// deep nests further than Info allows, at every value of the sample.
func deep(tr translators.Translator, who string, wire translators.Wire) []string {
	depth := tr.Info().Depth
	if depth <= 0 {
		return nil
	}
	var failures []string
	nest := strings.Repeat("[", depth+1) + strings.Repeat("]", depth+1)
	for _, body := range transplants(wire.Body, nest) {
		wire.Body = body
		if m, err := decode(tr, wire); m != nil && err == nil {
			failures = append(failures, fmt.Sprintf("%s: nesting beyond %d levels was taken", who, depth))
		} else if !refusal(err) {
			failures = append(failures, fmt.Sprintf("%s: nesting beyond %d levels: got %T (%v)", who, depth, err, err))
		}
	}
	return failures
}

// huge is a valid sample with as much white space as breaks the size limit.
func huge(tr translators.Translator, s Samples) []string {
	limit := tr.Info().BodyLimit
	if limit <= 0 {
		return []string{"Info states no body limit"}
	}
	if len(s.Wires) == 0 {
		return nil
	}
	wire := s.Wires[0]
	wire.Body = append(bytes.Repeat([]byte(" "), limit+1-len(wire.Body)), wire.Body...)
	if _, err := decode(tr, wire); !errors.Is(err, translators.ErrTooLarge) {
		return []string{fmt.Sprintf("%d bytes, one more than the limit: got %v, want ErrTooLarge", limit+1, err)}
	}
	return nil
}

// unshaken encodes messages that no decoder would write. Any error will do.
func unshaken(tr translators.Translator, who string, m *canonical.Message, target translators.Target) []string {
	var failures []string
	attempt := func(what string, m *canonical.Message, target translators.Target) {
		if _, _, err := encode(tr, m, target); panicked(err) {
			failures = append(failures, fmt.Sprintf("%s, %s: Encode: %v", who, what, err))
		}
	}
	attempt("no target", m, translators.Target{})
	attempt("unknown version", m, translators.Target{Version: "9999-never", Capability: target.Capability})
	attempt("an empty capability", m, translators.Target{Capability: &canonical.Capability{}})
	for _, op := range []canonical.Op{"", canonical.OpInvoke, canonical.OpDescribe, canonical.OpCapabilities, canonical.OpPing, canonical.OpNotice} {
		for _, phase := range []canonical.Phase{"", canonical.PhaseRequest, canonical.PhaseResponse, canonical.PhaseError} {
			for _, body := range append(strangeBodies(), m.Body) {
				odd := clone(m)
				odd.Op, odd.Phase, odd.Body = op, phase, body
				attempt(fmt.Sprintf("as %s %s with %T", op, phase, body), odd, target)
			}
		}
	}
	return failures
}

func strangeBodies() []canonical.Body {
	return []canonical.Body{
		nil, &canonical.Invoke{}, &canonical.Invoke{Turn: canonical.Content{Parts: []canonical.Part{{}}}},
		&canonical.Invoke{Call: &canonical.Call{}}, &canonical.Result{}, &canonical.Result{Turn: &canonical.Content{}},
		&canonical.Result{Task: &canonical.Task{Artifacts: []canonical.Artifact{{Parts: []canonical.Part{{Kind: "unheard-of"}}}}}},
		&canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{{Kind: canonical.KindData}, {Kind: canonical.KindRef}}}},
		&canonical.DescribeRequest{}, &canonical.Description{Capabilities: []canonical.Capability{{}}},
		&canonical.Page{}, &canonical.CapabilityList{Capabilities: []canonical.Capability{{}}}, &canonical.Error{},
	}
}
