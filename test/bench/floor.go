package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// floor is the least code that does the gateway's job for one exchange: A2A
// SendMessage in, MCP tools/call out, one ECT verified, two signed. It knows its
// only sender's key, keeps no record, sees no replay, enforces no policy and
// reads JSON the way a first draft would.
type floor struct {
	signer   *minter
	sender   *ecdsa.PublicKey
	upstream string
	client   *http.Client
}

func newFloor(s script) (http.Handler, error) {
	key, err := x509.ParseECPrivateKey(s.Key)
	if err != nil {
		return nil, err
	}
	kid, err := devgateway.Thumbprint(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	sender, err := x509.ParseCertificate(s.Client)
	if err != nil {
		return nil, err
	}
	public, ok := sender.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return nil, errors.New("bench: the sender's key is not ECDSA")
	}
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	return &floor{
		signer:   &minter{issuer: s.Gateway, key: key, kid: kid, chain: [][]byte{s.Certificate}},
		sender:   public,
		upstream: s.Upstream,
		client:   client,
	}, nil
}

// ServeHTTP carries one message there and its reply back.
func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply, evidence, err := f.exchange(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header()["Execution-Context"] = evidence
	_, _ = w.Write(reply)
}

func (f *floor) exchange(r *http.Request) (reply []byte, evidence []string, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, err
	}
	source, err := f.verify(r.Header.Get("Execution-Context"), body)
	if err != nil {
		return nil, nil, err
	}
	message, call, err := toCall(body)
	if err != nil {
		return nil, nil, err
	}
	request, err := f.leg("request", source, body, call)
	if err != nil {
		return nil, nil, err
	}
	answer, err := f.forward(r.Context(), call, request.compact)
	if err != nil {
		return nil, nil, err
	}
	task, err := toTask(message, answer)
	if err != nil {
		return nil, nil, err
	}
	back, err := f.leg("reply", request.claims, answer, task)
	if err != nil {
		return nil, nil, err
	}
	return task, []string{request.compact, back.compact}, nil
}

func (f *floor) verify(compact string, body []byte) (ectClaims, error) {
	var c ectClaims
	_, err := jwt.ParseWithClaims(compact, &c, func(*jwt.Token) (any, error) { return f.sender, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(f.signer.issuer),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt())
	if err == nil && c.OutputHash != hash(body) {
		err = errors.New("bench: the ECT is not of this body")
	}
	return c, err
}

// leg signs the ECT of one translation.
func (f *floor) leg(name string, parent ectClaims, in, out []byte) (minted, error) {
	return f.signer.mint(ectClaims{
		RegisteredClaims: jwt.RegisteredClaims{Audience: jwt.ClaimStrings{f.upstream, f.signer.issuer}},
		Workflow:         parent.Workflow, Act: "aepb:translate", Parents: []string{parent.ID},
		InputHash: hash(in), OutputHash: hash(out),
		Ext: map[string]string{
			"aepb.source_protocol": "a2a-v1", "aepb.dest_protocol": "mcp-v1",
			"aepb.gateway_id": f.signer.issuer, "aepb.leg": name,
		},
	})
}

func (f *floor) forward(ctx context.Context, call []byte, evidence string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.upstream, bytes.NewReader(call))
	if err != nil {
		return nil, err
	}
	setMCP(req.Header)
	req.Header.Set("Execution-Context", evidence)
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("bench: the MCP server answered %s", resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// object is JSON the easy way; the benchmark's numbers are all strings.
type object = map[string]any

func toCall(body []byte) (message object, call []byte, err error) {
	if err := json.Unmarshal(body, &message); err != nil {
		return nil, nil, err
	}
	params, _ := message["params"].(object)
	turn, _ := params["message"].(object)
	parts, _ := turn["parts"].([]any)
	if len(parts) != 1 {
		return nil, nil, errors.New("bench: one part was expected")
	}
	part, _ := parts[0].(object)
	data, _ := part["data"].(object)
	call, err = json.Marshal(object{
		"jsonrpc": "2.0", "id": message["id"], "method": "tools/call",
		"params": object{"name": data["skill"], "arguments": data["input"], "_meta": object{
			"io.modelcontextprotocol/protocolVersion":    modernMCP,
			"io.modelcontextprotocol/clientCapabilities": object{},
		}},
	})
	return message, call, err
}

func toTask(message object, answer []byte) ([]byte, error) {
	var response object
	if err := json.Unmarshal(answer, &response); err != nil {
		return nil, err
	}
	result, ok := response["result"].(object)
	if !ok {
		return nil, errors.New("bench: the MCP server answered an error")
	}
	var parts []any
	content, _ := result["content"].([]any)
	for _, c := range content {
		block, _ := c.(object)
		parts = append(parts, object{"text": block["text"]})
	}
	task := object{
		"id": uuid.NewString(), "contextId": uuid.NewString(),
		"status": object{"state": "TASK_STATE_COMPLETED", "timestamp": time.Now().UTC().Format(time.RFC3339Nano)},
	}
	if failed, _ := result["isError"].(bool); failed {
		task["status"] = object{"state": "TASK_STATE_FAILED", "message": object{
			"messageId": uuid.NewString(), "role": "ROLE_AGENT", "parts": parts,
		}}
	} else {
		task["artifacts"] = []any{object{"artifactId": "result", "parts": parts}}
	}
	return json.Marshal(object{"jsonrpc": "2.0", "id": message["id"], "result": object{"task": task}})
}

func hash(octets []byte) string {
	sum := sha256.Sum256(octets)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
