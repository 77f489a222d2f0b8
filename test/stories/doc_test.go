// Package stories tests what callers, agents and operators do with a gateway, one feature after the other.
package stories

import (
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

func TestMain(m *testing.M) { gatewaytest.Main(m) }
