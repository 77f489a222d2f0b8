// Package pairs tests each ordered pair of protocols, versions and forms, with callers and agents of our own.
package pairs

import (
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

func TestMain(m *testing.M) { gatewaytest.Main(m) }
