package proof

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// Names of the files of a folder or archive of evidence. Messages are below messages/.
const (
	Format        = "aepb-evidence/1"
	manifestFile  = "manifest.json"
	signatureFile = "manifest.jwt"
	tokensFile    = "tokens.jwt"
	anchorsFile   = "ca.pem"
	messageFolder = "messages/"
)

const (
	maxFiles                = 10_000
	maxPadding              = 1 << 20                  // bytes behind the last file of an archive
	maxUnpacked             = maxInput + maxFiles*2048 // bytes of an archive with its headers
	folderMode  fs.FileMode = 0o700
	fileMode    fs.FileMode = 0o600

	// ActExport is the act of the token that signs a manifest.
	ActExport ect.Act = "export_evidence"
)

// manifest lists what a folder or archive of evidence holds. The out_hash of the token beside it is its hash.
type manifest struct {
	Format    string       `json:"format"`
	Made      time.Time    `json:"made"`
	By        ect.Identity `json:"by"`
	Workflows []string     `json:"workflows"`
	Files     []listed     `json:"files"`
}

// listed is a file of a manifest.
type listed struct {
	Name   string     `json:"name"`
	Role   audit.Role `json:"role,omitempty"` // of a message
	Bytes  int        `json:"bytes"`
	SHA256 string     `json:"sha256"` // hexadecimal
}

// Contents is what is to be kept.
type Contents struct {
	Tokens   []string
	Anchors  []*x509.Certificate
	Messages []Message
	By       ect.Identity
	Made     time.Time
	// Sign signs the manifest: a token with the act ActExport whose out_hash is that of the text.
	Sign func(text []byte) (compact string, err error)
}

// Message is a message to be kept, byte for byte.
type Message struct {
	Name string // a file name without folders
	Role audit.Role
	Body []byte
}

// files makes the files of a folder or archive of evidence, by name.
func (c Contents) files() (map[string][]byte, error) {
	var anchors bytes.Buffer
	for _, one := range c.Anchors {
		if err := pem.Encode(&anchors, &pem.Block{Type: "CERTIFICATE", Bytes: one.Raw}); err != nil {
			return nil, err
		}
	}
	out := map[string][]byte{tokensFile: []byte(strings.Join(c.Tokens, "\n") + "\n"), anchorsFile: anchors.Bytes()}
	roles := map[string]audit.Role{}
	for _, m := range c.Messages {
		name := messageFolder + m.Name
		if out[name] != nil {
			return nil, fmt.Errorf("two messages are called %s: rename one of the files", terminal.Word(m.Name))
		}
		out[name], roles[name] = m.Body, m.Role
	}
	list := manifest{Format: Format, Made: c.Made.UTC().Truncate(time.Second), By: c.By, Workflows: workflowsOf(c.Tokens)}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		list.Files = append(list.Files, listed{name, roles[name], len(out[name]), sumOf(out[name])})
	}
	text, err := json.Marshal(list, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	signature, err := c.Sign(text)
	if err != nil {
		return nil, err
	}
	out[manifestFile], out[signatureFile] = text, []byte(signature+"\n")
	return out, nil
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func workflowsOf(tokens []string) []string {
	found := map[string]bool{}
	for _, compact := range tokens {
		if claims, _, err := ect.ParseUnverified(compact); err == nil && claims.Workflow != "" {
			found[claims.Workflow] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// SaveFolder writes evidence into a folder, which is made, or is empty.
func (c Contents) SaveFolder(dir string) error {
	content, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(content) > 0 {
		return fmt.Errorf("%s is not empty: give a folder that is not there yet", terminal.Word(dir))
	}
	files, err := c.files()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), folderMode); err != nil {
			return err
		}
		file, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode) // a link that another program puts there meanwhile is not followed
		if err != nil {
			return err
		}
		_, err = file.Write(files[name])
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// WriteArchive writes evidence as a tar file, compressed with gzip.
func (c Contents) WriteArchive(w io.Writer) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(w)
	out := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: name, Mode: int64(fileMode), Size: int64(len(files[name])), ModTime: c.Made.Truncate(time.Second)}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(files[name]); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), zip.Close())
}

// readFolder reads the files of a folder of evidence, by their names with slashes. It reads nothing outside of the folder.
func readFolder(dir string) (map[string][]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	files, left := map[string][]byte{}, maxInput
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is no regular file: give a folder of files alone", terminal.Word(filepath.Join(dir, name)))
		case len(files) >= maxFiles || info.Size() > int64(left):
			return errTooMuch
		}
		data, err := root.ReadFile(name)
		files[name], left = data, left-len(data)
		return err
	})
	return files, errors.Join(err, root.Close())
}

var errTooMuch = fmt.Errorf("it holds more than %d files or %d MiB", maxFiles, maxInput>>20)

// readArchive unpacks an archive in memory.
func readArchive(data []byte) (map[string][]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("it is no archive: %w", err)
	}
	files, left := map[string][]byte{}, int64(maxInput)
	for in := tar.NewReader(&limited{zip, maxUnpacked}); ; {
		header, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return files, atEnd(zip)
		case errors.Is(err, errTooMuch):
			return nil, errTooMuch
		case err != nil:
			return nil, fmt.Errorf("it is no archive: %w", err)
		}
		name := path.Clean(header.Name)
		switch {
		case header.Typeflag == tar.TypeDir:
			continue
		case header.Typeflag != tar.TypeReg:
			return nil, fmt.Errorf("%s in it is no regular file", terminal.Word(name))
		case files[name] != nil:
			return nil, fmt.Errorf("%s is twice in it: which of them counts is not known", terminal.Word(name))
		case len(files) >= maxFiles || header.Size > left:
			return nil, errTooMuch
		}
		content, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("it is no archive: %w", err)
		}
		files[name], left = append([]byte{}, content...), left-int64(len(content))
	}
}

// limited reads so many bytes, and fails at more: also headers cost time to unpack.
type limited struct {
	from io.Reader
	left int
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooMuch
	}
	n, err := l.from.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// atEnd reads what follows the last file: padding, the checksum, and nothing else.
func atEnd(zip *gzip.Reader) error {
	rest, err := io.ReadAll(io.LimitReader(zip, maxPadding+1))
	if err == nil && (len(rest) > maxPadding || len(bytes.Trim(rest, "\x00")) > 0) {
		err = errors.New("something follows the end of the archive, and was not looked at")
	}
	return errors.Join(err, zip.Close())
}

// pack is a folder or archive of evidence that was read.
type pack struct {
	name    string
	list    manifest
	text    []byte // of the manifest
	token   string // that signs it; empty: there is none
	anchors []byte
}

// unpack reads the files of a folder or archive, and compares them with its manifest.
func (in *Input) unpack(r Reader, name string, files map[string][]byte) error {
	text, there := files[manifestFile]
	if !there {
		return fmt.Errorf("%s holds no evidence: expected a folder of aepbctl send --save or an archive of aepbctl evidence export, with a %s", terminal.Word(name), manifestFile)
	}
	p := pack{name: name, text: text, token: strings.TrimSpace(string(files[signatureFile])), anchors: files[anchorsFile]}
	if err := json.Unmarshal(text, &p.list, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%s of %s cannot be read: %w", manifestFile, terminal.Word(name), err)
	}
	if p.list.Format != Format {
		return fmt.Errorf("%s of %s has the format %q, expected %q", manifestFile, terminal.Word(name), p.list.Format, Format)
	}
	in.files(r, p, files)
	tokens := strings.Fields(string(files[tokensFile]))
	if !slices.Equal(workflowsOf(tokens), p.list.Workflows) {
		in.find(audit.Contradicted, "%s of %s lists the workflows %s, its tokens are of %s", manifestFile, name, strings.Join(p.list.Workflows, ", "), strings.Join(workflowsOf(tokens), ", "))
	}
	if len(tokens) == 0 {
		in.find(audit.Incomplete, "%s of %s holds no token", tokensFile, name)
	}
	in.Whole = true
	in.packs = append(in.packs, p)
	return in.tokens(tokensFile+" of "+name, tokens)
}

// files compares the files of a pack with its manifest, and takes its messages.
func (in *Input) files(r Reader, p pack, files map[string][]byte) {
	known := map[string]bool{manifestFile: true, signatureFile: true}
	for _, f := range p.list.Files {
		data, there := files[f.Name]
		twice := known[f.Name]
		known[f.Name] = true
		switch {
		case twice:
			in.find(audit.Contradicted, "%s of %s lists %s twice", manifestFile, p.name, f.Name)
			continue
		case !there:
			in.find(audit.Incomplete, "%s of %s is missing: its manifest lists it", f.Name, p.name)
			continue
		case sumOf(data) != f.SHA256 || len(data) != f.Bytes:
			in.find(audit.Contradicted, "%s of %s was changed: its SHA-256 is %s, the manifest has %s", f.Name, p.name, sumOf(data), f.SHA256)
		}
		in.file(r, p, f, data)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !known[name] {
			in.find(audit.NotCompared, "%s of %s is not in its manifest, and was not looked at", name, p.name)
		}
	}
}

// file takes a message. Tokens and the CA are compared elsewhere, and nothing else is part of evidence.
func (in *Input) file(r Reader, p pack, f listed, data []byte) {
	name, message := strings.CutPrefix(f.Name, messageFolder)
	role := f.Role
	if role == "" && (name == string(audit.RequestRole) || name == string(audit.ReplyRole)) {
		role = audit.Role(name) // an archive of messages that aepbctl send kept
	}
	switch {
	case message && !strings.Contains(name, "/") && (role == "" || role == audit.RequestRole || role == audit.ReplyRole):
		m := r.Message(f.Name, role, data, false)
		m.Of = p.name
		in.Messages = append(in.Messages, m)
	case f.Role != "" && f.Role != audit.RequestRole && f.Role != audit.ReplyRole:
		in.find(audit.NotCompared, "%s of %s is said to be %q: expected request or reply", f.Name, p.name, f.Role)
	case f.Name != tokensFile && f.Name != anchorsFile:
		in.find(audit.NotCompared, "%s of %s was not looked at: it is no part of evidence; remove it", f.Name, p.name)
	}
}

// judge judges what a pack says of itself: who signed its manifest, and which CA was trusted.
func (p pack) judge(ctx context.Context, verifier audit.Verifier, anchors []*x509.Certificate) (findings []audit.Finding) {
	find := func(kind audit.Kind, format string, args ...any) {
		findings = append(findings, audit.Finding{Kind: kind, Text: fmt.Sprintf(format, args...)})
	}
	switch signed := audit.Verify(ctx, verifier, []string{p.token})[0]; {
	case p.token == "":
		find(audit.Incomplete, "%s of %s is missing: the manifest is not signed, and anybody can have changed it", signatureFile, p.name)
	case !signed.Verified():
		find(audit.NotVerified, "%s of %s: %s", signatureFile, p.name, signed.Problem)
	case signed.Claims.Act != ActExport || signed.Claims.OutputHash != ect.Hash(p.text):
		find(audit.Contradicted, "%s of %s was changed after it was signed", manifestFile, p.name)
	case signed.Claims.Issuer != p.list.By:
		find(audit.Contradicted, "%s of %s says that %s made it, and %s signed it", manifestFile, p.name, p.list.By, signed.Claims.Issuer)
	}
	var certificates []byte
	for block, rest := pem.Decode(p.anchors); block != nil; block, rest = pem.Decode(rest) {
		certificates = append(certificates, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes})...)
		if !slices.ContainsFunc(anchors, func(one *x509.Certificate) bool { return bytes.Equal(one.Raw, block.Bytes) }) {
			find(audit.Contradicted, "%s of %s holds a CA that you do not trust, with the SHA-256 %s: give it with --ca if you know that it was the CA", anchorsFile, p.name, sumOf(block.Bytes))
		}
	}
	switch {
	case len(p.anchors) == 0:
		find(audit.Incomplete, "%s of %s is missing", anchorsFile, p.name)
	case !bytes.Equal(certificates, p.anchors):
		find(audit.NotCompared, "%s of %s holds more than certificates as this program writes them, and that was not looked at", anchorsFile, p.name)
	}
	return findings
}
