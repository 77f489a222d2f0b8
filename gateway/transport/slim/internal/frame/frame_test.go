package frame

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

func secretOf(t testing.TB) *credential.Secret {
	t.Helper()
	s, err := credential.NewSecret(credential.SecretDeps{ID: "a", Secret: []byte(strings.Repeat("s", 32))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOpen_OnlyAsSigned: a control message is genuine only as it was signed, whatever part
// of its header somebody changes on the way. Nodes may count hops.
func TestOpen_OnlyAsSigned(t *testing.T) {
	t.Parallel()
	secret := secretOf(t)
	for what, change := range map[string]struct {
		spoil   func(*dataplane.Publish)
		genuine bool
	}{
		"nothing":     {func(*dataplane.Publish) {}, true},
		"hops":        {func(p *dataplane.Publish) { p.Header.Ttl-- }, true},
		"source":      {func(p *dataplane.Publish) { p.Header.Source = alice(t).Encode() }, false},
		"destination": {func(p *dataplane.Publish) { p.Header.Destination = self(t).Encode() }, false},
		"session":     {func(p *dataplane.Publish) { p.Session.SessionId++ }, false},
		"message":     {func(p *dataplane.Publish) { p.Session.MessageId++ }, false},
		"type":        {func(p *dataplane.Publish) { p.Session.SessionType++ }, false},
		"kind": {func(p *dataplane.Publish) {
			p.Session.SessionMessageType = LeaveRequest
			p.Msg.GetCommandPayload().CommandPayloadType = Leave().CommandPayloadType
		}, false},
		"no signature": {func(p *dataplane.Publish) { p.Header.E2EHeaderSig = nil }, false},
		"token":        {func(p *dataplane.Publish) { p.Header.Identity += "x" }, false},
		"no token":     {func(p *dataplane.Publish) { p.Header.Identity = "" }, false},
	} {
		m := Control(Route{From: self(t), To: alice(t), Session: 7, Message: 9}, Join(1000, 10), nil)
		if err := Seal(t.Context(), m, secret); err != nil {
			t.Fatal(err)
		}
		change.spoil(m.GetPublish())
		f, err := Read(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Open(t.Context(), secret); (err == nil) != change.genuine {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestData_IsNotSigned: its token is all it has.
func TestData_IsNotSigned(t *testing.T) {
	t.Parallel()
	secret := secretOf(t)
	m := Data(Route{From: self(t), To: alice(t), Session: 7, Message: 1}, Msg, Payload{"msg", []byte("hi")}, nil)
	if err := Seal(t.Context(), m, secret); err != nil {
		t.Fatal(err)
	}
	f, err := Read(m)
	if err != nil || m.GetPublish().GetHeader().GetE2EHeaderSig() != nil {
		t.Fatal(err)
	}
	if _, err := f.Open(t.Context(), secret); err != nil {
		t.Error(err)
	}
}

func TestRead_Refuses(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*dataplane.Message){
		"no publish":        func(m *dataplane.Message) { m.MessageType = nil },
		"no header":         func(m *dataplane.Message) { m.GetPublish().Header = nil },
		"no session":        func(m *dataplane.Message) { m.GetPublish().Session = nil },
		"no source":         func(m *dataplane.Message) { m.GetPublish().Header.Source = nil },
		"no destination":    func(m *dataplane.Message) { m.GetPublish().Header.Destination = nil },
		"long token":        func(m *dataplane.Message) { m.GetPublish().Header.Identity = strings.Repeat("t", maxToken+1) },
		"reserved session":  func(m *dataplane.Message) { m.GetPublish().Session.SessionId = maxSession },
		"no session type":   func(m *dataplane.Message) { m.GetPublish().Session.SessionType = 0 },
		"unknown type":      func(m *dataplane.Message) { m.GetPublish().Session.SessionType = 3 },
		"no kind":           func(m *dataplane.Message) { m.GetPublish().Session.SessionMessageType = 0 },
		"unknown kind":      func(m *dataplane.Message) { m.GetPublish().Session.SessionMessageType = 99 },
		"another kind":      func(m *dataplane.Message) { m.GetPublish().Session.SessionMessageType = LeaveRequest },
		"no message id":     func(m *dataplane.Message) { m.GetPublish().Session.MessageId = 0 },
		"no command":        func(m *dataplane.Message) { m.GetPublish().Msg = nil },
		"much metadata":     func(m *dataplane.Message) { m.Metadata = map[string]string{"k": strings.Repeat("v", MaxMetadata)} },
		"many entries":      func(m *dataplane.Message) { m.Metadata = many() },
		"long payload type": func(m *dataplane.Message) { m.MessageType = longType(t).MessageType },
	} {
		m := Control(Route{From: self(t), To: alice(t), Session: 7, Message: 9}, Join(1000, 10), nil)
		spoil(m)
		var refused *Error
		var wrong *name.Error
		if _, err := Read(m); !errors.As(err, &refused) && !errors.As(err, &wrong) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func longType(t *testing.T) *dataplane.Message {
	t.Helper()
	return Data(Route{From: self(t), To: alice(t), Session: 7, Message: 1}, Msg, Payload{Type: strings.Repeat("t", maxType+1)}, nil)
}

func many() map[string]string {
	out := map[string]string{}
	for i := range MaxEntries + 1 {
		out[strings.Repeat("k", i)] = ""
	}
	return out
}

func TestFits_Limits(t *testing.T) {
	t.Parallel()
	route := Route{From: self(t), To: alice(t), Session: 7, Message: 1}
	var large *TooLargeError
	if _, err := Fits(Data(route, Msg, Payload{Blob: make([]byte, MaxMessage-1024)}, nil)); err != nil {
		t.Error(err)
	}
	if _, err := Fits(Data(route, Msg, Payload{Blob: make([]byte, MaxMessage)}, nil)); !errors.As(err, &large) {
		t.Error(err)
	}
	var refused *Error
	if _, err := Fits(Data(route, Msg, Payload{}, many())); !errors.As(err, &refused) {
		t.Error(err)
	}
}

func FuzzRead_AnyMessage(f *testing.F) {
	from, to := name.Name{Org: "org", Namespace: "ns", Service: "a", ID: name.ID{High: 1, Low: 2}}, name.Name{Org: "org", Namespace: "ns", Service: "b", ID: name.AnyID()}
	route := Route{From: from, To: to, Session: 7, Message: 9}
	for _, m := range []*dataplane.Message{
		Control(route, Join(1000, 10), map[string]string{"k": "v"}), Control(route, Welcome(Member(from.Encode())), nil),
		Data(route, Msg, Payload{"msg", []byte("hi")}, map[string]string{"rpc-id": "x"}), Unreachable(route), Greeting("x", nil, nil), SubscribeTo(from, 1, "t"),
	} {
		bytes, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes)
	}
	secret := secretOf(f)
	f.Fuzz(func(t *testing.T, bytes []byte) {
		m := new(dataplane.Message)
		if proto.Unmarshal(bytes, m) != nil {
			return
		}
		read, err := Read(m)
		if err != nil {
			return
		}
		if read.Control() == (read.Command == nil) && !read.Failed {
			t.Errorf("a %v with command %v", read.Kind, read.Command)
		}
		if _, err := read.Open(t.Context(), secret); err == nil {
			t.Error("somebody guessed the secret")
		}
	})
}
