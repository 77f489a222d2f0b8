package attest_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
)

// Trails of one execution share its requests and nothing else.
func TestTrail_Again(t *testing.T) {
	t.Parallel()
	b, first := newEnv(t), attest.Begin()
	ask := b.request()
	ask.Codec = codec{body: "asked", losses: lossy(1)}
	b.translated(first, ask)
	in := b.received(b.signed(b.peer, ect.Claims{Act: ect.ActTranslate, Workflow: string(ect.NewID()), Parents: ids(1)}))
	in.Subject.Gateway = true
	if _, err := b.Receive(t.Context(), first, in); err != nil { // learned, and declared unbound
		t.Fatal(err)
	}
	back := b.translated(first, b.reply(ask.ID))
	again := first.Again()
	if again.Count() != 0 || len(again.IDs()) != 0 || len(again.Losses()) != 0 || len(again.Proof()) != 0 || again.Request() != "" || again.Reply() != "" {
		t.Errorf("the new trail begins with tokens %v, losses %v, request %q, reply %q", again.IDs(), again.Losses(), again.Request(), again.Reply())
	}
	second := b.translated(again, b.request())
	answered := b.translated(again, b.reply(second))
	if ext := b.claims(again.Tokens()[1]).Ext; ext[ect.ExtUnboundEvidence] != nil {
		t.Errorf("the new trail declares what came with the reply of the other: %s", ext[ect.ExtUnboundEvidence])
	}
	for name, trail := range map[string]*attest.Trail{"first": first, "second": again} {
		if got := trail.Requests(nil); !slices.Equal(got, []ect.ID{ask.ID, second}) {
			t.Errorf("%s: requests %v, want those of both", name, got)
		}
	}
	again.Follow(ask.ID)
	again.Replied(back)
	if first.Request() != ask.ID || first.Reply() != back || first.Count() != 2 || len(first.Losses()) != 1 || len(first.Proof()) != 3 {
		t.Errorf("the other trail changed the first: request %s, reply %s, tokens %v", first.Request(), first.Reply(), first.IDs())
	}
	if again.Request() != ask.ID || again.Reply() != back || !slices.Equal(again.IDs(), []ect.ID{second, answered}) {
		t.Errorf("the second has request %s, reply %s, tokens %v", again.Request(), again.Reply(), again.IDs())
	}
}

// Of many requests the first is remembered, by which the execution is known, and the
// latest.
func TestTrail_Requests(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	const most = 16
	ask := func(trail *attest.Trail, n int) (made []ect.ID) {
		for range n {
			made = append(made, b.translated(trail, b.request()))
			if got := len(trail.Requests(nil)); got > most {
				t.Fatalf("%d requests, at most %d", got, most)
			}
		}
		return made
	}
	bounded := func(all []ect.ID) []ect.ID { return append([]ect.ID{all[0]}, all[len(all)-most+1:]...) }
	trail := attest.Begin()
	made := ask(trail, most)
	if got := trail.Requests(nil); !slices.Equal(got, made) {
		t.Errorf("got %v, want all of %v", got, made)
	}
	made = append(made, ask(trail, 9)...)
	if got := trail.Requests(nil); !slices.Equal(got, bounded(made)) {
		t.Errorf("got %v, want the first and the latest of %v", got, made)
	}
	before := ids(3)
	record := slices.Clone(before)
	resumed := attest.Resume(record)
	record[0] = ect.NewID()
	after := ask(resumed, 2)
	all := slices.Concat(before, after)
	if got := resumed.Requests(nil); !slices.Equal(got, all) {
		t.Errorf("taken up: got %v, want %v", got, all)
	}
	if got := resumed.Requests(before); !slices.Equal(got, all) {
		t.Errorf("taken up, with those of its record: got %v, want each once: %v", got, all)
	}
	more := ids(most)
	if got := resumed.Requests(more); !slices.Equal(got, bounded(slices.Concat(more, all))) {
		t.Errorf("with the record's: got %v, want the first and the latest", got)
	}
	if got := resumed.Requests(nil); !slices.Equal(got, all) {
		t.Errorf("what it was asked changed it: %v", got)
	}
	b.translated(resumed, b.reply(all[0]))
	if got := resumed.Requests(nil); !slices.Equal(got, all) {
		t.Errorf("a reply counts as request: %v", got)
	}
}

// teach lets a peer's tokens of an act come with a reply, each with so much extension.
func (b *env) teach(trail *attest.Trail, gateway bool, act ect.Act, n, size int) (tokens []string) {
	b.t.Helper()
	for range n {
		tokens = append(tokens, b.signed(b.peer, ect.Claims{Act: act, Workflow: b.workflow, Parents: ids(1), Ext: large(size)}))
	}
	for batch := range slices.Chunk(tokens, attest.MaxSignatures) {
		in := b.received(batch...)
		in.Subject.Gateway = gateway
		_, err := b.Receive(b.t.Context(), trail, in)
		b.must(err)
	}
	return tokens
}

// What others signed goes back to callers that are gateways, as much as fits with ours:
// eight tokens, and 8 KiB of them (R4).
func TestTrail_Proof(t *testing.T) {
	t.Parallel()
	const most = 8 << 10
	for name, tc := range map[string]struct {
		gateway bool
		act     ect.Act
		n, size int
		want    int // of those that were learned
	}{
		"nothing learned":         {true, ect.ActTranslate, 0, 0, 0},
		"one":                     {true, ect.ActTranslate, 1, 10, 1},
		"of CPAT":                 {true, ect.ActCPATTranslate, 1, 10, 1},
		"a failure":               {true, ect.ActTranslateError, 1, 10, 1},
		"another act":             {true, "task_done", 1, 10, 0},
		"to no gateway":           {false, ect.ActTranslate, 1, 10, 0},
		"too many bytes, of two":  {true, ect.ActTranslate, 2, 3000, 1},
		"too many bytes, of many": {true, ect.ActTranslate, 20, 100, 5},
		"too large for any":       {true, ect.ActTranslate, 1, 4000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, trail := newEnv(t), attest.Begin()
			b.translated(trail, b.request())
			learned := b.teach(trail, tc.gateway, tc.act, tc.n, tc.size)
			got := trail.Proof()
			if !slices.Equal(got[:1], trail.Tokens()) || !slices.Equal(got[1:], learned[:len(got)-1]) {
				t.Fatal("it is not ours and then what was learned, in order")
			}
			size := len(strings.Join(got, ""))
			if len(got) > attest.MaxSignatures || size > most {
				t.Errorf("%d tokens with %d bytes, at most %d with %d", len(got), size, attest.MaxSignatures, most)
			}
			if left := len(learned) - len(got) + 1; tc.want < tc.n && tc.gateway && tc.act == ect.ActTranslate && left > 0 {
				if next := learned[len(got)-1]; len(got) < attest.MaxSignatures && size+len(next) <= most {
					t.Errorf("one more would fit: %d tokens, %d and %d bytes", len(got), size, len(next))
				}
				return
			}
			if len(got)-1 != tc.want {
				t.Errorf("got %d learned tokens, want %d", len(got)-1, tc.want)
			}
		})
	}
}

// Small keys and no chain make tokens of which eight fit: then their number is the bound.
func TestTrail_ProofOfMany(t *testing.T) {
	t.Parallel()
	b, trail := newEnv(t), attest.Begin()
	b.translated(trail, b.request())
	signer, err := ect.NewSigner(ect.SignerDeps{Key: b.peer.Key, Issuer: b.peer.ID})
	b.must(err)
	for range 12 {
		token, err := signer.Sign(ect.Claims{Act: ect.ActTranslate, Audience: []string{string(b.self.ID)}, Workflow: b.workflow, Parents: ids(1)})
		b.must(err)
		in := b.received(token.Compact())
		in.Subject.Gateway = true
		_, err = b.Receive(t.Context(), trail, in)
		b.must(err)
	}
	if got := len(trail.Proof()); got != attest.MaxSignatures {
		t.Errorf("got %d tokens, want %d", got, attest.MaxSignatures)
	}
	for range attest.MaxSignatures {
		b.translated(trail, b.request())
	}
	if got := trail.Proof(); !slices.Equal(got, trail.Tokens()) {
		t.Errorf("ours go whole, and alone: %d of %d", len(got), trail.Count())
	}
}

// Many goroutines work on one execution: what each of them made is on the trail.
func TestTrail_Concurrent(t *testing.T) {
	t.Parallel()
	b, trail := newEnv(t), attest.Begin()
	b.translated(trail, b.request())
	const workers = 8
	var group sync.WaitGroup
	for i := range workers {
		foreign := b.signed(b.peer, ect.Claims{Act: ect.ActTranslate, Workflow: string(ect.NewID()), Parents: ids(1)})
		ask, back := b.request(), b.reply(trail.Request())
		ask.Codec = codec{body: "asked", losses: lossy(1)}
		in := b.received(foreign)
		in.Subject.Gateway = true
		on := trail
		if i%2 == 1 {
			on = trail.Again()
		}
		group.Go(func() {
			_, err := b.Translate(t.Context(), on, ask)
			_, again := b.Receive(t.Context(), trail, in)
			_, reply := b.Translate(t.Context(), trail, back)
			if err != nil || again != nil || reply != nil {
				t.Errorf("got %v, %v, %v", err, again, reply)
			}
		})
		group.Go(func() {
			trail.Follow(trail.Request())
			trail.Replied(trail.Reply())
			_, _, _, _, _ = trail.Tokens(), trail.IDs(), trail.Losses(), trail.Proof(), trail.Requests(nil)
		})
	}
	group.Wait()
	if got, want := trail.Count(), 1+workers/2+workers; got != want || len(trail.IDs()) != want || len(trail.Losses()) != workers/2 {
		t.Errorf("%d tokens, %d losses, want %d and %d", got, len(trail.Losses()), want, workers/2)
	}
	if got := len(trail.Requests(nil)); got != 1+workers {
		t.Errorf("%d requests, want %d", got, 1+workers)
	}
	last := b.translated(trail, b.reply(trail.Request()))
	if got, _ := b.claims(b.record(last).Compact).Ext.Strings(ect.ExtUnboundEvidence); len(got) != workers {
		t.Errorf("%d tokens are declared unbound, want %d", len(got), workers)
	}
}

// What a trail gave away is not changed by what comes after it.
func TestTrail_SharesNoArray(t *testing.T) {
	t.Parallel()
	b, trail := newEnv(t), attest.Begin()
	for range 3 {
		b.translated(trail, b.request())
	}
	tokens := trail.Tokens()
	b.translated(trail, b.request())
	_ = append(tokens, "another")
	if got := trail.Tokens(); got[3] == "another" || !slices.Equal(got[:3], tokens) {
		t.Error("what was appended to the tokens of a trail is on it")
	}
}
