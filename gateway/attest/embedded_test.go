package attest_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// Tokens by their form alone.
const (
	tokenA = "eyJhIjoxfQ.e30.AA"
	tokenB = "eyJhIjoyfQ.e30.AA"
)

// TestTakeTokens_Variants: the tokens of a body are taken out of it, and are those of the
// header where there are any.
func TestTakeTokens_Variants(t *testing.T) {
	t.Parallel()
	const (
		plain  = `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`
		before = `{"jsonrpc":"2.0","id":1,"result":{"_meta":{"aepb.gateway/ect":`
		after  = `},"content":[]}}`
	)
	quoted := func(tokens ...string) string { return before + `["` + strings.Join(tokens, `","`) + `"]` + after }
	for name, c := range map[string]struct {
		form   translators.Translator
		body   string
		header []string
		want   []string
		is     func(error) bool // nil: there is no error
	}{
		"beside no header":            {mcp.New(translators.Config{}), quoted(tokenA, tokenB), nil, []string{tokenA, tokenB}, nil},
		"as in the header":            {mcp.New(translators.Config{}), quoted(tokenA, tokenB), []string{tokenA, tokenB}, []string{tokenA, tokenB}, nil},
		"in the header alone":         {mcp.New(translators.Config{}), plain, []string{tokenA}, nil, nil},
		"nowhere":                     {mcp.New(translators.Config{}), plain, nil, nil, nil},
		"one twice":                   {mcp.New(translators.Config{}), quoted(tokenA, tokenA), nil, []string{tokenA}, nil},
		"fewer than in the header":    {mcp.New(translators.Config{}), quoted(tokenA), []string{tokenA, tokenB}, nil, as[*ect.MalformedError]},
		"others than in the header":   {mcp.New(translators.Config{}), quoted(tokenA), []string{tokenB}, nil, as[*ect.MalformedError]},
		"in another order":            {mcp.New(translators.Config{}), quoted(tokenA, tokenB), []string{tokenB, tokenA}, nil, as[*ect.MalformedError]},
		"what is no token":            {mcp.New(translators.Config{}), quoted("a token"), nil, nil, as[*ect.MalformedError]},
		"what is no list":             {mcp.New(translators.Config{}), before + `"` + tokenA + `"` + after, nil, nil, as[*translators.MalformedError]},
		"a list of what is no text":   {mcp.New(translators.Config{}), before + `[1]` + after, nil, nil, as[*translators.MalformedError]},
		"a token that is too large":   {mcp.New(translators.Config{}), quoted("e30." + strings.Repeat("A", 8<<10) + ".AA"), nil, nil, as[*ect.TooLargeError]},
		"what is no JSON":             {mcp.New(translators.Config{}), "{", nil, nil, nil},
		"a protocol without a place":  {codec{}, quoted(tokenA), nil, nil, nil},
		"the form of another message": {a2a.New(translators.Config{}), quoted(tokenA), nil, nil, nil},
	} {
		wire, tokens, err := attest.TakeTokens(c.form, translators.Wire{Body: []byte(c.body)}, c.header)
		if c.is == nil && err != nil || c.is != nil && !c.is(err) || !slices.Equal(tokens, c.want) {
			t.Errorf("%s: %q, %v, expected %q", name, tokens, err, c.want)
		}
		if want := plain; len(c.want) > 0 && string(wire.Body) != want {
			t.Errorf("%s: without them it is %s, expected %s", name, wire.Body, want)
		}
		if len(c.want) == 0 && err == nil && string(wire.Body) != c.body {
			t.Errorf("%s: it has become %s", name, wire.Body)
		}
	}
}

// hashes is a message that hashes as these bytes, whatever it says.
type hashes string

func (hashes) HashForm() string                   { return "test" }
func (h hashes) HashInput([]byte) ([]byte, error) { return []byte(h), nil }

// TestEmbed_Message: the tokens of an answer stand in its body as well, and what its own
// token covers stays the same. Where they have no place, the answer is as it was.
func TestEmbed_Message(t *testing.T) {
	t.Parallel()
	const task = `{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t"}}}`
	forA2A, forMCP := a2a.New(translators.Config{}), mcp.New(translators.Config{})
	for name, c := range map[string]struct {
		form translators.Translator
		wire translators.Wire
		re   canonical.Op
		in   bool // they are in its body
	}{
		"MCP":                           {forMCP, translators.Wire{Body: []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)}, "", true},
		"A2A, what it answers is known": {forA2A, translators.Wire{Body: []byte(task), Re: canonical.OpInvoke}, "", true},
		"A2A, what it answers is named": {forA2A, translators.Wire{Body: []byte(task)}, canonical.OpInvoke, true},
		"A2A, read as a request":        {forA2A, translators.Wire{Body: []byte(task)}, "", false},
		"A2A, a request":                {forA2A, translators.Wire{Body: []byte(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{}}}`)}, "", true},
		"no body":                       {forMCP, translators.Wire{}, "", false},
		"no protocol":                   {nil, translators.Wire{Body: []byte(task)}, "", false},
		"a protocol without a place":    {codec{}, translators.Wire{Body: []byte(task)}, "", false},
		"another hash":                  {forMCP, translators.Wire{Body: []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), Hasher: hashes("x")}, "", false},
	} {
		before := transport.Vouch(c.wire, nil)
		before.Evidence = []string{tokenA, tokenB}
		after := attest.Embed(c.form, before, c.re)
		wire := after.Wire()
		if !after.Inside || before.Inside || !slices.Equal(after.Evidence, before.Evidence) || wire.Re != c.wire.Re {
			t.Errorf("%s: it is %+v", name, after)
		}
		if !slices.Equal(wire.HashInput(), c.wire.HashInput()) {
			t.Errorf("%s: its own token does not cover it any more: %s", name, wire.HashInput())
		}
		if changed := string(wire.Body) != string(c.wire.Body); changed != c.in {
			t.Errorf("%s: the body is %s", name, wire.Body)
		}
		if !c.in {
			continue
		}
		wire.Re, wire.Hasher = max(c.wire.Re, c.re), nil
		if _, tokens, err := attest.TakeTokens(c.form, wire, after.Evidence); err != nil || !slices.Equal(tokens, after.Evidence) {
			t.Errorf("%s: %q are taken out again, %v", name, tokens, err)
		}
	}
}

// events are those of a list, and then an error.
type events struct {
	list   []transport.Event
	end    error
	closed bool
}

func (e *events) Next(context.Context) (transport.Event, error) {
	if len(e.list) == 0 {
		return transport.Event{}, e.end
	}
	next := e.list[0]
	e.list = e.list[1:]
	return next, nil
}

func (e *events) Close() error {
	e.closed = true
	return nil
}

// TestEmbed_Stream: the tokens of the stream are in its first event with a place for them,
// and those of its end in the last; an event without a place or without a body goes as it is.
func TestEmbed_Stream(t *testing.T) {
	t.Parallel()
	const (
		placeless = `{"jsonrpc":"2.0","id":1,"result":7}`
		status    = `{"jsonrpc":"2.0","id":1,"result":{"statusUpdate":{}}}`
	)
	eventOf := func(body string, evidence ...string) transport.Event {
		return transport.Event{Wire: translators.Wire{Body: []byte(body)}, Evidence: evidence}
	}
	broken := errors.New("broken off")
	for name, c := range map[string]struct {
		form translators.Translator
		list []transport.Event
		want []string // in each event; -: none
		end  error
	}{
		"first and last":            {nil, []transport.Event{eventOf(status), eventOf(status), eventOf(status, tokenB)}, []string{tokenA, "-", tokenB}, io.EOF},
		"one event":                 {nil, []transport.Event{eventOf(status, tokenB)}, []string{tokenA + " " + tokenB}, io.EOF},
		"the first has no place":    {nil, []transport.Event{eventOf(placeless), eventOf(status), eventOf(status)}, []string{"-", tokenA, "-"}, io.EOF},
		"the first has no body":     {nil, []transport.Event{eventOf(""), eventOf(status)}, []string{"-", tokenA}, io.EOF},
		"nothing but evidence last": {nil, []transport.Event{eventOf(status), eventOf("", tokenB)}, []string{tokenA, "-"}, io.EOF},
		"no place at all":           {nil, []transport.Event{eventOf(placeless, tokenB)}, []string{"-"}, io.EOF},
		"it breaks off":             {nil, []transport.Event{eventOf(status)}, []string{tokenA}, broken},
		"without a place":           {codec{}, []transport.Event{eventOf(status, tokenB)}, []string{"-"}, io.EOF},
	} {
		if c.form == nil {
			c.form = a2a.New(translators.Config{})
		}
		inner := &events{list: slices.Clone(c.list), end: c.end}
		before := transport.Vouch(translators.Wire{}, inner)
		before.Evidence = []string{tokenA}
		after := attest.Embed(c.form, before, "")
		var got []string
		for i := range c.list {
			event, err := after.Events().Next(t.Context())
			if err != nil || !slices.Equal(event.Evidence, c.list[i].Evidence) {
				t.Fatalf("%s: event %d is %+v, %v", name, i, event, err)
			}
			event.Wire.Re, event.Wire.Event = canonical.OpInvoke, true
			without, tokens, err := attest.TakeTokens(a2a.New(translators.Config{}), event.Wire, nil)
			if err != nil || string(without.Body) != string(c.list[i].Wire.Body) {
				t.Errorf("%s: without its tokens event %d is %s, %v", name, i, without.Body, err)
			}
			if len(tokens) == 0 {
				tokens = []string{"-"}
			}
			got = append(got, strings.Join(tokens, " "))
		}
		if diff := cmp.Diff(c.want, got); diff != "" || !after.Inside {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		if _, err := after.Events().Next(t.Context()); !errors.Is(err, c.end) {
			t.Errorf("%s: it ends with %v, expected %v", name, err, c.end)
		}
		if err := after.Events().Close(); err != nil || !inner.closed {
			t.Errorf("%s: it is not closed: %v", name, err)
		}
	}
}

// TestRepeat_OnlyWhatIsCovered: an answer is given again if one of the tokens on record is
// about it; what a protocol that is not spoken here hashes is believed to its token.
func TestRepeat_OnlyWhatIsCovered(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	about := func(body, form string) string {
		claims := ect.Claims{Act: ect.ActTranslate, Ext: ect.Ext{}}
		if body != "" {
			claims.OutputHash = ect.Hash([]byte(body))
		}
		if form != "" {
			claims.Ext.SetString(ect.ExtHashForm, form)
		}
		return b.signed(b.self, claims)
	}
	for name, c := range map[string]struct {
		body   string
		tokens []string
		known  bool
		ok     bool
	}{
		"covered":                           {answer, []string{about(answer, "")}, true, true},
		"covered by one of them":            {answer, []string{about("another", ""), about(answer, ""), about("third", "")}, true, true},
		"not covered":                       {answer, []string{about("another", "")}, true, false},
		"no hash":                           {answer, []string{about("", "")}, true, false},
		"no token":                          {answer, nil, true, false},
		"what is no token":                  {answer, []string{"token"}, true, false},
		"covered, of an unknown protocol":   {answer, []string{about(answer, "")}, false, true},
		"another, of an unknown protocol":   {answer, []string{about("another", "")}, false, false},
		"another form of an unknown one":    {answer, []string{about("another", "theirs")}, false, true},
		"another form, and no hash":         {answer, []string{about("", "theirs")}, false, false},
		"another form of what we speak":     {answer, []string{about("another", "theirs")}, true, false},
		"no message":                        {"", nil, true, true},
		"no message, and tokens of another": {"", []string{about("another", "")}, true, true},
	} {
		got, err := attest.Repeat(translators.Wire{Body: []byte(c.body)}, c.tokens, c.known)
		switch {
		case c.ok && (err != nil || string(got.Wire().Body) != c.body || !slices.Equal(got.Evidence, c.tokens) || got.Events() != nil):
			t.Errorf("%s: %+v, %v", name, got, err)
		case !c.ok && (!errors.Is(err, transport.ErrUnsealed) || len(got.Wire().Body) > 0 || len(got.Evidence) > 0):
			t.Errorf("%s: %+v, %v, expected %v", name, got, err, transport.ErrUnsealed)
		}
	}
}
