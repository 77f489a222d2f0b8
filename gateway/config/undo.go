package config

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
)

// Compensation says how a call of one tool is undone (R22).
type Compensation struct {
	Tool      string    `yaml:"tool"`      // Tool of the same agent that undoes the call. Required.
	Arguments Arguments `yaml:"arguments"` // Arguments of that tool. {call: POINTER}, {result: POINTER} and {before: POINTER} stand for values of the call, of its result, and of what before reads. Default: no arguments.
	Before    *Reading  `yaml:"before"`    // Call that reads the state before each call of the tool, so that it can be written back. Default: nothing is read.
}

// Reading is a call that reads a state.
type Reading struct {
	Tool      string    `yaml:"tool"`      // Tool of the same agent that reads the state. Required.
	Arguments Arguments `yaml:"arguments"` // Arguments of that tool. {call: POINTER} stands for a value of the call. Default: no arguments.
}

// Arguments are arguments of a call, by name, as JSON; nil: there are none.
type Arguments json.RawMessage

// readDepth is how many mappings and lists within each other are read: one more than a rule may have, which is refused.
const readDepth = compensation.MaxDepth + 1

// UnmarshalYAML reads YAML whose values JSON has too; numbers stay as they are written. Its error is an *[Error].
func (a *Arguments) UnmarshalYAML(node ast.Node) error {
	text, err := appendJSON(nil, node, 0)
	if err != nil {
		return err
	}
	*a = text
	return nil
}

// appendJSON writes a YAML node as JSON. Its error is an *[Error].
func appendJSON(out []byte, node ast.Node, depth int) ([]byte, error) {
	if depth > readDepth {
		return append(out, "null"...), nil
	}
	switch n := node.(type) {
	case *ast.MappingNode:
		return appendObject(out, n.Values, depth)
	case *ast.MappingValueNode:
		return appendObject(out, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		var err error
		out = append(out, '[')
		for i, element := range n.Values {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendJSON(out, element, depth+1); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	default:
		return appendScalar(out, node)
	}
}

func appendObject(out []byte, entries []*ast.MappingValueNode, depth int) ([]byte, error) {
	out = append(out, '{')
	for i, entry := range entries {
		name := entry.Key.GetToken().Value
		switch entry.Key.(type) {
		case *ast.MergeKeyNode, *ast.MappingKeyNode, *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
			return nil, errorAt(entry.Key, "expected a plain name: no anchor, alias, tag or merge")
		}
		if !utf8.ValidString(name) {
			return nil, errorAt(entry.Key, "no UTF-8")
		}
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendJSON(append(appendText(out, name), ':'), entry.Value, depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

func appendScalar(out []byte, node ast.Node) ([]byte, error) {
	var text string
	switch n := node.(type) {
	case *ast.NullNode:
		return append(out, "null"...), nil
	case *ast.BoolNode:
		return strconv.AppendBool(out, n.Value), nil
	case *ast.IntegerNode, *ast.FloatNode:
		number := node.GetToken().Value
		if !isNumber(number) {
			return nil, errorAt(node, strconv.Quote(number)+" is no number of JSON: expected one such as 12 or 0.5, or text in quotation marks")
		}
		return append(out, number...), nil
	case *ast.StringNode:
		text = n.Value
		if n.Token.Type == token.StringType && isNumber(text) { // 1e3 without quotation marks, or more digits than the library counts
			return append(out, text...), nil
		}
	case *ast.LiteralNode:
		text = n.Value.Value
	default:
		return nil, errorAt(node, "expected a plain value: no anchor, alias, tag, infinity or NaN")
	}
	if !utf8.ValidString(text) {
		return nil, errorAt(node, "no UTF-8")
	}
	return appendText(out, text), nil
}

// isNumber reports whether a text is a number of JSON.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text))
}

// appendText writes a JSON string.
func appendText(out []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // text can always be written
	return append(out, quoted...)
}

// errorAt is a mistake where a node begins.
func errorAt(node ast.Node, reason string) *Error {
	at := node.GetToken().Position
	return &Error{at.Line, at.Column, reason}
}

// text is the rule as JSON, for package compensation to judge.
func (c Compensation) text() []byte {
	out := appendCall([]byte("{"), c.Tool, c.Arguments)
	if c.Before != nil {
		out = append(appendCall(append(out, `,"before":{`...), c.Before.Tool, c.Before.Arguments), '}')
	}
	return append(out, '}')
}

func appendCall(out []byte, tool string, arguments Arguments) []byte {
	out = appendText(append(out, `"tool":`...), tool)
	if arguments != nil {
		out = append(append(out, `,"arguments":`...), arguments...)
	}
	return out
}

// Bounds of what an agent's operator says of undoing.
const (
	maxReadOnly   = 1024
	maxCompensate = 256
)

// ownRollback is what agents.NAME.rollback may say.
const ownRollback = "own"

// undo is how the work of the agent is undone, in the words of package directory.
func (a Agent) undo() directory.Undo {
	out := directory.Undo{ReadOnly: a.ReadOnly, Own: a.Rollback == ownRollback}
	for tool, c := range a.Compensate {
		if rule, err := compensation.ParseRule(c.text()); err == nil { // Parse has judged it
			if out.Compensate == nil {
				out.Compensate = map[string]compensation.Rule{}
			}
			out.Compensate[tool] = rule
		}
	}
	return out
}

// checkUndo finds what says nothing about undoing, and rules that cannot be followed.
func (a Agent) checkUndo(path string, say func(path, reason string)) {
	if a.Rollback != "" && a.Rollback != ownRollback {
		say(path+".rollback", "expected own, or no rollback at all")
	}
	if len(a.ReadOnly) > maxReadOnly {
		say(path+".read_only", "too many tools: expected at most "+strconv.Itoa(maxReadOnly)+`, or "*" for all`)
		return
	}
	for i, tool := range a.ReadOnly {
		_, rule := a.Compensate[tool]
		switch at := path + ".read_only[" + strconv.Itoa(i) + "]"; {
		case !compensation.ValidTool(tool):
			say(at, toolReason)
		case slices.Contains(a.ReadOnly[:i], tool):
			say(at, "stands twice")
		case rule:
			say(at, strconv.Quote(tool)+" is in compensate too: expected it in one of them, because what changes nothing needs no undoing")
		case tool == directory.AllTools && len(a.Compensate) > 0:
			say(at, `"*" is every tool, and compensate has some of them: expected the names of tools that change nothing`)
		}
	}
	if len(a.Compensate) > maxCompensate {
		say(path+".compensate", "too many rules: expected at most "+strconv.Itoa(maxCompensate))
		return
	}
	for _, tool := range slices.Sorted(maps.Keys(a.Compensate)) {
		a.Compensate[tool].check(path+".compensate.'"+tool+"'", tool, say)
	}
}

const toolReason = "expected the name of a tool: text of 1 to 128 bytes without control characters"

// check judges the rule of a tool.
func (c Compensation) check(path, tool string, say func(path, reason string)) {
	switch {
	case !compensation.ValidTool(tool):
		say(path, toolReason)
	case tool == directory.AllTools:
		say(path, "a rule is for one tool: expected its name")
	case c.Tool == "":
		say(path, "tool is missing: expected the tool of the same agent that undoes the call")
	case c.Before != nil && c.Before.Tool == "":
		say(path+".before", "tool is missing: expected the tool of the same agent that reads the state")
	default:
		text := c.text()
		_, err := compensation.ParseRule(text)
		if wrong, ok := errors.AsType[*compensation.RuleError](err); ok {
			say(path+pathOf(text, wrong.Pointer), wrong.Reason)
		}
	}
}

// pathOf turns a pointer into a JSON text into the end of a path such as .'arguments'.'list'[0].
func pathOf(text []byte, pointer string) (path string) {
	var value any
	if pointer == "" || json.Unmarshal(text, &value) != nil {
		return ""
	}
	for _, name := range strings.Split(pointer, "/")[1:] {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch v := value.(type) {
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(v) {
				return path
			}
			path, value = path+"["+name+"]", v[i]
		case map[string]any:
			path, value = path+".'"+name+"'", v[name]
		}
	}
	return path
}
