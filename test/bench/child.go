package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/test/bench/bridge"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// Bounds of a child's start and end.
const (
	childStart = 15 * time.Second
	childStop  = 15 * time.Second
)

// allocsPath tells how many objects a child has allocated since it started.
const allocsPath = "/debug/allocs"

// script is what a child is told on its first line of input. It ends when its
// input does, so it cannot outlive the benchmark.
type script struct {
	Certificate []byte // DER
	Key         []byte // SEC 1
	Roots       []byte // PEM
	Upstream    string // the MCP server; pairs, bridge: the agents
	Gateway     string // floor: the id to act under
	Client      []byte // floor: DER certificate of the only sender
	Seed        []byte // pairs: of the Ed25519 key of who speaks
	Frames      string // pairs: host:port of the µACP agent
	Node        string // agents, pairs: host:port of the SLIM node; empty: not on SLIM
	Space       string // pairs: where on SLIM
	Bare        bool   // pairs: without evidence
	HTTP2       bool   // callers speak it
}

// child is a process that the benchmark started from its own binary.
type child struct {
	url    string
	frames string // host:port of its µACP; empty: none
	cmd    *exec.Cmd
	stdin  io.Closer
}

// startChild runs a role, with more of an environment, and returns when it listens.
func startChild(ctx context.Context, role string, trust *devgateway.Trust, s script, env []string) (*child, error) {
	if err := s.dress(trust, role); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self)
	cmd.Env = append(append(os.Environ(), env...), childVariable+"="+role)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: stdin}
	hurry := time.AfterFunc(childStart, func() { _ = cmd.Process.Kill() })
	defer hurry.Stop()
	if err := json.NewEncoder(stdin).Encode(s); err != nil {
		return nil, errors.Join(fmt.Errorf("bench: %s: %w", role, err), c.stop())
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: %s does not listen: %w", role, err), c.stop())
	}
	c.url, c.frames, _ = strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "ready ")), " ")
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) stop() error {
	hurry := time.AfterFunc(childStop, func() { _ = c.cmd.Process.Kill() })
	defer hurry.Stop()
	_ = c.stdin.Close() // a child that is gone already is reported by Wait
	return c.cmd.Wait()
}

// dress gives a child its certificate and its trust.
func (s *script) dress(trust *devgateway.Trust, name string) error {
	conf, err := trust.PeerTLS(name)
	if err != nil {
		return err
	}
	key, ok := conf.Certificates[0].PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return errors.New("bench: a peer's key is not ECDSA")
	}
	s.Certificate, s.Roots = conf.Certificates[0].Certificate[0], trust.RootsPEM()
	s.Key, err = x509.MarshalECPrivateKey(key)
	return err
}

// serveChild is the life of a child: read the script, serve until the input
// ends.
func serveChild(role string, stdin io.Reader, stdout io.Writer) error {
	input := bufio.NewReader(stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return err
	}
	var s script
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	var handler http.Handler
	var frames framed
	switch role {
	case "agents":
		handler, frames = s.agents()
	case "pairs":
		handler, frames, err = newPairs(s)
	default:
		handler, err = handlerOf(role, s)
	}
	if err != nil {
		return err
	}
	leave, err := s.on(role, handler)
	if err != nil {
		return err
	}
	defer leave()
	if b, ok := handler.(*bridge.Bridge); ok {
		defer func() { _ = b.Close() }() // no call is under way any more
	}
	return s.serve(handler, frames, input, stdout)
}

func handlerOf(role string, s script) (http.Handler, error) {
	switch role {
	case "upstream":
		return http.HandlerFunc(serveTool), nil
	case "proxy":
		return newProxy(s)
	case "floor":
		return newFloor(s)
	case "refuser":
		return newRefuser(s)
	case bridgeName:
		return newBridge(s)
	default:
		return nil, fmt.Errorf("bench: no role %q", role)
	}
}

// serve serves a handler, and frames of µACP if there is somebody to answer them.
func (s script) serve(handler http.Handler, frames framed, until io.Reader, stdout io.Writer) error {
	key, err := x509.ParseECPrivateKey(s.Key)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc(allocsPath, tellAllocs)
	mux.Handle("/", handler)
	server := &http.Server{
		Handler: mux,
		TLSConfig: &tls.Config{
			MinVersion:   tls.VersionTLS13,
			Certificates: []tls.Certificate{{Certificate: [][]byte{s.Certificate}, PrivateKey: key}},
		},
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: childStart,
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(s.HTTP2)
	var serving sync.WaitGroup
	conf := server.TLSConfig.Clone()
	serving.Go(func() { err = server.ServeTLS(ln, "", "") })
	ready := "ready https://" + ln.Addr().String()
	framing, wrong := net.Listen("tcp", "127.0.0.1:0")
	if wrong != nil {
		return errors.Join(wrong, server.Close())
	}
	if frames != nil {
		ready += " " + framing.Addr().String()
		serving.Go(func() { serveFrames(framing, conf, frames) })
	}
	if _, err := io.WriteString(stdout, ready+"\n"); err == nil {
		_, _ = io.Copy(io.Discard, until)
	}
	_ = server.Close()
	_ = framing.Close()
	serving.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// client is how a child calls the MCP server.
func (s script) client() (*http.Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.Roots) {
		return nil, errors.New("bench: no roots")
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     10 * time.Minute,
	}}, nil
}

// newBridge is the bridge of the official SDKs in front of the agents.
func newBridge(s script) (http.Handler, error) {
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), childStart)
	defer cancel()
	return bridge.New(ctx, bridge.Deps{MCP: s.Upstream + "/mcp", A2A: s.Upstream + "/a2a", Client: client})
}

func tellAllocs(w http.ResponseWriter, _ *http.Request) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(sample)
	_, _ = io.WriteString(w, strconv.FormatUint(sample[0].Value.Uint64(), 10))
}
