package credentials

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// command has a program write a token: the token itself, or {"token", "expires_in"} (seconds).
func (s *Service) command(ctx context.Context, program stdio.Program) (issued, error) {
	out, err := s.deps.Run(ctx, program, maxAnswer)
	if err != nil {
		return issued{}, &failure{reason: "the command failed", err: err}
	}
	out = bytes.TrimSpace(out)
	if !bytes.HasPrefix(out, []byte("{")) {
		return judged(string(out), "")
	}
	var answer struct {
		Token     string      `json:"token"`
		ExpiresIn json.Number `json:"expires_in"`
	}
	if json.Unmarshal(out, &answer) != nil {
		return issued{}, &failure{reason: "the command wrote JSON that cannot be read"}
	}
	return judged(answer.Token, answer.ExpiresIn)
}
