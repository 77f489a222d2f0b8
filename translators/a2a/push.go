package a2a

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// push reads push notification settings.
func (d *decoder) push(raw json.RawMessage, path string) *canonical.PushConfig {
	config := d.config(d.open(raw, path, pushMembers))
	return &config
}

func (d *decoder) config(r *reader) canonical.PushConfig {
	c := canonical.PushConfig{ID: r.text("id"), TaskID: r.text("taskId"), URL: r.text("url"), Token: r.text("token")}
	if c.URL == "" {
		r.fail("url", "required")
	}
	if raw := r.value("authentication"); raw != nil {
		a := d.open(raw, r.Path("authentication"), authMembers)
		c.Scheme, c.Credentials = a.text("scheme"), a.text("credentials")
		rest := a.leftover()
		if rest == nil && c.Scheme == "" && c.Credentials == "" {
			rest = json.RawMessage("{}")
		}
		if rest != nil {
			r.keep("authentication", rest)
		}
	}
	c.Extensions = result(nil, r.leftover())
	return c
}

func (e *encoder) config(c *canonical.PushConfig, tenant, path string) json.RawMessage {
	w := newWriter(c.Extensions[Binding], pushMembers)
	w.text("tenant", tenant)
	w.text("id", c.ID)
	w.text("taskId", c.TaskID)
	w.text("url", c.URL)
	w.text("token", c.Token)
	form := w.form("authentication")
	switch {
	case rawjson.IsObject(form), c.Scheme != "", c.Credentials != "":
		a := newWriter(objectOrNil(form), authMembers)
		a.text("scheme", c.Scheme)
		a.text("credentials", c.Credentials)
		w.b.Raw("authentication", a.bytes())
	case string(form) == "null":
		w.b.Raw("authentication", form)
	}
	for binding := range c.Extensions {
		if binding != Binding {
			e.drop(canonical.LossExtension, path+"/extensions/"+string(binding))
		}
	}
	return w.bytes()
}

func readPushCreate(d *decoder, m *canonical.Message, r *reader) {
	m.Conversation.Tenant = r.text("tenant")
	request := &canonical.PushRequest{Verb: canonical.VerbCreate, Config: d.config(r)}
	m.Body = request
	if request.Config.TaskID == "" {
		r.fail("taskId", "required")
	}
}

// readPushOne reads which settings are meant. 0.3 need not say which of a task's.
func readPushOne(verb canonical.Verb) func(*decoder, *canonical.Message, *reader) {
	return func(_ *decoder, m *canonical.Message, r *reader) {
		m.Conversation.Tenant = r.text("tenant")
		request := &canonical.PushRequest{Verb: verb}
		m.Body = request
		request.Config.ID, request.Config.TaskID = r.text("id"), r.text("taskId")
		if request.Config.TaskID == "" {
			r.fail("taskId", "required")
		}
		if request.Config.ID == "" && (m.Origin.Version != Version03 || verb == canonical.VerbDelete) {
			r.fail("id", "required")
		}
		request.Extensions = result(nil, r.leftover())
	}
}

func readPushList(_ *decoder, m *canonical.Message, r *reader) {
	m.Conversation.Tenant = r.text("tenant")
	request := &canonical.PushRequest{Verb: canonical.VerbList, Cursor: r.text("pageToken"), Size: r.count("pageSize")}
	m.Body = request
	if request.Config.TaskID = r.text("taskId"); request.Config.TaskID == "" {
		r.fail("taskId", "required")
	}
	request.Extensions = result(nil, r.leftover())
}

// pushRequest writes a request about settings. Settings themselves go to no
// agent: their credentials are the caller's webhook's.
func (e *encoder) pushRequest(p *canonical.PushRequest) (json.RawMessage, error) {
	tenant := e.m.Conversation.Tenant
	e.preferences()
	e.dropQuery(p.Extensions)
	if p.Verb == canonical.VerbCreate {
		if !e.home {
			return nil, &canonical.Error{Code: canonical.CodePushUnsupported, Message: "push notification settings go to no agent: leave them out"}
		}
		return e.config(&p.Config, tenant, "/body/config"), nil
	}
	w := newWriter(p.Extensions[Binding], append(pushMembers, "pageSize", "pageToken"))
	w.text("tenant", tenant)
	if p.Verb != canonical.VerbList {
		w.text("id", p.Config.ID)
	}
	w.text("taskId", p.Config.TaskID)
	if p.Verb == canonical.VerbList {
		w.count("pageSize", p.Size)
		w.text("pageToken", p.Cursor)
	}
	return w.bytes(), nil
}

// pushResult reads what was answered about settings: one, a list, or nothing.
func (d *decoder) pushResult(m *canonical.Message, raw json.RawMessage) {
	if string(raw) == "null" { // for want of anything to say
		m.Body = &canonical.Done{}
		m.Losses = append(m.Losses, canonical.Loss{Code: canonical.LossBytes, Path: "/body", Fate: canonical.Dropped})
		return
	}
	known := pushMembers
	if o := rawjson.Parse(raw, ""); o.Has("configs") {
		known = pushesMembers
	}
	r := d.open(raw, "/result", known)
	switch {
	case r.Has("configs"):
		list := &canonical.PushList{Configs: []canonical.PushConfig{}}
		for i, element := range r.list("configs") {
			list.Configs = append(list.Configs, *d.push(element, at("/result/configs", i)))
		}
		list.Next = r.text("nextPageToken")
		list.Extensions = result(nil, r.leftover())
		m.Body = list
	case r.Has("url"):
		m.Conversation.Tenant = r.text("tenant")
		config := d.config(r)
		m.Body = &config
	default:
		m.Body = &canonical.Done{Extensions: result(nil, r.Rest())}
	}
}

func (e *encoder) pushList(l *canonical.PushList) json.RawMessage {
	w := newWriter(l.Extensions[Binding], pushesMembers)
	configs := make([]json.RawMessage, len(l.Configs))
	for i := range l.Configs {
		configs[i] = e.config(&l.Configs[i], "", at("/body/configs", i))
	}
	if form := w.form("configs"); len(configs) > 0 || form == nil || form[0] == '[' {
		w.b.Array("configs", configs)
	} else {
		w.b.Raw("configs", form)
	}
	w.text("nextPageToken", l.Next)
	e.dropQuery(l.Extensions)
	return w.bytes()
}
