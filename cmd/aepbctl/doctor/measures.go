package doctor

import (
	"strconv"
	"strings"
)

// measures are the gauges of a page for Prometheus that have at most one label: by name,
// then by the label's value.
type measures map[string]map[string]float64

// measuresOf reads the text format, as far as it is needed here. Lines that are
// something else are left out.
func measuresOf(page []byte) measures {
	out := measures{}
	for line := range strings.Lines(string(page)) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		name, labels, labelled := strings.Cut(line[:at], "{")
		if err != nil {
			continue
		}
		label := ""
		if labelled {
			_, quoted, _ := strings.Cut(strings.TrimSuffix(labels, "}"), "=")
			if label, err = strconv.Unquote(quoted); err != nil { // more than one
				continue
			}
		}
		if out[name] == nil {
			out[name] = map[string]float64{}
		}
		out[name][label] = value
	}
	return out
}
