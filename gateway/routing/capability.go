package routing

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/spelling"
)

// messageTool is what a plain message is called in a protocol of calls where it names no
// skill (R8).
const messageTool = "message"

// find finds what the message names: a call's name, the skill that its
// sender selected, else the only one there is. A caller may know it by the
// name that its own protocol allows (R9).
func find(source *translators.Features, d *canonical.Description, m *canonical.Message) (*canonical.Capability, error) {
	name := Called(m)
	if found := Named(source, d, name); found != nil {
		return found, nil
	}
	if only := only(d); only != nil && (name == "" || name == messageTool) {
		return only, nil
	}
	if name == "" {
		if err := misspelt(source, d, m); err != nil {
			return nil, err
		}
	}
	return nil, refusal(source, d, name)
}

// refusal is of a name that nothing has, or of a message without one.
func refusal(source *translators.Features, d *canonical.Description, name string) error {
	if name == "" {
		return &UnnamedError{Refusal: &canonical.Error{
			Code:    canonical.CodeBadParams,
			Message: "this agent has several skills: name one with a data part {\"skill\": …, \"input\": …}; it has " + names(source, d),
		}}
	}
	return &canonical.Error{Code: canonical.CodeSkillNotFound, Message: "no such skill or tool; this agent has " + names(source, d) + spelling.DidYouMean(name, allNames(source, d))}
}

// misspelt says which member of a call in a data part is not known. Such a part names a skill of the
// agent, but is not exactly {"skill": …, "input": …}: in MCP the members are "name" and "arguments".
func misspelt(source *translators.Features, d *canonical.Description, m *canonical.Message) error {
	invoke, ok := m.Body.(*canonical.Invoke)
	if !ok {
		return nil
	}
	for i := range invoke.Turn.Parts {
		var members map[string]json.RawMessage
		if p := &invoke.Turn.Parts[i]; p.Kind != canonical.KindData || json.Unmarshal(p.Data, &members) != nil {
			continue
		}
		for _, key := range []string{"skill", "name"} {
			var skill string
			if json.Unmarshal(members[key], &skill) != nil || Named(source, d, skill) == nil {
				continue
			}
			for _, member := range slices.Sorted(maps.Keys(members)) {
				if member == "skill" || member == "input" {
					continue
				}
				return &canonical.Error{Code: canonical.CodeBadParams, Message: fmt.Sprintf(
					`unknown member %q%s A call in a data part is {"skill": …, "input": …}`, member, suggestion(member))}
			}
		}
	}
	return nil
}

// suggestion asks for the member of a call that is probably meant.
func suggestion(member string) string {
	switch member {
	case "arguments", "args", "params", "parameters":
		return `: did you mean "input"?`
	case "name", "tool":
		return `: did you mean "skill"?`
	default:
		return "."
	}
}

// only is the only skill that there is, whatever content is handed out beside
// it; nil: there is none, or a choice.
func only(d *canonical.Description) *canonical.Capability {
	if len(d.Capabilities) == 1 {
		return &d.Capabilities[0]
	}
	var found *canonical.Capability
	for i := range d.Capabilities {
		switch {
		case d.Capabilities[i].Profile.Content():
		case found != nil:
			return nil
		default:
			found = &d.Capabilities[i]
		}
	}
	return found
}

// Called is what a message names: the tool that it calls, else a skill.
func Called(m *canonical.Message) string {
	if invoke, ok := m.Body.(*canonical.Invoke); ok && invoke.Call != nil {
		return invoke.Call.Name
	}
	return m.To.Skill
}

// Named is the capability that a caller means by a name; nil: there is none.
func Named(source *translators.Features, d *canonical.Description, name string) *canonical.Capability {
	for i := range d.Capabilities {
		if name != "" && d.Capabilities[i].ID == name {
			return &d.Capabilities[i]
		}
	}
	if namer := source.Namer; namer != nil && name != "" {
		if i := slices.Index(namer.CapabilityNames(d.Capabilities), name); i >= 0 {
			return &d.Capabilities[i]
		}
	}
	return nil
}

// names are those by which a caller may call the first capabilities.
func names(source *translators.Features, d *canonical.Description) string {
	const most = 16
	list := allNames(source, d)
	if len(list) > most {
		list = append(list[:most:most], "…")
	}
	return strings.Join(list, ", ")
}

// allNames are those of all capabilities.
func allNames(source *translators.Features, d *canonical.Description) []string {
	if namer := source.Namer; namer != nil {
		return namer.CapabilityNames(d.Capabilities)
	}
	list := make([]string, len(d.Capabilities))
	for i := range list {
		list[i] = d.Capabilities[i].ID
	}
	return list
}
