package uacp

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

func (t *Translator) listed(c content, m *canonical.Message) error {
	env, ok := t.rpc(&c)
	if !ok || env.Result == nil || env.Result[0] != '{' {
		return &translators.MalformedError{Reason: "not a list of tools"}
	}
	m.Correlation.WireID = rawjson.ArrayOf([]json.RawMessage{m.Correlation.WireID, env.ID})
	o := rawjson.Parse(env.Result, "/result")
	list := &canonical.CapabilityList{Next: o.TakeText("nextCursor")}
	tools, has := o.Array("tools")
	for _, raw := range tools {
		tool := rawjson.Parse(raw, "/result/tools")
		capability := canonical.Capability{
			ID: tool.Required("name"), Profile: canonical.ProfileTyped,
			Title: tool.TakeText("title"), Description: tool.TakeText("description"),
			InputSchema: tool.RawObject("inputSchema"), OutputSchema: tool.RawObject("outputSchema"), Annotations: tool.RawObject("annotations"),
		}
		capability.Extensions = own(tool.Rest())
		if err := tool.Err(); err != nil {
			return err
		}
		list.Capabilities = append(list.Capabilities, capability)
	}
	if !has {
		o.Fail("tools", "required")
	}
	list.Extensions = own(o.Rest())
	m.Body = list
	return o.Err()
}

func (t *Translator) described(c content, m *canonical.Message) error {
	if c.empty || c.kind != contentJSON || c.json[0] != '{' {
		return &translators.MalformedError{Reason: "not a description"}
	}
	o := rawjson.Parse(c.json, "")
	d := &canonical.Description{
		Name: o.TakeText("name"), Version: o.TakeText("version"), Description: o.TakeText("description"),
	}
	if string(o.Peek(memberStreams)) == "true" {
		o.Take(memberStreams)
		d.Streams = true
	}
	d.Extensions = own(rawjson.OrEmpty(o.Rest()))
	m.Body = d
	return o.Err()
}
