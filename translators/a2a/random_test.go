package a2a

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// generator makes random messages that are valid and as strange as may be.
type generator struct{ *rand.Rand }

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

// text draws from every Unicode plane, assigned or not, and from the characters
// that JSON writers get wrong.
func (g generator) text() string {
	if g.chance(10) {
		return ""
	}
	var b strings.Builder
	for range 1 + g.IntN(12) {
		switch g.IntN(4) {
		case 0:
			b.WriteRune([]rune("\"\\/\x00\x01\x1f\x7f\u0085\u2028\u2029\ufeff\ufffd<>&'~")[g.IntN(17)])
		case 1:
			b.WriteRune(rune('a' + g.IntN(26)))
		default:
			r := rune(g.IntN(17)<<16 | g.IntN(1<<16))
			if r >= 0xD800 && r <= 0xDFFF {
				r = 'x'
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (g generator) quoted() json.RawMessage { return rawjson.Quote(g.text()) }

func (g generator) number() json.RawMessage {
	digits := func(n int) string {
		var b strings.Builder
		b.WriteByte(byte('1' + g.IntN(9)))
		for range n {
			b.WriteByte(byte('0' + g.IntN(10)))
		}
		return b.String()
	}
	switch g.IntN(5) {
	case 0:
		return json.RawMessage("9007199254740993")
	case 1:
		return json.RawMessage("-0." + digits(39))
	case 2:
		return json.RawMessage(digits(40))
	case 3:
		return json.RawMessage(digits(3) + "E-" + digits(2))
	default:
		return json.RawMessage([]string{"0", "-0", "1.0", "1.00", "1e0"}[g.IntN(5)])
	}
}

// value is any JSON value of at most depth levels.
func (g generator) value(depth int) json.RawMessage {
	if depth <= 0 || g.chance(50) {
		switch g.IntN(5) {
		case 0:
			return json.RawMessage("null")
		case 1:
			return json.RawMessage([]string{"true", "false", "{}", "[]"}[g.IntN(4)])
		case 2:
			return g.number()
		default:
			return g.quoted()
		}
	}
	if g.chance(50) {
		return g.object(depth, "k")
	}
	list := make([]json.RawMessage, g.IntN(4))
	for i := range list {
		list[i] = g.value(depth - 1)
	}
	return rawjson.ArrayOf(list)
}

func (g generator) object(depth int, prefix string) json.RawMessage {
	b := rawjson.NewBuilder()
	for i := range g.IntN(4) {
		b.Raw(fmt.Sprintf("%s%d%s", prefix, i, g.text()), g.value(depth-1))
	}
	return b.Bytes()
}

// tower is as deep as a value under levels others may be.
func tower(levels int) json.RawMessage {
	n := translators.DefaultDepth - levels
	return json.RawMessage(strings.Repeat(`[`, n) + `12345678901234567890` + strings.Repeat(`]`, n))
}

// maybe adds a member, or null, or nothing.
func (g generator) maybe(b *rawjson.Builder, name string, value func() json.RawMessage) {
	switch g.IntN(4) {
	case 0:
	case 1:
		b.Raw(name, json.RawMessage("null"))
	default:
		b.Raw(name, value())
	}
}

func (g generator) texts() json.RawMessage {
	list := make([]json.RawMessage, g.IntN(3))
	for i := range list {
		list[i] = g.quoted()
	}
	return rawjson.ArrayOf(list)
}

func (g generator) extras(b *rawjson.Builder) {
	g.maybe(b, "metadata", func() json.RawMessage { return g.object(3, "m") })
	if g.chance(30) {
		b.Raw("x-later"+g.text(), g.value(3))
	}
}

func (g generator) part() json.RawMessage {
	b := rawjson.NewBuilder()
	switch g.IntN(5) {
	case 0:
		b.Raw("text", g.quoted())
	case 1:
		b.Raw("url", g.quoted())
	case 2:
		data := make([]byte, g.IntN(9))
		for i := range data {
			data[i] = byte(g.IntN(256))
		}
		codec := []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding}[g.IntN(2)]
		b.String("raw", codec.EncodeToString(data))
	case 3:
		b.Raw("data", g.value(5))
	default:
		b.Raw("data", tower(7))
	}
	g.maybe(b, "filename", g.quoted)
	g.maybe(b, "mediaType", g.quoted)
	g.extras(b)
	return b.Bytes()
}

func (g generator) parts(least int) json.RawMessage {
	list := make([]json.RawMessage, least+g.IntN(4))
	for i := range list {
		list[i] = g.part()
	}
	return rawjson.ArrayOf(list)
}

func (g generator) message(role string) json.RawMessage {
	b := rawjson.NewBuilder().String("messageId", "m"+g.text()).String("role", role).Raw("parts", g.parts(1))
	for _, name := range []string{"contextId", "taskId"} {
		g.maybe(b, name, g.quoted)
	}
	for _, name := range []string{"referenceTaskIds", "extensions"} {
		g.maybe(b, name, g.texts)
	}
	g.extras(b)
	return b.Bytes()
}

func (g generator) id() json.RawMessage {
	return []json.RawMessage{g.quoted(), json.RawMessage("-1"), json.RawMessage("12345678901234567890")}[g.IntN(3)]
}

func (g generator) request() translators.Wire {
	params := rawjson.NewBuilder().Raw("message", g.message("ROLE_USER"))
	g.maybe(params, "tenant", g.quoted)
	g.maybe(params, "configuration", func() json.RawMessage {
		b := rawjson.NewBuilder()
		g.maybe(b, "acceptedOutputModes", g.texts)
		g.maybe(b, "historyLength", func() json.RawMessage { return json.RawMessage([]string{"0", "7", `"12"`, "-1"}[g.IntN(4)]) })
		g.maybe(b, "returnImmediately", func() json.RawMessage { return json.RawMessage([]string{"true", "false"}[g.IntN(2)]) })
		return b.Bytes()
	})
	g.extras(params)
	body := rawjson.NewBuilder().String("jsonrpc", "2.0").Raw("id", g.id()).String("method", methodSend).Raw("params", params.Bytes()).Bytes()
	return translators.Wire{Body: body}
}

func (g generator) reply() translators.Wire {
	result := rawjson.NewBuilder()
	if g.chance(30) {
		result.Raw("message", g.message("ROLE_AGENT"))
	} else {
		status := rawjson.NewBuilder().String("state", states[g.IntN(len(states))].name)
		g.maybe(status, "message", func() json.RawMessage { return g.message("ROLE_AGENT") })
		g.maybe(status, "timestamp", func() json.RawMessage {
			return json.RawMessage([]string{`"2026-01-02T03:04:05.678Z"`, `"2026-01-02T03:04:05Z"`, `"2026-01-02T03:04:05.123456789+05:30"`, `""`}[g.IntN(4)])
		})
		task := rawjson.NewBuilder().Raw("id", g.quoted()).Raw("status", status.Bytes())
		g.maybe(task, "contextId", g.quoted)
		g.maybe(task, "artifacts", func() json.RawMessage {
			a := rawjson.NewBuilder().Raw("artifactId", g.quoted()).Raw("parts", g.parts(0))
			g.maybe(a, "name", g.quoted)
			g.maybe(a, "description", g.quoted)
			g.maybe(a, "extensions", g.texts)
			g.extras(a)
			return rawjson.ArrayOf([]json.RawMessage{a.Bytes()})
		})
		g.maybe(task, "history", func() json.RawMessage { return rawjson.ArrayOf([]json.RawMessage{g.message("ROLE_USER")}) })
		g.extras(task)
		result.Raw("task", task.Bytes())
	}
	body := rawjson.NewBuilder().String("jsonrpc", "2.0").Raw("id", g.id()).Raw("result", result.Bytes()).Bytes()
	return translators.Wire{Body: body, Re: canonical.OpInvoke}
}

func TestIdentity_RandomMessages(t *testing.T) {
	t.Parallel()
	tr := New(translators.Config{})
	for seed := range uint64(2000) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		wire := g.request()
		if seed%2 == 1 {
			wire = g.reply()
		}
		before := string(wire.Body)
		roundTrip(t, tr, wire)
		if string(wire.Body) != before {
			t.Fatal("Decode changed its input")
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestIdentity_RandomMessagesIn03 lowers random messages, which may lose what
// 0.3 has no place for, and from then on nothing.
func TestIdentity_RandomMessagesIn03(t *testing.T) {
	t.Parallel()
	for _, form := range []string{TransportJSONRPC, FormHTTP} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			randomIn03(t, form)
		})
	}
}

func randomIn03(t *testing.T, form string) {
	t.Helper()
	tr := New(translators.Config{Depth: translators.DefaultDepth + 1}) // wrapped data is one object deeper
	checked := 0
	for seed := range uint64(1500) {
		g := generator{rand.New(rand.NewPCG(seed, 3))}
		wire := g.request()
		if seed%2 == 1 {
			wire = g.reply()
		}
		m, err := tr.Decode(wire)
		if err != nil {
			t.Fatal(err)
		}
		old, losses, err := tr.Encode(m, translators.Target{Version: Version03, Form: form})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		old.Re = wire.Re
		back, err := tr.Decode(old)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, indent(old.Body))
		}
		if len(back.Losses) == 0 {
			roundTrip(t, tr, old)
			checked++
		}
		back.Correlation.WireID = m.Correlation.WireID // which the connection has, over HTTP
		losses = slices.DeleteFunc(losses, func(l canonical.Loss) bool { return l.Path == "/correlation/wireID" })
		if home, _, err := tr.Encode(back, translators.Target{}); !dropped(losses) && (err != nil || !rawjson.Equal(wire.Body, home.Body)) {
			t.Errorf("another value came home, and nothing was declared dropped: %v\n%s\n%s\n%s", err, wire.Body, old.Body, home.Body)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %v", seed, losses)
		}
	}
	if checked < 1000 {
		t.Errorf("only %d were checked", checked)
	}
}

func dropped(losses []canonical.Loss) bool {
	return slices.ContainsFunc(losses, func(l canonical.Loss) bool { return l.Fate == canonical.Dropped })
}

// FuzzDecode_Roundtrip: whatever comes, there is an answer; and what is understood is
// understood the same way after it was written again.
func FuzzDecode_Roundtrip(f *testing.F) {
	for _, folder := range []string{"identity", "refused"} {
		for _, v := range vectors(f, folder) {
			form := v.wire.Form
			if v.wire.Version != "" {
				form += "@" + v.wire.Version
			}
			f.Add(v.wire.Body, string(v.wire.Re), form)
		}
	}
	tr := New(translators.Config{BodyLimit: 1 << 16, Depth: 32})
	f.Fuzz(func(t *testing.T, body []byte, re, form string) {
		form, version, _ := strings.Cut(form, "@")
		wire := translators.Wire{Body: body, Re: canonical.Op(re), Form: form, Version: version}
		m, err := tr.Decode(wire)
		if err != nil {
			return
		}
		target := translators.Target{Version: m.Origin.Version, Form: form}
		home, losses, err := tr.Encode(m, target)
		if err != nil {
			return
		}
		if !rawjson.Equal(body, home.Body) && len(m.Losses)+len(losses) == 0 && m.Op != canonical.OpDescribe {
			t.Fatalf("another value, and no loss:\n%s\n%s", body, home.Body)
		}
		again, err := tr.Decode(translators.Wire{Body: home.Body, Re: wire.Re, Form: form, Version: home.Version})
		if err != nil {
			t.Fatalf("not read again: %v\n%s", err, home.Body)
		}
		twice, _, err := tr.Encode(again, target)
		if err != nil || !rawjson.Equal(home.Body, twice.Body) {
			t.Fatalf("not stable: %v\n%s\n%s", err, home.Body, twice.Body)
		}
	})
}

// FuzzCard_Roundtrip: cards of every version. What is understood is a description within
// the bounds for foreign text, and its projections to both versions are read
// again.
func FuzzCard_Roundtrip(f *testing.F) {
	for _, v := range vectors(f, "identity") {
		if v.wire.Re == canonical.OpDescribe {
			f.Add(v.wire.Body)
		}
	}
	f.Add([]byte(`{"name":"n\u202e","description":"\u0000","skills":[{"id":"a b"},{"id":"a b"}]}`))
	tr := New(translators.Config{BodyLimit: 1 << 16, Depth: 32})
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := tr.Decode(translators.Wire{Body: body, Re: canonical.OpDescribe})
		if err != nil {
			return
		}
		if _, ok := m.Body.(*canonical.Description); !ok {
			t.Fatalf("a card became a %T", m.Body)
		}
		for _, version := range tr.Info().Versions {
			out, _, err := tr.Encode(m, translators.Target{Version: version})
			if err != nil {
				continue
			}
			if _, err := tr.Decode(translators.Wire{Body: out.Body, Re: canonical.OpDescribe, Version: version}); err != nil {
				t.Fatalf("%s: not read again: %v\n%s", version, err, out.Body)
			}
		}
	})
}
