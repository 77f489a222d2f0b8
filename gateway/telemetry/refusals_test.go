package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// limiting answers Limit alone.
type limiting struct {
	transport.Handler
	refusal error
}

func (l limiting) Limit(context.Context, transport.CallInfo) (limit.Pass, error) {
	return transporttest.Pass(l.refusal)
}

// The Pass of a request goes through, and so does its refusal.
func TestRefusals_HandOnThePass(t *testing.T) {
	t.Parallel()
	metrics, err := telemetry.New(telemetry.Deps{Bindings: []canonical.Binding{"a2a-v1"}})
	if err != nil {
		t.Fatal(err)
	}
	noted, err := telemetry.NewRefusals(telemetry.ListenerGRPC, metrics, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if pass, err := noted.Handler(limiting{}).Limit(t.Context(), transport.CallInfo{}); err != nil || !pass.Valid() {
		t.Errorf("taken: %v, valid %t", err, pass.Valid())
	}
	over := &limit.ExceededError{Scope: limit.ScopeIdentity}
	if pass, err := noted.Handler(limiting{refusal: over}).Limit(t.Context(), transport.CallInfo{}); !errors.Is(err, over) || pass.Valid() {
		t.Errorf("refused: %v, valid %t", err, pass.Valid())
	}
}
