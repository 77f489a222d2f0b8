package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
)

func TestLimits_HaveDefaults(t *testing.T) {
	t.Parallel()
	var c config.Config
	want := accept.Config{Connections: 768, PerAddress: 96, PerIdentity: 192, FirstRequest: 10 * time.Second, StrangerIdle: 5 * time.Second, WriteWait: 30 * time.Second}
	if diff := cmp.Diff(want, c.Accept(false)); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
	waiting := inflight.Config{
		Requests: 512, RequestsPerCaller: 128, Streams: 512, StreamsPerCaller: 128,
		Bytes: 32 << 20, BytesPerCaller: 17 << 20, BodyWait: 10 * time.Second, WriteWait: 30 * time.Second,
	}
	if diff := cmp.Diff(waiting, c.InFlight()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	want.PerAddress, want.PerIdentity, want.StrangerIdle = 768, 768, 2*time.Minute
	if diff := cmp.Diff(want, c.Accept(true)); diff != "" {
		t.Errorf("connections in dev (-want +got):\n%s", diff)
	}
	if err := c.Accept(false).Validate(); err != nil {
		t.Error(err)
	}
	if err := waiting.Validate(); err != nil {
		t.Error(err)
	}
}

func TestLimits_AreRead(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(`limits: {connections: 100, connections_per_address: 0, share: 10, first_request: 2s,
  requests: 90, streams: 80, in_flight_mib: 70, body_wait: 3s, write_wait: 4s, task_unchanged: 1h, answer_wait: 5m}`))
	if err != nil {
		t.Fatal(err)
	}
	want := accept.Config{Connections: 100, PerIdentity: 10, FirstRequest: 2 * time.Second, StrangerIdle: 5 * time.Second, WriteWait: 4 * time.Second}
	if diff := cmp.Diff(want, c.Accept(false)); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
	if got := time.Duration(c.Limits.TaskUnchanged); got != time.Hour {
		t.Errorf("a task may be unchanged for %v, want 1h", got)
	}
	if got := time.Duration(c.Limits.AnswerWait); got != 5*time.Minute {
		t.Errorf("a question may wait for %v, want 5m", got)
	}
	waiting := inflight.Config{
		Requests: 90, RequestsPerCaller: 9, Streams: 80, StreamsPerCaller: 8,
		Bytes: 70 << 20, BytesPerCaller: 7 << 20, BodyWait: 3 * time.Second, WriteWait: 4 * time.Second,
	}
	if diff := cmp.Diff(waiting, c.InFlight()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	small, err := config.Parse([]byte("limits: {connections: 3, requests: 1, streams: 1, in_flight_mib: 1}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{small.Accept(false).Validate(), small.InFlight().Validate()} {
		if err != nil {
			t.Errorf("the smallest limits: %v", err)
		}
	}
}

func TestLimits_SharesAreNoLargerThanTheWhole(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"connections: -1", "connections_per_address: -1", "connections_per_address: 769", "share: -1",
		"requests: -1", "streams: -1", "share: 2000000",
		"in_flight_mib: 2000000", "memory_mib: -1", "memory_mib: 191", "memory_mib: 2000000",
	} {
		keys := strings.Split(text, ",")
		key, _, _ := strings.Cut(strings.TrimSpace(keys[len(keys)-1]), ":")
		if _, err := config.Parse([]byte("limits: {" + text + "}")); err == nil || !strings.Contains(err.Error(), "limits."+key) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
