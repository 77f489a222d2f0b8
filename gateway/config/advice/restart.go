package advice

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// rule says of a key, and of all keys below it, whether a reload puts it in force.
type rule struct {
	key     string
	restart bool   // it takes a restart
	partly  string // for what it takes a restart, where the rest is in force at once; empty: for everything
}

// rules are those of docs/configuration.md, under Reload. The longest key that fits decides;
// a key that none fits takes a restart.
func rules() []rule {
	const shares = "state, background tasks and MCP"
	return []rule{
		{key: "agents"},
		{key: "peers"},
		{key: "documents"},
		{key: "policy"},
		{key: "consensus"},
		{key: "ect"},
		{key: "timeout"},
		{key: "lifecycle"},
		{key: "limits"},
		{key: "limits.mcp_sessions", restart: true},
		{key: "limits.background", restart: true},
		{key: "limits.programs", restart: true},
		{key: "limits.program_idle", restart: true},
		{key: "limits.share", restart: true, partly: shares},
		{key: "limits.memory_mib", restart: true, partly: shares},
		{key: "admin.operators"},
		{key: "ainp.callers"},
		{key: "oauth"},
		{key: "identity"},
		{key: "identity.trust_domain", restart: true},
		{key: "identity.workload_api", restart: true},
		{key: "tls"},
		{key: "slim.nodes[].jwt.keys"},
	}
}

func ruleOf(key string) rule {
	best := rule{restart: true}
	key = strings.Map(func(r rune) rune { // of every entry of a list, without its number
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, key)
	for _, r := range rules() {
		if (key == r.key || strings.HasPrefix(key, r.key+".")) && len(r.key) > len(best.key) {
			best = r
		}
	}
	return best
}

// RestartKeys are the keys of a configuration that only a restart puts in force, each with its
// value as text. A key without a value is left out. dev: flags and not the file say where the
// public and the admin listener are.
func RestartKeys(c config.Config, dev bool) map[string]string {
	c.Listen = c.Listen.WithDefaults()
	if dev {
		c.Listen.Public, c.Listen.Admin = "", ""
	}
	found := map[string]string{}
	collect(reflect.ValueOf(c), "", found)
	maps.DeleteFunc(found, func(key, _ string) bool { return !ruleOf(key).restart })
	return found
}

// collect adds the values that are set, by key such as slim.nodes[0].url.
func collect(v reflect.Value, key string, found map[string]string) {
	if v.IsZero() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if set := v.Elem(); set.IsZero() && set.Kind() != reflect.Struct {
			found[key] = textOf(set.Interface()) // zero is another value than none
		} else {
			collect(set, key, found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Tag.Get("yaml"); name != "" {
				collect(v.Field(i), strings.TrimPrefix(key+"."+name, "."), found)
			}
		}
	case reflect.Map:
		for _, name := range v.MapKeys() {
			collect(v.MapIndex(name), key+"."+name.String(), found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			collect(v.Index(i), key+"["+strconv.Itoa(i)+"]", found)
		}
	default:
		found[key] = textOf(v.Interface())
	}
}

func textOf(value any) string {
	if d, ok := value.(config.Duration); ok {
		return time.Duration(d).String()
	}
	return fmt.Sprint(value)
}

// Change is a key that differs between the configuration in force and the file.
type Change struct{ Key, InForce, InFile string }

// Waiting are the changes that wait for a restart, by key. Both maps are those of [RestartKeys].
func Waiting(inForce, inFile map[string]string) []Change {
	var changes []Change
	for key, value := range inForce {
		if inFile[key] != value {
			changes = append(changes, Change{key, value, inFile[key]})
		}
	}
	for key, value := range inFile {
		if _, known := inForce[key]; !known {
			changes = append(changes, Change{Key: key, InFile: value})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	return changes
}

func (c Change) String() string {
	what := " takes a restart"
	if part := ruleOf(c.Key).partly; part != "" {
		what += " for " + part
	}
	return c.Key + what + ": in force " + cmp.Or(c.InForce, "the default") + ", in the file " + cmp.Or(c.InFile, "the default")
}
