package devgateway

import "strings"

// Snippet is the program in one language among those that a gateway prints, without the
// indentation of that; empty: there is none.
func Snippet(printed, language string) string {
	_, rest, found := strings.Cut(printed, "\n  "+language)
	if !found {
		return ""
	}
	_, rest, _ = strings.Cut(rest, "\n") // what to install
	var program strings.Builder
	for line := range strings.Lines(rest) {
		code, indented := strings.CutPrefix(line, "    ")
		if !indented && strings.TrimSpace(line) != "" {
			break
		}
		if !indented {
			code = "\n"
		}
		program.WriteString(code)
	}
	return program.String()
}
