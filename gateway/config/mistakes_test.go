package config

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// TestParse_TellsEveryMistake: a file is read once, and each mistake of syntax, type and meaning in it is
// told with its place. What follows from a mistake is not told beside it.
func TestParse_TellsEveryMistake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"types in three sections": {
			"limits:\n  rate: fast\n  burst: [1]\nlog:\n  level: loud\nstate:\n  evidence_mib: much\n",
			[]string{"[2:9] limits.rate: expected a number, found text", "[3:10] limits.burst: expected a whole number, found a list", "[5:10] log.level", "[7:17] state.evidence_mib: expected a whole number"},
		},
		"unknown keys": {
			"listen:\n  nosuch: 1\n  public: \"8777\"\nelse: {}\n",
			[]string{`[2:3] listen.nosuch: unknown field "nosuch"`, "[3:11] listen.public: not an address to listen on", `[4:1] else: unknown field "else"`},
		},
		"durations": {
			"policy:\n  circuit_window: 60\nagents:\n  calc:\n    timeout: soon\n    endpoints: [{binding: a2a-v1, url: \"https://x\"}]\n",
			[]string{`[2:19] policy.circuit_window: "60" is not a duration such as 30s`, `[5:14] agents.calc.timeout: "soon" is not a duration such as 30s`},
		},
		"items of a list": {
			"agents:\n  calc:\n    endpoints:\n      - 7\n      - binding: mcp\n        priority: high\n      - 8\n",
			[]string{"[4:9] agents.calc.endpoints[0]", "[5:18] agents.'calc'.endpoints[1].binding: this gateway does not speak \"mcp\": expected one of a2a-v1, mcp-v1", "[6:19] agents.calc.endpoints[1].priority: expected a whole number", "[7:9] agents.calc.endpoints[2]"},
		},
		"a list for a mapping": {"identity: [a]\nlog: 3\npeers:\n  \"spiffe://x/y\":\n    dialect: klingon\n", []string{"[1:1", "[2:6] log", "[5:14] peers.'spiffe://x/y'.dialect"}},
		"text for a switch":    {"metrics:\n  anonymous: maybe\nadmin: [1]\n", []string{"[3:8] admin"}},
		"no YAML":              {"limits:\n  rate: [1\n", []string{"[2:9]"}},
		"one key twice":        {"log:\n  level: info\nlog:\n  level: warn\n", []string{"[3:1]"}},
		"tabs":                 {"log:\n\tlevel: info\n", []string{"[2:"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(c.file))
			if err == nil {
				t.Fatal("there is no mistake")
			}
			lines := strings.Split(err.Error(), "\n")
			for _, want := range c.want {
				if !strings.Contains(err.Error(), "config: "+want) {
					t.Errorf("not told: %s\ntold:\n%s", want, err)
				}
			}
			if name != "text for a switch" && len(lines) != len(c.want) {
				t.Errorf("%d are told, expected %d:\n%s", len(lines), len(c.want), err)
			}
			if first, ok := errors.AsType[*Error](err); !ok || first.Line == 0 {
				t.Errorf("the first has no place: %v", err)
			}
		})
	}
}

// TestParse_MistakesAreBounded: a file of nothing but mistakes costs little, and says the first ones.
func TestParse_MistakesAreBounded(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	for i := range 2000 {
		file.WriteString("k" + strconv.Itoa(i) + ": 1\n")
	}
	_, err := Parse([]byte(file.String()))
	if err == nil {
		t.Fatal("there is no mistake")
	}
	if got := strings.Count(err.Error(), "\n") + 1; got != maxMistakes {
		t.Errorf("%d mistakes are told, expected %d", got, maxMistakes)
	}
}
