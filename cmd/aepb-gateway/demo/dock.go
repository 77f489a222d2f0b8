package demo

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// The agent of the scene of rollbacks that rolls back itself, and what it does.
const (
	DockName    = "dock"
	ReserveTool = "reserve_boat"
)

// dock is an agent of µACP that reserves boats, and rolls back itself when it is asked in its protocol.
type dock struct {
	form     *uacp.Translator
	signer   *ect.Signer
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	open     map[net.Conn]bool
	reserved int // boats
}

// newDock starts one on a free port of this machine.
func newDock(ctx context.Context, svid *identity.SVID) (*dock, error) {
	key, ok := svid.Key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("demo: the key of the dock is not of ECDSA")
	}
	signer, err := ect.NewSigner(ect.SignerDeps{Key: key, Chain: svid.Chain, Issuer: svid.ID})
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	plain, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	conf := config(svid)
	conf.NextProtos = []string{tuacp.Protocol}
	d := &dock{form: uacp.New(translators.Config{}), signer: signer, listener: tls.NewListener(plain, conf), open: map[net.Conn]bool{}}
	d.serving.Go(func() {
		for {
			conn, err := d.listener.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.open[conn] = true
			d.mu.Unlock()
			d.serving.Go(func() { d.serve(conn) })
		}
	})
	return d, nil
}

func (d *dock) url() string { return tuacp.Scheme + "://" + d.listener.Addr().String() }

// boats is how many are reserved.
func (d *dock) boats() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reserved
}

// stop closes all connections, and waits.
func (d *dock) stop() error {
	err := d.listener.Close()
	d.mu.Lock()
	for conn := range d.open {
		_ = conn.Close()
	}
	d.mu.Unlock()
	d.serving.Wait()
	return err
}

// serve answers frames, each behind two bytes of length, until one cannot be read.
func (d *dock) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, conn)
	}()
	for {
		var head [2]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint16(head[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		if request, err := uacp.ParseFrame(frame); err == nil && request.IsAck() {
			continue
		}
		reply, err := d.answer(frame)
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil { //nolint:gosec // a frame has at most 65535 bytes
			return
		}
	}
}

// answer is the frame that answers one.
func (d *dock) answer(frame []byte) ([]byte, error) {
	m, err := d.form.Decode(translators.Wire{Binding: uacp.Binding, Body: frame})
	if err != nil {
		return nil, err
	}
	reply := &canonical.Message{Op: m.Op, Phase: canonical.PhaseResponse, Correlation: m.Correlation}
	boat := canonical.Capability{ID: ReserveTool, Title: "Reserve", Description: "Reserves a boat.", Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(`{"type":"object"}`)}
	switch body := m.Body.(type) {
	case *canonical.DescribeRequest:
		reply.Body = &canonical.Description{Name: "dock", Version: "1", Capabilities: []canonical.Capability{boat}}
	case *canonical.Page:
		reply.Body = &canonical.CapabilityList{Capabilities: []canonical.Capability{boat}}
	case *canonical.Invoke:
		d.add(1)
		reply.Body = &canonical.Result{Output: &canonical.Output{Structured: json.RawMessage(`{"boat":"boat-1"}`)}}
	case *canonical.Signal:
		result, err := d.rollBack(body.Token)
		if err != nil {
			return nil, err
		}
		reply.Body = &canonical.Signal{Token: result}
	default:
		reply.Phase, reply.Body = canonical.PhaseError, &canonical.Error{Code: canonical.CodeNoMethod, Message: "the dock cannot do that"}
	}
	wire, _, err := d.form.Encode(reply, translators.Target{Form: uacp.FormOf(frame)})
	return wire.Body, err
}

func (d *dock) add(boats int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved += boats
}

// rollBack gives a boat back, and signs that.
func (d *dock) rollBack(token string) (string, error) {
	request, _, err := ect.ParseUnverified(token)
	if err != nil || request.Act != ect.ActRollbackRequest || len(request.Parents) == 0 {
		return "", errors.New("demo: not a request for a rollback")
	}
	d.add(-1)
	ext := ect.Ext{}
	ext.SetString(ect.ExtStatus, "completed")
	ext.SetString(ect.ExtCheckpointID, string(request.Parents[0]))
	result, err := d.signer.Sign(ect.Claims{
		Act: ect.ActRollbackResult, Audience: []string{string(request.Issuer)}, Workflow: request.Workflow, Parents: []ect.ID{request.ID},
		OutputHash: ect.Hash([]byte("as it was")), Ext: ext,
	})
	if err != nil {
		return "", err
	}
	return result.Compact(), nil
}
