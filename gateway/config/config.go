package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// MaxSize bounds a configuration file, in octets.
const MaxSize = 1 << 20

// Config is the file.
type Config struct {
	Limits  Limits           `yaml:"limits"`
	Policy  Policy           `yaml:"policy"`
	ECT     ECT              `yaml:"ect"`
	Timeout Duration         `yaml:"timeout"` // of one call to an agent; default 60s
	Agents  map[string]Agent `yaml:"agents"`
}

// Limits bound each source (AEPB, Gateway Requirements item 6).
type Limits struct {
	Rate  float64 `yaml:"rate"`  // requests per second; default 50, in dev 1000
	Burst int     `yaml:"burst"` // requests at once; default 100, in dev 2000
}

// Policy is the translation policy (AEPB, Translation Policy).
type Policy struct {
	MaxHops       *int      `yaml:"max_translation_hops"`     // default 3; 0: none
	HopScope      string    `yaml:"hop_scope"`                // path (default) or ancestry (R1)
	AllowedSource *[]string `yaml:"allowed_source_protocols"` // absent: all; empty: none
	AllowedDest   *[]string `yaml:"allowed_dest_protocols"`   // absent: all; empty: none
	AllowLosses   []string  `yaml:"allow_losses"`             // loss codes that are no semantic_loss (R7)
	Gateways      []string  `yaml:"gateways"`                 // peers that may carry others' ECTs (R2)
}

// ECT says what evidence callers must bring.
type ECT struct {
	Require bool `yaml:"require"` // refuse unattested messages at native doors too (R3)
}

// Agent is one agent.
type Agent struct {
	ID         string     `yaml:"id"`
	Endpoints  []Endpoint `yaml:"endpoints"`
	Callers    []string   `yaml:"callers"`
	RequireECT bool       `yaml:"require_ect"`
	Timeout    Duration   `yaml:"timeout"`
}

// Endpoint is one way to reach an agent.
type Endpoint struct {
	Binding  string `yaml:"binding"`
	Version  string `yaml:"version"`
	URL      string `yaml:"url"`
	Priority int    `yaml:"priority"`
}

// Duration reads "30s".
type Duration time.Duration

// UnmarshalText reads Go's form of a duration, not negative.
func (d *Duration) UnmarshalText(text []byte) error {
	value, err := time.ParseDuration(string(text))
	if err != nil || value < 0 {
		return fmt.Errorf("%q is no duration such as 30s", bounded(text))
	}
	*d = Duration(value)
	return nil
}

func bounded(text []byte) string { return string(text[:min(len(text), 32)]) }

// Parse reads a file. Its error lists what is wrong with line and column.
func Parse(data []byte) (Config, error) {
	if len(data) > MaxSize {
		return Config{}, fmt.Errorf("config: longer than %d octets", MaxSize)
	}
	var c Config
	decoder := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("config: %s", yaml.FormatError(err, false, true))
	}
	return c, c.validate()
}

func (c Config) validate() error {
	var errs []error
	for _, code := range c.Policy.AllowLosses {
		if _, ok := canonical.Lookup(canonical.LossCode(code)); !ok {
			errs = append(errs, fmt.Errorf("config: policy.allow_losses: no loss %q in the catalogue", code))
		}
	}
	errs = append(errs, c.Constraints().Validate())
	for _, agent := range c.Directory(true) {
		errs = append(errs, agent.Rules.Validate())
	}
	return errors.Join(errs...)
}

// Constraints is the policy in the words of package policy.
func (c Config) Constraints() policy.Constraints {
	out := policy.Constraints{HopScope: policy.HopScope(c.Policy.HopScope), AllowLosses: c.Policy.AllowLosses}
	if c.Policy.MaxHops != nil {
		out.MaxHops = *c.Policy.MaxHops
		if out.MaxHops == 0 {
			out.MaxHops = -1 // package policy reads zero as "default"
		}
	}
	if c.Policy.AllowedSource != nil {
		out.RestrictSource, out.AllowedSource = true, *c.Policy.AllowedSource
	}
	if c.Policy.AllowedDest != nil {
		out.RestrictDest, out.AllowedDest = true, *c.Policy.AllowedDest
	}
	return out
}

// Gateways are the peers that may carry other agents' ECTs.
func (c Config) Gateways() []ect.Identity {
	out := make([]ect.Identity, len(c.Policy.Gateways))
	for i, id := range c.Policy.Gateways {
		out[i] = ect.Identity(id)
	}
	return out
}

// Limit is the limits in the words of package limit.
func (c Config) Limit() limit.Config {
	return limit.Config{Rate: c.Limits.Rate, Burst: c.Limits.Burst}
}

// Directory lists the agents. In a development gateway an agent without a list
// of callers is open to everybody (R2).
func (c Config) Directory(dev bool) []directory.Agent {
	var out []directory.Agent
	for name, a := range c.Agents {
		agent := directory.Agent{
			Name: name, ID: ect.Identity(a.ID), Timeout: time.Duration(a.Timeout),
			Rules: policy.Rules{Callers: a.Callers, RequireECT: a.RequireECT, Open: dev && len(a.Callers) == 0},
		}
		for _, e := range a.Endpoints {
			agent.Endpoints = append(agent.Endpoints, directory.Endpoint{
				Binding: canonical.Binding(e.Binding), Version: e.Version, URL: e.URL, Priority: e.Priority,
			})
		}
		out = append(out, agent)
	}
	return out
}
