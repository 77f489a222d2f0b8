package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
)

func credentialed(credential string) []byte {
	return []byte("agents: {a: {endpoints: [{binding: mcp-v1, url: \"https://Agent.example/mcp\"}, {binding: a2a-v1, url: \"https://agent.example\", grpc: \"agent.example:50051\"}], credential: " + credential + "}}\n")
}

func TestCredential_Mistakes(t *testing.T) {
	t.Parallel()
	const oauth = `{oauth: {token_url: "https://as.example/t", client_id: c, client_secret_file: /s}}`
	for name, tc := range map[string]struct{ text, want string }{
		"none":                 {`{}`, "exactly one of header"},
		"two":                  {`{bearer: {token_file: /f}, basic: {user: u, password_file: /f}}`, "exactly one of header"},
		"header":               {`{header: {name: X-Key, value_file: /f}}`, ""},
		"header without file":  {`{header: {name: X-Key}}`, "value_file: required"},
		"header of HTTP":       {`{header: {name: Host, value_file: /f}}`, "header.name"},
		"header of MCP":        {`{header: {name: mcp-session-id, value_file: /f}}`, "header.name"},
		"header with a blank":  {`{header: {name: "X Key", value_file: /f}}`, "header.name"},
		"bearer":               {`{bearer: {token_file: /f}}`, ""},
		"bearer twice":         {`{bearer: {token_file: /f, command: [sh]}}`, "exactly one of token_file and command"},
		"no such command":      {`{bearer: {command: [no-such-program]}}`, "no-such-program"},
		"basic with a colon":   {`{basic: {user: "a:b", password_file: /f}}`, "basic.user"},
		"certificate":          {`{certificate: {cert_file: /c, key_file: /k}}`, ""},
		"half a certificate":   {`{certificate: {cert_file: /c}}`, "cert_file and key_file"},
		"oauth":                {oauth, ""},
		"oauth by SVID":        {`{oauth: {token_url: "https://as.example/t", svid: true, exchange: true}}`, ""},
		"oauth without client": {strings.Replace(oauth, "client_id: c, ", "", 1), "client_id: required"},
		"oauth by nothing":     {strings.Replace(oauth, ", client_secret_file: /s", "", 1), "exactly one of client_secret_file"},
		"oauth by two":         {strings.Replace(oauth, "client_id", "svid: true, client_id", 1), "exactly one of client_secret_file"},
		"oauth over http":      {strings.Replace(oauth, "https:", "http:", 1), "expected an https URL"},
		"oauth with a user":    {strings.Replace(oauth, "as.example", "u:p@as.example", 1), "expected an https URL"},
		"oauth, two scopes":    {strings.Replace(oauth, "client_id", `scopes: ["a b"], client_id`, 1), "one scope"},
		"oauth, a resource":    {strings.Replace(oauth, "client_id", `resource: [agent], client_id`, 1), "absolute URIs"},
		"oauth, a method":      {strings.Replace(oauth, "client_id", `client_auth: none, client_id`, 1), "basic or post"},
		"a secret in the file": {`{bearer: {token: abc}}`, "token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Parse(credentialed(tc.text))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestCredential_OriginsAreThoseOfTheFile(t *testing.T) {
	t.Parallel()
	c, err := config.Parse(credentialed(`{header: {name: x-key, value_file: /f}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := config.Credentials(c)["a"]
	if want := "https://agent.example:443 https://agent.example:50051"; strings.Join(got.Origins, " ") != want || got.Header.Name != "X-Key" {
		t.Errorf("%+v", got)
	}
}

// TestCredential_FilesAreRead: errors say which file cannot be used, and quote none.
func TestCredential_FilesAreRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	for text, want := range map[string]string{"good\n": "", "sesame\nsesame": "no header may have", " \n": "empty", strings.Repeat("x", 70<<10): "larger"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Parse(credentialed(`{bearer: {token_file: "` + file + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		err = config.ReadCredentials(c)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "agents.'a'.credential.bearer.token_file") || strings.Contains(err.Error(), "sesame")) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	c, err := config.Parse(credentialed(`{oauth: {token_url: "https://as.example/t", client_id: c, key_file: "` + file + `"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := config.ReadCredentials(c); err == nil {
		t.Error("no key is taken for one")
	}
}

func TestCredential_PlainAgents(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{a: {plain: true, endpoints: [{binding: mcp-v1, url: "http://127.0.0.1:3000/mcp"}]}}`:                                                 "",
		`{a: {plain: true, endpoints: [{binding: mcp-v1, url: "http://[::1]:3000/mcp"}]}}`:                                                     "",
		`{a: {endpoints: [{binding: mcp-v1, url: "http://127.0.0.1:3000/mcp"}]}}`:                                                              "must be an https URL",
		`{a: {plain: true, endpoints: [{binding: mcp-v1, url: "http://10.0.0.1/mcp"}]}}`:                                                       "must be an https URL",
		`{a: {plain: true, endpoints: [{binding: mcp-v1, url: "http://agent.example/mcp"}]}}`:                                                  "must be an https URL",
		`{a: {plain: true, endpoints: [{binding: uacp-v1, url: "uacp://127.0.0.1:5683"}]}}`:                                                    "datagrams",
		`{a: {plain: true, id: "spiffe://a/b", endpoints: [{binding: mcp-v1, url: "http://127.0.0.1:3000/mcp"}]}}`:                             "proves no id",
		`{a: {plain: true, credential: {certificate: {cert_file: /c, key_file: /k}}, endpoints: [{binding: mcp-v1, url: "http://[::1]:3/"}]}}`: "is shown no certificate",
	} {
		c, err := config.Parse([]byte("agents: " + text))
		if err == nil {
			err = c.Serve()
		}
		lines := ""
		var linesSb110 strings.Builder
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if strings.Contains(line, "agents.") {
				linesSb110.WriteString(line)
			}
		}
		lines += linesSb110.String()
		if want == "" && lines != "" || !strings.Contains(lines, want) {
			t.Errorf("%s: got %q, want %q", text, lines, want)
		}
	}
}
