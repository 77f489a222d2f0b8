package evidence

import (
	"context"
	"encoding/hex"
	"math"
	"math/bits"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
)

// maxLooked is after how many records, and groups of them, a page of workflows ends.
const maxLooked = 512

// Workflows lists the workflows with a record whose token was issued at or after the second of since; a token that
// cannot be read counts. Their order is that of the digests of their ids, each comes once, and the cursor is
// the key of the group of records that is next: nothing is kept for a list.
func (s *Store) Workflows(_ context.Context, since time.Time, after string, limit int) (wids []string, next string, err error) {
	var at Key
	if after != "" {
		b, err := hex.DecodeString(after)
		if err != nil || len(b) != KeySize {
			return nil, "", ect.ErrCursor
		}
		at = ReadKey(b)
	}
	limit = min(max(limit, 1), ect.MaxListed)
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, err := s.begin()
	if err != nil {
		return nil, "", err
	}
	defer s.end(&v, &err)
	search := search{headers: &s.headers, view: &v, since: since.Unix(), now: encoding.Nanos(s.deps.Now())}
	for looked := 0; ; {
		group, members, found := v.next(Listed, at)
		if !found {
			return wids, "", nil
		}
		if len(wids) == limit || looked >= maxLooked {
			return wids, hex.EncodeToString(group.AppendBinary(nil)), nil
		}
		looked++
		if group.N == 0 { // on disk, what is known of a workflow is before its records
			at = group.next()
			continue
		}
		looked += bits.OnesCount64(members)
		wid, found, err := search.workflow(group.N, members)
		switch {
		case err != nil:
			return nil, "", err
		case found:
			wids = append(wids, wid)
			group.N = math.MaxUint64 // its other groups are behind us
		}
		at = group.next()
	}
}

// search looks for records that came since a time.
type search struct {
	headers *headers
	view    *view
	parser  ect.RecordParser
	since   int64 // in seconds, as iat
	now     int64
}

// workflow is that of a group of records; not found: none of them came since then. The latest are looked at first.
func (s *search) workflow(group, members uint64) (wid string, found bool, err error) {
	for members != 0 {
		last := 63 - bits.LeadingZeros64(members)
		members &^= 1 << last
		r, err := s.headers.read(s.view, serialIn(group, 1<<last))
		if err != nil {
			return "", false, err
		}
		if encoding.Nanos(r.Until) < s.now {
			continue
		}
		claims, unread := s.parser.Parse(r.Compact)
		if late := unread != nil || claims.IssuedAt >= s.since; late {
			return r.Workflow, true, nil
		}
	}
	return "", false, nil
}
