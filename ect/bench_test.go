package ect_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/ect"
)

// translation is what the gateway signs for every message.
func translation(s *scene) ect.Claims {
	c := s.Claims()
	c.Act, c.Parents, c.InputHash = ect.ActTranslate, []ect.ID{ect.NewID()}, ect.Hash([]byte("in"))
	c.Ext = ect.Ext{}
	c.Ext.SetString(ect.ExtSourceProtocol, "a2a-v1")
	c.Ext.SetString(ect.ExtDestProtocol, "mcp-v1")
	c.Ext.SetString(ect.ExtGatewayID, self)
	c.Ext.SetString(ect.ExtLeg, "request")
	c.Ext.SetWarnings([]string{"L05 dropped /params/configuration/historyLength"})
	return c
}

func BenchmarkSign_Translation(b *testing.B) {
	s := newScene(b)
	signer, c := s.From.Signer(b, s.clock), translation(s)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := signer.Sign(c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify_Translation(b *testing.B) {
	s := newScene(b)
	d := s.deps()
	d.Replay = fixedReplay{state: ect.ReplayFresh}
	verifier, check := verifierOf(b, d), s.source()
	token, err := s.From.Signer(b, s.clock).Sign(translation(s))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verifier.Verify(b.Context(), token.Compact(), check); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseUnverified_Translation(b *testing.B) {
	s := newScene(b)
	token, err := s.From.Signer(b, s.clock).Sign(translation(s))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := ect.ParseUnverified(token.Compact()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseRecorded_Translation(b *testing.B) {
	s := newScene(b)
	token, err := s.From.Signer(b, s.clock).Sign(translation(s))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ect.ParseRecorded(token.Compact()); err != nil {
			b.Fatal(err)
		}
	}
}
