package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a page needs before its first command.
const (
	devGateway = "gateway .aepb\n" + calculator + "exec aepbctl agents add calculator --mcp $calculator\n"
	approving  = "exec sh -c 'echo ''policy: {approvals: [{tool: add}]}'' > rules.yaml'\ngateway .aepb --config $WORK/rules.yaml\n" + calculator + "exec aepbctl agents add calculator --mcp $calculator\n"
	deciding   = "exec sh -c 'echo ''consensus: {groups: {ops: {members: [{id: spiffe://aepb.dev/client}], proposers: {spiffe://aepb.dev/client: 1}}}}'' > ops.yaml'\ngateway .aepb --config $WORK/ops.yaml\n"
	production = "domain example.com run\nexpand gateway.yaml\n"
	freeInit   = "ports OWNPUBLIC OWNADMIN METRICS\n"
	// calculator is an agent of the reader's, once a gateway runs.
	calculator = "agent mcp toolbox\nfront calculator toolbox\n"
	sentBefore = "exec sh -c 'aepbctl send calculator --tool add --args ''{\"a\": 1, \"b\": 2}'' -o json > sent.json'\ntokens sent.json\n"
)

// pages are the pages whose ```sh blocks run, in their order, each page as one story, and what
// each needs before. A page that is not here must have no such block.
var pages = map[string]string{
	"README.md":                     freeInit,
	"docs/approvals.md":             approving,
	"docs/call-an-agent.md":         devGateway,
	"docs/configuration.md":         production,
	"docs/connect-an-agent.md":      "",
	"docs/consensus.md":             deciding,
	"docs/evidence.md":              devGateway + sentBefore,
	"docs/gateways-and-replicas.md": devGateway,
	"docs/lifecycle-and-breakers.md": devGateway +
		"cp document.json old.json\ncp document.json new.json\n",
	"docs/operate.md":           freeInit,
	"docs/sizing-and-limits.md": production,
	"docs/workflows.md":         devGateway,
}

// given stands for what is the reader's own in a command: a server, a port, a workflow.
var given = strings.NewReplacer(
	"go run ./cmd/aepb-gateway", "aepb-gateway",
	"http://127.0.0.1:3000/mcp", `"$calculator"`,
	"https://127.0.0.1:8443", `"$PUBLIC"`,
	"npx -y @modelcontextprotocol/server-filesystem .", "$BIN/toolbox",
	"dag WID", `dag "$WID"`,
	"init --dir gw --", "init --dir gw --",
	"init --dir gw", `init --dir gw --addr 127.0.0.1:"$OWNPUBLIC" --admin-addr 127.0.0.1:"$OWNADMIN" --metrics-addr 127.0.0.1:"$METRICS"`,
	"aepbctl healthz", `aepbctl healthz http://127.0.0.1:"$METRICS"`,
)

// pageStories are the scripts that the pages are.
func pageStories(t *testing.T, root string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(root, "docs", "protocols", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var files []string
	left := maps.Clone(pages)
	for _, file := range slices.Concat([]string{filepath.Join(root, "README.md")}, all, more) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		blocks := fenced(string(text), "sh")
		before, known := pages[filepath.ToSlash(name)]
		delete(left, filepath.ToSlash(name))
		if known != (len(blocks) > 0) {
			t.Errorf("%s has %d blocks of commands; in the table of pages: %v: correct the row", name, len(blocks), known)
		}
		if !known {
			continue
		}
		story := filepath.Join(dir, strings.NewReplacer("/", "-", ".md", ".txtar").Replace("page-"+filepath.ToSlash(name)))
		if err := os.WriteFile(story, []byte(pageStory(before, blocks)), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, story)
	}
	for name := range left {
		t.Errorf("%s is in the table of pages and not there: correct the row", name)
	}
	return files
}

// pageStory makes a script of a page's blocks. A program that stays is left running; all other
// lines of a block run in one shell, as a reader would have them run.
func pageStory(before string, blocks []string) string {
	var story, files strings.Builder
	story.WriteString(before)
	developing, serving, number := false, false, 0
	var lines []string
	flush := func() {
		if len(lines) == 0 {
			return
		}
		number++
		fmt.Fprintf(&story, "exec sh -eu block%d.sh\n", number)
		fmt.Fprintf(&files, "-- block%d.sh --\n%s\n", number, strings.Join(lines, "\n"))
		lines = nil
	}
	for _, block := range blocks {
		for line := range strings.Lines(block) {
			line = strings.TrimSuffix(line, "\n")
			command, _, _ := strings.Cut(line, " #")
			switch command = strings.TrimSpace(command); {
			case command == "make test", strings.HasPrefix(command, "go build "): // what runs this has done both
			case command == "aepb-gateway dev", strings.HasPrefix(command, "aepb-gateway dev "):
				flush()
				args := strings.ReplaceAll(given.Replace(strings.TrimPrefix(command, "aepb-gateway dev")), `"`, "")
				story.WriteString("gateway .aepb" + args + "\n" + calculator)
				developing = true
			case strings.HasPrefix(command, "aepb-gateway serve "):
				flush()
				if developing { // until here
					story.WriteString("terminate\nended\n")
				}
				story.WriteString("serve" + strings.TrimPrefix(command, "aepb-gateway serve") + "\n")
				serving = true
			case command == "aepb-gateway check-config gateway.yaml" && before == "":
				flush()
				story.WriteString(production)
				fallthrough
			default:
				lines = append(lines, given.Replace(line))
			}
		}
		flush()
	}
	if serving {
		story.WriteString("served\n")
	}
	return story.String() + files.String() + "-- gateway.yaml --\n" + exampleConfig + "-- document.json --\n" + exampleDocument +
		"-- message.json --\n" + exampleMessage
}

// The reader's own files: a configuration, a capability document, an A2A message.
const (
	exampleConfig = `listen: {public: 127.0.0.1:0, admin: 127.0.0.1:0}
public_url: https://gw.example.com
identity: {trust_domain: example.com, certificate: $WORK/run/cert.pem, key: $WORK/run/key.pem, bundle: $WORK/run/bundle.pem}
admin: {operators: {ann: {id: "spiffe://example.com/people/ann", roles: [operator]}}}
agents:
  calculator:
    endpoints: [{binding: mcp-v1, url: "https://calculator.internal/mcp"}]
    callers: ["spiffe://example.com/assistants/*"]
`
	exampleDocument = `{"aepb_version": "1.0", "agent_id": "spiffe://example.com/agents/calculator", "protocols": [{"id": "mcp-v1", "version": "1.0", "endpoint": "https://example.com/mcp", "priority": 1}], "translation_gateways": [], "ect_assurance_level": "L2",
"ect_namespaces": ["aepb"], "lifecycle": {"status": "active", "version": "1.0.0", "deprecated_at": null, "sunset_at": null, "successor": null}}
`
	exampleMessage = `{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message":
{"messageId": "m1", "role": "ROLE_USER", "parts": [{"data": {"skill": "add", "input": {"a": 1, "b": 2}}}]}}}
`
)

// fenced are the code blocks of a page in a language, each with its lines.
func fenced(markdown, language string) []string {
	var blocks []string
	inside := false
	for line := range strings.Lines(markdown) {
		switch {
		case strings.TrimRight(line, "\n") == "```"+language:
			inside = true
			blocks = append(blocks, "")
		case strings.HasPrefix(line, "```"):
			inside = false
		case inside:
			blocks[len(blocks)-1] += line
		}
	}
	return blocks
}
