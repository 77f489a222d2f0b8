package arch_test

import (
	"fmt"
	"go/ast"
	"slices"
)

// ownPlaces are names that only some folders may use: what attests to a message, and what
// dials.
var ownPlaces = []struct {
	pkg     string
	names   []string
	folders []string
	because string
}{
	{
		"gateway/transport",
		[]string{"Attest", "Open", "Vouch"},
		[]string{"gateway/attest", "gateway/transport/transporttest"},
		"what is forwarded or answered has its token on record, which package attest alone knows",
	},
	{
		"gateway/transport",
		[]string{"Dialer", "Pusher", "Callbacks"},
		[]string{"gateway/outbound", "gateway/transport", "gateway/server"},
		"all that leaves passes the stages of package outbound: send it with an outbound.Sender",
	},
	{
		"gateway/transport",
		[]string{"Describer"},
		[]string{"gateway/directory", "gateway/outbound", "gateway/transport", "gateway/server"},
		"the directory alone asks agents who they are, by what outbound.Describers gives: ask the directory",
	},
}

// onePlaceLaw: what stands in ownPlaces is used there alone, and evidence is signed and
// verified by package attest alone.
func onePlaceLaw(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		if s.test || s.in("test") {
			continue
		}
		s.uses(func(n ast.Node, pkg, name string) {
			for _, own := range ownPlaces {
				if pkg == module+"/"+own.pkg && slices.Contains(own.names, name) && !s.in(own.folders...) {
					failures = append(failures, fmt.Sprintf("%s: %s.%s: %s", s.at(n), own.pkg, name, own.because))
				}
			}
		})
	}
	below := slices.DeleteFunc(slices.Clone(t.below()), func(s *source) bool { return s.in("gateway/attest") })
	for _, at := range slices.Concat(callsOn(below, "signer", "Sign", "SignAs").worst, callsOn(below, "verifier", "Verify").worst) {
		failures = append(failures, at+": evidence is signed and verified by package attest alone")
	}
	return failures
}
