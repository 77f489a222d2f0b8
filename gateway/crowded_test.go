package gateway

import (
	"context"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// full is the share of a caller of whom too many answers wait.
type full struct{ transport.Share }

func (full) Crowded() error { return &quota.ExceededError{Resource: "answers"} }

// TestCrowded_WhatEndsWorkGoesOn: a caller of whom too many answers wait may ask its agents for no more, and
// may ask about work, answer and cancel it.
func TestCrowded_WhatEndsWorkGoesOn(t *testing.T) {
	t.Parallel()
	ctx := transport.WithShare(t.Context(), full{})
	for op, refused := range map[canonical.Op]bool{
		canonical.OpInvoke: true, canonical.OpNative: true, canonical.OpTaskGet: false, canonical.OpTaskCancel: false,
		canonical.OpTaskSubscribe: false, canonical.OpAnswer: false, canonical.OpAbort: false, canonical.OpRollback: false,
	} {
		if err := crowded(ctx, op); (err != nil) != refused {
			t.Errorf("%s: %v", op, err)
		}
		if err := crowded(context.Background(), op); err != nil {
			t.Errorf("%s of a caller without a share: %v", op, err)
		}
	}
}
