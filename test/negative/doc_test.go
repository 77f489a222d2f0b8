// Package negative tests requests that a gateway refuses: which status, which code, and that nothing was sent.
package negative

import (
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// lasting ends with the tests of this package.
var lasting = &gatewaytest.Lasting{}

// shared is the gateway of all tests that need no configuration of their own. Its limits are high enough for all of them at once.
var shared = sync.OnceValue(func() *gatewaytest.Fixture {
	p := gatewaytest.Plan{Config: config.Config{Limits: gatewaytest.ManyRequests()}}
	p.Config.Limits.MemoryMiB = 8192
	return gatewaytest.NewFixture(lasting, p)
})

// sharedServe is the same as serve runs it: nobody is anonymous, and agents without callers are closed.
var sharedServe = sync.OnceValue(func() *gatewaytest.Fixture {
	return gatewaytest.NewFixture(lasting, gatewaytest.Plan{Serve: true})
})

// sharedSLIM is one on a node of SLIM.
var sharedSLIM = sync.OnceValue(func() *gatewaytest.Fixture {
	p := gatewaytest.Plan{}
	net := gatewaytest.NewSLIMNet(lasting, &p)
	b := gatewaytest.NewFixture(lasting, p)
	b.Slim = net
	return b
})

func TestMain(m *testing.M) { gatewaytest.Main(lasting.Around(m)) }
