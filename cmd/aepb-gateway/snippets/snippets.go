package snippets

import (
	"embed"
	"io"
	"strings"
)

//go:embed a2a.txt mcp.txt
var texts embed.FS

// Agent is the agent that the programs call.
type Agent struct {
	Name  string // in the directory
	Base  string // the gateway's public URL
	CA    string // file of the CA that the gateway's certificate is from
	Skill string // one of its skills or tools
	Input string // its arguments, a JSON object of texts and numbers
}

// Print writes the programs. A2A says that they are A2A clients; else they are MCP clients.
func Print(w io.Writer, agent Agent, a2a bool) error {
	name := "mcp.txt"
	if a2a {
		name = "a2a.txt"
	}
	text, err := texts.ReadFile(name)
	if err != nil {
		return err
	}
	_, err = strings.NewReplacer("{{Name}}", agent.Name, "{{Base}}", agent.Base, "{{CA}}", agent.CA, "{{Skill}}", agent.Skill, "{{Input}}", agent.Input).
		WriteString(w, string(text))
	return err
}
