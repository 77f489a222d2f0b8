package arch_test

import (
	"fmt"
	"maps"
	"strings"
)

// file is a tree of one file.
func file(name, content string) map[string]string { return map[string]string{name: content} }

// code is a tree of one Go file in package p.
func code(name, body string) map[string]string { return file(name, "package p\n"+body) }

func importing(name string, paths ...string) map[string]string {
	var b strings.Builder
	for _, target := range paths {
		fmt.Fprintf(&b, "import _ %q\n", target)
	}
	return code(name, b.String())
}

func ours(folder string) string { return module + "/" + folder }

func lines(n int) string { return strings.Repeat("\n", n) }

func files(dir string, n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("%s/f%d.go", dir, i)] = "package p\n"
	}
	return out
}

func planted() map[string]plants {
	out := plantedStructure()
	maps.Copy(out, plantedLanguage())
	return out
}

func plantedStructure() map[string]plants {
	return map[string]plants{
		"protocols": {
			bad: []map[string]string{
				code("gateway/directory/a.go", `var known = []string{"slim-v1"}`),
				code("gateway/a.go", `import "`+ours("translators/mcp")+`"`+"\nvar b = mcp.Binding"),
				code("cmd/aepb-gateway/b.go", `const b = "toy" + "mcp-v1"`),
			},
			good: []map[string]string{
				code("gateway/destination/peers.go", `var carriages = []string{"a2a-v1"}`),
				code("gateway/a.go", `import "`+ours("translators/canonical")+`"`+"\nvar b canonical.Binding // mcp-v1\nconst c = \"mcp-v1 to a2a-v1\""),
				code("gateway/a_test.go", `const b = "mcp-v1"`),
				code("translators/mcp/a.go", `const b = "mcp-v1"`),
			},
		},
		"ranks": {
			bad: []map[string]string{
				importing("gateway/destination/a.go", ours("gateway/admission")),
				importing("gateway/admission/a.go", ours("gateway")),
				importing("gateway/attest/a.go", ours("gateway/outbound")),
				importing("gateway/routing/a.go", ours("gateway/transport/peer")),
				importing("gateway/task/store/a.go", ours("gateway/task")),
				importing("gateway/a.go", ours("gateway/httpapi")),
			},
			good: []map[string]string{
				importing("gateway/admission/a.go", ours("gateway/destination")),
				importing("gateway/task/a.go", ours("gateway/task/store")),
				importing("gateway/attest/a.go", ours("gateway/transport")),
				importing("gateway/attest/a_test.go", ours("gateway/outbound")),
				importing("gateway/transport/mcp/a.go", ours("gateway/transport/egress")),
				importing("gateway/a.go", ours("gateway/rollback")),
			},
		},
		"imports": {
			bad: []map[string]string{
				importing("translators/canonical/a.go", ours("translators")),
				importing("translators/canonical/a_test.go", ours("translators/internal/rawjson")),
				importing("translators/mcp/a.go", ours("ect")),
				importing("translators/mcp/a.go", ours("policy/limit")),
				importing("ect/a.go", ours("translators/canonical")),
				importing("ect/dag/a.go", ours("gateway/problem")),
				importing("policy/a.go", ours("gateway")),
				importing("lifecycle/breaker/a.go", ours("policy")),
				importing("gateway/transport/mcp/a.go", ours("gateway")),
				importing("gateway/a.go", ours("cmd/aepb-gateway")),
				importing("gateway/a_test.go", ours("test/fakes")),
				importing("cmd/aepbctl/a.go", ours("test/fakes")),
				importing("gateway/server/a.go", ours("test/harness/gateway")),
				importing("gateway/a_test.go", ours("test/harness/gateway")),
			},
			good: []map[string]string{
				importing("gateway/server/a_test.go", ours("test/harness/gateway")),
				importing("translators/mcp/a.go", ours("translators"), ours("translators/canonical"), "net/http"),
				importing("policy/a.go", ours("ect/dag"), ours("policy/limit")),
				importing("gateway/transport/mcp/a.go", ours("gateway/transport"), ours("ect")),
				importing("gateway/a.go", ours("policy"), ours("lifecycle")),
				importing("test/matrix/a_test.go", ours("gateway"), ours("test/fakes")),
				importing("ect/a.go", module+"ly/policy"),
			},
		},
		"third parties": {
			bad: []map[string]string{
				importing("gateway/a.go", "github.com/gin-gonic/gin"),
				importing("gateway/httpapi2/a.go", "github.com/gin-gonic/gin"),
				importing("ect/a.go", "github.com/spiffe/go-spiffe/v2/spiffeid"),
				importing("translators/a2a/a_test.go", "github.com/a2aproject/a2a-go/v2/a2a"),
				importing("translators/mcp/a.go", "github.com/modelcontextprotocol/go-sdk/mcp"),
				importing("ect/a.go", "github.com/google/go-cmp/cmp"),
				importing("ect/a.go", "example.org/unheard/of"),
				{"test/other/go.mod": "", "test/a.go": importing("test/a.go", "example.org/unheard/of")["test/a.go"]},
			},
			good: []map[string]string{
				importing("gateway/httpapi/a.go", "github.com/gin-gonic/gin"),
				{"test/other/go.mod": "", "test/other/a/a.go": importing("test/other/a/a.go", "example.org/unheard/of")["test/other/a/a.go"]},
				importing("ect/a_test.go", "github.com/google/go-cmp/cmp"),
				importing("test/interop/a_test.go", "github.com/modelcontextprotocol/go-sdk/mcp", "github.com/golang-jwt/jwt/v5"),
				importing("cmd/aepb-gateway/demo/peers/a.go", "github.com/a2aproject/a2a-go/v2/a2a"),
				importing("ect/a.go", "encoding/json", ours("ect")),
			},
		},
		"pure form": {
			bad: []map[string]string{
				importing("translators/mcp/a.go", "context"),
				importing("translators/mcp/a.go", "crypto/rand"),
				code("translators/a.go", "import \"time\"\nvar _ = time.Now\n"),
				code("translators/a.go", "import t \"time\"\nfunc f() { t.Sleep(1) }\n"),
				importing("lifecycle/breaker/a.go", "sync"),
				code("lifecycle/a.go", "import \"time\"\nvar _ = time.Now\n"),
			},
			good: []map[string]string{
				importing("translators/mcp/a.go", "net/http", "time"),
				importing("translators/translatortest/a.go", "sync", "math/rand/v2"),
				importing("gateway/a.go", "context"),
				code("translators/a.go", "import \"time\"\nvar _ = time.Unix\n"),
			},
		},
		"egress": {
			bad: []map[string]string{
				code("gateway/a.go", "import \"net\"\nvar _, _ = net.Dial(\"tcp\", \"\")\n"),
				code("gateway/a.go", "import \"net\"\nvar _ net.Dialer\n"),
				code("gateway/a.go", "import n \"net\"\nvar _, _ = n.LookupHost(\"\")\n"),
				code("gateway/directory/a.go", "import \"net/http\"\nfunc f(c *http.Client) {}\n"),
				code("gateway/transport/mcp/a.go", "import \"net/http\"\nvar _, _ = http.Get(\"\")\n"),
				code("policy/a.go", "import \"crypto/tls\"\nvar _ tls.Dialer\n"),
				code("ect/a.go", "import \"os/exec\"\nvar _ = exec.Command(\"curl\")\n"),
				code("cmd/aepb-gateway/a.go", "import \"net/http\"\nvar _ http.Transport\n"),
			},
			good: []map[string]string{
				code("gateway/transport/egress/a.go", "import \"net\"\nvar _ net.Dialer\n"),
				code("cmd/aepbctl/a.go", "import \"net/http\"\nvar _ http.Client\n"),
				code("gateway/a_test.go", "import \"net/http\"\nvar _ http.Client\n"),
				code("gateway/a.go", "import (\"net\"; \"net/http\"; \"crypto/tls\")\nvar _ = http.Server{}\nvar _, _ = net.Listen(\"tcp\", \"\")\nvar _ = tls.NewListener\nvar _ http.RoundTripper\n"),
				code("gateway/a.go", "type http struct{ Client int }\nfunc f(h http) int { return h.Client }\n"),
			},
		},
		"one place": {
			bad: []map[string]string{
				code("gateway/a.go", "import \""+ours("gateway/transport")+"\"\nvar _, _ = transport.Attest(nil, nil)\n"),
				code("gateway/a.go", "import \""+ours("gateway/transport")+"\"\nvar _ transport.Dialer\n"),
				code("gateway/directory/a.go", "import \""+ours("gateway/transport")+"\"\nvar _ transport.Pusher\n"),
				code("gateway/a.go", "import \""+ours("gateway/transport")+"\"\nvar _ transport.Describer\n"),
				code("gateway/a.go", "import \""+ours("ect")+"\"\nfunc f(signer *ect.Signer) { signer.Sign(ect.Claims{}) }\n"),
				code("gateway/a.go", "import \""+ours("ect")+"\"\nfunc f(d struct{ Verifier *ect.Verifier }) { d.Verifier.Verify() }\n"),
			},
			good: []map[string]string{
				code("gateway/attest/a.go", "import (\""+ours("gateway/transport")+"\"; \""+ours("ect")+"\")\nfunc f(signer *ect.Signer) { signer.Sign(ect.Claims{}); transport.Attest(nil, nil) }\n"),
				code("gateway/outbound/a.go", "import \""+ours("gateway/transport")+"\"\nvar _ transport.Dialer\n"),
				code("gateway/directory/a.go", "import \""+ours("gateway/transport")+"\"\nvar _ transport.Describer\n"),
				code("gateway/a_test.go", "import \""+ours("gateway/transport")+"\"\nvar _ transport.Dialer\n"),
				code("gateway/a.go", "import \""+ours("gateway/transport")+"\"\nvar _ transport.Attested\n"),
			},
		},
		"sizes": {
			bad: []map[string]string{
				code("ect/a.go", lines(501)),
				code("ect/a_test.go", lines(801)),
				code("ect/a.go", "func f() {"+lines(81)+"}\n"),
				code("ect/a.go", "type I interface { A(); B(); C(); D(); E(); F() }\n"),
				files("ect", 13),
			},
			good: []map[string]string{
				code("ect/a.go", lines(400)),
				code("ect/a_test.go", lines(700)+"func TestF() {"+lines(90)+"}\n"),
				code("ect/a.go", "func f() {"+lines(79)+"}\n"),
				file("ect/a.go", "// Code generated by hand. DO NOT EDIT.\n\npackage p\n"+lines(900)),
				files("ect", 12),
			},
		},
		"short functions": {
			bad: []map[string]string{
				code("ect/a.go", "func f() {"+lines(11)+"}\nfunc g() {"+lines(30)+"}\nfunc h() {}\n"),
			},
			good: []map[string]string{
				code("ect/a.go", "func f() {}\nfunc g() {"+lines(30)+"}\nfunc h() {}\n"),
				code("test/a.go", "func g() {"+lines(30)+"}\n"),
			},
		},
		"names": {
			bad:  []map[string]string{code("ect/util/a.go", ""), file("ect/keys/a.go", "package helpers\n")},
			good: []map[string]string{file("ect/keys/a.go", "package keys\n")},
		},
		"links": {
			bad: []map[string]string{
				file("README.md", "see [a](docs/a.md)"),
				file("docs/a.md", "see [a](README.md#a)\n\n# B"),
				file("docs/a.md", "# A\n\nsee [a](#b)"),
				file("docs/a.md", "see [a](/docs/a.md)"),
				file("docs/a.md", "see [a][b]\n\n[b]: b.md"),
				file("docs/a.md", "[![a](a.svg)](https://example.org)"),
				file("docs/a.md", "# A\n```\n# B\n```\nsee [a](#b)"),
				file("docs/a.md", "# A\n# A\nsee [a](#a-2)"),
				{"docs/a.md": "see [a](../ect/a.md#two)", "ect/a.md": "# One two"},
			},
			good: []map[string]string{
				file("README.md", "[a](https://example.org/b.md#c) [m](mailto:a@example.org) `[a](b.md)`\n```\n[a](b.md)\n```\n"),
				file("docs/a.md", "# A `b_c`: [d](a.md), é-2\n# A\n## A\nsee [a](#a-b_c-d-é-2) [b](#a-1 \"t\") [c](a.md#a)\n<a id=\"x\"></a>[x](#x)"),
				{"docs/a.md": "[a](../ect) [b](../ect/a.go#L3) [c](%62.md)", "ect/a.go": "package p\n", "docs/b.md": ""},
				file("ect/testdata/a.md", "see [a](b.md)"),
			},
		},
		"test names": {
			bad: []map[string]string{
				code("policy/a_test.go", "func TestPermit(t *testing.T) {}"),
				code("policy/a_test.go", "func FuzzParse(f *testing.F) {}"),
				code("policy/a_test.go", "func TestPermit_(t *testing.T) {}"),
			},
			good: []map[string]string{
				code("policy/a_test.go", "func TestPermit_Judges(t *testing.T) {}\nfunc TestMain(m *testing.M) {}\nfunc Testing() {}"),
				code("policy/a_test.go", "func BenchmarkAdd_8_Callers(b *testing.B) {}"),
				code("policy/a.go", "func TestPermit() {}"),
			},
		},
		"top level": {
			bad:  []map[string]string{file("internal/a.go", "package p\n"), file("notes/a.md", "x"), file("NOTES.md", "x")},
			good: []map[string]string{file("LICENSE", "x"), file(".ci/run", "x"), file("docs/a.md", "x"), file("deploy/helm/a.yaml", "x"), file(".golangci.yml", "x")},
		},
		"words": {
			bad: []map[string]string{
				file("README.md", "see /wo"+"rk/notes"),
				file(".ci/run", "GOPROXY=https://proxy.go"+"lang.org"),
				file("test/interop/js/package-lock.json", `{"resolved":"https://example.org"}`),
			},
			good: []map[string]string{
				file("README.md", "lifecycle/workflow/ and work/"),
				file("test/interop/js/package-lock.json", `{"integrity":"sha512"}`),
			},
		},
	}
}

func plantedLanguage() map[string]plants {
	return map[string]plants{
		"init": {
			bad: []map[string]string{
				code("ect/a.go", "func init() {}\n"), code("ect/a_test.go", "func init() {}\n"),
				{"ect/a.pb.go": "// Code generated by hand. DO NOT EDIT.\n\npackage p\nfunc init() {}\n"},
			},
			good: []map[string]string{
				code("ect/a.go", "type t int\nfunc (t) init() {}\nfunc initial() {}\n"),
				code("gateway/transport/slim/internal/dataplane/dataplane.pb.go", "func init() {}\n"),
			},
		},
		"globals": {
			bad: []map[string]string{
				code("ect/a.go", "var count int\n"),
				code("ect/a.go", "var cache = map[string]int{}\nfunc f() { cache[\"a\"] = 1 }\n"),
				code("ect/a.go", "var list = []int{1}\nfunc f() { list = append(list, 2) }\n"),
				code("ect/a.go", "var seen = map[string]int{}\nfunc f() { delete(seen, \"a\") }\n"),
				code("ect/a.go", "var n = [1]int{}\nfunc f() *int { return &n[0] }\n"),
				code("ect/a.go", "var ErrA error\nfunc f() { ErrA = nil }\n"),
				code("ect/a.go", "var Table = []int{1}\n"),
				code("ect/a.go", "import \"regexp\"\nvar pattern = regexp.MustCompile(\"\")\n"),
				code("ect/a.go", "var m = make(map[string]int)\n"),
				{"ect/a.go": "package p\nvar x = []int{1}\n", "ect/b.go": "package p\nfunc f() { x[0]++ }\n"},
			},
			good: []map[string]string{
				code("ect/a.go", "import \"errors\"\nvar ErrA = errors.New(\"a\")\nvar errB = errors.New(\"b\")\n"),
				code("ect/a.go", "type t struct{}\nvar _ interface{} = (*t)(nil)\n"),
				code("ect/a.go", "var rows = [...]int{1, 2}\nvar byName = map[string]int{}\nvar built = build()\nfunc build() []int { return nil }\n"),
				code("ect/a.go", "import \"net/netip\"\nvar all = netip.MustParsePrefix(\"::/0\")\n"),
				code("ect/a.go", "import \"embed\"\nvar files embed.FS\n"),
				code("ect/a_test.go", "var count int\n"),
				code("gateway/transport/slim/internal/dataplane/dataplane.pb.go", "var count int\n"),
				code("ect/a.go", "var rows = []int{1}\nfunc f() int { x := rows[0]; x++; return x }\n"),
			},
		},
		"panic": {
			bad: []map[string]string{
				code("ect/a.go", "func f() { panic(1) }\n"),
				code("ect/a.go", "import \"os\"\nfunc f() { os.Exit(1) }\n"),
				code("ect/a.go", "import \"regexp\"\nfunc f() { regexp.MustCompile(\"\") }\n"),
				code("test/harness/a.go", "import \"regexp\"\nfunc f() { regexp.MustCompilePOSIX(\"\") }\n"),
				code("test/harness/a.go", "func f() { panic(1) }\n"),
			},
			good: []map[string]string{
				code("ect/a_test.go", "func f() { panic(1) }\n"),
				code("test/harness/a.go", "import \"regexp\"\nvar pattern = regexp.MustCompile(\"\")\n"),
				file("cmd/x/main.go", "package main\nimport \"os\"\nfunc main() { os.Exit(1) }\n"),
				code("ect/a.go", "// panic(1)\nfunc f() { _ = recover() }\n"),
			},
		},
		"floats": {
			bad: []map[string]string{
				code("translators/mcp/a.go", "var x float64\n"),
				code("translators/mcp/a.go", "var x map[string]any\n"),
				code("translators/mcp/a.go", "var x map[string]interface{}\n"),
				code("translators/mcp/a.go", "import \"strconv\"\nvar _, _ = strconv.ParseFloat(\"\", 64)\n"),
			},
			good: []map[string]string{
				code("translators/mcp/a_test.go", "var x float64\n"),
				code("gateway/a.go", "var x float64\n"),
				code("translators/mcp/a.go", "var x map[string]error\nvar y []any\n"),
			},
		},
		"sleep": {
			bad: []map[string]string{
				code("ect/a_test.go", "import \"time\"\nfunc f() { time.Sleep(1) }\n"),
				code("gateway/a.go", "import \"time\"\nfunc f() { time.Sleep(1) }\n"),
			},
			good: []map[string]string{
				code("ect/a_test.go", "import (\"time\"; \"testing/synctest\")\nfunc f() { time.Sleep(1); synctest.Wait() }\n"),
				code("ect/a_test.go", "import \"time\"\nvar _ = time.Now\n"),
			},
		},
		"goroutines": {
			bad: []map[string]string{code("gateway/a.go", "func f() { go f() }\n")},
			good: []map[string]string{
				code("gateway/a_test.go", "func f() { go f() }\n"),
				code("gateway/a.go", "import \"sync\"\nfunc f(g *sync.WaitGroup) { g.Go(func() {}) }\n"),
			},
		},
		"docs": {
			bad: []map[string]string{
				code("ect/a.go", ""),
				file("ect/a.go", "// Package p is.\npackage p\n\nfunc F() {}\n"),
				file("ect/a.go", "// Package p is.\npackage p\n\ntype T int\n"),
				file("ect/a.go", "// Package p is.\npackage p\n\n// T is.\ntype T int\n\nfunc (*T) F() {}\n"),
				file("ect/a.go", "// Package p is.\npackage p\n\nconst C = 1\n"),
				file("ect/a.go", "// Package p is.\npackage p\n\n// Types.\ntype (\n\tT int\n)\n"),
				file("cmd/x/main.go", "package main\n"),
			},
			good: []map[string]string{
				file("ect/a.go", "// Package p is.\npackage p\n\n// F does.\nfunc F() {}\n\n// Some.\nconst (\n\tA = 1\n\tB = 2\n)\n\ntype t int\n\nfunc (t) F() {}\n\n// E is.\ntype E int\n\nfunc (E) Error() string { return \"\" }\n"),
				file("cmd/x/main.go", "// Command x does.\npackage main\n\nfunc F() {}\n"),
				code("ect/a_test.go", "func F() {}\n"),
			},
		},
	}
}
