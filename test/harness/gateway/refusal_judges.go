package gatewaytest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/translators/ainp"
)

// Refused compares an answer with what it must be.
func (b *Fixture) Refused(t *testing.T, l HTTPRequest, got Reply, w Want) {
	t.Helper()
	if got.Status != w.Status {
		t.Errorf("status: got %d, want %d: %s", got.Status, w.Status, Short(got.Body))
	}
	for name, value := range w.Header {
		if got.Header.Get(name) != value {
			t.Errorf("%s: got %q, want %q", name, got.Header.Get(name), value)
		}
	}
	if bytes.Contains(got.Body, []byte(Secret)) {
		t.Errorf("the refusal quotes the message: %s", Short(got.Body))
	}
	switch {
	case w.Bare:
		if len(got.Body) > 0 && !bytes.HasPrefix(got.Body, []byte("POST a JSON-RPC message here")) {
			t.Errorf("a body: %s", Short(got.Body))
		}
	case w.Rest != "":
		statusError(t, got, w)
	case w.RPC != 0:
		nativeError(t, got, w)
	default:
		problemDocument(t, l, got, w)
	}
	b.errorProof(t, l, got, w)
}

// Short is the beginning of a body, at most 600 bytes.
func Short(body []byte) []byte { return body[:min(len(body), 600)] }

// problemDocument judges an RFC 9457 document by docs/http-api.md.
func problemDocument(t *testing.T, l HTTPRequest, got Reply, w Want) {
	t.Helper()
	if media := got.Header.Get("Content-Type"); media != "application/problem+json" {
		t.Fatalf("media type %q: %s", media, Short(got.Body))
	}
	if l.Method == http.MethodHead {
		return
	}
	var doc struct {
		Type, Title, Code, Detail, Instance, Reason string
		Status                                      int
		Request                                     string `json:"request_id"`
	}
	JSONIn(t, got.Body, &doc)
	if doc.Code != w.Code || doc.Status != w.Status || doc.Type != "urn:aepb:problem:"+w.Code {
		t.Errorf("got code %q, status %d, type %q, want %q, %d: %s", doc.Code, doc.Status, doc.Type, w.Code, w.Status, doc.Detail)
	}
	if !strings.Contains(doc.Detail, w.Reason) || doc.Detail == "" || doc.Title == "" {
		t.Errorf("title %q, detail %q, want %q in it", doc.Title, doc.Detail, w.Reason)
	}
	path, _, _ := strings.Cut(l.At, "?")
	if l.At == "" {
		path = "/aepb/translate"
	}
	if !strings.HasSuffix(path, doc.Instance) || doc.Instance == "" {
		t.Errorf("instance %q of a request to %q", doc.Instance, path)
	}
	if got.Header.Get("Cache-Control") == "" {
		t.Error("nothing says whether the refusal may be cached")
	}
}

// RPCError is a JSON-RPC error reply.
type RPCError struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   struct {
		Code    int64           `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

func nativeError(t *testing.T, got Reply, w Want) {
	t.Helper()
	if media := got.Header.Get("Content-Type"); media != "application/json" {
		t.Fatalf("media type %q: %s", media, Short(got.Body))
	}
	var doc RPCError
	JSONIn(t, got.Body, &doc)
	if w.ID != "" && string(doc.ID) != w.ID {
		t.Errorf("the error answers %s, want %s", doc.ID, w.ID)
	}
	if doc.Version != "2.0" || doc.Error.Code != w.RPC {
		t.Errorf("JSON-RPC error: got %d, want %d: %s", doc.Error.Code, w.RPC, doc.Error.Message)
	}
	if !strings.Contains(doc.Error.Message, w.Reason) || doc.Error.Message == "" {
		t.Errorf("message %q, want %q in it", doc.Error.Message, w.Reason)
	}
	if w.Code != "" && !bytes.Contains(doc.Error.Data, []byte(`"urn:aepb:problem:`+w.Code+`"`)) {
		t.Errorf("the details do not name %s: %s", w.Code, doc.Error.Data)
	}
}

// errorProof: a failure after the evidence held leaves a signed
// aepb:translate_error whose input is this very message. It has the four keys of the
// draft (AEPB, Translation Error ECT), whose names are written out here.
func (b *Fixture) errorProof(t *testing.T, l HTTPRequest, got Reply, w Want) {
	t.Helper()
	claims := b.Proofs(t, got)
	if w.Proof == "" {
		if len(got.Header.Values(ect.HeaderName)) > 0 {
			t.Errorf("%d ECTs came with a refusal that leaves none", len(got.Header.Values(ect.HeaderName)))
		}
		return
	}
	if len(claims) == 0 {
		t.Error("no error ECT")
		return
	}
	last := claims[len(claims)-1]
	if code, _ := last.Ext.String("aepb.error"); last.Act != "aepb:translate_error" || code != w.Proof {
		t.Errorf("the last ECT is %s with aepb.error %q, want %q", last.Act, code, w.Proof)
	}
	if from, _ := last.Ext.String("aepb.source_protocol"); from != l.binding() {
		t.Errorf("aepb.source_protocol %q, want %q", from, l.binding())
	}
	if _, ok := last.Ext.String("aepb.dest_protocol"); !ok {
		t.Error("no aepb.dest_protocol")
	}
	why, _ := last.Ext.String("aepb.description")
	if why == "" || len(why) > 256 || !strings.Contains(why, w.Reason) || strings.Contains(why, Secret) {
		t.Errorf("aepb.description %q, want %q in it", why, w.Reason)
	}
	if last.InputHash != ect.Hash([]byte(l.Body)) {
		t.Error("the error ECT is about another message")
	}
	if len(l.Tokens) == 1 {
		if source, _, err := ect.ParseUnverified(l.Tokens[0]); err == nil && (len(last.Parents) != 1 || last.Parents[0] != source.ID) {
			t.Errorf("the error ECT's parents are %v, want the source's %s", last.Parents, source.ID)
		}
	}
}

// SameAnswer demands that two answers have the same status, body, media type and tokens, of which there is one at
// least. What differs is an error of the test, which goes on.
func SameAnswer(t *testing.T, first, again Reply) {
	t.Helper()
	if first.Status != again.Status || string(first.Body) != string(again.Body) {
		t.Errorf("got %d %s, then %d %s", first.Status, Short(first.Body), again.Status, Short(again.Body))
	}
	if a, b := first.Header.Values(ect.HeaderName), again.Header.Values(ect.HeaderName); len(a) == 0 || !slices.Equal(a, b) {
		t.Errorf("%d ECTs, then %d others", len(a), len(b))
	}
	if a, b := first.Header.Get("Content-Type"), again.Header.Get("Content-Type"); a != b {
		t.Errorf("media type %q, then %q", a, b)
	}
}

// statusError judges a google.rpc.Status (A2A 11.6), the same in both versions.
func statusError(t *testing.T, got Reply, w Want) {
	t.Helper()
	if media := got.Header.Get("Content-Type"); media != "application/json" {
		t.Fatalf("media type %q: %s", media, Short(got.Body))
	}
	var doc struct {
		Error struct {
			Code            int
			Status, Message string
			Details         json.RawMessage
		}
	}
	JSONIn(t, got.Body, &doc)
	if doc.Error.Status == "" || !strings.Contains(doc.Error.Message, w.Reason) || doc.Error.Message == "" {
		t.Errorf("status %q, message %q, want %q in it", doc.Error.Status, doc.Error.Message, w.Reason)
	}
	if first := `[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` + w.Rest + `"`; !strings.HasPrefix(string(doc.Error.Details), first) {
		t.Errorf("details %s, want the reason %s", doc.Error.Details, w.Rest)
	}
	if w.Code != "" && !bytes.Contains(got.Body, []byte(`"urn:aepb:problem:`+w.Code+`"`)) {
		t.Errorf("the details do not name %s: %s", w.Code, Short(got.Body))
	}
}

// RefusedAs is how a member was refused.
func RefusedAs(f rpc.Frame, err error) string {
	if status, ok := errors.AsType[*rpc.StatusError](err); ok {
		text, _, _ := strings.Cut(status.Message, ":")
		return fmt.Sprintf("%d %s", status.Code, text)
	}
	if err != nil {
		return err.Error()
	}
	var doc struct {
		Error *struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(f.Body, &doc) != nil || doc.Error == nil {
		return "accepted"
	}
	return fmt.Sprint(doc.Error.Code)
}

// RefusedAINP demands that an answer has a status and is a signed error of AINP with a code and a message. What
// differs is an error of the test, which goes on.
func (b *Fixture) RefusedAINP(t *testing.T, got Reply, status int, code string) {
	t.Helper()
	var doc struct {
		Type    string `json:"msg_type"`
		Sig     string `json:"sig"`
		Payload struct {
			Code    string `json:"error_code"`
			Message string `json:"error_message"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(got.Body, &doc); err != nil || doc.Type != ainp.TypeError || doc.Sig == "" || doc.Payload.Message == "" {
		t.Errorf("no signed AINP error: %d %s", got.Status, Short(got.Body))
	}
	if got.Status != status || doc.Payload.Code != code {
		t.Errorf("got %d %s, want %d %s: %s", got.Status, doc.Payload.Code, status, code, doc.Payload.Message)
	}
}

// ProblemCode is the code of a problem document. An answer that is none is an error of the test, and its code is empty.
func ProblemCode(t *testing.T, got Reply) string {
	t.Helper()
	var p struct{ Code string }
	if err := json.Unmarshal(got.Body, &p); err != nil {
		t.Errorf("no problem document: %s", got.Body)
	}
	return p.Code
}
