package apikey_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/apikey"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

const (
	domain = "example.org"
	caller = ect.Identity("spiffe://example.org/reports")
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// made is a new key that works for an hour from noon on.
func made(tb testing.TB, id string) (apikey.Key, string) {
	tb.Helper()
	key, text, err := apikey.New(id, caller, noon, noon.Add(time.Hour))
	if err != nil {
		tb.Fatal(err)
	}
	return key, text
}

// showing is a request with these lines of a header.
func showing(lines ...string) credential.Request {
	header := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		header.Add(name, value)
	}
	return credential.Request{Fields: header.Values}
}

func TestKeys_Caller(t *testing.T) {
	t.Parallel()
	key, text := made(t, "ci")
	keys := apikey.NewKeys([]apikey.Key{key}, func() time.Time { return noon })
	for name, r := range map[string]credential.Request{
		"bearer":                   showing("Authorization: Bearer " + text),
		"another spelling":         showing("authorization:  bearer  " + text + " "),
		"field":                    showing("X-API-Key: " + text),
		"beside a basic password":  showing("X-API-Key: "+text, "Authorization: Basic YTpi"),
		"beside another's API key": showing("X-API-Key: sk-1", "Authorization: Bearer "+text), // which some clients send to every server
		"beside a query":           {Fields: showing("X-API-Key: " + text).Fields, Query: "a=1&b=aepb_c"},
	} {
		got, ok, err := keys.Caller(r)
		if err != nil || !ok || got.ID != caller || got.Key != nil || got.Anonymous || !got.Until.Equal(key.Until) || !keys.Known(r) {
			t.Errorf("%s: got %+v, %t, %v", name, got, ok, err)
		}
	}
	for name, r := range map[string]credential.Request{
		"nothing": showing(), "another token": showing("Authorization: Bearer eyJ.e.y"), "another key": showing("X-API-Key: sk-1"),
		"another scheme": showing("Authorization: Basic " + text), "two other tokens": showing("Authorization: Bearer a", "Authorization: Bearer b"),
		"in capitals": showing("X-API-Key: " + strings.ToUpper(text)), "another query": {Fields: showing().Fields, Query: "key=aepb_ci_short;%"},
	} {
		if got, ok, err := keys.Caller(r); ok || err != nil || got.ID != "" || keys.Known(r) {
			t.Errorf("%s: got %+v, %t, %v", name, got, ok, err)
		}
	}
}

func TestKeys_Refused(t *testing.T) {
	t.Parallel()
	first, text := made(t, "ci")
	second, other := made(t, "cd")
	_, unknown := made(t, "zz")
	_, wrong := made(t, "ci")
	keys := apikey.NewKeys([]apikey.Key{first, second}, func() time.Time { return noon })
	later := apikey.NewKeys([]apikey.Key{first}, func() time.Time { return first.Until })
	field := func(text string) credential.Request { return showing("X-API-Key: " + text) }
	for name, c := range map[string]struct {
		keys *apikey.Keys
		r    credential.Request
		want identity.CredentialReason
	}{
		"ended":                  {later, field(text), identity.CredentialExpired},
		"ended, wrong secret":    {later, field(wrong), identity.CredentialUnknownKey},
		"unknown id":             {keys, field(unknown), identity.CredentialUnknownKey},
		"wrong secret":           {keys, field(wrong), identity.CredentialUnknownKey},
		"secret of another":      {keys, field("aepb_ci_" + strings.TrimPrefix(other, "aepb_cd_")), identity.CredentialUnknownKey},
		"no keys at all":         {apikey.NewKeys(nil, nil), field(text), identity.CredentialUnknownKey},
		"no keys, empty secret":  {apikey.NewKeys(nil, nil), field("aepb_ci_" + strings.Repeat("A", 43)), identity.CredentialUnknownKey},
		"no secret":              {keys, field("aepb_ci"), identity.CredentialMalformed},
		"no id":                  {keys, field("aepb__" + strings.Repeat("A", 43)), identity.CredentialMalformed},
		"prefix alone":           {keys, field("aepb_"), identity.CredentialMalformed},
		"id in capitals":         {keys, field("aepb_CI" + text[len("aepb_ci"):]), identity.CredentialMalformed},
		"not UTF-8":              {keys, field("aepb_\xff" + text[len("aepb_c"):]), identity.CredentialMalformed},
		"secret not UTF-8":       {keys, field(text[:len(text)-1] + "\xff"), identity.CredentialInvalidEncoding},
		"short secret":           {keys, field(text[:len(text)-1]), identity.CredentialInvalidEncoding},
		"padded":                 {keys, field(text + "="), identity.CredentialInvalidEncoding},
		"line break":             {keys, field(text + "\n"), identity.CredentialInvalidEncoding},
		"other bits at the end":  {keys, field(text[:len(text)-1] + "B"), identity.CredentialInvalidEncoding}, // B ends no 32 bytes
		"too long":               {keys, field("aepb_" + strings.Repeat("a", 33) + text[len("aepb_ci"):]), identity.CredentialTooLong},
		"very long":              {keys, field("aepb_" + strings.Repeat("a", 1<<20)), identity.CredentialTooLong},
		"two in one line":        {keys, field(text + ", " + other), identity.CredentialTooLong},
		"in both fields":         {keys, showing("X-API-Key: "+text, "Authorization: Bearer "+text), identity.CredentialRepeated},
		"two in both":            {keys, showing("X-API-Key: "+text, "Authorization: Bearer "+other), identity.CredentialRepeated},
		"twice":                  {keys, showing("X-API-Key: "+text, "X-API-Key: "+text), identity.CredentialRepeated},
		"beside another token":   {keys, showing("X-API-Key: "+text, "Authorization: Bearer eyJ.e.y"), identity.CredentialRepeated},
		"beside another key":     {keys, showing("X-API-Key: "+text, "X-API-Key: sk-1"), identity.CredentialRepeated},
		"two bearers":            {keys, showing("Authorization: Bearer "+text, "Authorization: Bearer "+other), identity.CredentialRepeated},
		"beside a bearer":        {keys, showing("Authorization: Bearer "+text, "Authorization: Bearer eyJ.e.y"), identity.CredentialRepeated},
		"beside an identity":     {keys, showing("X-API-Key: "+text, "Workload-Identity-Token: eyJ.e.y"), identity.CredentialRepeated},
		"in the query":           {keys, credential.Request{Fields: showing().Fields, Query: "api_key=" + text}, identity.CredentialInURL},
		"in the query, coded":    {keys, credential.Request{Fields: showing().Fields, Query: "x=1&k=" + strings.ReplaceAll(text, "_", "%5F")}, identity.CredentialInURL},
		"in the query, no value": {keys, credential.Request{Fields: showing().Fields, Query: text}, identity.CredentialInURL},
		"unknown in the query":   {keys, credential.Request{Fields: showing().Fields, Query: "k=" + unknown}, identity.CredentialInURL},
		"in query and field":     {keys, credential.Request{Fields: field(text).Fields, Query: "k=" + text}, identity.CredentialInURL},
	} {
		got, ok, err := c.keys.Caller(c.r)
		refused, is := errors.AsType[*identity.CredentialError](err)
		if !is || refused.Reason != c.want || refused.Foreign || ok || got.ID != "" {
			t.Errorf("%s: got %+v, %t, %v, want %s", name, got, ok, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "aepb_") || strings.Contains(err.Error(), text[len("aepb_ci_"):len("aepb_ci_")+8])) {
			t.Errorf("%s: the error quotes the key: %v", name, err)
		}
	}
	last := apikey.NewKeys([]apikey.Key{first}, func() time.Time { return first.Until.Add(-time.Nanosecond) })
	if _, ok, err := last.Caller(field(text)); !ok || err != nil {
		t.Errorf("just before its end: %t, %v", ok, err)
	}
}

func TestNew_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		id     string
		caller ect.Identity
		life   time.Duration
		member string
	}{
		"long id":       {strings.Repeat("a", 33), caller, time.Hour, "id"},
		"underscore":    {"a_b", caller, time.Hour, "id"},
		"no caller":     {"a", "", time.Hour, "caller"},
		"trust domain":  {"a", "spiffe://example.org", time.Hour, "caller"},
		"no SPIFFE id":  {"a", "https://example.org/a", time.Hour, "caller"},
		"the nameless":  {"a", "spiffe://example.org/anonymous", time.Hour, "caller"},
		"ended already": {"a", caller, 0, "until"},
	} {
		_, text, err := apikey.New(c.id, c.caller, noon, noon.Add(c.life))
		if wrong, is := errors.AsType[*apikey.KeyError](err); !is || wrong.Member != c.member || text != "" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	one, _ := made(t, "")
	two, _ := made(t, "")
	if one.ID == "" || one.ID == two.ID {
		t.Errorf("ids %q and %q, expected random ones", one.ID, two.ID)
	}
}

func TestFile_ReadsWhatItWrites(t *testing.T) {
	t.Parallel()
	first, text := made(t, "ci")
	second, _ := made(t, "")
	for _, keys := range [][]apikey.Key{{}, {first}, {first, second}} {
		data, err := apikey.Format(keys)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(text[len("aepb_ci_"):])) {
			t.Error("the file has the secret")
		}
		file := filepath.Join(t.TempDir(), "keys.yaml")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := apikey.Load(file, domain); err != nil || !slices.Equal(got, keys) && len(keys) > 0 {
			t.Errorf("got %v, %v, want %v", got, err, keys)
		}
	}
	if _, err := apikey.Load(filepath.Join(t.TempDir(), "x"), domain); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if got, err := apikey.Parse([]byte("# nothing yet\n"), domain); err != nil || len(got) != 0 {
		t.Errorf("a comment alone: %v, %v", got, err)
	}
}

func TestFile_Refused(t *testing.T) {
	t.Parallel()
	key, _ := made(t, "ci")
	written, err := apikey.Format([]apikey.Key{key})
	if err != nil {
		t.Fatal(err)
	}
	good := string(written)
	salt := base64.RawURLEncoding.EncodeToString(make([]byte, 16))
	with := func(member, value string) string {
		lines := strings.Split(good, "\n")
		for i, line := range lines {
			if before, _, ok := strings.Cut(line, member+": "); ok {
				lines[i] = before + member + ": " + value
			}
		}
		return strings.Join(lines, "\n")
	}
	if _, err := apikey.Parse([]byte(with("salt", salt)), domain); err != nil {
		t.Fatalf("another salt: %v", err)
	}
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"two equal ids":        {good + good[strings.Index(good, "- id"):], `apikey: key 2: apikey: id: is also that of key 1`},
		"another trust domain": {with("caller", "spiffe://elsewhere.org/x"), "not of our own trust domain"},
		"no caller":            {with("caller", `""`), "caller"},
		"the nameless":         {with("caller", "spiffe://example.org/anonymous"), "without credentials"},
		"bad id":               {with("id", "A"), "id"},
		"number as a time":     {with("until", "5"), "until"},
		"no time":              {with("created", "yesterday"), "created"},
		"end before begin":     {with("until", "2020-01-01T00:00:00Z"), "until"},
		"short salt":           {with("salt", salt[1:]), "salt"},
		"padded salt":          {with("salt", salt+"=="), "salt"},
		"long hash":            {with("hash", salt+salt+salt), "hash"},
		"no hash":              {with("hash", "null"), "hash"},
		"unknown member":       {good + "  secret: x\n", "one YAML list"},
		"member twice":         {good + "  id: x\n", "one YAML list"},
		"not a list":           {"id: x\n", "one YAML list"},
		"a list of texts":      {"- a\n", "one YAML list"},
		"null":                 {"- null\n", "one YAML list"},
		"an alias":             {strings.Replace(good, "- id", "- &a\n  id", 1) + "- *a\n", "one YAML list"},
		"two documents":        {good + "---\n" + good, "one YAML list"},
		"not YAML":             {"- {", "one YAML list"},
		"a number":             {"5", "one YAML list"},
		"too many":             {strings.Repeat("- {}\n", apikey.MaxKeys+1), "more than 10000"},
		"too long":             {strings.Repeat("#", apikey.MaxFile+1), "longer than"},
		"not UTF-8":            {with("caller", "\"spiffe://example.org/\xff\""), ""},
	} {
		_, err := apikey.Parse([]byte(c.text), domain)
		if wrong, is := errors.AsType[*apikey.FileError](err); !is || !strings.Contains(wrong.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func FuzzFile_Parse(f *testing.F) {
	key, _ := made(f, "ci")
	good, err := apikey.Format([]apikey.Key{key})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("[]"))
	f.Add([]byte("- &a {id: x}\n- *a\n"))
	f.Add([]byte("- {<<: *a, id: [1, {b: 2}]}\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := apikey.Parse(data, domain)
		if err != nil {
			if _, is := errors.AsType[*apikey.FileError](err); !is || keys != nil {
				t.Fatalf("got %v, %T", keys, err)
			}
			return
		}
		seen := map[string]bool{}
		for _, k := range keys {
			if seen[k.ID] || !strings.HasPrefix(string(k.Caller), "spiffe://example.org/") || !k.Created.Before(k.Until) {
				t.Fatalf("%+v", k)
			}
			seen[k.ID] = true
		}
		text, err := apikey.Format(keys)
		if err != nil {
			return // longer than it was
		}
		if again, err := apikey.Parse(text, domain); err != nil || len(again) != len(keys) {
			t.Fatalf("read again: %d of %d, %v", len(again), len(keys), err)
		}
	})
}

func FuzzKeys_Caller(f *testing.F) {
	key, text := made(f, "ci")
	keys := apikey.NewKeys([]apikey.Key{key}, func() time.Time { return noon })
	f.Add("Bearer "+text, "", "")
	f.Add("", text, "")
	f.Add("Bearer a", "sk", "k="+text)
	f.Add("bearer aepb_ci_", "aepb_\xff", "%zz;&=")
	f.Fuzz(func(t *testing.T, authorization, field, query string) {
		header := http.Header{"Authorization": {authorization}, "X-Api-Key": {field}}
		got, ok, err := keys.Caller(credential.Request{Fields: header.Values, Query: query})
		refused, is := errors.AsType[*identity.CredentialError](err)
		switch {
		case err != nil && (!is || ok || got.ID != "" || refused.Foreign):
			t.Fatalf("got %+v, %t, %T", got, ok, err)
		case ok != (got.ID == caller):
			t.Fatalf("got %+v, %t", got, ok)
		case ok && !strings.Contains(authorization+field, text[len("aepb_ci_"):]):
			t.Fatal("found without the secret")
		case err != nil && strings.Contains(err.Error(), "aepb_"):
			t.Fatalf("the error quotes the key: %v", err)
		}
	})
}
