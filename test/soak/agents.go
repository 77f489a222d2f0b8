package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// The agents behind the gateway keep nothing, so that an hour costs them nothing:
// an MCP server of the newest revision with one tool that says its message back,
// and an A2A agent that does the same.

const modernMCP = "2026-07-28"

const (
	discoverResult = `{"resultType":"complete","supportedVersions":["` + modernMCP + `"],"capabilities":{"tools":{}},` +
		`"ttlMs":3600000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"soak","version":"1.0.0"}}}`
	listResult = `{"resultType":"complete","ttlMs":3600000,"cacheScope":"public","tools":[{"name":"echo",` +
		`"description":"Says the message back.","inputSchema":{"type":"object",` +
		`"properties":{"message":{"type":"string"}},"required":["message"],"additionalProperties":false}}]}`
	cardHead = `{"name":"Talker","description":"Says everything back.","version":"1.0.0","supportedInterfaces":[{"url":"`
	cardTail = `","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{"streaming":false},` +
		`"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],` +
		`"skills":[{"id":"talk","name":"Talk","description":"Says it back.","tags":["talk"]}]}`
)

// inbound is as much of a request as the agents read.
type inbound struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Arguments struct {
			Message json.RawMessage `json:"message"`
		} `json:"arguments"`
		Message struct {
			ID      json.RawMessage   `json:"messageId"`
			Context json.RawMessage   `json:"contextId"`
			Parts   []json.RawMessage `json:"parts"`
		} `json:"message"`
	} `json:"params"`
}

func serveAgents(trust *devgateway.Trust) (*httptest.Server, error) {
	conf, err := trust.PeerTLS("agents")
	if err != nil {
		return nil, err
	}
	server := httptest.NewUnstartedServer(nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", serveTool)
	mux.HandleFunc("/", serveTalker)
	mux.HandleFunc("/.well-known/agent-card.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, cardHead+server.URL+cardTail)
	})
	server.Config.Handler, server.TLS = mux, conf
	server.StartTLS()
	return server, nil
}

func serveTool(w http.ResponseWriter, r *http.Request) {
	in, ok := read(w, r)
	if !ok {
		return
	}
	switch in.Method {
	case "tools/call":
		reply(w, in.ID, "result", `{"resultType":"complete","content":[{"type":"text","text":`+string(in.Params.Arguments.Message)+`}],"isError":false}`)
	case "tools/list":
		reply(w, in.ID, "result", listResult)
	case "server/discover":
		reply(w, in.ID, "result", discoverResult)
	default:
		w.WriteHeader(http.StatusNotFound)
		reply(w, in.ID, "error", `{"code":-32601,"message":"method not found"}`)
	}
}

// serveTalker answers with a message in the conversation that it was spoken to in,
// else in one that is always the same: conversations are few.
func serveTalker(w http.ResponseWriter, r *http.Request) {
	in, ok := read(w, r)
	if !ok || len(in.Params.Message.Parts) == 0 {
		return
	}
	conversation := string(in.Params.Message.Context)
	if conversation == "" {
		conversation = `"c"`
	}
	reply(w, in.ID, "result", `{"message":{"messageId":`+string(in.Params.Message.ID)+`,"contextId":`+conversation+
		`,"role":"ROLE_AGENT","parts":[`+string(in.Params.Message.Parts[0])+`]}}`)
}

func read(w http.ResponseWriter, r *http.Request) (inbound, bool) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var in inbound
	if err != nil || json.Unmarshal(body, &in) != nil || in.ID == nil {
		http.Error(w, "a JSON-RPC request was expected", http.StatusBadRequest)
		return in, false
	}
	w.Header().Set("Content-Type", "application/json")
	return in, true
}

func reply(w io.Writer, id json.RawMessage, member, value string) {
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(id)+`,"`+member+`":`+value+`}`)
}

// serveStreams is an A2A agent whose answers are streams: a task, what it works on, and
// its end.
func serveStreams(trust *devgateway.Trust) (*httptest.Server, error) {
	conf, err := trust.PeerTLS("talker")
	if err != nil {
		return nil, err
	}
	server := httptest.NewUnstartedServer(nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/agent-card.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, cardHead+server.URL+strings.Replace(cardTail, `"streaming":false`, `"streaming":true`, 1))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if in, ok := read(w, r); ok {
			w.Header().Set("Content-Type", "text/event-stream")
			stream(w, r, string(in.ID), strconv.Quote(uuid.NewString()))
		}
	})
	server.Config.Handler, server.TLS = mux, conf
	server.StartTLS()
	return server, nil
}

func stream(w http.ResponseWriter, r *http.Request, id, task string) {
	say := func(result string) {
		_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","id":`+id+`,"result":{`+result+"}}\n\n")
		_ = http.NewResponseController(w).Flush()
	}
	update := func(state, more string) {
		say(`"statusUpdate":{"taskId":` + task + `,"contextId":"c","status":{"state":"TASK_STATE_` + state + `"` + more + `}}`)
	}
	say(`"task":{"id":` + task + `,"contextId":"c","status":{"state":"TASK_STATE_WORKING"}}`)
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	for range events {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		update("WORKING", `,"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"on it"}]}`)
	}
	update("COMPLETED", "")
}
