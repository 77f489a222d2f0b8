package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

// The negative suite: what the gateway says to messages, evidence, callers and
// agents that are wrong. Every case names the exact HTTP status and the exact
// code: that of the problem document or, at a native endpoint, the JSON-RPC error's
// number, or the reason of the status, with the problem's code among its details.
//
// The cases of a theme run at the same time against one gateway, which must
// answer good calls afterwards. negative_ect_test.go is about evidence,
// negative_message_test.go about what is posted, negative_door_test.go and
// negative_rest_test.go about the native endpoints, negative_caller_test.go about
// who calls and how often, negative_upstream_test.go about agents that
// misbehave, negative_time_test.go about what is still being worked on, and
// negative_admin_test.go about operators.

// want is an exact refusal.
type want struct {
	status int
	code   string // problem code; at a native endpoint among the details, "" there: the codec's own error
	rpc    int64  // JSON-RPC error number at a native endpoint; 0: a problem document
	rest   string // reason of the google.rpc.Status, at a native endpoint without JSON-RPC; "": another document
	id     string // of the JSON-RPC error, raw; "": not looked at
	bare   bool   // no body at all
	reason string // part of the detail or message

	// proof is aepb.error of the error ECT that must come along; "": no ECT may
	// come. From policy on every failure leaves one (architecture section 5).
	proof  string
	header map[string]string // exact response header fields
}

// refusal is one case.
type refusal struct {
	name string
	make func(t *testing.T, b *bed) letter
	want want
}

// refusals runs the cases of a theme, then good calls.
func refusals(t *testing.T, b *bed, cases []refusal) {
	t.Helper()
	unique(t, cases)
	t.Run("refused", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				l := c.make(t, b)
				b.refused(t, l, b.send(t, l), c.want)
			})
		}
	})
	t.Run("good calls afterwards", b.works)
}

// refusalsInTurn is refusals for cases that share what expires: they wait for no test that
// runs beside them.
func refusalsInTurn(t *testing.T, b *bed, cases []refusal) {
	t.Helper()
	unique(t, cases)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := c.make(t, b)
			b.refused(t, l, b.send(t, l), c.want)
		})
	}
	t.Run("good calls afterwards", b.works)
}

func unique(t *testing.T, cases []refusal) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.name] {
			t.Errorf("two cases named %q", c.name)
		}
		seen[c.name] = true
	}
}

// refused compares an answer with what it must be.
func (b *bed) refused(t *testing.T, l letter, got reply, w want) {
	t.Helper()
	if got.status != w.status {
		t.Errorf("status: got %d, want %d: %s", got.status, w.status, short(got.body))
	}
	for name, value := range w.header {
		if got.header.Get(name) != value {
			t.Errorf("%s: got %q, want %q", name, got.header.Get(name), value)
		}
	}
	if bytes.Contains(got.body, []byte(secret)) {
		t.Errorf("the refusal quotes the message: %s", short(got.body))
	}
	switch {
	case w.bare:
		if len(got.body) > 0 && !bytes.HasPrefix(got.body, []byte("POST a JSON-RPC message here")) {
			t.Errorf("a body: %s", short(got.body))
		}
	case w.rest != "":
		statusError(t, got, w)
	case w.rpc != 0:
		nativeError(t, got, w)
	default:
		problemDocument(t, l, got, w)
	}
	b.errorProof(t, l, got, w)
}

func short(body []byte) []byte { return body[:min(len(body), 600)] }

// problemDocument judges an RFC 9457 document by docs/http-api.md.
func problemDocument(t *testing.T, l letter, got reply, w want) {
	t.Helper()
	if media := got.header.Get("Content-Type"); media != "application/problem+json" {
		t.Fatalf("media type %q: %s", media, short(got.body))
	}
	if l.method == http.MethodHead {
		return
	}
	var doc struct {
		Type, Title, Code, Detail, Instance, Reason string
		Status                                      int
		Request                                     string `json:"request_id"`
	}
	jsonIn(t, got.body, &doc)
	if doc.Code != w.code || doc.Status != w.status || doc.Type != "urn:aepb:problem:"+w.code {
		t.Errorf("got code %q, status %d, type %q, want %q, %d: %s", doc.Code, doc.Status, doc.Type, w.code, w.status, doc.Detail)
	}
	if !strings.Contains(doc.Detail, w.reason) || doc.Detail == "" || doc.Title == "" {
		t.Errorf("title %q, detail %q, want %q in it", doc.Title, doc.Detail, w.reason)
	}
	path, _, _ := strings.Cut(l.at, "?")
	if l.at == "" {
		path = "/aepb/translate"
	}
	if !strings.HasSuffix(path, doc.Instance) || doc.Instance == "" {
		t.Errorf("instance %q of a request to %q", doc.Instance, path)
	}
	if got.header.Get("Cache-Control") == "" {
		t.Error("nothing says whether the refusal may be cached")
	}
}

// rpcError is a JSON-RPC error reply.
type rpcError struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   struct {
		Code    int64           `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

func nativeError(t *testing.T, got reply, w want) {
	t.Helper()
	if media := got.header.Get("Content-Type"); media != "application/json" {
		t.Fatalf("media type %q: %s", media, short(got.body))
	}
	var doc rpcError
	jsonIn(t, got.body, &doc)
	if w.id != "" && string(doc.ID) != w.id {
		t.Errorf("the error answers %s, want %s", doc.ID, w.id)
	}
	if doc.Version != "2.0" || doc.Error.Code != w.rpc {
		t.Errorf("JSON-RPC error: got %d, want %d: %s", doc.Error.Code, w.rpc, doc.Error.Message)
	}
	if !strings.Contains(doc.Error.Message, w.reason) || doc.Error.Message == "" {
		t.Errorf("message %q, want %q in it", doc.Error.Message, w.reason)
	}
	if w.code != "" && !bytes.Contains(doc.Error.Data, []byte(`"urn:aepb:problem:`+w.code+`"`)) {
		t.Errorf("the details do not name %s: %s", w.code, doc.Error.Data)
	}
}

// errorProof: a failure after the evidence held leaves a signed
// aepb:translate_error whose input is this very message. It has the four keys of the
// draft (AEPB, Translation Error ECT), whose names are written out here.
func (b *bed) errorProof(t *testing.T, l letter, got reply, w want) {
	t.Helper()
	claims := b.proofs(t, got)
	if w.proof == "" {
		if len(got.header.Values(ect.HeaderName)) > 0 {
			t.Errorf("%d ECTs came with a refusal that leaves none", len(got.header.Values(ect.HeaderName)))
		}
		return
	}
	if len(claims) == 0 {
		t.Error("no error ECT")
		return
	}
	last := claims[len(claims)-1]
	if said, _ := last.Ext.String("aepb.error"); last.Act != "aepb:translate_error" || said != w.proof {
		t.Errorf("the last ECT is %s with aepb.error %q, want %q", last.Act, said, w.proof)
	}
	if from, _ := last.Ext.String("aepb.source_protocol"); from != l.binding() {
		t.Errorf("aepb.source_protocol %q, want %q", from, l.binding())
	}
	if _, ok := last.Ext.String("aepb.dest_protocol"); !ok {
		t.Error("no aepb.dest_protocol")
	}
	why, _ := last.Ext.String("aepb.description")
	if why == "" || len(why) > 256 || !strings.Contains(why, w.reason) || strings.Contains(why, secret) {
		t.Errorf("aepb.description %q, want %q in it", why, w.reason)
	}
	if last.InputHash != ect.Hash([]byte(l.body)) {
		t.Error("the error ECT is about another message")
	}
	if len(l.tokens) == 1 {
		if source, _, err := ect.ParseUnverified(l.tokens[0]); err == nil && (len(last.Parents) != 1 || last.Parents[0] != source.ID) {
			t.Errorf("the error ECT's parents are %v, want the source's %s", last.Parents, source.ID)
		}
	}
}

// evidence makes a case of a token that is wrong, over a message that is not.
// change gets the good recipe.
func evidence(name string, change func(b *bed, r *ecttest.Recipe), w want) refusal {
	return refusal{name: name, want: w, make: func(t *testing.T, b *bed) letter {
		t.Helper()
		body := addBody(b.number())
		recipe := b.recipe(body)
		change(b, &recipe)
		return letter{body: body, tokens: []string{ecttest.Mint(t, b.me, recipe)}}
	}}
}

// invalid is the refusal of a well-formed token, for a reason.
func invalid(reason ect.Reason, claim string) want {
	text := "refused: " + string(reason)
	if claim != "" {
		text += " (" + claim + ")"
	}
	return want{status: http.StatusForbidden, code: "ect_invalid", reason: text}
}

// malformed is the refusal of what is no token at all.
func malformed(reason string) want {
	return want{status: http.StatusBadRequest, code: "ect_invalid", reason: reason}
}

// tooLarge is the refusal of tokens beyond a bound.
func tooLarge(what string) want {
	return want{status: http.StatusRequestHeaderFieldsTooLarge, code: "ect_invalid", reason: "execution context " + what + " exceeds"}
}

// posted makes a case of a letter with a good token for whatever it says.
func posted(name string, l letter, w want) refusal {
	return refusal{name: name, want: w, make: func(t *testing.T, b *bed) letter {
		t.Helper()
		return b.sealed(t, l)
	}}
}

// sent makes a case of a letter as it is, without a token.
func sent(name string, l letter, w want) refusal {
	return refusal{name: name, want: w, make: func(*testing.T, *bed) letter { return l }}
}

// binding is the protocol that the request is in, by where it is sent.
func (l letter) binding() string {
	at, query, _ := strings.Cut(l.at, "?")
	if l.at == "" {
		at, query, _ = strings.Cut(toCalculator, "?")
	}
	if parts := strings.Split(at, "/"); len(parts) > 3 && parts[1] == "agents" {
		return parts[3] + "-v1" // of /agents/NAME/PROTOCOL
	}
	_, from, _ := strings.Cut("&"+query, "&from=")
	from, _, _ = strings.Cut(from, "&")
	from, _, _ = strings.Cut(from, "@")
	return from
}
