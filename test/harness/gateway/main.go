package gatewaytest

import (
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

// Main runs the tests of a package that starts gateways, m, and fails if a goroutine is left. m is a [testing.M], or is of [Lasting.Around].
func Main(m goleak.TestingM) {
	httpapi.Quiet()
	redis.Quiet()
	goleak.VerifyTestMain(m)
}
