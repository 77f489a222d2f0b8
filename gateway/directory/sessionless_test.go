package directory_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// sharesOne is the server that all callers share: it speaks the version that it was last asked in.
type sharesOne struct {
	mu       sync.Mutex
	versions []string
}

func (s *sharesOne) Describe(_ context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions = append(s.versions, e.Version)
	if e.Version == "" {
		e.Version = "2"
	}
	e.Sessionless = true
	return &canonical.Description{Name: "toy", Versions: []string{e.Version}}, e, nil
}

func (*sharesOne) Revisions() []string { return []string{"2", "1"} }

func (*sharesOne) Revision(_ *canonical.Description, own string, _ []canonical.Mode) string {
	return own
}

// TestAttack_OldVersionAtASharedServer: a caller who uses an old version does not have the server that
// all share begun in it: the others would be spoken to in a version that they did not choose.
func TestAttack_OldVersionAtASharedServer(t *testing.T) {
	t.Parallel()
	server := &sharesOne{}
	d, err := directory.New(directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{binding: server}, Egress: &gate{}, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	one := agent("a", "https://a.example")
	if err := d.Put(one); err != nil {
		t.Fatal(err)
	}
	_, at, err := d.DescribeFor(t.Context(), one, one.Endpoints[0], directory.Viewer{Caller: eve, Version: "1"})
	if err != nil || at.Version != "2" {
		t.Errorf("got %+v %v", at, err)
	}
	if len(server.versions) != 1 || server.versions[0] != "" {
		t.Errorf("it was asked in %q", server.versions)
	}
}
