package snippets

import (
	_ "embed" // for the programs
	"io"
	"strings"
)

var (
	//go:embed a2a.txt
	a2aPrograms string
	//go:embed mcp.txt
	mcpPrograms string
)

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
	programs := mcpPrograms
	if a2a {
		programs = a2aPrograms
	}
	_, err := strings.NewReplacer("{{Name}}", agent.Name, "{{Base}}", agent.Base, "{{CA}}", agent.CA, "{{Skill}}", agent.Skill, "{{Input}}", agent.Input).
		WriteString(w, programs)
	return err
}
