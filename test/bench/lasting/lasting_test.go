package lasting

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun_EveryMeasurement makes every measurement, small.
func TestRun_EveryMeasurement(t *testing.T) {
	t.Parallel()
	figures, err := Run(t.Context(), Names(), Scale{Events: 50, Sessions: 20, Streams: 20, Span: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, f := range figures {
		if seen[f.Name]++; f.Value < 0 && !strings.Contains(f.Unit, "added") {
			t.Errorf("%+v", f)
		}
	}
	for _, name := range Names() {
		if seen[name] == 0 {
			t.Errorf("nothing of %s", name)
		}
	}
	var out bytes.Buffer
	if err := Table(&out, figures); err != nil || strings.Count(out.String(), "\n") != len(figures)+1 {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// A stream that breaks off, or that says nothing of when, is no measurement.
func TestStream_OnlyCompleteOnesCount(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no end":    "data: at=1=\n\n",
		"no times":  "data: TASK_STATE_COMPLETED\n\n",
		"no events": "",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
		b := &bed{client: server.Client()}
		if _, err := b.hear(t.Context(), way{url: server.URL, body: func(what string) string { return what }}, "fast 1"); err == nil {
			t.Errorf("%s: a measurement", name)
		}
		server.Close()
	}
}

func TestFigure_Goals(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64][2]bool{1: {true, false}, 2: {true, true}, 3: {false, true}} {
		f := Figure{Value: value}
		if *f.atMost(2).Met != want[0] || *f.atLeast(2).Met != want[1] {
			t.Errorf("%v", value)
		}
	}
	if median([]float64{3, 1, 2}) != 2 || median(nil) != 0 {
		t.Error("the median is another")
	}
}

// TestConfiguration_HasRoomForTheStreams: a gateway takes each configuration, and that of
// streams has room for all of them from one caller.
func TestConfiguration_HasRoomForTheStreams(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		c, err := config.Parse([]byte(Configuration(name)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		accept, flight := c.Accept(false), c.InFlight()
		least := min(accept.Connections, accept.PerAddress, accept.PerIdentity, flight.Requests, flight.RequestsPerCaller, flight.Streams, flight.StreamsPerCaller)
		if name == "streams" && least < Full().Streams+4*atOnce {
			t.Errorf("a limit of %d for %d streams", least, Full().Streams)
		}
	}
}
