package trial_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/trial"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// renewed are the names of what was issued anew.
func renewed(done trial.Renewal) []string {
	var names []string
	for _, cert := range done.Issued {
		names = append(names, cert.Name)
	}
	return names
}

// withAgent is a set-up with an agent more.
func withAgent(t *testing.T) (dir string, made time.Time) {
	t.Helper()
	dir, made = madeFolder(t)
	if _, err := at(t, dir, made).Issue([]trial.Request{{Kind: trial.KindAgent, Name: "calc", Hosts: []string{"calc.shop.test"}}}); err != nil {
		t.Fatal(err)
	}
	return dir, made
}

// TestRenew_TakesWhatIsDue: all with less than a third of their life, each with its id and names and a new key.
func TestRenew_TakesWhatIsDue(t *testing.T) {
	t.Parallel()
	dir, made := withAgent(t)
	before := contents(t, dir)
	done, err := at(t, dir, made.Add(59*oneDay)).Renew(nil)
	if err != nil || len(done.Issued) > 0 || done.Next.Before(made.Add(59*oneDay)) || done.Next.After(made.Add(61*oneDay)) {
		t.Errorf("after 59 of 90 days: %v, %v", done, err)
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("changed:\n%s", diff)
	}
	later := made.Add(61 * oneDay)
	done, err = at(t, dir, later).Renew(nil)
	if want := []string{"calc", "caller", "client", "gateway"}; err != nil || !slices.Equal(renewed(done), want) {
		t.Fatalf("after 61 of 90 days: %v, %v", renewed(done), err)
	}
	after := contents(t, dir)
	for name, id := range map[string]string{"calc": "agents/calc", "caller": "caller", "client": "operator", "gateway": "gateway"} {
		svid := vouched(t, dir, name, later)
		if string(svid.ID) != "spiffe://shop.test/"+id || svid.Expires().Before(later.Add(89*oneDay)) {
			t.Errorf("%s is %s until %s", name, svid.ID, svid.Expires())
		}
		if before[name+"-key.pem"] == after[name+"-key.pem"] {
			t.Errorf("%s has its former key", name)
		}
		if info, err := os.Stat(filepath.Join(dir, name+"-key.pem")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	named(t, vouched(t, dir, "calc", later).Chain[0], "calc.shop.test")
	named(t, vouched(t, dir, "gateway", later).Chain[0], "localhost", "127.0.0.1", "::1")
	for _, name := range []string{"ca.pem", "ca-key.pem", "gateway.yaml"} {
		if before[name] != after[name] {
			t.Errorf("%s is another", name)
		}
	}
	if len(before) != len(after) {
		t.Errorf("files are left: %d, %d", len(before), len(after))
	}
}

// TestRenew_TakesNamesAtOnce, and no others; one that has ended too.
func TestRenew_TakesNamesAtOnce(t *testing.T) {
	t.Parallel()
	dir, made := withAgent(t)
	before := contents(t, dir)
	done, err := at(t, dir, made).Renew([]string{"calc", "gateway", "calc"})
	if err != nil || !slices.Equal(renewed(done), []string{"calc", "gateway"}) {
		t.Fatalf("%v, %v", renewed(done), err)
	}
	if after := contents(t, dir); before["caller.pem"] != after["caller.pem"] || before["calc.pem"] == after["calc.pem"] {
		t.Error("another one was renewed")
	}
	ended := made.Add(100 * oneDay)
	if done, err := at(t, dir, ended).Renew([]string{"caller"}); err != nil || len(done.Issued) != 1 {
		t.Fatalf("%v, %v", done, err)
	}
	vouched(t, dir, "caller", ended)
}

// TestRenew_MendsAPair of which a renewal that was stopped has replaced the key alone, and one whose key is elsewhere
// stays as it is.
func TestRenew_MendsAPair(t *testing.T) {
	t.Parallel()
	dir, made := withAgent(t)
	files := contents(t, dir)
	write(t, dir, "gateway-key.pem", files["calc-key.pem"])
	if err := os.Remove(filepath.Join(dir, "caller-key.pem")); err != nil {
		t.Fatal(err)
	}
	var warnings strings.Builder
	if err := at(t, dir, made).PrintList(new(strings.Builder), &warnings); err != nil || warnings.String() != "warning: gateway.pem is not the certificate of gateway-key.pem: issue it anew: --renew gateway\n" {
		t.Errorf("%v, warned: %s", err, &warnings)
	}
	done, err := at(t, dir, made).Renew(nil)
	if err != nil || !slices.Equal(renewed(done), []string{"gateway"}) {
		t.Fatalf("%v, %v", renewed(done), err)
	}
	vouched(t, dir, "gateway", made)
}

// TestAttack_RenewWhatTheCADidNotSign: a certificate that was put into the folder is not signed because of what
// it says.
func TestAttack_RenewWhatTheCADidNotSign(t *testing.T) {
	t.Parallel()
	dir, made := madeFolder(t)
	for name, domain := range map[string]string{"same-domain": "shop.test", "other-domain": "other.test"} {
		stranger, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: domain})
		if err != nil {
			t.Fatal(err)
		}
		svid, err := stranger.Issue("/gateway", identity.SVIDRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if err := svid.WritePEM(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "text.pem", "no certificate")
	before := contents(t, dir)
	for name, want := range map[string]string{
		"same-domain": "is not of the CA in ca.pem", "other-domain": "is not of the CA in ca.pem", "text": "holds no certificate",
		"ca": "--renew-ca", "nothing": "there is no certificate to renew", "../gw/gateway": "is not a valid name", "..": "is not a valid name", "gateway-key": "are keys",
	} {
		if _, err := at(t, dir, made).Renew([]string{"caller", name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("changed:\n%s", diff)
	}
	later := at(t, dir, made.Add(61*oneDay))
	done, err := later.Renew(nil)
	if err != nil || !slices.Equal(renewed(done), []string{"caller", "client", "gateway"}) {
		t.Fatalf("%v, %v", renewed(done), err)
	}
	var printed strings.Builder
	if err := later.PrintRenewal(&printed, word, done); err != nil || strings.Count(printed.String(), "left alone: ") != 3 {
		t.Errorf("%v\n%s", err, &printed)
	}
}

// TestRenew_SaysThatTheCAEnds, with the command that makes a new one, in the last third of its life.
func TestRenew_SaysThatTheCAEnds(t *testing.T) {
	t.Parallel()
	dir, made := madeFolder(t)
	for days, want := range map[int]bool{240: false, 250: true} {
		f := at(t, dir, made.Add(time.Duration(days)*oneDay))
		var printed strings.Builder
		if err := f.PrintRenewal(&printed, word, trial.Renewal{}); err != nil || strings.Contains(printed.String(), "  aepb-gateway init --dir "+dir+" --renew-ca\n") != want {
			t.Errorf("after %d days: %v\n%s", days, err, &printed)
		}
	}
}

// TestRenewCA_TrustsBoth: what either CA signed is vouched for by ca.pem and by trust-bundle.json.
func TestRenewCA_TrustsBoth(t *testing.T) {
	t.Parallel()
	dir, made := withAgent(t)
	before := contents(t, dir)
	f := at(t, dir, made)
	if err := f.RenewCA(); err != nil {
		t.Fatal(err)
	}
	after := contents(t, dir)
	if after["ca-key.pem"] == before["ca-key.pem"] || !strings.HasSuffix(after["ca.pem"], before["ca.pem"]) || strings.Count(after["ca.pem"], "BEGIN CERTIFICATE") != 2 {
		t.Errorf("ca.pem is\n%s", after["ca.pem"])
	}
	if before["calc.pem"] != after["calc.pem"] {
		t.Error("an agent has another certificate before it knows the new CA")
	}
	if info, err := os.Stat(filepath.Join(dir, "ca-key.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := f.Issue([]trial.Request{{Kind: trial.KindCaller, Name: "bob"}}); err != nil {
		t.Fatal(err)
	}
	document, err := identity.ParseBundle("shop.test", []byte(after["trust-bundle.json"]))
	if err != nil {
		t.Fatal(err)
	}
	former := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(former, []byte(before["ca.pem"]), 0o600); err != nil {
		t.Fatal(err)
	}
	old, err := identity.LoadAnchors(former)
	if err != nil {
		t.Fatal(err)
	}
	for name, byOld := range map[string]bool{"calc": true, "bob": false} {
		svid := vouched(t, dir, name, made)
		if err := document.Vouches(svid, made); err != nil {
			t.Errorf("%s, by trust-bundle.json: %v", name, err)
		}
		if err := old.Vouches(svid, made); (err == nil) != byOld {
			t.Errorf("%s, by the former CA: %v", name, err)
		}
	}
	var printed strings.Builder
	if err := f.PrintRenewedCA(&printed, word); err != nil || !strings.HasSuffix(printed.String(), "  aepb-gateway init --dir "+dir+" --renew bob calc caller client gateway\n") {
		t.Errorf("%v\n%s", err, &printed)
	}
}

// TestRenewCA_Stopped between its files leaves the former key with the new ca.pem: the former CA goes on.
func TestRenewCA_Stopped(t *testing.T) {
	t.Parallel()
	dir, made := madeFolder(t)
	key := contents(t, dir)["ca-key.pem"]
	if err := at(t, dir, made).RenewCA(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "ca-key.pem", key)
	f := at(t, dir, made)
	if _, err := f.Issue([]trial.Request{{Kind: trial.KindCaller, Name: "bob"}}); err != nil {
		t.Fatal(err)
	}
	vouched(t, dir, "bob", made)
	if err := f.RenewCA(); err != nil {
		t.Fatal(err)
	}
	vouched(t, dir, "bob", made)
}

// TestPrintList_WarnsOfEnds within 14 days.
func TestPrintList_WarnsOfEnds(t *testing.T) {
	t.Parallel()
	dir, made := withAgent(t)
	for days, one := range map[int]struct {
		ends     string
		warnings int
		says     string
	}{
		0:   {"  89 days\n", 0, ""},
		75:  {"  14 days\n", 0, ""},
		77:  {"  12 days\n", 4, "warning: calc.pem ends on "},
		89:  {"  23 h\n", 4, "issue it anew: --renew gateway\n"},
		91:  {"  ended\n", 4, "warning: calc.pem ended on "},
		360: {"  4 days\n", 5, "make a new CA: --renew-ca\n"},
	} {
		var table, warnings strings.Builder
		err := at(t, dir, made.Add(time.Duration(days)*oneDay+time.Minute)).PrintList(&table, &warnings)
		if err != nil || !strings.Contains(table.String(), one.ends) || strings.Count(warnings.String(), "\n") != one.warnings || !strings.Contains(warnings.String(), one.says) {
			t.Errorf("after %d days: %v\n%s%s", days, err, &table, &warnings)
		}
	}
	var table strings.Builder
	if err := at(t, dir, made).PrintList(&table, new(strings.Builder)); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for line := range strings.SplitSeq(strings.TrimSpace(table.String()), "\n") {
		fields := strings.Fields(line)
		kinds = append(kinds, fields[0]+" "+fields[2])
	}
	want := []string{"FILE KIND", "ca.pem CA", "calc.pem agent", "caller.pem caller", "client.pem operator", "gateway.pem gateway"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
}

// TestOpen_NeedsACA and says how to make one.
func TestOpen_NeedsACA(t *testing.T) {
	t.Parallel()
	if _, err := trial.Open(t.TempDir(), time.Now); err == nil || !strings.Contains(err.Error(), "has no CA (ca.pem): name the folder with --dir, or make one with aepb-gateway init") {
		t.Errorf("got %v", err)
	}
}
