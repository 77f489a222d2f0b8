package rollbacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// The tools of the hotel.
const (
	toolCreate = "create_booking"
	toolCancel = "cancel_booking"
	toolGet    = "get_booking"
	toolRename = "rename_guest"

	toolMail    = "send_mail" // cannot be undone
	toolPay     = "pay"       // fails
	toolReserve = "reserve"   // of an agent that rolls back itself
	toolBack    = "rollback"  // its rollback is no tool, and is noted as one
)

// answersIn is how long the hotel takes for one call.
const answersIn = 100 * time.Millisecond

// args are the arguments of all tools. A booking has the key of the call that made it as its id.
type args struct {
	Key   string `json:"key,omitempty"`
	ID    string `json:"id,omitempty"`
	Guest string `json:"guest,omitempty"`
}

// of is the booking that a call is about.
func (a args) of() string { return a.Key + a.ID }

// deed is one call as the hotel got it.
type deed struct {
	tool  string
	args  args
	token ect.ID // of the gateway's token for it
	hash  string // of its bytes
	over  bool   // it was answered
}

// booking is how a booking stands.
type booking struct {
	guest    string
	canceled bool
}

// hotel is an MCP server that knows nothing of rollback, unless it has a signer: then it rolls back itself.
type hotel struct {
	server *httptest.Server
	signer *ect.Signer

	mu       sync.Mutex
	bookings map[string]booking
	deeds    map[string][]deed       // by booking
	tells    map[string]func(d deed) // what to do when a call about a booking comes, by booking
}

var errNoBooking = errors.New("there is no such booking")

func serveHotel(trust *devgateway.Trust, name string) (*hotel, error) {
	conf, err := trust.PeerTLS(name)
	if err != nil {
		return nil, err
	}
	h := &hotel{bookings: map[string]booking{}, deeds: map[string][]deed{}, tells: map[string]func(deed){}}
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1.0.0"}, nil)
	for _, tool := range []string{toolCreate, toolCancel, toolGet, toolRename, toolMail, toolPay, toolReserve} {
		s.AddTool(&mcp.Tool{Name: tool, Description: "Works.", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return h.call(ctx, req)
			})
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	h.server = httptest.NewUnstartedServer(h.noting(handler))
	h.server.TLS = conf
	h.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // gateways die in the middle
	h.server.StartTLS()
	return h, nil
}

func (h *hotel) stop() {
	h.server.CloseClientConnections()
	h.server.Close()
}

// noting notes each call with its token and its bytes, before it is done.
func (h *hotel) noting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
		if err != nil {
			return // the gateway was killed
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.URL.Path == rollbackPath && h.signer != nil {
			h.rollsBack(w, r, body)
			return
		}
		var m struct {
			Method string `json:"method"`
			Params struct {
				Name      string `json:"name"`
				Arguments args   `json:"arguments"`
			} `json:"params"`
		}
		if json.Unmarshal(body, &m) == nil && m.Method == "tools/call" {
			d := deed{tool: m.Params.Name, args: m.Params.Arguments, hash: ect.Hash(body)}
			if claims, _, err := ect.ParseUnverified(firstToken(r.Header)); err == nil {
				d.token = claims.ID
			}
			h.note(d)
			defer h.answered(d)
		}
		next.ServeHTTP(w, r)
	})
}

// firstToken is the newest token of a message.
func firstToken(header http.Header) string {
	first, _, _ := strings.Cut(header.Get(ect.HeaderName), ",")
	return strings.TrimSpace(first)
}

func (h *hotel) note(d deed) {
	h.mu.Lock()
	h.deeds[d.args.of()] = append(h.deeds[d.args.of()], d)
	tell := h.tells[d.args.of()]
	h.mu.Unlock()
	if tell != nil {
		tell(d)
	}
}

// answered says that the hotel has answered a call.
func (h *hotel) answered(d deed) {
	h.mu.Lock()
	tell := h.tells[d.args.of()]
	h.mu.Unlock()
	if d.over = true; tell != nil {
		tell(d)
	}
}

// expect has a function called when the hotel gets a call about a booking, and when it has answered it.
func (h *hotel) expect(of string, come func(deed)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tells[of] = come
}

// account is what the hotel knows of a booking.
func (h *hotel) account(of string) (b booking, there bool, deeds []deed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, there = h.bookings[of]
	return b, there, append([]deed(nil), h.deeds[of]...)
}

func (h *hotel) call(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in args
	if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
		return nil, err
	}
	if !wait.Pause(ctx, answersIn/2) {
		return nil, ctx.Err()
	}
	if req.Params.Name == toolPay {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "the card was declined"}}}, nil
	}
	out, err := h.do(req.Params.Name, in)
	if err != nil {
		return nil, err
	}
	if !wait.Pause(ctx, answersIn/2) {
		return nil, ctx.Err()
	}
	text, err := json.Marshal(out)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text)}, err
}

// do does one call.
func (h *hotel) do(tool string, in args) (args, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, there := h.bookings[in.ID]
	switch {
	case tool == toolCreate, tool == toolReserve, tool == toolMail:
		h.bookings[in.Key] = booking{guest: in.Guest}
		return args{ID: in.Key}, nil
	case !there:
		return args{}, errNoBooking
	case tool == toolCancel:
		b.canceled = true
	case tool == toolRename:
		b.guest = in.Guest
	}
	h.bookings[in.ID] = b
	return args{ID: in.ID, Guest: b.guest}, nil
}
