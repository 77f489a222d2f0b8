package stdio_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// TestAttack_ProgramWritesItsSecretIntoTheLog: a program writes the values of its variables
// for people, whole, in a line that is cut within one, and line by line, and on its output. They stand
// neither in the log nor in the error that says how it ended.
func TestAttack_ProgramWritesItsSecretIntoTheLog(t *testing.T) {
	t.Parallel()
	const secret, plain, key = "hunter2-hunter2", "postgres://u:geheim@db", "MIIEvQIBADANBg"
	folder := t.TempDir()
	file, several := filepath.Join(folder, "secret"), filepath.Join(folder, "key")
	for name, text := range map[string]string{file: secret + "\n", several: "-----BEGIN KEY-----\n" + key + "\n-----END KEY-----\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, log := newHost(t, stdio.Limits{})
	talker := program()
	talker.Env, talker.EnvFiles = map[string]string{"DB": plain, "LEVEL": "info"}, map[string]string{"TOKEN": file, "KEY": several}
	p := start(t, host, "spiffe://example.com/a", talker)
	for _, line := range []string{
		"the token is " + secret, "connected to " + plain + " at level info", key,
		strings.Repeat("x", 1<<10-10) + secret,
	} {
		if err := p.Send(t.Context(), []byte("err "+line)); err != nil {
			t.Fatal(err)
		}
	}
	p.Note([]byte("a line with " + secret))
	if err := p.Send(t.Context(), []byte("exit 3")); err != nil {
		t.Fatal(err)
	}
	err := drain(t, p)
	p.Rest()
	ended, ok := errors.AsType[*stdio.EndedError](err)
	if !ok || !strings.Contains(ended.Last, "[KEY]") {
		t.Errorf("it ended with %v", err)
	}
	text := log.String()
	for _, want := range []string{"the token is [TOKEN]", "connected to [DB] at level info", "x[TOKEN]", "a line with [TOKEN]"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	for _, value := range []string{secret[:9], plain, key} {
		if strings.Contains(text+ended.Last, value) {
			t.Errorf("%q stands in the log or in the error: %s", value, text)
		}
	}
}
