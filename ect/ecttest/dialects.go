package ecttest

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
)

// dialectVectors are written for readers of several revisions and say two
// things, or nothing that any of them could read.
func dialectVectors(tb testing.TB, s Situation) []Vector {
	tb.Helper()
	a, b := string(ect.NewID()), string(ect.NewID())
	list := func(ids ...string) string { return `["` + strings.Join(ids, `","`) + `"]` }
	const (
		missing   = ect.ReasonMissingClaim
		invalid   = ect.ReasonInvalidClaim
		parents   = ect.ReasonConflictingParents
		extension = ect.ReasonConflictingExt
		typ       = ect.ReasonWrongType
	)
	long := `{"k":"` + strings.Repeat("x", ect.MaxExtSize) + `"}`
	vectors := []struct {
		name    string
		reason  ect.Reason
		header  Raw
		payload Raw
	}{
		{"neither par nor pred, the older typ", missing, Raw{"typ": `"wimse-exec+jwt"`}, Raw{"par": ``}},
		{"neither par nor pred, but ect_ext", missing, nil, Raw{"par": ``, "ect_ext": `{}`}},
		{"pred under a capital name", missing, nil, Raw{"par": ``, "Pred": `[]`}},
		{"pred under all capitals", missing, nil, Raw{"par": ``, "PRED": list(a)}},
		{"parents under a name of no dialect", missing, nil, Raw{"par": ``, "parents": `[]`}},
		{"pred alone is null", invalid, nil, Raw{"par": ``, "pred": `null`}},
		{"pred alone is a string", invalid, nil, Raw{"par": ``, "pred": `"` + a + `"`}},
		{"pred alone is an object", invalid, nil, Raw{"par": ``, "pred": `{}`}},
		{"pred alone is false", invalid, nil, Raw{"par": ``, "pred": `false`}},
		{"pred alone holds a null", invalid, nil, Raw{"par": ``, "pred": `[null]`}},
		{"pred alone holds a number", invalid, nil, Raw{"par": ``, "pred": `["` + a + `",1]`}},
		{"pred alone holds a list", invalid, nil, Raw{"par": ``, "pred": `[` + list(a) + `]`}},
		{"pred alone holds no UUID", invalid, nil, Raw{"par": ``, "pred": `["task-1"]`}},
		{"pred alone holds one twice", invalid, nil, Raw{"par": ``, "pred": list(a, a)}},
		{"par and pred are null", invalid, nil, Raw{"par": `null`, "pred": `null`}},
		{"par is null, pred is good", invalid, nil, Raw{"par": `null`, "pred": `[]`}},
		{"par is a string, pred is good", invalid, nil, Raw{"par": `"` + a + `"`, "pred": list(a)}},
		{"par is good, pred is a string", parents, nil, Raw{"par": list(a), "pred": `"` + a + `"`}},
		{"par is good, pred holds a null", parents, nil, Raw{"par": `[]`, "pred": `[null]`}},
		{"pred has one more", parents, nil, Raw{"par": list(a), "pred": list(a, b)}},
		{"par has one more", parents, nil, Raw{"par": list(a, b), "pred": list(a)}},
		{"par hides what pred says", parents, nil, Raw{"par": `[]`, "pred": list(a)}},
		{"par and pred differ in case", parents, nil, Raw{"par": list(a), "pred": list(strings.ToUpper(a))}},
		{"par and pred differ, the older typ", parents, Raw{"typ": `"wimse-exec+jwt"`}, Raw{"par": list(a), "pred": list(b)}},
		{"ect_ext alone is null", invalid, nil, Raw{"ect_ext": `null`}},
		{"ect_ext alone is an array", invalid, nil, Raw{"ect_ext": `[]`}},
		{"ect_ext alone is a string", invalid, nil, Raw{"ect_ext": `"{}"`}},
		{"ect_ext alone is too large", invalid, nil, Raw{"ect_ext": long}},
		{"ect_ext alone is too deep", invalid, nil, Raw{"ect_ext": `{"1":{"2":{"3":{"4":{"5":{}}}}}}`}},
		{"ext and ect_ext are null", invalid, nil, Raw{"ext": `null`, "ect_ext": `null`}},
		{"ext and ect_ext are arrays", invalid, nil, Raw{"ext": `[]`, "ect_ext": `[]`}},
		{"ect_ext is padded beyond its size", invalid, nil, Raw{"ext": `{"k":1}`, "ect_ext": `{"k":1` + strings.Repeat(" ", ect.MaxExtSize) + `}`}},
		{"ext is an object, ect_ext is null", extension, nil, Raw{"ext": `{}`, "ect_ext": `null`}},
		{"ext is null, ect_ext is an object", extension, nil, Raw{"ext": `null`, "ect_ext": `{}`}},
		{"ect_ext has less", extension, nil, Raw{"ext": `{"k":1,"l":1}`, "ect_ext": `{"k":1}`}},
		{"ext and ect_ext spell a number two ways", extension, nil, Raw{"ext": `{"k":1}`, "ect_ext": `{"k":1.0}`}},
		{"ext and ect_ext order a list two ways", extension, nil, Raw{"ext": `{"k":[1,2]}`, "ect_ext": `{"k":[2,1]}`}},
		{"ext and ect_ext differ inside", extension, nil, Raw{"ext": `{"k":{"l":"a"}}`, "ect_ext": `{"k":{"l":"A"}}`}},
		{"ext and ect_ext differ in a null", extension, nil, Raw{"ext": `{"k":null}`, "ect_ext": `{}`}},
		{"ext and ect_ext differ in kind", extension, nil, Raw{"ext": `{"k":"1"}`, "ect_ext": `{"k":1}`}},
		{"a hash with its prefix in capitals", invalid, nil, Raw{"inp_hash": `"SHA-256:` + ect.Hash(s.Body) + `"`}},
		{"a hash of another kind", invalid, nil, Raw{"inp_hash": `"sha-384:` + ect.Hash(s.Body) + `"`}},
		{"a hash with two prefixes", invalid, nil, Raw{"out_hash": `"sha-256:sha-256:` + ect.Hash(s.Body) + `"`}},
		{"a prefix without a hash", invalid, nil, Raw{"inp_hash": `"sha-256:"`}},
		{"typ of an access token", typ, Raw{"typ": `"at+jwt"`}, nil},
		{"typ of a mandate", typ, Raw{"typ": `"application/act+jwt"`}, nil},
		{"typ without its suffix", typ, Raw{"typ": `"wimse-exec"`}, nil},
		{"typ with a parameter", typ, Raw{"typ": `"exec+jwt;v=1"`}, nil},
		{"typ with a blank", typ, Raw{"typ": `" exec+jwt"`}, nil},
		{"typ of another tree", typ, Raw{"typ": `"application/vnd.exec+jwt"`}, nil},
		{"typ under a capital name", typ, Raw{"typ": ``, "Typ": `"exec+jwt"`}, nil},
	}
	out := make([]Vector, 0, len(vectors)+2)
	for _, v := range vectors {
		out = append(out, Vector{
			Name: v.name, Reason: v.reason, Early: v.reason == typ,
			Compact: Mint(tb, s.From, Recipe{Claims: s.Claims(), Header: v.header, Payload: v.payload}),
		})
	}
	return append(out, twinVectors(tb, s)...)
}

// twinVectors have a later name twice, once in disguise.
func twinVectors(tb testing.TB, s Situation) []Vector {
	tb.Helper()
	inside := strings.TrimSuffix(merge(tb, payloadOf(tb, s.From, s.Claims()), nil), "}")
	vector := func(name, members string) Vector {
		return Vector{Name: name, Malformed: true, Compact: Mint(tb, s.From, Recipe{Claims: s.Claims(), RawPayload: inside + members + "}"})}
	}
	return []Vector{
		vector("pred twice", `,"pred":[],"pred":[]`),
		vector("pred twice, once with an escape", `,"pred":[],"\u0070red":[]`),
		vector("ect_ext twice", `,"ect_ext":{},"ect_ext":{}`),
		vector("ect_ext has a twin inside", `,"ect_ext":{"k":1,"k":1}`),
	}
}
