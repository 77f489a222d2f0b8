package credential_test

import (
	"context"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

// since is a replay cache that knows nothing of what was used before an instant.
type since struct {
	ect.ReplayCache
	epoch time.Time
}

func (s since) Claim(ctx context.Context, key ect.ReplayKey, use ect.ReplayUse) (ect.ReplayState, error) {
	if use.Issued.Before(s.epoch) {
		return ect.ReplayUnknown, nil
	}
	return s.ReplayCache.Claim(ctx, key, use)
}

// TestAttack_ProofWithoutIssueTimeAfterARestart: who saw a proof that does not say when it was
// issued shows it again after a restart, which forgot its use. Before, it counted as issued
// when it was shown, and was taken. Now it counts as old as a proof with its end can be.
func TestAttack_ProofWithoutIssueTimeAfterARestart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		started time.Duration // before now
		ends    time.Duration // after now
		want    identity.CredentialReason
	}{
		"before the restart":               {time.Hour, time.Minute, ""},
		"after it":                         {time.Second, time.Minute, identity.CredentialReplay},
		"after it, that ends late":         {time.Second, credential.DefaultMaxProof, identity.CredentialReplay},
		"made after it, whatever its date": {credential.DefaultSkew, credential.DefaultMaxProof, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.deps.Replay = since{ecttest.NewReplay(), noon.Add(-tc.started)}
			s.proofPayload["iat"], s.proofPayload["exp"] = "", number(noon.Add(tc.ends).Unix())
			who, _, err := s.wimse(t).Caller(t.Context(), s.request(t))
			if tc.want != "" {
				wantRefusal(t, who, err, tc.want)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}
