// Package attacks tests attacks on a gateway, each of which has to fail; TestAttack_IndexIsComplete lists them.
package attacks

import (
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

func TestMain(m *testing.M) { gatewaytest.Main(m) }
