package e2e

import (
	"os"
	"strings"
	"testing"
)

// readmeStory makes a script of the README's shell blocks: every command there,
// in order, with the programs that were built and free ports. What stands for
// something of the reader's own is given: the agent and the tokens.
func readmeStory(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	replace := strings.NewReplacer(
		"bin/aepb-gateway ", "exec aepb-gateway ",
		"go run ./cmd/aepb-gateway", "exec aepb-gateway",
		"go run ./cmd/aepbctl", "exec aepbctl",
		"http://127.0.0.1:3000/mcp", "$yours",
		"TOKEN…", "$TOKEN1 $TOKEN2 $TOKEN3",
	)
	var story strings.Builder
	for _, line := range fenced(string(text), "sh") {
		command, _, _ := strings.Cut(line, " #")
		switch command = strings.TrimSpace(command); {
		case command == "make test": // is what runs this
		case strings.HasPrefix(command, "go build "): // has been done
		case command == "bin/aepb-gateway serve --config gateway.yaml":
			story.WriteString("serve --config gateway.yaml\nserved\nstderr stopping\n")
		case strings.HasPrefix(command, "bin/aepb-gateway check-config "):
			story.WriteString("domain example.com run\nexpand gateway.yaml\n" + replace.Replace(command) + "\nstdout ok\n")
		case command == "go run ./cmd/aepb-gateway dev":
			story.WriteString("gateway .aepb\nagent mcp toolbox\nfront yours toolbox\n")
		case strings.HasPrefix(command, "go run ./cmd/aepbctl send "):
			sent := replace.Replace(command)
			story.WriteString(sent + "\nstdout 'signatures valid, linked, hashes match'\n" + sent + " -o json\ntokens stdout\n")
		case strings.HasPrefix(command, "go run ./cmd/"):
			story.WriteString(replace.Replace(command) + "\nstdout .\n")
		default:
			t.Fatalf("the README has a command that no story can tell: %s", line)
		}
	}
	// The reader's own files, and ports that are free.
	config := strings.NewReplacer("/run/svid/", "$WORK/run/", "/run/secrets/", "$WORK/run/").
		Replace(strings.Join(together(fenced(string(text), "yaml")), "\n"))
	return story.String() + "ended\n-- gateway.yaml --\n" +
		"listen: {public: 127.0.0.1:0, admin: 127.0.0.1:0}\n" + config + "\n"
}

// together joins several pieces of one configuration: what they say under the
// same key stands under it once.
func together(lines []string) []string {
	var keys []string
	under := map[string][]string{}
	key := ""
	for _, line := range lines {
		if line[0] != ' ' && line[0] != '#' {
			key = line
			if _, known := under[key]; !known {
				keys, under[key] = append(keys, key), []string{}
			}
			continue
		}
		under[key] = append(under[key], line)
	}
	var out []string
	for _, key := range keys {
		out = append(append(out, key), under[key]...)
	}
	return out
}

// fenced are the lines of all code blocks in a language.
func fenced(markdown, language string) []string {
	var lines []string
	inside := false
	for line := range strings.Lines(markdown) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "```"+language:
			inside = true
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside && line != "":
			lines = append(lines, line)
		}
	}
	return lines
}
