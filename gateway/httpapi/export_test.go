package httpapi

import (
	"reflect"

	"github.com/aepb/aepb-gateway/policy"
)

// RoleFor is the role that a request below /api needs.
func RoleFor(method, path string) policy.Role {
	need, _ := rolesFor(method, path)
	return need
}

// Bodies are the types of bodies that this package writes or reads itself, by their name in the OpenAPI document.
func Bodies() map[string]reflect.Type {
	return map[string]reflect.Type{
		"CapabilityDocument":   reflect.TypeFor[capabilityDocument](),
		"ProtocolEntry":        reflect.TypeFor[protocolEntry](),
		"GatewayDocument":      reflect.TypeFor[gatewayDocument](),
		"Pair":                 reflect.TypeFor[pairName](),
		"WorkflowPage":         reflect.TypeFor[workflowPage](),
		"WorkflowList":         reflect.TypeFor[workflowList](),
		"CallbackRegistration": reflect.TypeFor[registration](),
		"Negotiation":          reflect.TypeFor[negotiationDocument](),
		"Outcome":              reflect.TypeFor[outcomeDocument](),
		"Candidate":            reflect.TypeFor[candidateDocument](),
		"LifecycleAnswer":      reflect.TypeFor[lifecycleAnswer](),
	}
}
