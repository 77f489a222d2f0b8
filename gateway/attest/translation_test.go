package attest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// lossy makes n losses that change no meaning.
func lossy(n int) []canonical.Loss {
	out := make([]canonical.Loss, n)
	for i := range out {
		out[i] = canonical.Loss{Code: canonical.LossNumbers, Path: "/part/" + strconv.Itoa(i), Fate: canonical.Carried}
	}
	return out
}

// warnings are losses as a token says them.
func warnings(losses []canonical.Loss) []string {
	out := make([]string, len(losses))
	for i, loss := range losses {
		out[i] = loss.String()
	}
	return out
}

// listed holds a list of a token to the whole one: all of it, or between least and most
// bytes, with how many are left out and the hash of the whole.
func listed(t testing.TB, ext ect.Ext, key string, all []string, least, most int) {
	t.Helper()
	got, ok := ext.Strings(key)
	if !ok || len(got) > len(all) || !slices.Equal(got, all[:len(got)]) {
		t.Fatalf("%s: got %v, want the first of %v", key, got, all)
	}
	size := len(ext[key])
	if size > most {
		t.Errorf("%s: %d bytes, at most %d", key, size, most)
	}
	omitted, hash := "", ""
	if left := len(all) - len(got); left > 0 {
		whole, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		omitted, hash = strconv.Itoa(left), strconv.Quote(ect.Hash(whole))
		if size < least {
			t.Errorf("%s: %d bytes, at least %d", key, size, least)
		}
	}
	says(t, ext, map[string]string{key + "_omitted": omitted, key + "_hash": hash})
}

// unbound lets an agent bring n tokens of another workflow, and returns their ids.
func (b *env) unbound(trail *attest.Trail, n int) (ids []string) {
	b.t.Helper()
	foreign := string(ect.NewID())
	for len(ids) < n {
		var tokens []string
		for range min(n-len(ids), attest.MaxSignatures) {
			tokens = append(tokens, b.signed(b.agent, ect.Claims{Workflow: foreign, Parents: []ect.ID{ect.NewID()}}))
		}
		if _, err := b.Receive(b.t.Context(), trail, b.received(tokens...)); err != nil {
			b.t.Fatal(err)
		}
		for _, compact := range tokens {
			ids = append(ids, string(b.claims(compact).ID))
		}
	}
	return ids
}

func TestTranslate_LevelsAndDialects(t *testing.T) {
	t.Parallel()
	for _, dialect := range []ect.Dialect{ect.DialectSeed, ect.Dialect00, ect.Dialect01, ect.DialectDual} {
		for _, level := range []ect.Level{0, ect.L1, ect.L2} {
			for _, size := range []struct{ losses, unbound int }{{0, 0}, {3, 2}, {300, 2}, {3, 30}, {300, 30}} {
				t.Run(fmt.Sprintf("%s L%d %d losses %d unbound", dialect, level, size.losses, size.unbound), func(t *testing.T) {
					t.Parallel()
					translateBothWays(t, dialect, level, size.losses, size.unbound)
				})
			}
		}
	}
}

func translateBothWays(t *testing.T, dialect ect.Dialect, level ect.Level, losses, unbound int) {
	t.Helper()
	b, trail := newEnv(t), attest.Begin()
	b.must(b.deps.Dialects.Configure(map[ect.Identity]ect.Dialect{b.agent.ID: dialect, b.caller.ID: dialect}))
	most := map[bool]struct{ warnings, unbound int }{false: {ect.WarningsSize, 512}, true: {800, 280}}[dialect == ect.DialectDual]
	ask := b.request()
	ask.Subject.Permit, ask.Codec = b.permit(level), codec{body: "asked of the agent", losses: lossy(losses)}
	out, err := b.Translate(t.Context(), trail, ask)
	if err != nil {
		t.Fatal(err)
	}
	b.translatedAs(trail, ask, out, dialect, "asked of the agent")
	claims := b.claims(out.Token())
	listed(t, claims.Ext, ect.ExtWarnings, warnings(lossy(losses)), most.warnings*3/4, most.warnings)
	foreign := b.unbound(trail, unbound)
	back := b.reply(ask.ID)
	back.Subject.Permit, back.Codec = b.permit(level), codec{body: "said to the caller", losses: lossy(losses)}
	if out, err = b.Translate(t.Context(), trail, back); err != nil {
		t.Fatal(err)
	}
	b.translatedAs(trail, back, out, dialect, "said to the caller")
	ext := b.claims(out.Token()).Ext
	listed(t, ext, ect.ExtWarnings, warnings(lossy(losses)), most.warnings*3/4, most.warnings)
	if claims.Ext[ect.ExtUnboundEvidence] != nil || (ext[ect.ExtUnboundEvidence] != nil) != (unbound > 0) {
		t.Errorf("unbound evidence: request %s, reply %s", claims.Ext[ect.ExtUnboundEvidence], ext[ect.ExtUnboundEvidence])
	}
	if unbound > 0 {
		listed(t, ext, ect.ExtUnboundEvidence, foreign, most.unbound*3/4, most.unbound)
	}
	if got, want := strings.Join(b.counts.issued, ", "), fmt.Sprintf("aepb:translate L%[1]d, aepb:translate L%[1]d", b.permit(level).Level()); got != want {
		t.Errorf("counted %s, want %s", got, want)
	}
	if len(trail.Losses()) != 2*losses || trail.Request() != ask.ID || trail.Reply() != back.ID {
		t.Errorf("%d losses, request %s, reply %s", len(trail.Losses()), trail.Request(), trail.Reply())
	}
	var counted []string
	if losses > 0 {
		counted = []string{fmt.Sprintf(`{code="L16",fate="carried",from="a2a-v1",to="mcp-v1"} %d`, losses), fmt.Sprintf(`{code="L16",fate="carried",from="mcp-v1",to="a2a-v1"} %d`, losses)}
	}
	if got := b.counts.losses(t); !slices.Equal(got, counted) {
		t.Errorf("losses are counted as %v, want %v", got, counted)
	}
}

// translatedAs holds what came out of a translation to what went in.
func (b *env) translatedAs(trail *attest.Trail, tr attest.Translation, out transport.Attested, dialect ect.Dialect, body string) {
	t, reader := b.t, b.agent
	t.Helper()
	if tr.Direction == attest.Reply {
		reader = b.caller
	}
	sealed, err := out.Seal()
	b.must(err)
	wire, tokens, err := sealed.Open()
	b.must(err)
	v := b.read(reader, out.Token(), []byte(body))
	claims := v.Claims()
	for name, ok := range map[string]bool{
		"what is sent is what was encoded": string(wire.Body) == body && string(out.Wire().Body) == body,
		"its token travels with it":        len(tokens) == 1 && tokens[0] == out.Token(),
		"it is on record as it is":         b.record(tr.ID).Compact == out.Token() && b.record(tr.ID).Own,
		"the trail has it":                 trail.Tokens()[trail.Count()-1] == out.Token() && trail.IDs()[trail.Count()-1] == tr.ID,
		"the dialect is the reader's":      v.Dialect() == dialect,
		"it has its id":                    v.ID() == tr.ID,
		"it is ours":                       v.Issuer() == b.self.ID,
		"the act is a translation":         v.Act() == ect.ActTranslate,
		"the workflow":                     v.Workflow() == b.workflow,
		"the parents":                      slices.Equal(v.Parents(), tr.Lineage.Parents),
		"the audience":                     slices.Equal(v.Audience(), tr.Audience),
		"inp_hash":                         claims.InputHash == tr.Input,
		"out_hash":                         claims.OutputHash == ect.Hash([]byte(body)),
	} {
		if !ok {
			t.Errorf("%s: not so: %s", tr.Direction, name)
		}
	}
	says(t, claims.Ext, map[string]string{
		ect.ExtLeg: strconv.Quote(string(tr.Direction)), ect.ExtSourceProtocol: strconv.Quote(string(tr.Pair.From)),
		ect.ExtDestProtocol: strconv.Quote(string(tr.Pair.To)), ect.ExtGatewayID: strconv.Quote(string(b.self.ID)),
		ect.ExtCaller: strconv.Quote(string(b.caller.ID)), ect.ExtAgentVersion: strconv.Quote(version), ect.ExtHashForm: "",
	})
}

// What a token cannot leave out may be long: its lists take what is left, so that it is
// signed all the same.
func TestTranslate_ListsGiveWay(t *testing.T) {
	t.Parallel()
	for dialect, longest := range map[ect.Dialect]int{ect.DialectSeed: 3400, ect.Dialect00: 3400, ect.Dialect01: 3400, ect.DialectDual: 900} {
		for _, size := range []int{10, 200, longest} {
			b, trail := newEnv(t), attest.Begin()
			b.must(b.deps.Dialects.Configure(map[ect.Identity]ect.Dialect{b.caller.ID: dialect}))
			foreign := b.unbound(trail, 30)
			tr := b.reply(ect.NewID())
			tr.Subject.Caller.ID += ect.Identity("/" + strings.Repeat("x", size))
			tr.Codec, tr.Ext = codec{body: "said", losses: lossy(300)}, ect.Ext{ect.ExtStream: json.RawMessage(`"open"`)}
			out, err := b.Translate(t.Context(), trail, tr)
			if err != nil {
				t.Errorf("%s, a caller of %d bytes: %v", dialect, size, err)
				continue
			}
			ext := b.read(b.caller, out.Token(), []byte("said")).Claims().Ext
			listed(t, ext, ect.ExtWarnings, warnings(lossy(300)), 0, ect.WarningsSize)
			listed(t, ext, ect.ExtUnboundEvidence, foreign, 0, 512)
		}
	}
}

// A level that this gateway cannot reach is refused before there is a permit.
func TestTranslate_LevelOutOfReach(t *testing.T) {
	t.Parallel()
	b, trail := newEnv(t), attest.Begin()
	tr := b.request()
	var err error
	tr.Subject.Permit, err = policy.Evaluate(policy.Request{
		Caller: b.caller.ID, Native: true, Agent: "calculator", Rules: policy.Rules{Open: true}, Self: b.self.ID, DestLevel: ect.L3,
	})
	if !as[*policy.LevelError](err) {
		t.Fatalf("got %v, want a *policy.LevelError", err)
	}
	out, err := b.Translate(t.Context(), trail, tr)
	if !errors.Is(err, policy.ErrNoPermit) {
		t.Errorf("got %v, want %v", err, policy.ErrNoPermit)
	}
	b.nothing(trail, out)
}

func TestTranslate_CPAT(t *testing.T) {
	t.Parallel()
	b, trail := newEnv(t), attest.Begin()
	tr := b.request()
	tr.Subject.EntryPoint, tr.Codec, tr.Pair.HashForm = transport.TranslateCPAT, codec{body: "asked", losses: lossy(2)}, translators.HashWithoutECT
	b.translated(trail, tr)
	claims := b.read(b.agent, trail.Tokens()[0], []byte("asked")).Claims()
	if claims.Act != ect.ActCPATTranslate {
		t.Errorf("got the act %s, want %s", claims.Act, ect.ActCPATTranslate)
	}
	says(t, claims.Ext, map[string]string{
		ect.ExtCPATSourceProtocol: `"a2a-v1"`, ect.ExtCPATDestProtocol: `"mcp-v1"`, ect.ExtCPATGatewayID: strconv.Quote(string(b.self.ID)),
		ect.ExtSourceProtocol: "", ect.ExtDestProtocol: "", ect.ExtGatewayID: "", ect.ExtWarnings: "", ect.ExtLeg: `"request"`,
		ect.ExtHashForm: strconv.Quote(translators.HashWithoutECT),
	})
	listed(t, claims.Ext, ect.ExtCPATWarnings, warnings(lossy(2)), 0, ect.WarningsSize)
	if got := strings.Join(b.counts.issued, ", "); got != "cpat:translate L2" {
		t.Errorf("counted %s", got)
	}
}

// What travels is what the framer makes, and that is what evidence hashes; losses are
// those of decoding, encoding and framing, in this order.
func TestTranslate_Framed(t *testing.T) {
	t.Parallel()
	b, trail := newEnv(t), attest.Begin()
	tr, all := b.request(), lossy(3)
	tr.Message.Losses, tr.Codec, tr.Framer = all[:1], codec{body: "asked", losses: all[1:2]}, framer{losses: all[2:]}
	out, err := b.Translate(t.Context(), trail, tr)
	if err != nil {
		t.Fatal(err)
	}
	claims := b.read(b.agent, out.Token(), []byte("[asked]")).Claims()
	listed(t, claims.Ext, ect.ExtWarnings, warnings(all), 0, ect.WarningsSize)
	if !slices.Equal(trail.Losses(), all) || string(out.Wire().Body) != "[asked]" {
		t.Errorf("the trail has %v, the wire is %q", trail.Losses(), out.Wire().Body)
	}
}

// A message of the gateway's own has evidence, of which its caller is not told.
func TestTranslate_Internal(t *testing.T) {
	t.Parallel()
	b, trail := newEnv(t), attest.Begin()
	tr := b.request()
	tr.Internal, tr.Codec = true, codec{body: "asked", losses: lossy(1)}
	out, err := b.Translate(t.Context(), trail, tr)
	if _, unsealed := out.Seal(); err != nil || unsealed != nil {
		t.Fatalf("got %v, %v", err, unsealed)
	}
	if trail.Count() != 0 || len(trail.Losses()) != 0 || trail.Request() != "" {
		t.Errorf("the trail tells of it: %v", trail.IDs())
	}
	if !slices.Equal(trail.Requests(nil), []ect.ID{tr.ID}) || !b.record(tr.ID).Own {
		t.Errorf("its token is no request of the execution: %v", trail.Requests(nil))
	}
}

// nothing came of a translation: nothing that can be sent, and nothing on its trail.
func (b *env) nothing(trail *attest.Trail, out transport.Attested) {
	b.t.Helper()
	if _, err := out.Seal(); !errors.Is(err, transport.ErrUnsealed) {
		b.t.Errorf("it can be sealed: %v", err)
	}
	if wire := out.Wire(); len(wire.Body) != 0 || out.Token() != "" {
		b.t.Errorf("it has a message %q and a token %q", wire.Body, out.Token())
	}
	if _, err := out.Carrying(translators.Wire{Body: []byte("asked of the agent")}); !errors.Is(err, transport.ErrUnsealed) {
		b.t.Errorf("it can carry a message: %v", err)
	}
	if trail.Count() != 0 || len(trail.IDs()) != 0 || len(trail.Losses()) != 0 || len(trail.Proof()) != 0 {
		b.t.Errorf("the trail has the tokens %v and the losses %v", trail.IDs(), trail.Losses())
	}
	if trail.Request() != "" || trail.Reply() != "" || len(trail.Requests(nil)) != 0 {
		b.t.Errorf("the trail has a request %q, a reply %q, requests %v", trail.Request(), trail.Reply(), trail.Requests(nil))
	}
	if got := len(b.store.records); got != 0 {
		b.t.Errorf("%d tokens are on record", got)
	}
	if got := len(b.counts.issued); got != 0 {
		b.t.Errorf("%d tokens are counted", got)
	}
}

// Nothing may be forwarded or answered without evidence on record (AEPB, Gateway
// Requirements item 3): faults are planted one at a time.
func TestTranslate_NothingWithoutReceipt(t *testing.T) {
	t.Parallel()
	semantic := []canonical.Loss{{Code: canonical.LossOperation, Path: "/x", Fate: canonical.Dropped}}
	broken := errors.New("broken")
	verbatim := &translators.Wire{Body: []byte("asked of the agent")}
	for name, tc := range map[string]struct {
		fault func(*env, *attest.Translation)
		want  func(error) bool
	}{
		"the store fails":   {func(b *env, _ *attest.Translation) { b.store.fail = broken }, as[*problem.RecordingError]},
		"the store is full": {func(b *env, _ *attest.Translation) { b.store.fail = &state.FullError{} }, as[*problem.RecordingError]},
		"the caller's share is full": {
			func(b *env, _ *attest.Translation) { b.store.fail = &state.FullError{Own: true} }, as[*state.FullError],
		},
		"the id is taken": {func(b *env, _ *attest.Translation) { b.store.fail = &ect.ConflictError{} }, as[*ect.ConflictError]},
		"a root in another's workflow": {
			func(b *env, _ *attest.Translation) { b.store.fail = &ect.ForeignRootError{} }, as[*ect.ForeignRootError],
		},
		"verbatim, and the store fails": {
			func(b *env, tr *attest.Translation) { tr.Verbatim, b.store.fail = verbatim, broken }, as[*problem.RecordingError],
		},
		"the extension is too large": {func(_ *env, tr *attest.Translation) { tr.Ext = large(ect.MaxExtSize) }, is(ect.ErrUnsignable)},
		"the extension is too large for the reader": {func(b *env, tr *attest.Translation) {
			b.must(b.deps.Dialects.Configure(map[ect.Identity]ect.Dialect{tr.Reader: ect.DialectDual}))
			tr.Ext = large(ect.MaxDualExt)
		}, is(ect.ErrUnsignable)},
		"the extension is no JSON": {func(_ *env, tr *attest.Translation) { tr.Ext = ect.Ext{"x": json.RawMessage("{")} }, is(ect.ErrUnsignable)},
		"it is for no reader":      {func(_ *env, tr *attest.Translation) { tr.Audience = nil }, is(ect.ErrUnsignable)},
		"the id is no UUID":        {func(_ *env, tr *attest.Translation) { tr.ID = "7" }, is(ect.ErrUnsignable)},
		"it is its own parent":     {func(_ *env, tr *attest.Translation) { tr.Lineage.Parents = []ect.ID{tr.ID} }, is(ect.ErrUnsignable)},
		"there is no permit":       {func(_ *env, tr *attest.Translation) { tr.Subject.Permit = policy.Permit{} }, is(policy.ErrNoPermit)},
		"verbatim without a permit": {
			func(_ *env, tr *attest.Translation) { tr.Verbatim, tr.Subject.Permit = verbatim, policy.Permit{} }, is(policy.ErrNoPermit),
		},
		"decoding lost the meaning":  {func(_ *env, tr *attest.Translation) { tr.Message.Losses = semantic }, as[*policy.SemanticLossError]},
		"encoding loses the meaning": {func(_ *env, tr *attest.Translation) { tr.Codec = codec{losses: semantic} }, as[*policy.SemanticLossError]},
		"framing loses the meaning":  {func(_ *env, tr *attest.Translation) { tr.Framer = framer{losses: semantic} }, as[*policy.SemanticLossError]},
		"the operator allows another loss": {func(b *env, tr *attest.Translation) {
			tr.Subject.Permit, tr.Codec = b.permit(0, string(canonical.LossPrompts)), codec{losses: semantic}
		}, as[*policy.SemanticLossError]},
		"the codec fails":  {func(_ *env, tr *attest.Translation) { tr.Codec = codec{body: "half", fail: broken} }, is(broken)},
		"the framer fails": {func(_ *env, tr *attest.Translation) { tr.Framer = framer{fail: broken} }, is(broken)},
	} {
		for _, direction := range []attest.Direction{attest.Request, attest.Reply} {
			t.Run(name+", "+string(direction), func(t *testing.T) {
				t.Parallel()
				b, trail := newEnv(t), attest.Begin()
				tr := b.request()
				if direction == attest.Reply {
					tr = b.reply(ect.NewID())
				}
				sound := tr // the same without the fault
				sound.Message = &canonical.Message{}
				tc.fault(b, &tr)
				out, err := b.Translate(t.Context(), trail, tr)
				if !tc.want(err) {
					t.Errorf("got %v", err)
				}
				b.nothing(trail, out)
				b.store.fail = nil
				b.must(b.deps.Dialects.Configure(nil))
				if out, err = b.Translate(t.Context(), trail, sound); err != nil || trail.Count() != 1 {
					t.Fatalf("without the fault: %v", err)
				}
				if _, err := out.Seal(); err != nil {
					t.Errorf("without the fault: %v", err)
				}
			})
		}
	}
}

func as[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }

// large is an extension of at least so many bytes.
func large(size int) ect.Ext {
	ext := ect.Ext{}
	ext.SetString("x", strings.Repeat("x", size))
	return ext
}

// fickle is a hasher for which a body has another form each time.
type fickle struct{ n *int }

func (fickle) HashForm() string { return "fickle" }

func (f fickle) HashInput([]byte) ([]byte, error) {
	*f.n++
	return []byte(strconv.Itoa(*f.n)), nil
}

// A receipt covers the bytes of its token alone: what is other than what was signed
// cannot be sent.
func TestTranslate_OtherBytesThanSigned(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	tr := b.request()
	tr.Verbatim = &translators.Wire{Body: []byte("asked"), Hasher: fickle{new(int)}}
	out, err := b.Translate(t.Context(), attest.Begin(), tr)
	if _, unsealed := out.Seal(); !errors.Is(err, transport.ErrUnsealed) || !errors.Is(unsealed, transport.ErrUnsealed) {
		t.Errorf("got %v, sealed: %v", err, unsealed)
	}
}

// A loss that the operator allows goes through although it changes the meaning (R7).
func TestTranslate_AllowedLoss(t *testing.T) {
	t.Parallel()
	b, trail := newEnv(t), attest.Begin()
	tr := b.request()
	loss := canonical.Loss{Code: canonical.LossOperation, Path: "/x", Fate: canonical.Dropped}
	tr.Subject.Permit, tr.Codec = b.permit(0, string(loss.Code)), codec{body: "asked", losses: []canonical.Loss{loss}}
	b.translated(trail, tr)
	listed(t, b.claims(trail.Tokens()[0]).Ext, ect.ExtWarnings, []string{loss.String()}, 0, ect.WarningsSize)
	if got := b.counts.losses(t); !slices.Equal(got, []string{`{code="L36",fate="dropped",from="a2a-v1",to="mcp-v1"} 1`}) {
		t.Errorf("counted %v", got)
	}
}

// An event of a stream has no token of its own; its losses are judged as all are.
func TestEvent_NoToken(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	tr := b.reply(ect.NewID())
	tr.Codec = codec{body: "event", losses: lossy(1)}
	wire, losses, err := b.Event(tr)
	if err != nil || string(wire.Body) != "event" || len(losses) != 1 {
		t.Errorf("got %q, %v, %v", wire.Body, losses, err)
	}
	tr.Codec = codec{body: "event", losses: []canonical.Loss{{Code: canonical.LossOperation, Fate: canonical.Dropped}}}
	if wire, _, err = b.Event(tr); !as[*policy.SemanticLossError](err) || wire.Body != nil {
		t.Errorf("got %q, %v", wire.Body, err)
	}
	if records, err := ecttest.All(t.Context(), b.store, b.workflow); err != nil || len(records) != 0 {
		t.Errorf("%d tokens are on record, %v", len(records), err)
	}
}

// TestTranslate_AgainCompletesTheRecord: a message that is sent again has the token of before, and its record is put once more with the
// same bytes and members, as the process that recorded it may have ended before the store noted it in its workflow.
func TestTranslate_AgainCompletesTheRecord(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	tr := b.request()
	tr.Again, tr.Internal = true, true
	first, err := b.Translate(t.Context(), attest.Begin(), tr)
	b.must(err)
	b.now = b.now.Add(time.Hour)
	second, err := b.Translate(t.Context(), attest.Begin(), tr)
	b.must(err)
	puts := b.store.records
	if first.Token() != second.Token() || len(puts) != 2 {
		t.Fatalf("%d records were put, expected two of one token", len(puts))
	}
	one, two := puts[0], puts[1]
	if one.Compact != two.Compact || two.Workflow != b.workflow || !two.Own || !two.Until.Equal(one.Until) || !slices.Equal(one.Members, two.Members) || len(one.Members) == 0 {
		t.Errorf("the record is put again as %+v, expected %+v", two, one)
	}
	b.store.fail = errors.New("the store is away")
	if _, err := b.Translate(t.Context(), attest.Begin(), tr); !errors.As(err, new(*problem.RecordingError)) {
		t.Errorf("a message is sent whose record may not be complete: %v", err)
	}
}
