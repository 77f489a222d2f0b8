// Package workloadtest plays a SPIFFE agent: a Workload API on a socket of this
// machine that says what a test wants, and says it again when that changes.
//
// Alternatives considered: a SPIRE server and agent, which are two more programs
// to install, and whose certificates no test can spoil; go-spiffe's own fake is
// internal to it.
package workloadtest

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// Agent tells every caller the same. It says nothing before the first Say.
type Agent struct {
	workload.UnimplementedSpiffeWorkloadAPIServer

	Address string // unix:///…

	listen  func(context.Context) (net.Listener, error)
	server  *grpc.Server // nil: it is away
	serving sync.WaitGroup

	asked  atomic.Uint64
	mu     sync.Mutex
	pipe   *bufconn.Listener // nil: there is a socket at Address, or it is away
	says   *workload.X509SVIDResponse
	tokens Tokens
	refuse error         // what it ends all calls with; nil: it answers
	news   chan struct{} // closed when one of these changes
}

// Tokens is what an agent says of JWT-SVIDs; zero: it gives none.
type Tokens struct {
	ID      string                         // whose they are
	Mint    func(audience []string) string // makes one
	KeySets map[string]string              // JWK sets by the id of the trust domain whose JWT-SVIDs they sign
}

// Identity is what an agent says.
type Identity struct {
	ID        string // SPIFFE id
	Chain     []*x509.Certificate
	Key       crypto.Signer
	Anchors   []*x509.Certificate            // of its trust domain
	Federated map[string][]*x509.Certificate // of others, by the id of the trust domain
}

// NewAgent serves at a socket until the test ends.
func NewAgent(tb testing.TB) *Agent {
	tb.Helper()
	socket := filepath.Join(tb.TempDir(), "a.sock")
	a := &Agent{Address: "unix://" + socket, news: make(chan struct{})}
	a.listen = func(ctx context.Context) (net.Listener, error) {
		var lc net.ListenConfig
		return lc.Listen(ctx, "unix", socket)
	}
	a.begin(tb)
	return a
}

// NewPipedAgent serves those who use its Dial until the test ends, without a socket,
// so that time may be virtual.
func NewPipedAgent(tb testing.TB) *Agent {
	tb.Helper()
	a := &Agent{Address: "unix:///pipe.sock", news: make(chan struct{})}
	a.listen = func(context.Context) (net.Listener, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pipe = bufconn.Listen(1 << 16)
		return a.pipe, nil
	}
	a.begin(tb)
	return a
}

func (a *Agent) begin(tb testing.TB) {
	tb.Helper()
	a.Return(tb)
	tb.Cleanup(a.Leave)
}

// errAway: the agent has left.
var errAway = errors.New("no agent is there")

// Dial connects to an agent without a socket.
func (a *Agent) Dial(ctx context.Context, _ string) (net.Conn, error) {
	a.mu.Lock()
	pipe := a.pipe
	a.mu.Unlock()
	if pipe == nil {
		return nil, errAway
	}
	return pipe.DialContext(ctx)
}

// Leave ends the agent as a crash does: connections break, and its socket is gone.
func (a *Agent) Leave() {
	if a.server == nil {
		return
	}
	a.mu.Lock()
	a.pipe = nil
	a.mu.Unlock()
	a.server.Stop()
	a.serving.Wait()
	a.server = nil
}

// Return has an agent that left serve again where it was. It says what it said last.
func (a *Agent) Return(tb testing.TB) {
	tb.Helper()
	listener, err := a.listen(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, a)
	a.server = server
	a.serving.Go(func() { _ = server.Serve(listener) })
}

// Say sends an identity to all clients, also to those that connect later.
func (a *Agent) Say(tb testing.TB, who Identity) {
	tb.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(who.Key)
	if err != nil {
		tb.Fatal(err)
	}
	response := &workload.X509SVIDResponse{
		Svids: []*workload.X509SVID{{
			SpiffeId: who.ID, X509Svid: der(who.Chain), X509SvidKey: key, Bundle: der(who.Anchors),
		}},
		FederatedBundles: map[string][]byte{},
	}
	for domain, anchors := range who.Federated {
		response.FederatedBundles[domain] = der(anchors)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.says = response
	close(a.news)
	a.news = make(chan struct{})
}

// SayTokens sends JWT-SVIDs to all clients, also to those that connect later.
func (a *Agent) SayTokens(tokens Tokens) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = tokens
	close(a.news)
	a.news = make(chan struct{})
}

// Asked is how often it was asked who a workload is.
func (a *Agent) Asked() uint64 { return a.asked.Load() }

// Refuse ends all calls with an error, those to come too; nil: it answers again.
func (a *Agent) Refuse(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = err
	close(a.news)
	a.news = make(chan struct{})
}

func der(certs []*x509.Certificate) (all []byte) {
	for _, cert := range certs {
		all = append(all, cert.Raw...)
	}
	return all
}

// FetchX509SVID is the Workload API's (SPIFFE Workload API, section 5.2.1).
func (a *Agent) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	if md, _ := metadata.FromIncomingContext(stream.Context()); len(md.Get("workload.spiffe.io")) != 1 {
		return status.Error(codes.InvalidArgument, "security header missing")
	}
	a.asked.Add(1)
	for {
		a.mu.Lock()
		says, refuse, news := a.says, a.refuse, a.news
		a.mu.Unlock()
		if refuse != nil {
			return refuse
		}
		if says != nil {
			if err := stream.Send(says); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-news:
		}
	}
}

// FetchJWTSVID is the Workload API's (section 6.2.1).
func (a *Agent) FetchJWTSVID(_ context.Context, request *workload.JWTSVIDRequest) (*workload.JWTSVIDResponse, error) {
	a.mu.Lock()
	tokens := a.tokens
	a.mu.Unlock()
	if tokens.Mint == nil {
		return nil, status.Error(codes.PermissionDenied, "no identity issued")
	}
	return &workload.JWTSVIDResponse{Svids: []*workload.JWTSVID{{SpiffeId: tokens.ID, Svid: tokens.Mint(request.GetAudience())}}}, nil
}

// FetchJWTBundles is the Workload API's (section 6.2.2).
func (a *Agent) FetchJWTBundles(_ *workload.JWTBundlesRequest, stream grpc.ServerStreamingServer[workload.JWTBundlesResponse]) error {
	for {
		a.mu.Lock()
		sets, news := a.tokens.KeySets, a.news
		a.mu.Unlock()
		if sets != nil {
			response := &workload.JWTBundlesResponse{Bundles: map[string][]byte{}}
			for domain, set := range sets {
				response.Bundles[domain] = []byte(set)
			}
			if err := stream.Send(response); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-news:
		}
	}
}
