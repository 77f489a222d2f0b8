package rounds

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

const (
	maxBody    = 4 << 20
	sendTime   = 8 * time.Second // one request
	retryEvery = 150 * time.Millisecond
)

// member is an agent with a key and a certificate.
type member struct {
	id        ect.Identity
	signer    *ect.Signer
	client    *http.Client
	cert, key string // files, for aepbctl

	mu       sync.Mutex
	cutUntil time.Time
}

func newMember(trust *devgateway.Trust, dir, name string) (*member, error) {
	svid, err := trust.SVID(name)
	if err != nil {
		return nil, err
	}
	m := &member{client: trust.Client(svid), cert: filepath.Join(dir, name+".pem"), key: filepath.Join(dir, name+"-key.pem")}
	if m.signer, err = signerOf(svid); err != nil {
		return nil, err
	}
	m.id = m.signer.Issuer()
	key, err := x509.MarshalPKCS8PrivateKey(svid.PrivateKey)
	if err != nil {
		return nil, err
	}
	return m, errors.Join(
		os.WriteFile(m.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: svid.Certificate[0]}), 0o600),
		os.WriteFile(m.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
}

// signerOf signs with an SVID.
func signerOf(svid tls.Certificate) (*ect.Signer, error) {
	key, ok := svid.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || svid.Leaf == nil || len(svid.Leaf.URIs) != 1 {
		return nil, errors.New("rounds: the certificate of a member is no SVID")
	}
	return ect.NewSigner(ect.SignerDeps{Key: key, Chain: []*x509.Certificate{svid.Leaf}, Issuer: ect.Identity(svid.Leaf.URIs[0].String())})
}

// cutOff has a member reach no gateway for a time.
func (m *member) cutOff(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cutUntil = time.Now().Add(d)
}

// connected waits until a member is not cut off.
func (m *member) connected(ctx context.Context) bool {
	m.mu.Lock()
	left := time.Until(m.cutUntil)
	m.mu.Unlock()
	return left <= 0 || wait.Pause(ctx, left)
}

// answer is what one request came to.
type answer struct {
	status int
	body   []byte
}

// once sends a request to one replica.
func (g *group) once(ctx context.Context, m *member, replica int, method, path string, body []byte) (a answer, err error) {
	if !m.connected(ctx) {
		return a, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, g.Public(replica)+path, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	a.status = resp.StatusCode
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	return a, err
}

// away reports whether a request that got this answer is sent again: the replica was lost, or cannot do it now.
func away(a answer, err error) bool {
	return err != nil || a.status >= http.StatusInternalServerError || a.status == http.StatusTooManyRequests
}

// insist sends the same bytes to one random replica after the other until one answers, for at most a time.
func (g *group) insist(ctx context.Context, m *member, limit time.Duration, method, path string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		a, err := g.once(ctx, m, g.any(), method, path, body)
		if !away(a, err) {
			return a, nil
		}
		if err == nil {
			err = fmt.Errorf("%d %.300s", a.status, a.body)
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if !wait.Pause(ctx, retryEvery) {
			return a, fmt.Errorf("rounds: no replica answers %s %s within %s: %w", method, path, limit, last)
		}
	}
}

// encode signs a message and writes it as it is sent.
func encode[M signed.Content](s *ect.Signer, content M) (text []byte, hash string, err error) {
	m, err := signed.Sign(s, content)
	if err != nil {
		return nil, "", err
	}
	text, err = json.Marshal(m)
	return text, m.Hash, err
}

// view is what a gateway says of a round, as far as this act reads it.
type view struct {
	Round    string          `json:"round"`
	Phase    string          `json:"phase"`
	Opened   time.Time       `json:"opened"`
	Changed  time.Time       `json:"changed"`
	Deadline time.Time       `json:"deadline"`
	Workflow string          `json:"wid"`
	Proposed ect.ID          `json:"propose"`
	Commit   ect.ID          `json:"commit"`
	Outcome  json.RawMessage `json:"outcome"`
}

// decided reports whether a round has an outcome.
func (v view) decided() bool { return len(v.Outcome) > 0 && string(v.Outcome) != "null" }
