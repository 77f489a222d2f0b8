package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

func TestMain(m *testing.M) {
	if os.Getenv(gatewaytest.AsGateway) != "" || len(os.Args) > 1 && os.Args[1] == superviseCommand {
		main()
		return
	}
	httpapi.Quiet()
	redis.Quiet()
	goleak.VerifyTestMain(m)
}
