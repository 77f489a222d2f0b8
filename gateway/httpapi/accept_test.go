package httpapi

import "testing"

func TestPreferred_AcceptHeader(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"":                                       mediaJSON,
		"*/*":                                    mediaJSON,
		"application/*":                          mediaJSON,
		"application/json":                       mediaJSON,
		"application/jwt":                        mediaJWT,
		"Application/JWT":                        mediaJWT,
		"application/jwt, application/json":      mediaJSON, // equals: ours first
		"application/json;q=0.5,application/jwt": mediaJWT,
		"application/jwt;q=0.5,*/*":              mediaJSON,
		"application/jwt;q=0.9, */*;q=0.1":       mediaJWT,
		"application/*;q=0.2, application/jwt;q=0.1":       mediaJSON,
		"application/json;q=0, */*":                        mediaJWT, // the specific one wins over the wild one
		"application/json;q=0":                             "",
		"text/html":                                        "",
		"text/html, */*;q=0.001":                           mediaJSON,
		"application/jwt;q=1.5, application/json;q=0.1":    mediaJSON,
		"application/jwt;q=x":                              "",
		"application/jwt;q=0.1234, application/json;q=0.1": mediaJSON,
		"application/jwt; Q = 0.3 , application/json;q=.2": mediaJWT,
		"application/jwt;level=1;q=0":                      "",
	} {
		var fields []string
		if accept != "" {
			fields = []string{accept}
		}
		if got := preferred(fields, mediaJSON, mediaJWT); got != want {
			t.Errorf("%q: got %q, want %q", accept, got, want)
		}
	}
	if got := preferred([]string{"text/html", "application/jwt"}, mediaJSON, mediaJWT); got != mediaJWT {
		t.Errorf("two fields: %q", got)
	}
}

func FuzzAccept_Preferred(f *testing.F) {
	f.Add("application/jwt;q=0.5, */*;q=0.1")
	f.Add(";;q=,,=;")
	f.Fuzz(func(t *testing.T, field string) {
		if got := preferred([]string{field}, mediaJSON, mediaJWT); got != "" && got != mediaJSON && got != mediaJWT {
			t.Errorf("%q is no offer", got)
		}
	})
}
