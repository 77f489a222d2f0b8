package stdio

import (
	"cmp"
	"slices"
	"strings"
)

// shortestHidden is the least length of a value that is hidden, in bytes: shorter ones are
// words that stand in any line.
const shortestHidden = 8

// hidden are the values of a program's variables that are not logged, by what stands in their
// place.
type hidden []struct{ value, name string }

// hides takes from the environment of a program the values that its operator gave it. Of a
// value of several lines, such as a key, each line counts.
func (p Program) hides(environment []string) hidden {
	var h hidden
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		_, file := p.EnvFiles[name]
		if _, plain := p.Env[name]; !plain && !file {
			continue
		}
		for line := range strings.Lines(value) {
			if line = strings.TrimRight(line, "\r\n"); len(line) >= shortestHidden {
				h = append(h, struct{ value, name string }{line, "[" + name + "]"})
			}
		}
	}
	slices.SortFunc(h, func(x, y struct{ value, name string }) int { return cmp.Compare(len(y.value), len(x.value)) })
	return h
}

// in replaces the values in a line. cut: the line is the beginning of a longer one, which may
// end within a value.
func (h hidden) in(line string, cut bool) string {
	for _, one := range h {
		line = strings.ReplaceAll(line, one.value, one.name)
	}
	for _, one := range h {
		for n := len(one.value) - 1; cut && n >= shortestHidden; n-- {
			if rest, ok := strings.CutSuffix(line, one.value[:n]); ok {
				return rest + one.name
			}
		}
	}
	return line
}
