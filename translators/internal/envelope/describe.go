package envelope

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

func described(name, path string, at func(*canonical.Description) *string) field {
	return text(name, canonical.LossPeerInfo, path, of(body[canonical.Description], at))
}

func describedList(name string, code canonical.LossCode, path string, at func(*canonical.Description) *[]string) field {
	return texts(name, code, path, of(body[canonical.Description], at))
}

func describeFields() []field {
	return []field{
		described("name", "/body/name", func(d *canonical.Description) *string { return &d.Name }),
		described("title", "/body/title", func(d *canonical.Description) *string { return &d.Title }),
		described("version", "/body/version", func(d *canonical.Description) *string { return &d.Version }),
		described("description", "/body/description", func(d *canonical.Description) *string { return &d.Description }),
		described("instructions", "/body/instructions", func(d *canonical.Description) *string { return &d.Instructions }),
		described("documentation_url", "/body/documentationURL", func(d *canonical.Description) *string { return &d.DocumentationURL }),
		described("icon_url", "/body/iconURL", func(d *canonical.Description) *string { return &d.IconURL }),
		optional("provider", canonical.LossPeerInfo, "/body/provider",
			of(body[canonical.Description], func(d *canonical.Description) **canonical.Provider { return &d.Provider }), writeProvider, readProvider),
		list("interfaces", canonical.LossPeerInfo, "/body/interfaces",
			of(body[canonical.Description], func(d *canonical.Description) *[]canonical.Interface { return &d.Interfaces }), writeInterface, readInterface),
		describedList("versions", canonical.LossPeerInfo, "/body/versions", func(d *canonical.Description) *[]string { return &d.Versions }),
		describedList("input_modes", canonical.LossModes, "/body/inputModes", func(d *canonical.Description) *[]string { return &d.InputModes }),
		describedList("output_modes", canonical.LossModes, "/body/outputModes", func(d *canonical.Description) *[]string { return &d.OutputModes }),
		text("next", canonical.LossIDs, "/body/next", of(body[canonical.CapabilityList], func(l *canonical.CapabilityList) *string { return &l.Next })),
		texts("offered_versions", canonical.LossPeerInfo, "/body/versions", of(body[canonical.DescribeRequest], func(d *canonical.DescribeRequest) *[]string { return &d.Versions })),
		member("client", canonical.LossPeerInfo, "/body/client",
			of(body[canonical.DescribeRequest], func(d *canonical.DescribeRequest) *canonical.Party { return &d.Client }), writeClient, readClient),
	}
}

func writeProvider(p *canonical.Provider) json.RawMessage {
	return rawjson.NewBuilder().String("organization", p.Organization).String("url", p.URL).Bytes()
}

func readProvider(raw json.RawMessage) (canonical.Provider, bool) {
	o := rawjson.Parse(raw, "")
	p := canonical.Provider{Organization: o.Required("organization"), URL: o.Required("url")}
	return p, o.Err() == nil && len(o.Members()) == 0
}

func writeInterface(f *canonical.Interface) json.RawMessage {
	return rawjson.NewBuilder().String("url", f.URL).Optional("transport", f.Transport).
		Optional("version", f.Version).Optional("tenant", f.Tenant).Bytes()
}

func readInterface(raw json.RawMessage) (f canonical.Interface, ok bool) {
	o := rawjson.Parse(raw, "")
	f.URL = o.Required("url")
	f.Transport, _ = o.String("transport")
	f.Version, _ = o.String("version")
	f.Tenant, _ = o.String("tenant")
	return f, o.Err() == nil && len(o.Members()) == 0
}

func writeClient(c canonical.Party) json.RawMessage {
	if c == (canonical.Party{}) {
		return nil
	}
	return rawjson.NewBuilder().Optional("id", c.ID).Optional("name", c.Name).Optional("version", c.Version).Optional("skill", c.Skill).Bytes()
}

func readClient(raw json.RawMessage) (c canonical.Party, ok bool) {
	o := rawjson.Parse(raw, "")
	c.ID, _ = o.String("id")
	c.Name, _ = o.String("name")
	c.Version, _ = o.String("version")
	c.Skill, _ = o.String("skill")
	return c, o.Err() == nil && len(o.Members()) == 0
}

func capabilities(m *canonical.Message) *[]canonical.Capability {
	switch body := m.Body.(type) {
	case *canonical.Description:
		return &body.Capabilities
	case *canonical.CapabilityList:
		return &body.Capabilities
	default:
		return nil
	}
}

// writeList writes a list; nil: it is empty, or there is none.
func writeList[T any](list *[]T, write func(*T) json.RawMessage) json.RawMessage {
	if list == nil || len(*list) == 0 {
		return nil
	}
	return rawjson.ArrayOf(rawjson.List(*list, write))
}

func writeCapability(c *canonical.Capability) json.RawMessage {
	return rawjson.NewBuilder().String("id", c.ID).Optional("title", c.Title).Optional("description", c.Description).
		Optional("profile", string(c.Profile)).Raw("input_schema", c.InputSchema).Raw("output_schema", c.OutputSchema).
		Raw("annotations", c.Annotations).Strings("tags", c.Tags, false).Strings("examples", c.Examples, false).
		Strings("input_modes", c.InputModes, false).Strings("output_modes", c.OutputModes, false).
		Raw("ext", profile.WriteExt(c.Extensions, "")).Bytes()
}

// readList reads what writeList wrote; false: it did not write that, or there is no
// place for it.
func readList[T any](list *[]T, raw json.RawMessage, read func(json.RawMessage) (T, bool)) bool {
	if list == nil {
		return false
	}
	*list = nil
	elements, ok := elementsOf(raw)
	for _, element := range elements {
		one, fits := read(element)
		ok = ok && fits
		*list = append(*list, one)
	}
	return ok
}

func readCapability(raw json.RawMessage) (c canonical.Capability, ok bool) {
	o := rawjson.Parse(raw, "")
	c.ID = o.Required("id")
	c.Title, _ = o.String("title")
	c.Description, _ = o.String("description")
	value, _ := o.String("profile")
	c.Profile = canonical.Profile(value)
	c.InputSchema, c.OutputSchema, c.Annotations = o.Take("input_schema"), o.Take("output_schema"), o.Take("annotations")
	c.Tags, _ = o.Strings("tags")
	c.Examples, _ = o.Strings("examples")
	c.InputModes, _ = o.Strings("input_modes")
	c.OutputModes, _ = o.Strings("output_modes")
	c.Extensions, ok = takeExt(o, true)
	return c, ok && o.Err() == nil && len(o.Members()) == 0
}
