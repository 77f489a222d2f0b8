package link

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/mlkem"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
)

func TestVersion_Supported(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"2.0.0", "2.2.0", "2.0.0-alpha.5", "3.0.1", "3.4.6", "3.5.0+build.1"} {
		if err := spoken(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	const expected = ", and 2 or 3 is expected here"
	for text, want := range map[string]string{
		"1.4.0":                              "slim link: the node speaks SLIM 1.4.0" + expected,
		"4.0.0-rc.1":                         "slim link: the node speaks SLIM 4.0.0" + expected,
		"20.0.0":                             "slim link: the node speaks SLIM 20.0.0" + expected,
		"":                                   "slim link: the node names no version of SLIM that can be read" + expected,
		"2":                                  "slim link: the node names no version of SLIM that can be read" + expected,
		"3.x.\n":                             "slim link: the node names no version of SLIM that can be read" + expected,
		"3.0.0-" + strings.Repeat("a", 1000): "slim link: the node names no version of SLIM that can be read" + expected,
	} {
		var wrong *versionError
		if err := spoken(text); !errors.As(err, &wrong) || err.Error() != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What a node of SLIM 3.4.6 has sent: the link, its key, and a header (base64).
const (
	realLink   = "cdc3471c-0526-4c29-9d4b-c9e0cb659236"
	realKey    = "c3a56ef2dc654a89ffc56e783f0257104ddd10b74e4809e061867b72d37b1fc0"
	realHeader = "Ck0KOAi7rKq3t4CWn4cBENGhpuOk09387gEYlavqp8HNnJGSASIVCLicn/Dw49a8DRCRrc3SnJnNw/MBEhEKA29yZxICbnMaBmdvZ2F0ZRJKCjgIu6yqt7eA" +
		"lp+HARDRoabjpNPd/O4BGMTnlde36IbXSSIWCP///////////wEQ////////////ARIOCgNvcmcSAm5zGgNib2Ia5gFvcmcvbnMvZ29nYXRlX042S0VLTjI3" +
		"OjE3OTU3NDUwOTI6M0toWTNtb0lYdmlXYVhpVDpleUp3ZFdKclpYa2lPaUpDU2pSTFYzTXJZVnAzVDFaMk9GcHNXR1ppYzBGR2FVOHlWVzVxYlVnME1FZE9O" +
		"MEZXYUdNM2NIbHRibUpPVFRNd05rWndXRUl4YnpoaU5XbHpWV1Y0Y21GdVZrRlBaM2RhTVRWS2RqRkVXakpITmpVNFJFVTlJbjA6YnFfQk9sZldzMlNzOFBS" +
		"RkFaRFI2X2RXMTZtbnpjZmxDRnE5Y1BIUW1qSSABKgUyLjAuMDAHSABaIEUimkg/v8FD6+DVRF8LJpTlv7DCg8piQxx9p73ym8zVYkcwRQIgWyOOX5R3Efyi" +
		"zWQjvcnPt03ub8IBw09zCoEpWI+MFC0CIQCg5ql9Ak3CNcbevZxlpCpOlkkvUN7G5JJbgtf1gaEsPQ=="
)

func realMessage(t testing.TB) (*mac, *dataplane.Message) {
	t.Helper()
	key, err := hex.DecodeString(realKey)
	if err != nil {
		t.Fatal(err)
	}
	data, err := base64.StdEncoding.DecodeString(realHeader)
	if err != nil {
		t.Fatal(err)
	}
	header := new(dataplane.SLIMHeader)
	if err := proto.Unmarshal(data, header); err != nil {
		t.Fatal(err)
	}
	return newMAC(key, realLink), publication(header)
}

func publication(header *dataplane.SLIMHeader) *dataplane.Message {
	return &dataplane.Message{MessageType: &dataplane.Message_Publish{Publish: &dataplane.Publish{Header: header}}}
}

// TestHeader_GenuineAndChanged is believed, and none that differs in what is covered.
func TestHeader_GenuineAndChanged(t *testing.T) {
	t.Parallel()
	check, genuine := realMessage(t)
	if !check.genuine(genuine) {
		t.Fatal("it is refused")
	}
	number, yes := uint64(7), true
	for what, change := range map[string]func(h *dataplane.SLIMHeader){
		"source":      func(h *dataplane.SLIMHeader) { h.Source.Name.NameId.Id_1++ },
		"destination": func(h *dataplane.SLIMHeader) { h.Destination.StrName.StrComponent_2 += "x" },
		"no name":     func(h *dataplane.SLIMHeader) { h.Destination = nil },
		"identity":    func(h *dataplane.SLIMHeader) { h.Identity += "x" },
		"fanout":      func(h *dataplane.SLIMHeader) { h.Fanout++ },
		"hops":        func(h *dataplane.SLIMHeader) { h.Ttl++ },
		"receiver":    func(h *dataplane.SLIMHeader) { h.RecvFrom = &number },
		"error":       func(h *dataplane.SLIMHeader) { h.Error = &yes },
		"mac":         func(h *dataplane.SLIMHeader) { h.HeaderMac[0] ^= 1 },
		"no mac":      func(h *dataplane.SLIMHeader) { h.HeaderMac = nil },
	} {
		changed, _ := proto.Clone(genuine).(*dataplane.Message)
		if change(changed.GetPublish().GetHeader()); check.genuine(changed) {
			t.Errorf("%s: a changed one is believed", what)
		}
	}
	noted, _ := proto.Clone(genuine).(*dataplane.Message)
	if noted.GetPublish().GetHeader().IncomingConn = &number; !check.genuine(noted) {
		t.Error("what the receiver notes counts")
	}
	if check.genuine(publication(nil)) {
		t.Error("a message without a header is believed")
	}
}

// theirHalf is what a node answers to a greeting, and the key that it makes of both.
func theirHalf(t testing.TB, hello *dataplane.LinkNegotiationPayload, hybrid bool) (reply *dataplane.LinkNegotiationPayload, key []byte) {
	t.Helper()
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	public, err := ecdh.X25519().NewPublicKey(hello.GetLinkEcdhPublicKey())
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	secret, err := private.ECDH(public)
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	reply = &dataplane.LinkNegotiationPayload{
		LinkId: hello.GetLinkId(), SlimVersion: "3.4.6", IsReply: true, LinkEcdhPublicKey: private.PublicKey().Bytes(),
	}
	info := "SLIM-DP-inter-node-hmac-v1"
	if hybrid {
		kem, err := mlkem.NewEncapsulationKey768(hello.GetLinkKemPayload())
		if err != nil {
			t.Error(err)
			return nil, nil
		}
		shared, sealed := kem.Encapsulate()
		secret, info, reply.LinkKemPayload = append(secret, shared...), info+"-pq", sealed
	}
	if key, err = hkdf.Key(sha256.New, secret, []byte(hello.GetLinkId()), info, 32); err != nil {
		t.Error(err)
	}
	return reply, key
}

func ourOffer(t testing.TB) *offer {
	t.Helper()
	o, err := newOffer(realLink)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestNegotiation_BothDeriveOneKey(t *testing.T) {
	t.Parallel()
	for _, hybrid := range []bool{false, true} {
		o := ourOffer(t)
		reply, want := theirHalf(t, o.greeting().GetLink().GetLinkNegotiation(), hybrid)
		if got, err := o.meet(reply); err != nil || !bytes.Equal(got, want) {
			t.Errorf("hybrid %v: %x, not %x: %v", hybrid, got, want, err)
		}
	}
	keyless := &dataplane.LinkNegotiationPayload{LinkId: realLink, SlimVersion: "2.2.0", IsReply: true}
	if key, err := ourOffer(t).meet(keyless); err != nil || key != nil {
		t.Errorf("a node without a key: %x %v", key, err)
	}
}

func TestNegotiation_BadGreetings(t *testing.T) {
	t.Parallel()
	good, _ := theirHalf(t, ourOffer(t).greeting().GetLink().GetLinkNegotiation(), true)
	for what, change := range map[string]func(p *dataplane.LinkNegotiationPayload){
		"a short key":         func(p *dataplane.LinkNegotiationPayload) { p.LinkEcdhPublicKey = p.LinkEcdhPublicKey[:31] },
		"a long key":          func(p *dataplane.LinkNegotiationPayload) { p.LinkEcdhPublicKey = make([]byte, 1<<20) },
		"a key that is known": func(p *dataplane.LinkNegotiationPayload) { p.LinkEcdhPublicKey = make([]byte, 32) },
		"a short second key":  func(p *dataplane.LinkNegotiationPayload) { p.LinkKemPayload = []byte{} },
		"a long second key":   func(p *dataplane.LinkNegotiationPayload) { p.LinkKemPayload = make([]byte, 1<<20) },
	} {
		bad, _ := proto.Clone(good).(*dataplane.LinkNegotiationPayload)
		change(bad)
		var wrong *keyError
		if key, err := ourOffer(t).meet(bad); !errors.As(err, &wrong) || key != nil {
			t.Errorf("%s: %x %v", what, key, err)
		}
	}
	bad, _ := proto.Clone(good).(*dataplane.LinkNegotiationPayload)
	bad.LinkId = "another"
	if _, err := ourOffer(t).meet(bad); !errors.Is(err, errGreeting) {
		t.Errorf("another link: %v", err)
	}
}

// logged keeps what is logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// TestLink_NodeThatDemandsMACs: a node that demands MACs gets them; what it sends without a
// proper one is dropped, and the log says so once.
func TestLink_NodeThatDemandsMACs(t *testing.T) {
	t.Parallel()
	n := startNodeWith(t, &node{keyed: t, version: "3.4.6"})
	log := new(logged)
	l := startLinkWith(t, Deps{
		Node: n.at, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", n.at) },
	})
	in := newInbox()
	self := named(t, "org/ns/a")
	if err := l.Subscribe(t.Context(), self, in); err != nil {
		t.Fatal(err)
	}
	if !next(t, in.up) {
		t.Error("not connected")
	}
	for _, id := range []uint32{forged, forged, 7} {
		if err := l.Send(frame.Data(frame.Route{From: self, To: self, Message: id}, frame.Msg, frame.Payload{}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if m := next(t, in.messages); m.GetPublish().GetSession().GetMessageId() != 7 {
		t.Errorf("a forged message came: %v", m)
	}
	if got := log.count("message of the SLIM node dropped"); got != 1 {
		t.Errorf("logged %d times", got)
	}
	large := frame.Data(frame.Route{From: self, To: self, Message: 8}, frame.Msg, frame.Payload{}, nil)
	size := frame.MaxMessage - proto.Size(large) - 20
	large.GetPublish().GetMsg().GetAppPayload().Blob = make([]byte, size)
	if err := l.Send(large); err != nil {
		t.Fatal(err)
	}
	if m := next(t, in.messages); len(m.GetPublish().GetMsg().GetAppPayload().GetBlob()) != size {
		t.Error("the greatest message has no room for its MAC")
	}
}

// FuzzGreeting_KeyOrTypedError: whatever a node answers, there is a key of 32 bytes, none, or a
// typed error.
func FuzzGreeting_KeyOrTypedError(f *testing.F) {
	o := ourOffer(f)
	for _, hybrid := range []bool{false, true} {
		reply, _ := theirHalf(f, o.greeting().GetLink().GetLinkNegotiation(), hybrid)
		f.Add(reply.GetSlimVersion(), reply.GetLinkEcdhPublicKey(), reply.GetLinkKemPayload(), hybrid)
	}
	f.Add("1.4.0", []byte{}, []byte(nil), false)
	f.Fuzz(func(t *testing.T, version string, public, kem []byte, hybrid bool) {
		reply := &dataplane.LinkNegotiationPayload{LinkId: realLink, SlimVersion: version, LinkEcdhPublicKey: public}
		if hybrid {
			reply.LinkKemPayload = append([]byte{}, kem...)
		}
		key, err := o.meet(reply)
		var badVersion *versionError
		var badKey *keyError
		switch {
		case err == nil && key != nil && len(key) != 32:
			t.Errorf("a key of %d bytes", len(key))
		case err != nil && (key != nil || !errors.As(err, &badVersion) && !errors.As(err, &badKey)):
			t.Errorf("%x %v", key, err)
		case err != nil && len(err.Error()) > 200:
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}

// FuzzHeader_OnlySealedIsGenuine: whatever a header holds, it is believed when we have sealed it, and
// not as it came.
func FuzzHeader_OnlySealedIsGenuine(f *testing.F) {
	_, genuine := realMessage(f)
	data, err := proto.Marshal(genuine)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := new(dataplane.Message)
		if proto.Unmarshal(data, m) != nil || headerOf(m) == nil {
			return
		}
		c := newMAC(bytes.Repeat([]byte{1}, 32), realLink)
		if c.genuine(m) {
			t.Error("it is believed")
		}
		if c.seal(m); !c.genuine(m) {
			t.Error("our own is not believed")
		}
	})
}
