package ect_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

func FuzzECT_Parse(f *testing.F) {
	s := newScene(f)
	f.Add(s.Good(f))
	f.Add(ecttest.MintUnsigned(f, s.From, ecttest.Recipe{Claims: s.Claims()}))
	for i, vector := range ecttest.Vectors(f, s.Situation) {
		if i%7 == 0 {
			f.Add(vector.Compact)
		}
	}
	f.Fuzz(func(t *testing.T, compact string) {
		c, _, err := ect.ParseUnverified(compact)
		if err != nil {
			wantOurs(t, err)
			return
		}
		part := strings.Split(compact, ".")
		for _, text := range part {
			raw, err := base64.RawURLEncoding.DecodeString(text)
			if err != nil || base64.RawURLEncoding.EncodeToString(raw) != text {
				t.Error("a second spelling was accepted")
			}
		}
		wantClaims(t, c)
		payload := part[0]
		if len(part) == 3 {
			payload = part[1]
		}
		raw, _ := base64.RawURLEncoding.DecodeString(payload)
		var oracle map[string]json.RawMessage
		if json.Unmarshal(raw, &oracle) != nil {
			t.Fatal("what is no JSON was accepted")
		}
		var id string
		if json.Unmarshal(oracle["jti"], &id) != nil || id != string(c.ID) {
			t.Errorf("jti: got %q, want %q", c.ID, id)
		}
	})
}

// wantOurs demands that a refusal is one of the three kinds, and quotes nothing.
func wantOurs(t *testing.T, err error) {
	t.Helper()
	var malformed *ect.MalformedError
	var invalid *ect.InvalidError
	var large *ect.TooLargeError
	if !errors.As(err, &malformed) && !errors.As(err, &invalid) && !errors.As(err, &large) {
		t.Errorf("an error of another kind: %T", err)
	}
}

func wantClaims(t *testing.T, c ect.Claims) {
	t.Helper()
	if len(c.ID) != 36 || c.Act == "" || c.Parents == nil || len(c.Parents) > 100 || slices.Contains(c.Parents, c.ID) {
		t.Errorf("got %+v", c)
	}
	if c.IssuedAt <= 0 || c.Expires <= c.IssuedAt {
		t.Errorf("got times %d, %d", c.IssuedAt, c.Expires)
	}
	for _, hash := range []string{c.InputHash, c.OutputHash} {
		if hash != "" && len(hash) != 43 {
			t.Errorf("got hash %q", hash)
		}
	}
	size := 0
	for key, value := range c.Ext {
		size += len(key) + len(value)
	}
	if size > ect.MaxExtSize { // reading a key takes its escapes away and only makes it shorter
		t.Errorf("got %d bytes of ext", size)
	}
}

func FuzzHeader_Parse(f *testing.F) {
	for _, seed := range []string{"", "a.b.c", "a.b.c, d.e.f", ",,\t", "eyJ9", "a.b", "a.b.c\r\n", "a.b.c\na.b.c,,x", strings.Repeat("a,", 40)} {
		f.Add(seed, 64, 256, 4)
	}
	f.Fuzz(func(t *testing.T, lines string, token, total, count int) {
		limits := ect.Limits{Token: token, Total: total, Count: count}
		got, err := ect.ParseHeader(strings.Split(lines, "\n"), limits)
		if err != nil {
			wantOurs(t, err)
			return
		}
		limits = limits.WithDefaults()
		if len(got) > limits.Count || len(strings.Join(got, "")) > limits.Total {
			t.Errorf("%d tokens are beyond the limits", len(got))
		}
		for _, one := range got {
			if one == "" || len(one) > limits.Token || strings.ContainsAny(one, " \t\r\n,=+/") {
				t.Errorf("got %q", one)
			}
		}
		again, err := ect.ParseHeader(got, limits)
		if err != nil || !slices.Equal(again, got) {
			t.Errorf("parsed again: %q, %v", again, err)
		}
	})
}
