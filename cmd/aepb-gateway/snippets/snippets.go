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
	Name string // in the directory
	Base string // the gateway's public URL
	CA   string // file of the CA that the gateway's certificate is from

	Example // what of it they call
}

// Print writes the programs. A2A says that they are A2A clients; else they are MCP clients.
func Print(w io.Writer, agent Agent, a2a bool) error {
	name, noun := "mcp.txt", "tool"
	if a2a {
		name, noun = "a2a.txt", "skill"
	}
	text, err := texts.ReadFile(name)
	if err != nil {
		return err
	}
	which := "for example the " + noun + " " + agent.Skill
	if agent.Why != "" {
		which = "with the name of a " + noun + " in place of " + Placeholder + ", and its arguments (none is chosen here: " + agent.Why + ")"
	}
	_, err = strings.NewReplacer("{{Which}}", which, "{{Name}}", agent.Name, "{{Base}}", agent.Base, "{{CA}}", agent.CA, "{{Skill}}", agent.Skill, "{{Input}}", agent.Input).
		WriteString(w, string(text))
	return err
}
