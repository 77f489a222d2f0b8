package config

import (
	"maps"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/lifecycle"
)

// Life is how an agent, or this gateway, is to stand (AEPB, Agent Lifecycle Management). Once an
// operator has ordered something, the configuration orders nothing more.
type Life struct {
	Status    string `yaml:"status"`    // active, deprecated or draining; draining needs 24 hours of deprecated before. Not used once an operator has changed the lifecycle. Default: unchanged.
	Reason    string `yaml:"reason"`    // Reason for callers and auditors. Required with status.
	Successor string `yaml:"successor"` // https URL of the capability document of the replacement.
	Sunset    string `yaml:"sunset_at"` // Time of the end (RFC 3339), such as 2027-01-31T00:00:00Z.
}

// order is what a configuration asks for.
func (l Life) order() (lifecycle.Order, error) {
	o := lifecycle.Order{To: lifecycle.Status(l.Status), Reason: l.Reason, Successor: l.Successor, By: lifecycle.Configuration}
	if l.Sunset == "" {
		return o, nil
	}
	var err error
	o.Sunset, err = time.Parse(time.RFC3339, l.Sunset)
	return o, err
}

// checkLives finds orders that no lifecycle can follow, and a version that is not semantic.
func checkLives(c Config, say func(path, reason string)) {
	if err := lifecycle.CheckSemver(c.Version); c.Version != "" && err != nil {
		say("$.version", err.Error())
	}
	eachLife(c, func(agent string, l Life) {
		path := "$.lifecycle"
		if agent != "" {
			path = "$.agents.'" + agent + "'.lifecycle"
		}
		order, err := l.order()
		if err != nil {
			say(path+".sunset_at", "expected a time such as 2027-01-31T00:00:00Z")
		} else if err := order.Check(); err != nil {
			say(path, err.Error())
		}
	})
}

// Lives are the transitions that are asked for, by agent; empty: of this gateway.
func (c Config) Lives() map[string]lifecycle.Order {
	orders := map[string]lifecycle.Order{}
	eachLife(c, func(agent string, l Life) { orders[agent], _ = l.order() }) // Parse has judged it
	return orders
}

// eachLife calls f for each life that is configured.
func eachLife(c Config, f func(agent string, l Life)) {
	if c.Life != (Life{}) {
		f("", c.Life)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		if l := c.Agents[name].Life; l != (Life{}) {
			f(name, l)
		}
	}
}

// APIKeys are the keys of callers in the simplest case.
type APIKeys struct {
	File string `yaml:"file"` // File with the API keys of callers, made by aepbctl keys; read again when it changes. Has hashes, no secrets. Default: API keys are not taken.
}
