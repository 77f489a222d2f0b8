package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
)

// said is what a message of the exchange says, whatever its protocol: the call of
// echo, or what comes back.
type said struct {
	id     string // of the call
	text   string
	tokens []string // ECTs inside the message, where the protocol has a place for them
	own    string   // the message's own id, where an answer has one
	at     time.Time
	bare   bool // only what is hashed: without frame, tokens and signature
}

// words are one protocol by hand: as little of it as a call of echo takes, written
// in the order of RFC 8785, so that what is hashed is what is sent.
type words struct {
	binding string
	inside  bool // ECTs stand in the message, and the hash does not cover them
	ask     func(s said) []byte
	asked   func(body []byte) (said, error)
	reply   func(s said) []byte
	replied func(body []byte) (said, error)
	headers func(http.Header) // nil: it is not HTTP
}

// voice is somebody who speaks: in AINP under a DID.
type voice struct {
	did  string
	key  ed25519.PrivateKey
	keys *tainp.Keys // of others; remembered, as the gateway does
}

func newVoice(seed []byte) voice {
	key := ed25519.NewKeyFromSeed(seed)
	public, _ := key.Public().(ed25519.PublicKey)
	return voice{tainp.KeyDID(public), key, tainp.NewKeys(nil, nil)}
}

// bindings are the protocols of the pairs, but for SLIM.
func bindings() []string { return []string{"a2a-v1", "mcp-v1", "uacp-v1", "ainp-v1"} }

// speak gives the words of one protocol.
func (v voice) speak(binding string) words {
	const meta = `"_meta":{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/protocolVersion":"` + modernMCP + `"},`
	for _, w := range []words{
		{"a2a-v1", false, a2aAsk, a2aAsked, a2aReply, a2aReplied, setA2A},
		{"mcp-v1", false, func(s said) []byte { return mcpAsk(s, meta) }, mcpAsked, mcpReply, mcpReplied, setMCP},
		{"uacp-v1", true, uacpAsk, uacpAsked, uacpReply, uacpReplied, nil},
		{"ainp-v1", true, v.ainpAsk, v.ainpAsked, v.ainpReply, v.ainpReplied, setJSON},
		{slimBinding, false, slimAsk, slimAsked, slimReply, slimReplied, nil},
	} {
		if w.binding == binding {
			return w
		}
	}
	return words{}
}

func setJSON(h http.Header) { h.Set("Content-Type", "application/json") }

// hashed is what an ECT says of a message.
func (w words) hashed(body []byte) (string, error) {
	switch w.binding {
	case "uacp-v1":
		at := bytes.IndexByte(body, '{')
		if at < 0 {
			return "", errWords
		}
		var o object
		if err := json.Unmarshal(body[at:], &o); err != nil {
			return "", err
		}
		if inner, ok := o["aepb"].(object); ok {
			delete(inner, "ect")
		}
		text, err := json.Marshal(o)
		return hash(text), err
	case "ainp-v1":
		var o object
		if err := json.Unmarshal(body, &o); err != nil {
			return "", err
		}
		delete(o, "sig")
		if payload, ok := o["payload"].(object); ok {
			delete(payload, "aepb")
			delete(payload, "attestations")
		}
		text, err := json.Marshal(o)
		return hash(text), err
	default:
		return hash(body), nil
	}
}

var errWords = errors.New("bench: not the message that was expected")

// dig follows names, and places in arrays, into decoded JSON.
func dig(value any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o, _ := value.(object)
			value = o[step]
		case int:
			list, _ := value.([]any)
			if step >= len(list) {
				return nil
			}
			value = list[step]
		}
	}
	return value
}

// read decodes a message and finds its text and its id.
func read(body []byte, id []any, text ...any) (said, object, error) {
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return said{}, nil, err
	}
	words, ok := dig(o, text...).(string)
	name, _ := dig(o, id...).(string)
	if !ok {
		return said{}, nil, errWords
	}
	return said{id: name, text: words}, o, nil
}

func quote(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(out)
}

func quotes(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = quote(text)
	}
	return "[" + strings.Join(all, ",") + "]"
}

func strs(value any) []string {
	list, _ := value.([]any)
	var out []string
	for _, v := range list {
		if text, ok := v.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// A2A.

func a2aAsk(s said) []byte {
	return []byte(`{"id":` + quote(s.id) + `,"jsonrpc":"2.0","method":"SendMessage","params":{"message":{"messageId":` + quote(s.id) +
		`,"parts":[{"data":{"input":{"message":` + quote(s.text) + `},"skill":"echo"},"mediaType":"application/json"}],"role":"ROLE_USER"}}}`)
}

func a2aAsked(body []byte) (said, error) {
	s, _, err := read(body, []any{"id"}, "params", "message", "parts", 0, "data", "input", "message")
	return s, err
}

func a2aReply(s said) []byte {
	return []byte(`{"id":` + quote(s.id) + `,"jsonrpc":"2.0","result":{"task":{"artifacts":[{"artifactId":"result","parts":[{"text":` + quote(s.text) +
		`}]}],"contextId":"` + uuid.NewString() + `","id":"` + uuid.NewString() + `","status":{"state":"TASK_STATE_COMPLETED","timestamp":"` +
		time.Now().UTC().Format(time.RFC3339Nano) + `"}}}}`)
}

func a2aReplied(body []byte) (said, error) {
	s, _, err := read(body, []any{"id"}, "result", "task", "artifacts", 0, "parts", 0, "text")
	return s, err
}

// MCP, alone and inside µACP.

func mcpAsk(s said, meta string) []byte {
	return []byte(`{"id":` + quote(s.id) + `,"jsonrpc":"2.0","method":"tools/call","params":{` + meta +
		`"arguments":{"message":` + quote(s.text) + `},"name":"echo"}}`)
}

func mcpAsked(body []byte) (said, error) {
	s, _, err := read(body, []any{"id"}, "params", "arguments", "message")
	return s, err
}

func mcpReply(s said) []byte {
	return []byte(`{"id":` + quote(s.id) + `,"jsonrpc":"2.0","result":{"content":[{"text":` + quote(s.text) + `,"type":"text"}],"isError":false,"resultType":"complete"}}`)
}

func mcpReplied(body []byte) (said, error) {
	s, _, err := read(body, []any{"id"}, "result", "content", 0, "text")
	return s, err
}

// µACP: one message at a time on a connection, so that all have the same id.

const (
	uacpAskHead   = "d\x00\x00\x00\xa8\x08\x00\x00\x03\x0f/mcp/tools/call\x04\x04\x00\x00\x00\x01"
	uacpReplyHead = "d\x00\x00\x00\xa8\x08\x00\x00\x02\x04\x00\x00\x00*\x04\x04\x00\x00\x00\x01"
	uacpID        = "42"
)

func uacpInner(tokens []string, more string) string {
	if len(tokens) == 0 {
		return "{" + more + "}"
	}
	return `{"ect":` + quotes(tokens) + strings.TrimSuffix(","+more, ",") + "}"
}

func uacpFrame(s said, head, payload string) []byte {
	if s.bare {
		head = ""
	}
	return []byte(head + payload)
}

func uacpAsk(s said) []byte {
	call := bytes.Replace(mcpAsk(said{id: "?", text: s.text}, ""), []byte(`"?"`), []byte(uacpID), 1)
	return uacpFrame(s, uacpAskHead, `{"aepb":`+uacpInner(s.tokens, `"id":`+uacpID)+`,"body":`+string(call)+`}`)
}

func uacpAsked(body []byte) (said, error) {
	return uacpRead(body, "body", "params", "arguments", "message")
}

func uacpReply(s said) []byte {
	return uacpFrame(s, uacpReplyHead, `{"aepb":`+uacpInner(s.tokens, "")+`,"body":`+quote(s.text)+`}`)
}

func uacpReplied(body []byte) (said, error) { return uacpRead(body, "body") }

func uacpRead(body []byte, text ...any) (said, error) {
	at := bytes.IndexByte(body, '{')
	if at < 0 {
		return said{}, errWords
	}
	s, o, err := read(body[at:], nil, text...)
	s.tokens = strs(dig(o, "aepb", "ect"))
	return s, err
}

// AINP: everything is signed, and every signature is verified.

const ainpQOS = `"qos":{"bid":0,"ethicalWeight":0.5,"importance":0.5,"novelty":0.5,"urgency":0.5}`

func (v voice) ainpAsk(s said) []byte {
	return v.sign(s, s.id, "INTENT", `{"@context":"https://ainp.dev/contexts/request-service/v1","@type":"RequestService"`+ainpEvidence(s.tokens)+
		`,"semantics":{"details":{"message":`+quote(s.text)+`},"service_type":"echo"},"version":"1.0.0"}`,
		"https://ainp.dev/schemas/intents/request-service/v1")
}

func (v voice) ainpReply(s said) []byte {
	return v.sign(s, s.own, "RESULT", `{`+strings.TrimPrefix(ainpEvidence(s.tokens)+`,"intent_id":`, ",")+quote(s.id)+
		`,"result":`+quote(s.text)+`,"status":"success"}`, "https://ainp.dev/schemas/messages/result/v1")
}

func ainpEvidence(tokens []string) string {
	if len(tokens) == 0 {
		return ""
	}
	return `,"aepb":{"ect":` + quotes(tokens) + `},"attestations":` + quotes(tokens)
}

func (v voice) sign(s said, id, kind, payload, schema string) []byte {
	head := `{"from_did":` + quote(v.did) + `,"id":` + quote(id) + `,"msg_type":"` + kind + `","payload":` + payload + `,` + ainpQOS + `,"schema":"` + schema + `",`
	tail := `"timestamp":` + strconv.FormatInt(s.at.UnixMilli(), 10) + `,"trace_id":` + quote(s.id) + `,"ttl":60000,"version":"0.1.0"}`
	if s.bare {
		return []byte(head + tail)
	}
	sum := sha256.Sum256([]byte(head + tail))
	return []byte(head + `"sig":"` + base64.StdEncoding.EncodeToString(ed25519.Sign(v.key, sum[:])) + `",` + tail)
}

func (v voice) ainpAsked(body []byte) (said, error) {
	return v.read(body, []any{"id"}, "payload", "semantics", "details", "message")
}

func (v voice) ainpReplied(body []byte) (said, error) {
	return v.read(body, []any{"payload", "intent_id"}, "payload", "result")
}

func (v voice) read(body []byte, id []any, text ...any) (said, error) {
	s, o, err := read(body, id, text...)
	if err != nil {
		return s, err
	}
	s.tokens = strs(dig(o, "payload", "aepb", "ect"))
	return s, v.whole(o)
}

// holds: an envelope's signature is its sender's.
func (v voice) holds(body []byte) error {
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return err
	}
	return v.whole(o)
}

func (v voice) whole(o object) error {
	from, _ := o["from_did"].(string)
	text, _ := o["sig"].(string)
	sig, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	known, err := v.keys.Resolve(context.Background(), from)
	if err != nil {
		return err
	}
	delete(o, "sig")
	signed, err := json.Marshal(o)
	sum := sha256.Sum256(signed)
	if err == nil && !ed25519.Verify(known[0], sum[:], sig) {
		err = errors.New("bench: the signature does not hold")
	}
	return err
}

// seal signs an envelope that has no signature.
func (v voice) seal(body []byte) []byte {
	var o object
	if json.Unmarshal(body, &o) != nil {
		return body
	}
	signed, err := json.Marshal(o)
	if err != nil {
		return body
	}
	sum := sha256.Sum256(signed)
	o["sig"] = base64.StdEncoding.EncodeToString(ed25519.Sign(v.key, sum[:]))
	out, err := json.Marshal(o)
	if err != nil {
		return body
	}
	return out
}
