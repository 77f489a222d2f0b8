package server

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

func TestMain(m *testing.M) {
	httpapi.Quiet()
	redis.Quiet()
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
