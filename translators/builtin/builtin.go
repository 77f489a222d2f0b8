package builtin

import (
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Forms makes the codec of every protocol, in the order of their registry (AEPB,
// AEPB Protocol Binding Registry), with the bounds given; zero fields take their
// defaults.
func Forms(cfg translators.Config) []translators.Translator {
	return []translators.Translator{a2a.New(cfg), mcp.New(cfg), slim.New(cfg), uacp.New(cfg), ainp.New(cfg)}
}
