package gatewaytest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

// Main runs the tests of a package that starts gateways, and fails if a goroutine is left.
func Main(m *testing.M) {
	httpapi.Quiet()
	redis.Quiet()
	goleak.VerifyTestMain(m)
}
