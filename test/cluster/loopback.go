package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// loopback is where the parts of a cluster are on one machine.
type loopback struct {
	dir   string            // in place of /run
	names map[string]string // host:port of the configuration, and the address in its place
}

// errNotCluster says that a configuration is not one for a cluster.
var errNotCluster = errors.New("the configuration is not that of replicas")

// gateway is the configuration of one replica: that of the cluster with these folders,
// addresses and listeners, and no other change.
func (l loopback) gateway(text []byte, public string, listen map[string]string) ([]byte, error) {
	tree, err := l.read(text)
	if err != nil {
		return nil, err
	}
	listeners, ok := tree["listen"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: it has no section listen", errNotCluster)
	}
	for name := range listeners {
		at, ok := listen[name]
		if !ok {
			return nil, fmt.Errorf("%w: it listens for %s, for which there is no port here", errNotCluster, name)
		}
		listeners[name] = at
	}
	tree["public_url"] = public
	return yaml.Marshal(tree)
}

// prometheus is the configuration of Prometheus with these targets and this file of rules.
func (l loopback) prometheus(text []byte, rules string, targets []string) ([]byte, error) {
	tree, err := l.read(text)
	if err != nil {
		return nil, err
	}
	jobs, _ := tree["scrape_configs"].([]any)
	if len(jobs) != 1 {
		return nil, fmt.Errorf("%w: %d jobs of Prometheus, want one", errNotCluster, len(jobs))
	}
	job, ok := jobs[0].(map[string]any)
	if !ok || job["dns_sd_configs"] == nil {
		return nil, fmt.Errorf("%w: Prometheus does not find replicas by name", errNotCluster)
	}
	delete(job, "dns_sd_configs")
	job["static_configs"] = []any{map[string]any{"targets": targets}}
	tree["rule_files"] = []string{rules}
	return yaml.Marshal(tree)
}

func (l loopback) read(text []byte) (map[string]any, error) {
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	replace := []string{}
	for _, name := range slices.Sorted(maps.Keys(l.names)) {
		replace = append(replace, name, l.names[name])
	}
	return moved(tree, strings.NewReplacer(replace...), l.dir).(map[string]any), nil //nolint:forcetypeassert // a map stays one
}

// moved is a YAML value with other folders and addresses in its texts.
func moved(value any, names *strings.Replacer, dir string) any {
	switch value := value.(type) {
	case map[string]any:
		for key, each := range value {
			value[key] = moved(each, names, dir)
		}
	case []any:
		for i, each := range value {
			value[i] = moved(each, names, dir)
		}
	case string:
		if rest, ok := strings.CutPrefix(value, "/run/"); ok {
			return dir + "/" + rest
		}
		return names.Replace(value)
	}
	return value
}
