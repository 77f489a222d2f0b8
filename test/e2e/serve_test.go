package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// startDomain plays the SPIFFE provider of a production gateway: who is who, as
// files.
func startDomain(_ context.Context, w *world, ts *testscript.TestScript, args []string) error {
	trust, err := devgateway.NewTrust(args[0])
	if err != nil {
		return err
	}
	gateway, err := trust.PeerTLS("gateway")
	if err != nil {
		return err
	}
	w.trust = trust
	dir := ts.MkAbs(args[1])
	return errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "bundle.pem"), trust.RootsPEM(), 0o600),
		writePair(dir, "cert.pem", "key.pem", gateway.Certificates[0]),
		writePair(dir, "client.pem", "client-key.pem", trust.ClientSVID()),
	)
}

func writePair(dir, certFile, keyFile string, pair tls.Certificate) error {
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return err
	}
	block := func(name, kind string, der []byte) error {
		return os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	return errors.Join(block(certFile, "CERTIFICATE", pair.Certificate[0]), block(keyFile, "PRIVATE KEY", key))
}

func expandFile(_ context.Context, _ *world, ts *testscript.TestScript, args []string) error {
	return os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o600)
}

// serving is a running `aepb-gateway serve`.
type serving struct {
	cmd  *exec.Cmd
	logs bytes.Buffer // not to be read before the process has ended
}

func startServe(ctx context.Context, w *world, ts *testscript.TestScript, args []string) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(w.bin, "aepb-gateway"), append([]string{"serve"}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	return w.serve(ctx, ts, cmd)
}

// serve starts a command and waits until it is ready.
func (w *world) serve(ctx context.Context, ts *testscript.TestScript, cmd *exec.Cmd) error {
	s := &serving{cmd: cmd}
	s.cmd.Stderr = &s.logs
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() })() // then the next read ends
	lines := bufio.NewScanner(stdout)
	for _, name := range []string{"PUBLIC", "ADMIN"} {
		lines.Scan()
		url, ok := strings.CutPrefix(lines.Text(), "ready "+strings.ToLower(name)+" ")
		if !ok {
			return fmt.Errorf("not ready but %q: %w\n%s", lines.Text(), errors.Join(lines.Err(), s.cmd.Wait()), s.logs.String())
		}
		ts.Setenv(name, url)
	}
	w.serving = s
	return nil
}

// runNext runs the one line of a file that begins with two spaces and what is given, in a shell of another folder,
// as whoever was told to run it next. A gateway is left running.
func runNext(ctx context.Context, w *world, ts *testscript.TestScript, args []string) error {
	line := regexp.MustCompile("(?m)^  (" + args[1] + ".*)$").FindStringSubmatch(ts.ReadFile(args[0]))
	if line == nil {
		return fmt.Errorf("no line for %s in %s", args[1], args[0])
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", "exec "+line[1])
	cmd.Dir = w.t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+ts.Getenv("PATH"))
	if strings.Contains(args[1], "serve") {
		return w.serve(ctx, ts, cmd)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	return cmd.Run()
}

// every is how long a story waits before it looks again.
const every = 50 * time.Millisecond

// repeat waits for what a running program does by itself.
func repeat(ctx context.Context, _ *world, ts *testscript.TestScript, args []string) error {
	return again(ctx, func() error { return ts.Exec(args[0], args[1:]...) })
}

// again tries until there is no error.
func again(ctx context.Context, try func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// awaitShown opens connections until one is shown the certificate that a folder has now.
func awaitShown(ctx context.Context, _ *world, ts *testscript.TestScript, args []string) error {
	file := func(name string) string { return filepath.Join(args[0], name) }
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ts.ReadFile(file("ca.pem"))))
	block, _ := pem.Decode([]byte(ts.ReadFile(file("gateway.pem"))))
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}}
	return again(ctx, func() error {
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(ts.Getenv("PUBLIC"), "https://"))
		if err != nil {
			return err
		}
		shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
		if !bytes.Equal(shown.Raw, block.Bytes) {
			err = fmt.Errorf("it shows the certificate %x", shown.SerialNumber)
		}
		return errors.Join(err, conn.Close())
	})
}

// freePorts sets variables to ports of 127.0.0.1 that nobody listens at now.
func freePorts(ctx context.Context, _ *world, ts *testscript.TestScript, args []string) error {
	for _, name := range args {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer func() { _ = listener.Close() }() // all are open until each is another
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return err
		}
		ts.Setenv(name, port)
	}
	return nil
}

// end stops the process, which must end with 0, also if the signal comes twice.
func (s *serving) end(ctx context.Context) error {
	if s == nil || s.cmd.ProcessState != nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() })()
	again := time.AfterFunc(5*time.Millisecond, func() { _ = s.cmd.Process.Signal(syscall.SIGTERM) }) // as timeout(1) does
	defer again.Stop()
	if err := errors.Join(s.cmd.Process.Signal(syscall.SIGTERM), s.cmd.Wait()); err != nil {
		return fmt.Errorf("serve: %w\n%s", err, s.logs.String())
	}
	return nil
}

func awaitServed(ctx context.Context, w *world, ts *testscript.TestScript, _ []string) error {
	if err := w.serving.end(ctx); err != nil {
		return err
	}
	_, err := ts.Stderr().Write(w.serving.logs.Bytes())
	return err
}
