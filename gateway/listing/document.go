package listing

import (
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// DocumentOf is the document of an agent.
func DocumentOf(agent directory.Agent) admindoc.Agent {
	doc := admindoc.Agent{
		Name: agent.Name, ID: string(agent.ID), Callers: agent.Rules.Callers,
		RequireECT: agent.Rules.RequireECT, TimeoutSeconds: int(agent.Timeout / time.Second),
		Capability: agent.Capability, Pin: agent.Pin, Expose: agent.Expose,
		Tools: agent.Rules.Tools, ToolNames: agent.Rules.Names.All(), Endpoints: []admindoc.Endpoint{},
	}
	for _, e := range agent.Endpoints {
		doc.Endpoints = append(doc.Endpoints, admindoc.Endpoint{
			Binding: string(e.Binding), Version: e.Version, URL: e.URL, Priority: max(0, e.Priority), GRPC: e.GRPC, Through: string(e.Through),
			Form: e.Form, DID: e.DID, Signature: e.Signature,
		})
	}
	return doc
}

// AgentOf is the agent of a document, for the directory to judge. Where open, an agent
// without callers is open to everybody.
func AgentOf(doc admindoc.Agent, open bool) directory.Agent {
	agent := directory.Agent{
		Name: doc.Name, ID: ect.Identity(doc.ID), Timeout: seconds(doc.TimeoutSeconds), Capability: doc.Capability, Pin: doc.Pin, Expose: doc.Expose,
		Rules: policy.Rules{Callers: doc.Callers, RequireECT: doc.RequireECT, Open: open && len(doc.Callers) == 0, Tools: doc.Tools, Names: policy.NewNames(doc.ToolNames)},
	}
	for _, e := range doc.Endpoints {
		agent.Endpoints = append(agent.Endpoints, directory.Endpoint{
			Binding: canonical.Binding(e.Binding), Version: e.Version, URL: e.URL, Priority: e.Priority, GRPC: e.GRPC, Through: ect.Identity(e.Through),
			Form: e.Form, DID: e.DID, Signature: e.Signature,
		})
	}
	return agent
}

// seconds keeps what no duration can hold out of range, for the directory to refuse.
func seconds(n int) time.Duration {
	return time.Duration(max(-1, min(n, int(directory.MaxTimeout/time.Second)+1))) * time.Second
}
