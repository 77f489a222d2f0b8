#!/usr/bin/env bash
# Makes a release of the commit that is checked out, publishes nothing, and checks it:
# GoReleaser's archives and packages, the image, that a second build for Linux in another folder
# and without a cache has the same bytes, and that the image serves as an ordinary user on a
# read-only root. GORELEASER and SYFT are the tools; OUT is where the result is left.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

work=$(mktemp -d)
cleanup() {
	jobs -p | xargs -r kill 2>/dev/null || true
	wait
	rm -rf "$work"
}
trap cleanup EXIT
mkdir "$work/bin" && ln -s "$(realpath "$SYFT")" "$work/bin/syft"
export PATH="$work/bin:$PATH"
goreleaser=$(realpath "$GORELEASER")
release() { (cd test/release && go run . "$@"); }

# clone makes a checkout of the commit with the tag of its version.
clone() {
	git clone -q . "$1"
	git -C "$1" describe --tags --exact-match >/dev/null 2>&1 || git -C "$1" tag "v$(sed -n 's/^const Version = "\(.*\)"/\1/p' cmd/release/release.go)"
}

echo "== archives, packages and image"
clone "$work/one"
(cd "$work/one" && "$goreleaser" check && "$goreleaser" release --clean --skip=publish,announce)
release image "$work/one/dist" "$work/one/image"
release check "$work/one/dist" "$work/one/image"

echo "== a second build for Linux in another folder, without a cache"
clone "$work/another/folder"
sed 's/^    goos: .*/    goos: [linux]/' .goreleaser.yaml >"$work/linux.yaml"
(cd "$work/another/folder" && GOCACHE="$work/cache" "$goreleaser" build --clean --config "$work/linux.yaml")
release image "$work/another/folder/dist" "$work/another/image"
release same "$work/one/dist" "$work/another/folder/dist"
diff -r "$work/one/image" "$work/another/image"

echo "== the image as an ordinary user on a read-only root"
root=$work/root
release unpack "$work/one/image" "$root"
go build -o "$work/bin/" ./test/cluster
cluster setup "$work/material" >/dev/null
mkdir -p "$root/run" "$root/etc/aepb" "$root/proc"
cp -r "$work/material/svid" "$root/run/svid"
cat >"$root/etc/aepb/gateway.yaml" <<-'YAML'
	public_url: https://localhost:18443
	listen: {public: "127.0.0.1:18443", admin: "127.0.0.1:19443", metrics: "127.0.0.1:9464"}
	identity: {trust_domain: example.test, certificate: /run/svid/cert.pem, key: /run/svid/key.pem, bundle: /run/svid/bundle.pem}
	admin: {operators: {first: {id: "spiffe://example.test/operator", roles: [operator]}}}
	agents:
	  calculator:
	    endpoints: [{binding: mcp-v1, url: "https://127.0.0.1:19002/mcp"}]
	    id: spiffe://example.test/agents/calculator
	    callers: ["spiffe://example.test/operator"]
YAML
chmod -R a+rX "$root"
chown -R 65532:65532 "$root/run/svid"
cluster agent "$work/material" calculator 127.0.0.1:19002 &
unshare --mount bash -c "mount --bind '$root' '$root' && mount -o remount,bind,ro '$root' && mount -t proc proc '$root/proc' && exec chroot --userspec=65532:65532 '$root' /aepb-gateway serve --config /etc/aepb/gateway.yaml" 2>"$work/log" >&2 &
gateway=$!
for _ in {1..100}; do
	"$root/aepbctl" healthz >/dev/null 2>&1 && break
	sleep 0.2
done
"$root/aepbctl" healthz || { cat "$work/log"; exit 1; }
grep -q ' / ro[, ]' "/proc/$gateway/mountinfo" || { echo "the root is not read-only"; exit 1; }
grep -qE '^Uid:\s+65532\s' "/proc/$gateway/status" || { echo "the gateway runs as another user"; exit 1; }
"$root/aepbctl" --dir "$work/material/client" --gateway https://localhost:18443 --admin https://localhost:19443 \
	send calculator --tool add --args '{"a": 1, "b": 2}' | tee "$work/answer"
grep -q '^answer: {"sum":3}' "$work/answer" && grep -q '^proof: 3 signatures valid' "$work/answer"
kill -TERM "$gateway"
wait "$gateway"

mkdir -p "$OUT"
cp -r "$work"/one/dist/*.{tar.gz,zip,deb,rpm,sbom.json,txt} "$work/one/image" "$OUT/"
ls -l "$OUT"
