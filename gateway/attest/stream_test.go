package attest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

func (b *env) stream() attest.Stream {
	return attest.Stream{Subject: b.subject(), Workflow: b.workflow, Pair: attest.Pair{From: "mcp-v1", To: "a2a-v1"}}
}

// A stream has a token when it opens and one when it closes, which covers all events.
func TestStream_OpenAndClose(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		entrance transport.EntryPoint
		dialect  ect.Dialect
		act      ect.Act
		warnings string
	}{
		"translate": {transport.Translate, ect.DialectSeed, ect.ActTranslate, ect.ExtWarnings},
		"native":    {transport.Native, ect.Dialect01, ect.ActTranslate, ect.ExtWarnings},
		"CPAT":      {transport.TranslateCPAT, ect.Dialect00, ect.ActCPATTranslate, ect.ExtCPATWarnings},
	} {
		b := newEnv(t)
		b.must(b.deps.Dialects.Configure(map[ect.Identity]ect.Dialect{b.caller.ID: tc.dialect}))
		trail, request := b.begin()
		foreign := b.unbound(trail, 1)
		stream := b.stream()
		stream.Subject.EntryPoint = tc.entrance
		opened, err := b.OpenStream(t.Context(), trail, stream, []ect.ID{request})
		b.must(err)
		end := attest.End{Parents: []ect.ID{opened.ID()}, Input: ect.Hash([]byte("read")), Output: ect.Hash([]byte("told")), In: 3, Out: 2, Losses: lossy(2)}
		closed, err := b.CloseStream(t.Context(), trail, stream, end)
		b.must(err)
		if !slices.Equal(trail.IDs(), []ect.ID{request, opened.ID(), closed}) || !slices.Equal(trail.Losses(), end.Losses) || trail.Reply() != "" || trail.Request() != request {
			t.Errorf("%s: the trail has tokens %v, losses %v, reply %q", name, trail.IDs(), trail.Losses(), trail.Reply())
		}
		for i, want := range []struct {
			end    attest.End
			state  string
			events string
		}{{attest.End{Parents: []ect.ID{request}}, `"open"`, ""}, {end, `"close"`, "[3,2]"}} {
			v, err := b.verifier(b.caller.ID).Verify(t.Context(), trail.Tokens()[i+1], ect.Check{Purpose: ect.Source, Body: want.end.Output})
			b.must(err)
			c := v.Claims()
			if v.Act() != tc.act || v.Dialect() != tc.dialect || v.Workflow() != b.workflow || !slices.Equal(v.Parents(), want.end.Parents) ||
				c.InputHash != want.end.Input || c.OutputHash != want.end.Output || b.record(v.ID()).Compact != v.Compact() {
				t.Errorf("%s: %s: got act %s, dialect %s, parents %v, hashes %q and %q", name, want.state, v.Act(), v.Dialect(), v.Parents(), c.InputHash, c.OutputHash)
			}
			says(t, c.Ext, map[string]string{
				ect.ExtStream: want.state, ect.ExtEvents: want.events, ect.ExtLeg: `"reply"`, ect.ExtUnboundEvidence: `["` + foreign[0] + `"]`,
			})
			listed(t, c.Ext, tc.warnings, warnings(want.end.Losses), 0, ect.WarningsSize)
		}
		if got, want := strings.Join(b.counts.issued[1:], ", "), string(tc.act)+" L2, "+string(tc.act)+" L2"; got != want {
			t.Errorf("%s: counted %s, want %s", name, got, want)
		}
	}
}

// A stream whose opening or closing token cannot be recorded has none of it on its trail.
func TestStream_RecordingFails(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	trail, request := b.begin()
	b.store.fail = errors.New("gone")
	opened, err := b.OpenStream(t.Context(), trail, b.stream(), []ect.ID{request})
	if !as[*problem.RecordingError](err) || opened.ID() != "" || trail.Count() != 1 {
		t.Errorf("open: got %q, %v, %d tokens", opened.ID(), err, trail.Count())
	}
	b.store.fail = nil
	opened, err = b.OpenStream(t.Context(), trail, b.stream(), []ect.ID{request})
	b.must(err)
	b.store.fail = errors.New("gone")
	closed, err := b.CloseStream(t.Context(), trail, b.stream(), attest.End{Parents: []ect.ID{opened.ID()}, In: 1, Out: 1, Losses: lossy(1)})
	if !as[*problem.RecordingError](err) || closed != "" {
		t.Errorf("close: got %q, %v, want a *problem.RecordingError", closed, err)
	}
	if !slices.Equal(trail.IDs(), []ect.ID{request, opened.ID()}) || len(trail.Losses()) != 0 || trail.Reply() != "" || len(b.counts.issued) != 2 {
		t.Errorf("the trail has tokens %v, losses %v, reply %q; %d are counted", trail.IDs(), trail.Losses(), trail.Reply(), len(b.counts.issued))
	}
	b.store.fail = nil
	if _, err := b.CloseStream(t.Context(), trail, b.stream(), attest.End{Parents: []ect.ID{""}}); !errors.Is(err, ect.ErrUnsignable) || trail.Count() != 2 {
		t.Errorf("a parent without an id: got %v, %d tokens", err, trail.Count())
	}
	if closed, err = b.CloseStream(t.Context(), trail, b.stream(), attest.End{Parents: []ect.ID{opened.ID()}}); err != nil {
		t.Fatal(err)
	}
	if trail.Replied(closed); trail.Reply() != closed || trail.Count() != 3 {
		t.Errorf("closed after all: reply %q, tokens %v", trail.Reply(), trail.IDs())
	}
}
