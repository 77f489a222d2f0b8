package translators_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
)

type notifier = translators.Notifier

// able is a translator with all optional interfaces.
type able struct {
	named
	translators.InputStyler
	translators.Tunneled
	translators.ChangeNotifier
	notifier
	translators.Historian
	translators.ResourceProvider
	translators.HeaderMirror
	translators.Namer
	translators.Signaler
	translators.Stamper
	translators.TaskStyler
}

// teller implements one of them.
type teller struct {
	named
	translators.Historian
}

// TestFeaturesOf_Asserted: what a translator implements is there, and nothing else.
func TestFeaturesOf_Asserted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		codec translators.Translator
		has   func(field string) bool
	}{
		"all":    {able{named: "a"}, func(string) bool { return true }},
		"one":    {teller{named: "b"}, func(field string) bool { return field == "Historian" }},
		"no one": {named("c"), func(string) bool { return false }},
		"nil":    {nil, func(string) bool { return false }},
	} {
		f := reflect.ValueOf(translators.FeaturesOf(c.codec)).Elem()
		for i := range f.NumField() {
			if field := f.Type().Field(i).Name; f.Field(i).IsNil() == c.has(field) {
				t.Errorf("%s: %s is there: %t", name, field, !f.Field(i).IsNil())
			}
		}
	}
}

// TestFeatures_OfRegistry: those of a protocol are known; one that is not spoken has
// none.
func TestFeatures_OfRegistry(t *testing.T) {
	t.Parallel()
	r, err := translators.NewRegistry(able{named: "a"}, named("b"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Features("a").Historian == nil || r.Features("b").Historian != nil {
		t.Error("features are not those of the protocol")
	}
	if f := r.Features("unknown"); f == nil || f.Historian != nil {
		t.Errorf("of an unknown protocol: %+v", f)
	}
}

// TestAmong_Offers: of what is wanted an agent tells what it offers.
func TestAmong_Offers(t *testing.T) {
	t.Parallel()
	all := translators.NotificationFilter{Tools: true, Prompts: true, Resources: true, URIs: []string{"a", "b"}}
	for name, c := range map[string]struct {
		offer translators.NotificationFilter
		tools bool
		uris  []string
		quiet bool
	}{
		"nothing":       {translators.NotificationFilter{}, false, nil, true},
		"tools":         {translators.NotificationFilter{Tools: true}, true, nil, false},
		"any resource":  {translators.NotificationFilter{Any: true}, false, []string{"a", "b"}, false},
		"all that is":   {translators.NotificationFilter{Tools: true, Prompts: true, Resources: true, Any: true}, true, []string{"a", "b"}, false},
		"its log alone": {translators.NotificationFilter{Log: true}, false, nil, true},
	} {
		got := all.Among(c.offer)
		if got.Tools != c.tools || len(got.URIs) != len(c.uris) || got.Quiet() != c.quiet {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// halver hashes the first half of a body.
type halver struct{ made *int }

func (halver) HashForm() string { return "half" }

func (h halver) HashInput(body []byte) ([]byte, error) {
	if *h.made++; len(body)%2 != 0 {
		return nil, errors.New("no half")
	}
	return body[:len(body)/2], nil
}

// TestHashed_MadeOnce: the form of a body is made once, also for the same message again, and
// another body is hashed anew.
func TestHashed_MadeOnce(t *testing.T) {
	t.Parallel()
	made := 0
	w := translators.Wire{Body: []byte("abcd"), Hasher: halver{&made}}.Hashed().Hashed()
	if got := string(w.HashInput()) + string(w.HashInput()); got != "abab" || made != 1 {
		t.Errorf("%s, made %d times", got, made)
	}
	w.Body = []byte("efgh")
	if got := string(w.HashInput()); got != "ef" || made != 2 {
		t.Errorf("another body: %s, made %d times", got, made)
	}
	w = translators.Wire{Body: []byte("abc"), Hasher: halver{&made}}.Hashed()
	if got := string(w.HashInput()); got != "abc" {
		t.Errorf("a body without that form: %s", got)
	}
	for want, plain := range map[string]translators.Wire{
		"body": {Body: []byte("body"), Verb: "POST", Path: "/p"}, "/p": {Verb: "GET", Path: "/p"}, "": {},
	} {
		if got := string(plain.Hashed().HashInput()); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

// streamer streams in another way in one version.
type streamer struct{ named }

func (streamer) StreamsIn(version string) translators.Streams {
	if version == "1" {
		return translators.StreamsTask
	}
	return translators.StreamsReply
}

// TestStreamsOf_Version: by the version where that decides, else as the protocol says.
func TestStreamsOf_Version(t *testing.T) {
	t.Parallel()
	got := []translators.Streams{translators.StreamsOf(streamer{}, "1"), translators.StreamsOf(streamer{}, "2"), translators.StreamsOf(named("a"), "1")}
	if diff := cmp.Diff([]translators.Streams{translators.StreamsTask, translators.StreamsReply, translators.StreamsNone}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestSame_Wanted(t *testing.T) {
	t.Parallel()
	wanted := translators.NotificationFilter{Tools: true, URIs: []string{"a"}, Level: "debug"}
	if !wanted.Same(translators.NotificationFilter{Tools: true, URIs: []string{"a"}}) || wanted.Same(translators.NotificationFilter{Tools: true, URIs: []string{"b"}}) || wanted.Same(translators.NotificationFilter{URIs: []string{"a"}}) {
		t.Error("what is wanted is compared otherwise")
	}
}

// TestSide_RoundTrip: what a side is written as is read again.
func TestSide_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a2a-v1", "a2a-v1@0.3"} {
		if got := translators.ParseSide(text).String(); got != text {
			t.Errorf("%s is written as %s", text, got)
		}
	}
}

// TestErrors_Match: errors of codecs match what they stand for, and say the reason.
func TestErrors_Match(t *testing.T) {
	t.Parallel()
	long := &translators.TooLongError{Reason: "it has 9 bytes, at most 8"}
	if !errors.Is(long, translators.ErrTooLarge) || long.Error() != "it has 9 bytes, at most 8" {
		t.Errorf("too long: %v", long)
	}
	cause := errors.New("cause")
	if notice := (&translators.UnreadableNoticeError{Err: cause}); !errors.Is(notice, cause) || notice.Error() != "cause" {
		t.Errorf("unreadable: %v", notice)
	}
}
