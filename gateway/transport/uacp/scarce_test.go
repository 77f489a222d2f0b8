package uacp_test

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// failing is a listener that fails in these ways, one after the other.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: err}
}

func (*failing) Close() error { return nil }

// TestListener_TooManyOpenFiles: a listener goes on when there are too many open files, and
// ends when its own end has come.
func TestListener_TooManyOpenFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plain := &failing{errs: []error{os.NewSyscallError("accept4", syscall.EMFILE), os.NewSyscallError("accept4", syscall.ECONNABORTED), net.ErrClosed}}
		l, err := wire.NewListener(wire.ListenerDeps{Form: form.New(translators.Config{}), TLS: serverTLS(t), Net: plain, Agent: "chef"})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := l.Serve(t.Context(), &handler{exchange: echo}); !errors.Is(err, net.ErrClosed) || len(plain.errs) != 0 {
			t.Errorf("it ends with %v", err)
		}
		if took := time.Since(began); took <= 0 || took > time.Second {
			t.Errorf("it waited %v", took)
		}
		plain.errs = make([]error, 100)
		for i := range plain.errs {
			plain.errs[i] = syscall.EMFILE
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Serve(ctx, &handler{exchange: echo}); err != nil {
			t.Errorf("stopped it ends with %v", err)
		}
	})
}
