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
		made("provider", getProvider, setProvider, one(canonical.LossPeerInfo, "/body/provider")),
		made("interfaces", getInterfaces, setInterfaces, one(canonical.LossPeerInfo, "/body/interfaces")),
		describedList("versions", canonical.LossPeerInfo, "/body/versions", func(d *canonical.Description) *[]string { return &d.Versions }),
		describedList("input_modes", canonical.LossModes, "/body/inputModes", func(d *canonical.Description) *[]string { return &d.InputModes }),
		describedList("output_modes", canonical.LossModes, "/body/outputModes", func(d *canonical.Description) *[]string { return &d.OutputModes }),
		text("next", canonical.LossIDs, "/body/next", of(body[canonical.CapabilityList], func(l *canonical.CapabilityList) *string { return &l.Next })),
		texts("offered_versions", canonical.LossPeerInfo, "/body/versions", of(body[canonical.DescribeRequest], func(d *canonical.DescribeRequest) *[]string { return &d.Versions })),
		made("client", getClient, setClient, one(canonical.LossPeerInfo, "/body/client")),
	}
}

func getProvider(m *canonical.Message) json.RawMessage {
	d, ok := m.Body.(*canonical.Description)
	if !ok || d.Provider == nil {
		return nil
	}
	return rawjson.NewBuilder().String("organization", d.Provider.Organization).String("url", d.Provider.URL).Bytes()
}

func setProvider(m *canonical.Message, raw json.RawMessage) bool {
	d, ok := m.Body.(*canonical.Description)
	if !ok {
		return false
	}
	d.Provider = nil
	if raw == nil {
		return true
	}
	o := rawjson.Parse(raw, "")
	d.Provider = &canonical.Provider{Organization: o.Required("organization"), URL: o.Required("url")}
	return o.Err() == nil && len(o.Members()) == 0
}

func getInterfaces(m *canonical.Message) json.RawMessage {
	d, ok := m.Body.(*canonical.Description)
	if !ok || len(d.Interfaces) == 0 {
		return nil
	}
	list := make([]json.RawMessage, len(d.Interfaces))
	for i, f := range d.Interfaces {
		list[i] = rawjson.NewBuilder().String("url", f.URL).Optional("transport", f.Transport).
			Optional("version", f.Version).Optional("tenant", f.Tenant).Bytes()
	}
	return rawjson.ArrayOf(list)
}

func setInterfaces(m *canonical.Message, raw json.RawMessage) bool {
	d, ok := m.Body.(*canonical.Description)
	if !ok {
		return false
	}
	d.Interfaces = nil
	elements, ok := elementsOf(raw)
	for _, element := range elements {
		o := rawjson.Parse(element, "")
		f := canonical.Interface{URL: o.Required("url")}
		f.Transport, _ = o.String("transport")
		f.Version, _ = o.String("version")
		f.Tenant, _ = o.String("tenant")
		ok = ok && o.Err() == nil && len(o.Members()) == 0
		d.Interfaces = append(d.Interfaces, f)
	}
	return ok
}

func getClient(m *canonical.Message) json.RawMessage {
	d, ok := m.Body.(*canonical.DescribeRequest)
	if !ok || d.Client == (canonical.Party{}) {
		return nil
	}
	c := d.Client
	return rawjson.NewBuilder().Optional("id", c.ID).Optional("name", c.Name).Optional("version", c.Version).Optional("skill", c.Skill).Bytes()
}

func setClient(m *canonical.Message, raw json.RawMessage) bool {
	d, ok := m.Body.(*canonical.DescribeRequest)
	if !ok {
		return false
	}
	d.Client = canonical.Party{}
	if raw == nil {
		return true
	}
	o := rawjson.Parse(raw, "")
	d.Client.ID, _ = o.String("id")
	d.Client.Name, _ = o.String("name")
	d.Client.Version, _ = o.String("version")
	d.Client.Skill, _ = o.String("skill")
	return o.Err() == nil && len(o.Members()) == 0
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

func getCapabilities(m *canonical.Message) json.RawMessage {
	return writeList(capabilities(m), writeCapability)
}

// writeList writes a list; nil: it is empty, or there is none.
func writeList[T any](list *[]T, write func(*T) json.RawMessage) json.RawMessage {
	if list == nil || len(*list) == 0 {
		return nil
	}
	out := make([]json.RawMessage, len(*list))
	for i := range *list {
		out[i] = write(&(*list)[i])
	}
	return rawjson.ArrayOf(out)
}

func writeCapability(c *canonical.Capability) json.RawMessage {
	return rawjson.NewBuilder().String("id", c.ID).Optional("title", c.Title).Optional("description", c.Description).
		Optional("profile", string(c.Profile)).Raw("input_schema", c.InputSchema).Raw("output_schema", c.OutputSchema).
		Raw("annotations", c.Annotations).Strings("tags", c.Tags, false).Strings("examples", c.Examples, false).
		Strings("input_modes", c.InputModes, false).Strings("output_modes", c.OutputModes, false).
		Raw("ext", profile.WriteExt(c.Extensions, "")).Bytes()
}

func setCapabilities(m *canonical.Message, raw json.RawMessage) bool {
	return readList(capabilities(m), raw, readCapability)
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
	said, _ := o.String("profile")
	c.Profile = canonical.Profile(said)
	c.InputSchema, c.OutputSchema, c.Annotations = o.Take("input_schema"), o.Take("output_schema"), o.Take("annotations")
	c.Tags, _ = o.Strings("tags")
	c.Examples, _ = o.Strings("examples")
	c.InputModes, _ = o.Strings("input_modes")
	c.OutputModes, _ = o.Strings("output_modes")
	ok = true
	if ext := o.Take("ext"); ext != nil {
		c.Extensions, ok = profile.ReadExt(ext, "")
	}
	return c, ok && o.Err() == nil && len(o.Members()) == 0
}
