// Package negative tests requests that a gateway refuses: which status, which code, and that nothing was sent.
package negative

import (
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

func TestMain(m *testing.M) { gatewaytest.Main(m) }
