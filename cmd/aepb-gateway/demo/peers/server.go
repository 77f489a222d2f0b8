package peers

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNoTLS says that a peer was given no certificate to serve with.
var ErrNoTLS = errors.New("peers: a TLS configuration with a certificate is required")

// Deps is what a peer needs.
type Deps struct {
	// TLS holds the server certificate, and the client CAs if clients are to be
	// asked for one. It is cloned and raised to TLS 1.3.
	TLS *tls.Config
	// Address is the host:port to listen at, and the host of the peer's URL; empty: a
	// free port of 127.0.0.1.
	Address string
	// Log receives what the SDKs and net/http have to say; nil: nothing is logged.
	Log *slog.Logger
}

func (d Deps) logger() *slog.Logger {
	return cmp.Or(d.Log, slog.New(slog.DiscardHandler))
}

// server is an HTTPS server that owns its one goroutine.
type server struct {
	base    string // https://HOST:PORT
	http    *http.Server
	journal journal
	broken  atomic.Bool // answers a request with 500, ends its connection, and begins no other: it speaks TLS 1.2 alone
	serving sync.WaitGroup
	failed  error // why serving ended, if not because of stop; read after serving.Wait
}

// listen starts serving. The handler is built after the
// port is known, because cards and endpoints name it.
func (s *server) listen(ctx context.Context, d Deps, handler func(base string) http.Handler) error {
	if d.TLS == nil {
		return ErrNoTLS
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", cmp.Or(d.Address, "127.0.0.1:0"))
	if err != nil {
		return fmt.Errorf("peers: listen: %w", err)
	}
	conf := d.TLS.Clone()
	conf.MinVersion = tls.VersionTLS13
	old := conf.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	conf.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if s.broken.Load() {
			return old, nil
		}
		return nil, nil //nolint:nilnil // as it is
	}
	s.base = "https://" + cmp.Or(d.Address, ln.Addr().String())
	well := s.journal.middleware(handler(s.base))
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.broken.Load() {
				w.Header().Set("Connection", "close")
				http.Error(w, "out of order", http.StatusInternalServerError)
				return
			}
			well.ServeHTTP(w, r)
		}),
		TLSConfig:         conf,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(d.logger().Handler(), slog.LevelWarn),
	}
	s.serving.Go(func() {
		if err := s.http.ServeTLS(ln, "", ""); !errors.Is(err, http.ErrServerClosed) {
			s.failed = err
		}
	})
	return nil
}

// stop lets running requests finish until ctx ends, then cuts them, and waits.
func (s *server) stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.serving.Wait()
	return errors.Join(err, s.failed)
}
