package lasting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// Figure is one result.
type Figure struct {
	Name  string  `json:"name"`
	Case  string  `json:"case"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Goal  string  `json:"goal,omitempty"`
	Met   *bool   `json:"met,omitempty"` // nil: there is no goal
}

// Scale is how much of everything there is. The zero Scale is no measurement.
type Scale struct {
	Events   int           // of a stream
	Sessions int           // that idle
	Streams  int           // that are open
	Span     time.Duration // of one turn of the limits
}

// Full is what the goals are about.
func Full() Scale {
	return Scale{Events: 20_000, Sessions: 10_000, Streams: 2_000, Span: 2 * time.Second}
}

// measurements by their name.
func measurements() map[string]func(context.Context, *bed, Scale) ([]Figure, error) {
	return map[string]func(context.Context, *bed, Scale) ([]Figure, error){
		"stream": stream, "sessions": sessions, "streams": streams, "limits": limits,
	}
}

// Names are the measurements there are, in their order.
func Names() []string { return []string{"stream", "sessions", "streams", "limits"} }

// Configuration is the gateway's configuration in a measurement. Everything that it says
// raises a bound, and results hold for a gateway with these bounds.
func Configuration(name string) string {
	limits := "rate: 1000000, burst: 1000000" // one caller makes all the calls
	if name == "streams" {
		// They are all of one identity at one address, over HTTP/1.1, and each is a request
		// until its answer begins. Every default is less than their number.
		limits += ", memory_mib: 8192, connections_per_address: 4096, share: 1"
	}
	return "limits: {" + limits + "}\ntimeout: 10m\n"
}

// Run makes the measurements with these names.
func Run(ctx context.Context, names []string, s Scale) (all []Figure, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "aepb-lasting-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary, err := devgateway.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := newBed(ctx, binary, filepath.Join(dir, name), Configuration(name))
		if err == nil {
			var figures []Figure
			figures, err = measurements()[name](ctx, b, s)
			all = append(all, figures...)
		}
		if err = errors.Join(err, b.stop(ctx)); err != nil {
			return all, fmt.Errorf("bench: %s: %w", name, err)
		}
	}
	return all, nil
}

// Table prints figures.
func Table(w io.Writer, figures []Figure) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "measurement\tcase\tvalue\tunit\tgoal\tmet\t\n")
	for _, f := range figures {
		met := ""
		if f.Met != nil {
			met = strconv.FormatBool(*f.Met)
		}
		fmt.Fprintf(out, "%s\t%s\t%.2f\t%s\t%s\t%s\t\n", f.Name, f.Case, f.Value, f.Unit, f.Goal, met)
	}
	return out.Flush()
}

// atMost and atLeast judge a figure.
func (f Figure) atMost(goal float64) Figure {
	met := f.Value <= goal
	f.Goal, f.Met = fmt.Sprintf("at most %g", goal), &met
	return f
}

func (f Figure) atLeast(goal float64) Figure {
	met := f.Value >= goal
	f.Goal, f.Met = fmt.Sprintf("at least %g", goal), &met
	return f
}

// stopTime is what a bed gets to end in.
const stopTime = 45 * time.Second

// bed is a gateway with an A2A agent behind it.
type bed struct {
	binary, dir string
	*devgateway.Process
	agent  *talker
	server *httptest.Server
	client *http.Client
}

// newBed starts a gateway; env is added to its environment. What it returns must be
// stopped, also when it comes with an error.
func newBed(ctx context.Context, binary, dir, configuration string, env ...string) (*bed, error) {
	b := &bed{binary: binary, dir: dir, agent: &talker{end: make(chan struct{})}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return b, err
	}
	config := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(config, []byte(configuration), 0o600); err != nil {
		return b, err
	}
	var err error
	b.Process, err = devgateway.Start(ctx, devgateway.Deps{
		Binary: binary, Dir: filepath.Join(dir, ".aepb"), Args: []string{"--config", config}, Env: env,
	})
	if err != nil {
		return b, err
	}
	conf, err := b.PeerTLS("talker")
	if err != nil {
		return b, err
	}
	b.server = httptest.NewUnstartedServer(b.agent)
	b.server.TLS = conf
	b.server.StartTLS()
	b.client = b.Client(b.ClientSVID())
	return b, b.AddAgent(ctx, "talker", "a2a-v1", b.server.URL)
}

func (b *bed) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	b.agent.finish()
	if b.client != nil {
		b.client.CloseIdleConnections()
	}
	var err error
	if b.Process != nil {
		err = b.Stop(ctx)
	}
	if b.server != nil {
		b.server.CloseClientConnections()
		b.server.Close()
	}
	return err
}

// post sends a JSON body and returns the response.
func post(ctx context.Context, client *http.Client, url, body string, header map[string]string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("bench: %s answered %s: %s", url, resp.Status, text), resp.Body.Close())
	}
	return resp, err
}

// resident is the gateway's memory in bytes.
func (b *bed) resident() (float64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(b.PID()) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kib * 1024, err
		}
	}
	return 0, errors.New("bench: no VmRSS")
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}
